//! A detector of your own: it says what is done about a death before everfold's own detectors are asked.
//!
//! Here ranks come back that die. But where one process after the other dies, something is wrong that no
//! restart mends. everfold's detectors count deaths by host. This one counts those of the whole job: from the
//! third within a minute on, a rank goes to another host, and if there is none, the job goes on without it.
//!
//! ```text
//! cargo build --release --example 10_own_detector
//!
//! 10_own_detector      4 ranks, of which 1, 2 and 3 kill themselves, one after the other
//! ```
//!
//! What a program does for that:
//! - it implements [`Detector`], and adds it to its launch by a name ([`Launch::detector`]);
//! - it chooses that name, as here in its configuration, or a user does in a
//!   [recovery file](everfold::recovery::RecoveryFile): `detectors = ["storm"]`.
//!
//! The process that starts the ranks hosts the master, which asks the detector: here that is the first
//! process of this program. For jobs that `everfold run` starts, build such a command with the detector:
//! `everfold_cli::main_with`.

use std::{collections::VecDeque, time::Duration};

use everfold::{
    News,
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

async fn count(session: Session) -> everfold::Result<()> {
    let rank = session.rank().0;
    let mut news = session.events();
    let is_first = std::env::var("EVERFOLD_INCARNATION").is_ok_and(|life| life == "0");
    for step in 0..STEPS {
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
    let config = Config::default().restart_ranks().detectors(["storm"]);
    let launch = Launch::from_env_or_local(4).config(config).survive_deaths();
    everfold::launch(launch.detector("storm", Storm::default), count)
}
