//! Paces of a program's own: a checkpoint is saved when they say so.

use std::{fs, time::Duration};

use everfold::{CheckpointPace, Checkpointed, Config, News, Session, Sum};
use nix::sys::signal::{Signal, raise};

use crate::{
    given_up::is_first,
    process::{Mark, Process, job},
    recovery::with,
    suite::Suite,
};

/// The step before which rank 1 dies.
const DEATH: u32 = 20;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.program_with(wary(), "paces::saves_after_a_death", saves_after_a_death);
    suite.test("paces::ranks_save_as_soon_as_they_hear_of_a_death", || {
        Process::spawn(job("paces::saves_after_a_death", 3, "shm")).end().assert_done(0..3);
    });
    suite.test("paces::a_file_chooses_and_all_ranks_save_together", || {
        let directory = std::env::temp_dir().join(format!("everfold-paces-{}", Mark::new().number()));
        let file = format!("[checkpoint]\ndirectory = {directory:?}\npace = \"wary\"");
        let end = with("paces::saves_after_a_death", 3, &file);
        let _ = fs::remove_dir_all(&directory);
        end.assert_done(0..3);
        let saved = |line: &&String| line.contains("has saved");
        let steps: Vec<&str> =
            end.said.iter().filter(saved).filter_map(|line| line.split_once("at ")).map(|it| it.1).collect();
        assert!(steps.len() >= 3 && steps.iter().all(|step| *step == steps[0]), "{:#?}", end.said);
    });
    suite.test("paces::one_that_nobody_knows_stops_the_job", || {
        let end = with("paces::saves_after_a_death", 2, "[checkpoint]\npace = \"nobody\"");
        end.assert_ended(1, []);
        let told =
            |line: &String| line.contains("no pace of checkpoints `nobody`") && line.contains("`wary`");
        assert!(end.said.iter().any(told), "{:#?}", end.said);
    });
}

fn wary() -> Config {
    Config::default().restart_ranks().checkpoint_pace("wary")
}

/// Makes a checkpoint due when a process has died since the last one, and no other.
#[derive(Debug, Default)]
pub(crate) struct Wary {
    has_heard: bool,
}

impl CheckpointPace for Wary {
    fn interval(&mut self, _: Option<Duration>) -> Duration {
        if self.has_heard { Duration::ZERO } else { Duration::MAX }
    }

    fn hear(&mut self, news: &News) {
        self.has_heard |= matches!(news, News::Failed { .. });
    }

    fn saved(&mut self, _: Duration) {
        self.has_heard = false;
    }
}

/// Goes on until ranks 0 and 2 have saved a checkpoint, and rank 1 dies before.
async fn saves_after_a_death(session: Session) -> everfold::Result<()> {
    let rank = session.rank().0;
    let (mut step, mut has_saved) = session.resume::<(u32, bool)>().await?.unwrap_or((0, false));
    loop {
        if rank == 1 && step == DEATH && is_first(&session) {
            raise(Signal::SIGKILL).unwrap();
        }
        let of_this = u32::from(rank != 1 && has_saved);
        let Sum(saved) = session.allreduce("saved", Sum(vec![of_this])).await?.value;
        if saved[0] == 2 {
            return Ok(());
        }
        step += 1;
        match session.checkpoint(&(step, has_saved)).await? {
            Checkpointed::Saved { .. } => {
                assert!(step >= DEATH && !(has_saved && rank != 1), "saved at {step} for no reason");
                println!("rank {rank} has saved at {step}");
                has_saved = true;
            }
            Checkpointed::NotDue | Checkpointed::CatchingUp => {}
            other => panic!("{other:?}"),
        }
    }
}
