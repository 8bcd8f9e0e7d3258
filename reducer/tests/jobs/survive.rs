//! Reductions that finish although processes die or freeze: who receives, what may be missing, what is told.

use std::time::Duration;

use everfold::{
    Config, Evidence, News, Outcome, Path, Protection, Rank, ReduceError, ReducerBody, Refusal, Session, Sum,
};
use futures::StreamExt;
use nix::{
    sys::signal::{Signal, kill, raise},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use crate::{
    process::{Process, job},
    suite::{Suite, TRANSPORTS},
};

const PING: Duration = Duration::from_millis(100);

pub(crate) fn add_to(suite: &mut Suite) {
    let quick = || Config::default().ping_interval(PING);
    suite.victim("survive::goes_on_without_what_is_missing", allow_missing);
    suite.victim("survive::another_root_receives", another_root);
    suite.victim("survive::who_receives_the_result_dies", receiver_dies);
    suite.victim("survive::a_short_contribution_outlives_its_rank", short_contribution);
    suite.victim("survive::a_vec_outlives_its_rank", long_vec);
    suite.job_with(quick(), "survive::a_short_contribution_of_a_frozen_rank_counts", 4, frozen_contribution);
    suite.job("survive::two_that_have_closed_wait_for_each_other", 2, both_close);
    suite.victim("survive::survivors_and_events", survivors);
    suite.victim("survive::protected_in_memory", |session| protected(session, Protection::Memory));
    suite.victim("survive::protected_on_disk", |session| protected(session, Protection::Disk));
    suite
        .victim("survive::protected_before_it_counts", |session| protected(session, Protection::CommitFirst));
    suite.job_with(quick(), "survive::a_frozen_process_is_fenced", 4, frozen);
    suite.job_with(quick(), "survive::a_frozen_rank_0_is_fenced", 3, frozen_first);
    suite.job_with(quick(), "survive::a_short_pause_is_no_death", 4, short_pause);
}

impl Suite {
    /// A program of four ranks, and the test that all but rank 1, which is killed, come to their end.
    fn victim<F>(&mut self, name: &'static str, program: fn(Session) -> F)
    where
        F: Future<Output = everfold::Result<()>> + 'static,
    {
        self.program(name, program);
        for transport in TRANSPORTS {
            self.test(format!("{name}::{transport}"), move || {
                Process::spawn(job(name, 4, transport)).end().assert_ended(137, [0, 2, 3]);
            });
        }
    }
}

fn die() -> everfold::Result<()> {
    raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
    unreachable!("it is dead")
}

fn path(ranks: impl IntoIterator<Item = u32>) -> Path {
    ranks.into_iter().map(Rank).collect()
}

/// Stops this process for `time`; a child that outlives the stop continues it.
fn freeze(time: Duration) -> everfold::Result<()> {
    let seconds = time.as_secs_f64();
    let me = std::process::id();
    let thaw = format!("sleep {seconds}; kill -CONT {me}");
    let mut child = std::process::Command::new("sh").args(["-c", &thaw]).spawn()?;
    kill(Pid::from_raw(me as i32), Signal::SIGSTOP).map_err(std::io::Error::from)?;
    child.wait()?;
    Ok(())
}

/// Rank 1 dies without contributing.
async fn allow_missing(session: Session) -> everfold::Result<()> {
    if session.rank() == 1 {
        return die();
    }
    for (number, length) in [1u64, 1000, 500_000].into_iter().enumerate() {
        let body = || Sum(vec![u64::from(session.rank().0) + 1; length as usize]);
        let all = session.allreduce(format!("all {number}"), body()).allow_missing().await?;
        let one = session.reduce(format!("one {number}"), body()).root(3).allow_missing().await?;
        for (Outcome { value, report }, receives) in [(all.into(), true), (one, session.rank() == 3)] {
            assert_eq!((report.missing, report.contributors), (path([1]), path([0, 2, 3])));
            assert_eq!(value.map(|Sum(sums)| sums), receives.then(|| vec![1 + 3 + 4; length as usize]));
        }
    }
    Ok(())
}

/// Rank 1 contributes, and dies before the others do.
async fn short_contribution(session: Session) -> everfold::Result<()> {
    let mut news = session.events();
    let body = || Sum(vec![u64::from(session.rank().0) + 1; 3]);
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    if session.rank() == 1 {
        let contributed = session.allreduce("sum", body()).start()?;
        session.allreduce("one has contributed", Sum(vec![1u8])).await?;
        drop(contributed);
        return die();
    }
    session.allreduce("one has contributed", Sum(vec![1u8])).await?;
    while session.survivors().contains(Rank(1)) {
        assert!(news.next().await.is_some());
    }
    let Outcome { value, report } = session.allreduce("sum", body()).await?;
    assert_eq!(value, Sum(vec![10; 3]));
    assert_eq!((report.contributors, report.survived), (path(0..4), path([1])));
    let again = session.allreduce("again", body()).group(session.survivors()).await?;
    assert_eq!(again.value, Sum(vec![8; 3]));
    Ok(())
}

/// Rank 1 contributes, and is frozen until it is declared failed. Its contribution counts all the same.
async fn frozen_contribution(session: Session) -> everfold::Result<()> {
    let mut news = session.events();
    let body = || Sum(vec![u64::from(session.rank().0) + 1; 3]);
    if session.rank() == 1 {
        let contributed = session.allreduce("sum", body()).start()?;
        session.allreduce("one has contributed", Sum(vec![1u8])).await?;
        freeze(PING * 20)?;
        assert!(matches!(contributed.await, Err(ReduceError::Fenced)));
        return Ok(());
    }
    session.allreduce("one has contributed", Sum(vec![1u8])).await?;
    while session.survivors().contains(Rank(1)) {
        assert!(news.next().await.is_some());
    }
    let Outcome { value, report } = session.allreduce("sum", body()).await?;
    assert_eq!((value, report.contributors), (Sum(vec![10; 3]), path(0..4)));
    Ok(())
}

/// Rank 1 should have received the result.
async fn another_root(session: Session) -> everfold::Result<()> {
    let mut news = session.events();
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    if session.rank() == 1 {
        return die();
    }
    while session.survivors().contains(Rank(1)) {
        assert!(news.next().await.is_some());
    }
    for length in [1usize, 400_000] {
        let body = Sum(vec![1u32; length]);
        let outcome = session.reduce("x", body).group(session.survivors()).roots([2, 0]).await?;
        assert_eq!(outcome.value.map(|Sum(sums)| sums), (session.rank() == 2).then(|| vec![3; length]));
    }
    let only_the_dead = session.reduce("y", Sum(vec![1u32])).roots([1]).await;
    let Err(ReduceError::Refused(Refusal::ProcessFailed { ranks })) = only_the_dead else {
        panic!("no refusal")
    };
    assert_eq!(ranks, path([1]));
    Ok(())
}

/// Counts contributions. Rank 1 dies of all four: it reads them when it receives the result, or folds the
/// last.
#[derive(Serialize)]
struct Deadly(u32);

impl Deadly {
    fn new(count: u32) -> Self {
        if count == 4 && std::env::var("EVERFOLD_RANK").is_ok_and(|rank| rank == "1") {
            die().expect("it is dead");
        }
        Self(count)
    }
}

impl<'de> Deserialize<'de> for Deadly {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::new(u32::deserialize(deserializer)?))
    }
}

