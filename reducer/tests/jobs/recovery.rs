//! What is done about processes that die, as a file or the program chooses it.

use std::{fs, path::PathBuf, time::Duration};

use everfold::{
    Config, News, NoReturn, Session, Sum,
    recovery::{Recoveries, Recovery, Repeated, Restart},
};
use futures::StreamExt;
use nix::sys::signal::{Signal, raise};

use crate::{
    process::{End, Mark, Process, job},
    suite::Suite,
};

const VARIABLE: &str = "EVERFOLD_RECOVERY";

pub(crate) fn add_to(suite: &mut Suite) {
    // Without a file its ranks do not come back.
    suite.program("recovery::dies_once", dies_once);
    suite.test("recovery::a_file_lets_ranks_come_back", || {
        with("recovery::dies_once", 2, "").assert_ended(0, [0, 1]);
    });
    let config = || Config::default().restart_ranks();
    suite.program_with(config(), "recovery::dies_always", dies_always);
    suite.program_with(config(), "recovery::goes_on", goes_on);
    suite.test("recovery::a_file_replaces_what_the_program_says", || {
        let end = with("recovery::goes_on", 2, "process = \"ignore\"");
        end.assert_ended(137, [0]);
        assert_eq!(deaths(&end), 1, "{:#?}", end.said);
    });
    suite.test("recovery::who_makes_no_progress_is_given_up", || {
        gives_up("[restart]\nfruitless_max = 3\npause = \"1 ms\"", 4, "3 times in a row");
    });
    suite.test("recovery::who_was_started_often_is_given_up", || {
        gives_up("[restart]\nstarts_max = 2\npause = \"1 ms\"", 3, "again 2 times, the most that is allowed");
    });
    suite.test("recovery::repeated_faults_of_a_host_have_a_recovery_of_their_own", || {
        let file =
            "[repeated]\nfaults = 1\nwithin = \"1 h\"\nrecovery = \"ignore\"\n[restart]\npause = \"0 s\"";
        gives_up(file, 2, "1 other processes of its host");
    });
    let choice = Recoveries {
        repeated: Some(Repeated {
            faults: 2,
            within: Duration::from_secs(3600),
            recovery: Recovery::Ignore.into(),
        }),
        restart: Restart { pause: Duration::from_millis(1), ..Restart::USUAL },
        ..Recoveries::RESTART
    };
    suite.program_with(Config::default().recover(choice), "recovery::chooses_itself", dies_always);
    suite.test("recovery::a_program_chooses", || {
        let end = Process::spawn(job("recovery::chooses_itself", 2, "shm")).end();
        end.assert_ended(137, [0]);
        assert_eq!(deaths(&end), 3, "{:#?}", end.said);
    });
    suite.test("recovery::a_file_that_makes_no_sense_stops_the_job", || {
        let end = with("recovery::dies_once", 2, "[restart]\n\npause = \"20 s\"");
        end.assert_ended(1, []);
        assert!(end.said.iter().any(|line| line.contains("line 3, key `restart.pause`")), "{:#?}", end.said);
        assert_eq!(deaths(&end), 0);
    });
}

/// Runs a program with such a file.
pub(crate) fn with(program: &'static str, ranks: u32, text: &str) -> End {
    let file = Scrap::new(text);
    let mut command = job(program, ranks, "shm");
    command.env(VARIABLE, &file.0);
    Process::spawn(command).end()
}

/// A file for the time of a test.
struct Scrap(PathBuf);

impl Scrap {
    fn new(text: &str) -> Self {
        let name = format!("everfold-recovery-{}.toml", Mark::new().number());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn deaths(end: &End) -> usize {
    end.said.iter().filter(|line| line.contains("rank 1 dies")).count()
}

/// Rank 1 dies so often until it is given up, and rank 0 hears why.
pub(crate) fn gives_up(file: &str, times: usize, reason: &str) {
    let end = with("recovery::dies_always", 2, file);
    end.assert_ended(137, [0]);
    assert_eq!(deaths(&end), times, "{:#?}", end.said);
    assert!(end.said.iter().any(|line| line.contains(reason)), "{:#?}", end.said);
}

fn dies() -> ! {
    println!("rank 1 dies");
    raise(Signal::SIGKILL).unwrap();
    unreachable!("it is dead")
}

async fn dies_once(session: Session) -> everfold::Result<()> {
    session.allreduce("first", Sum(vec![1u32])).await?;
    if session.rank() == 1 && std::env::var("EVERFOLD_INCARNATION").is_ok_and(|life| life == "0") {
        dies();
    }
    let ended = session.allreduce("second", Sum(vec![1u32])).await?;
    assert_eq!(ended.value, Sum(vec![2]));
    Ok(())
}

async fn goes_on(session: Session) -> everfold::Result<()> {
    session.allreduce("first", Sum(vec![1u32])).await?;
    if session.rank() == 1 {
        dies();
    }
    let ended = session.allreduce("second", Sum(vec![1u32])).allow_missing().await?;
    assert_eq!(ended.value, Sum(vec![1]), "rank 1 has not taken part");
    Ok(())
}

async fn dies_always(session: Session) -> everfold::Result<()> {
    let mut events = session.events();
    goes_on(session).await?;
    while let Some(news) = events.next().await {
        if let News::NotReturned { rank, reason } = news {
            assert!(rank == 1 && !matches!(reason, NoReturn::HostLost), "{rank}: {reason:?}");
            println!("rank {rank}: {reason}");
            break;
        }
    }
    Ok(())
}
