//! Operations of the application that take long: each fold is done once, and several at a time.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use everfold::{Config, Outcome, ReducerBody, Session, Sum};
use serde::{Deserialize, Serialize};

use crate::suite::Suite;

const PING: Duration = Duration::from_millis(20);
/// The master looks for late tasks a dozen times meanwhile, and once more after them for whoever takes longer
/// than others.
const FOLD: Duration = PING.saturating_mul(30);

/// Folds that this process has begun.
static FOLDS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn add_to(suite: &mut Suite) {
    let quick = || Config::default().ping_interval(PING);
    suite.job_with(quick(), "slow::folds_of_two", 2, |session| slow_folds(session, 1));
    suite.job_with(quick(), "slow::folds_of_eight", 8, |session| slow_folds(session, 3));
}

/// How many contributions are in it, and how many folds lie between them and the result at most.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Slow {
    count: u32,
    height: u32,
    padding: Vec<u8>,
}

impl ReducerBody for Slow {
    fn combine(&mut self, other: Self) {
        FOLDS.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(FOLD);
        *self = Self {
            count: self.count + other.count,
            height: self.height.max(other.height) + 1,
            padding: other.padding,
        };
    }
}

/// As many folds as there are ranks, less one, in rounds that go on at the same time.
async fn slow_folds(session: Session, rounds: u32) -> everfold::Result<()> {
    let ranks = session.size();
    // In a message, and in a window.
    for (number, bytes) in (1..).zip([0, 100_000]) {
        let mine = Slow { count: 1, height: 0, padding: vec![0; bytes] };
        let Outcome { value: Slow { count, height, .. }, report } = session.allreduce("slow", mine).await?;
        assert_eq!((count, height, report.tasks_doubled), (ranks, rounds, 0));
        let folds = session.allreduce("folds", Sum(vec![FOLDS.load(Ordering::SeqCst)])).await?;
        assert_eq!(folds.value, Sum(vec![number * u64::from(ranks - 1)]));
    }
    Ok(())
}