impl ReducerBody for Deadly {
    fn combine(&mut self, other: Self) {
        *self = Self::new(self.0 + other.0);
    }
}

/// The result goes to the next in line, and everyone hears that somebody died of it.
async fn receiver_dies(session: Session) -> everfold::Result<()> {
    let Outcome { value, report } = session.reduce("x", Deadly::new(1)).roots([1, 0]).await?;
    assert_eq!(value.map(|Deadly(count)| count), (session.rank() == 0).then_some(4));
    assert_eq!((report.survived, report.contributors), (path([1]), path(0..4)));
    Ok(())
}

/// Rank 1 calls with a long `Vec` and dies before anybody else calls. There is no replica yet.
async fn long_vec(session: Session) -> everfold::Result<()> {
    let mut news = session.events();
    let vec = || session.allreduce("vec", Sum(vec![1u64; 300_000])).protection(Protection::Memory).start();
    if session.rank() == 1 {
        let _called = vec()?;
        session.allreduce("rank 1 has called", Sum(vec![1u8])).await?;
        return die();
    }
    session.allreduce("rank 1 has called", Sum(vec![1u8])).await?;
    while !matches!(news.next().await, Some(News::Failed { rank: Rank(1), .. })) {}
    let Outcome { value: Sum(sum), report } = vec()?.await?;
    assert!(sum == vec![4; 300_000] && report.survived == path([1]), "{report}");
    Ok(())
}

/// Each rank has called something that the other will not call.
async fn both_close(session: Session) -> everfold::Result<()> {
    let other = 1 - session.rank().0;
    let future = session.allreduce(format!("without {other}"), Sum(vec![1u8])).start()?;
    session.close().await;
    let refused = future.await;
    let Err(ReduceError::Refused(Refusal::RanksLeft { ranks })) = refused else { panic!("{refused:?}") };
    assert_eq!(ranks, path([other]));
    Ok(())
}

