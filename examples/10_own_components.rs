//! Components of your own: a detector says what is done about a death, and a pace when checkpoints are saved.
//!
//! Here ranks come back that die. But where one process after the other dies, something is wrong that no
//! restart mends. everfold's detectors count deaths by host. The detector here counts those of the whole job:
//! from the third within a minute on, a rank goes to another host, and if there is none, the job goes on
//! without it. The pace has a checkpoint saved after each death, as others may follow, and else once an hour.
//!
//! ```text
//! cargo build --release --example 10_own_components
//!
//! 10_own_components      4 ranks, of which 1, 2 and 3 kill themselves, one after the other
//! ```
//!
//! What a program does for that:
//! - it implements [`Detector`] and [`CheckpointPace`], and adds them to its launch by names
//!   ([`Launch::detector`], [`Launch::checkpoint_pace`]);
//! - it chooses these names, as here in its configuration, or a user does in a
//!   [recovery file](everfold::recovery::RecoveryFile): `detectors = ["storm"]`, and `pace = "wary"` in
//!   `[checkpoint]`.
//!
//! Each rank has a pace. The process that starts the ranks hosts the master, which asks the detector: here
//! that is the first process of this program. For jobs that `everfold run` starts, build such a command with
//! the detector: `everfold_cli::main_with`.

use std::{collections::VecDeque, time::Duration};

use everfold::{
    CheckpointPace, Checkpointed, News,
    prelude::*,
    recovery::{
        Chain, Detector, Recovery,
        detector::{Death, Timestamp},
    },
};
use futures::StreamExt;
use nix::sys::signal::{Signal, raise};

/// Deaths within [`WINDOW`] from which on they are a storm.
const STORM: usize = 3;
const WINDOW: Duration = Duration::from_secs(60);
const STEPS: u32 = 40;

/// Counts the deaths of the job.
#[derive(Debug, Default)]
struct Storm {
    /// When the latest were, the earliest first.
    deaths: VecDeque<Timestamp>,
}

impl Detector for Storm {
    /// All time comes as `now`: what a detector decides depends on nothing but what it is told.
    fn judge(&mut self, now: Timestamp, _death: &Death) -> Option<Chain> {
        while self.deaths.front().is_some_and(|at| now.since(*at) > WINDOW) {
            self.deaths.pop_front();
        }
        self.deaths.push_back(now);
        // `None` hands the death over: everfold's detectors choose. A recovery that cannot be done is passed.
        (self.deaths.len() >= STORM).then(|| Chain::then(Recovery::Migrate, Recovery::Ignore))
    }
}

/// Has a checkpoint saved after each death, and else once an hour.
#[derive(Debug, Default)]
struct Wary {
    has_heard: bool,
}

impl CheckpointPace for Wary {
    fn interval(&mut self, _cost: Option<Duration>) -> Duration {
        if self.has_heard { Duration::ZERO } else { Duration::from_secs(3600) }
    }

    fn hear(&mut self, news: &News) {
        self.has_heard |= matches!(news, News::Failed { .. });
    }

    fn saved(&mut self, _cost: Duration) {
        self.has_heard = false;
    }
}

async fn count(session: Session) -> everfold::Result<()> {
    let rank = session.rank().0;
    let mut news = session.events();
    let is_first = std::env::var("EVERFOLD_INCARNATION").is_ok_and(|life| life == "0");
    let begun = session.resume::<u32>().await?.unwrap_or(0);
    for step in begun..STEPS {
        if is_first && rank > 0 && step == 10 * rank {
            println!("rank {rank} dies at step {step}");
            raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
        }
        // A rank that comes back makes its calls again, and hears how they have ended.
        let sum = session.allreduce("count", Sum(vec![1u64])).allow_missing().await?;
        if rank == 0 && step + 1 == STEPS {
            println!(
                "step {STEPS}: {} contributors {}",
                sum.report.contributors.len(),
                sum.report.contributors
            );
        }
        let saved = session.checkpoint(&(step + 1)).await?;
        if rank == 0 && matches!(saved, Checkpointed::Saved { .. }) {
            println!("rank 0 has saved a checkpoint after step {}", step + 1);
        }
    }
    while rank == 0
        && let Some(event) = news.next().await
    {
        match event {
            News::CaughtUp { rank, .. } => println!("rank {rank} has come back"),
            News::NotReturned { .. } => {
                println!("{event}");
                break;
            }
            _ => {}
        }
    }
    Ok(())
}

fn main() -> everfold::Result<()> {
    let config = Config::default().restart_ranks().detectors(["storm"]).checkpoint_pace("wary");
    let launch = Launch::from_env_or_local(4).config(config).survive_deaths();
    let launch = launch.detector("storm", Storm::default).checkpoint_pace("wary", Wary::default);
    everfold::launch(launch, count)
}