async fn survivors(session: Session) -> everfold::Result<()> {
    let mut news = session.events();
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    if session.rank() == 1 {
        return die();
    }
    let expected = News::Failed { rank: Rank(1), evidence: Evidence::Disconnected };
    assert_eq!(news.next().await, Some(expected));
    assert_eq!(session.survivors().iter().collect::<Path>(), path([0, 2, 3]));
    let sum = session.allreduce("survivors", Sum(vec![1u64; 100_000])).group(session.survivors()).await?;
    assert_eq!(sum.value.0, vec![3; 100_000]);
    Ok(())
}

/// Rank 1 dies when its contribution has a replica, and before anybody folds it: rank 3 comes last.
async fn protected(session: Session, protection: Protection) -> everfold::Result<()> {
    const LENGTH: usize = 300_000;
    let me = session.rank();
    let mut news = session.events();
    let start = |session: &Session| {
        let body = Sum(vec![u64::from(me.0) + 1; LENGTH]);
        session.reduce("protected", body).root(3).protection(protection).start()
    };
    // Ranks 0 and 2 keep back: without a partner nobody folds rank 1's contribution.
    if me == 1 {
        let future = start(&session)?;
        // It dies when this deadline passes, long after the copy was made.
        let _ = session.reduce("wait", Sum(vec![1u8])).deadline(Duration::from_secs(1)).await;
        drop(future);
        return die();
    }
    if me == 3 {
        // The root folds nothing before its own contribution has come.
        while !matches!(news.next().await, Some(News::Failed { rank: Rank(1), .. })) {}
    } else if me == 2 {
        let future = start(&session)?;
        assert!(future.await?.report.survived == path([1]));
        return Ok(());
    } else {
        let _ = session.reduce("wait", Sum(vec![1u8])).deadline(Duration::from_secs(1)).await;
    }
    let Outcome { value, report } = start(&session)?.await?;
    assert_eq!(report.survived, path([1]), "{report}");
    assert_eq!(value.map(|Sum(sums)| sums), (me == 3).then(|| vec![1 + 2 + 3 + 4; LENGTH]));
    Ok(())
}

/// Rank 2 is frozen for longer than any silence that is tolerated.
async fn frozen(session: Session) -> everfold::Result<()> {
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    let group = session.world().filter(|rank| rank != 2);
    if session.rank() == 2 {
        freeze(PING * 12)?;
        let late = session.allreduce("late", Sum(vec![1u8])).await;
        assert!(matches!(late, Err(ReduceError::Fenced)), "{late:?}");
        return Ok(());
    }
    let mut news = session.events();
    let refused = session.allreduce("never", Sum(vec![1u64; 100_000])).await;
    let Err(ReduceError::Refused(Refusal::ProcessFailed { ranks })) = refused else { panic!("{refused:?}") };
    assert_eq!(ranks, path([2]));
    let failed = news.next().await;
    let Some(News::Failed { rank: Rank(2), evidence: Evidence::Silent(time) }) = failed else {
        panic!("{failed:?}")
    };
    assert!(time >= PING * 3, "{time:?}");
    let sum = session.allreduce("others", Sum(vec![1u64; 100_000])).group(group).await?;
    assert_eq!(sum.value.0, vec![3; 100_000]);
    Ok(())
}

/// Rank 0 is given up like any other. What it calls then ends.
async fn frozen_first(session: Session) -> everfold::Result<()> {
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    if session.rank() == 0 {
        freeze(PING * 30)?;
        let late = session.allreduce("late", Sum(vec![1u8])).await;
        assert!(matches!(late, Err(ReduceError::Fenced)), "{late:?}");
        return Ok(());
    }
    let failed = session.allreduce("late", Sum(vec![1u8])).await;
    assert!(matches!(failed, Err(ReduceError::Refused(Refusal::ProcessFailed { .. }))), "{failed:?}");
    let others = session.allreduce("others", Sum(vec![1u8])).group(session.survivors()).await?;
    assert_eq!(others.value, Sum(vec![2]));
    Ok(())
}

async fn short_pause(session: Session) -> everfold::Result<()> {
    let ranks = session.size();
    for round in 0..3 {
        session.allreduce("all are here", Sum(vec![1u8])).await?;
        if session.rank().0 == round + 1 {
            freeze(PING)?;
        }
        let sum = session.allreduce("sum", Sum(vec![1u64; 200_000])).await?;
        assert_eq!(sum.value.0, vec![u64::from(ranks); 200_000]);
    }
    Ok(())
}
