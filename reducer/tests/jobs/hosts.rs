//! Two hosts with an agent each: processes die, an agent dies, a whole host dies.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use everfold::{
    News, Outcome, Protection, ReduceError, ReducerBody, Refusal, Session, Sum, launch::agent,
    locating::Component,
};
use futures::StreamExt;
use nix::{
    sys::signal::{Signal, kill, raise},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use crate::{
    process::{Mark, Process, job},
    suite::Suite,
};

const RANKS: u32 = 4;
/// Ranks on each host.
const EACH: u32 = 2;
/// The process id of an agent that a rank is to kill.
const VICTIM: &str = "EVERFOLD_TEST_VICTIM";

pub(crate) fn add_to(suite: &mut Suite) {
    let counts = "hosts::what_a_dead_process_has_called_counts";
    suite.program(counts, a_process_dies);
    suite.test(counts, move || two_hosts(counts, None, &[0, 1, 2]));
    let lender = "hosts::a_broadcast_goes_on_when_a_lender_dies";
    suite.program(lender, a_lender_dies);
    suite.test(lender, move || two_hosts(lender, None, &[0, 1, 3]));
    let lost = "hosts::an_agent_takes_its_host_along";
    suite.program(lost, a_host_dies);
    suite.test(lost, move || two_hosts(lost, Some(1), &[0, 1]));
    let frozen = "hosts::an_agent_that_is_stopped_is_located";
    suite.program(frozen, a_host_freezes);
    suite.test(frozen, move || two_hosts(frozen, Some(1), &[0, 1]));
    let killed = "hosts::an_agent_that_was_killed_is_located";
    suite.program(killed, a_host_is_killed);
    suite.test(killed, move || two_hosts(killed, Some(1), &[0, 1]));
    let over = "hosts::without_the_agent_of_the_master_all_ends";
    suite.program(over, the_master_dies);
    suite.test(over, move || two_hosts(over, Some(0), &[0, 1, 2, 3]));
}

/// The agent of a host, which ends with this value.
struct Agent(Child);

impl Agent {
    fn start(name: &str, variables: &[(&str, String)]) -> Self {
        let mut command = agent::command(name);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.env("EVERFOLD_RANK", "0").stderr(Stdio::inherit()).spawn().unwrap();
        agent::wait_until_ready(&mut child).unwrap();
        Self(child)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `program` on two hosts, which are none but for their agents. Exactly the ranks in `done` come to their
/// end; rank 3 may kill the agent of the host `victim`.
pub(crate) fn two_hosts(program: &'static str, victim: Option<usize>, done: &[u32]) {
    let mark = Mark::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let variables = [
        ("EVERFOLD_RENDEZVOUS", format!("tcp:127.0.0.1:{port}")),
        ("EVERFOLD_SIZE", RANKS.to_string()),
        ("EVERFOLD_JOB", format!("{:x}", mark.number())),
        ("EVERFOLD_SECRET", "a5".repeat(32)),
        // Otherwise ranks of both hosts would share memory, as they could.
        ("EVERFOLD_TRANSPORT", "tcp".to_owned()),
    ];
    let names = [0, 1].map(|host| format!("everfold-test-{:x}-{host}", mark.number()));
    let agents = names.clone().map(|name| Agent::start(&name, &variables));
    let start = |rank: u32| {
        let mut command: Command = job(program, RANKS, "tcp");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.env("EVERFOLD_RANK", rank.to_string()).env("EVERFOLD_AGENT", &names[(rank / EACH) as usize]);
        command.envs(victim.map(|host| (VICTIM, agents[host].0.id().to_string())));
        (rank, Process::spawn_marked(&mut command, mark.clone()))
    };
    let processes: Vec<_> = (0..RANKS).map(start).collect();
    for (rank, mut process) in processes {
        let end = process.ended();
        if done.contains(&rank) {
            end.assert_done([rank]);
        } else {
            assert_ne!(end.code, 0, "{end:?}");
        }
    }
    assert_eq!(mark.living(), []);
}

/// Ranks 2 and 3 read a broadcast from another host, in turns, and from each other. Rank 2 dies at any moment of it.
async fn a_lender_dies(session: Session) -> everfold::Result<()> {
    const PIECE: usize = 4 << 20;
    let me = session.rank();
    for round in 0..8u64 {
        let right = |at: u64| at ^ round << 32;
        let own = (me == 0u32).then(|| (0..PIECE as u64).map(right).collect::<Vec<_>>());
        let call = session.broadcast("piece", own).allow_missing().start()?;
        if me == 2u32 && round == 4 {
            // Once others have a part of it, most likely.
            std::thread::sleep(Duration::from_millis(8));
            raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
        }
        let value = call.await?.value;
        assert!(value.iter().zip(0..).all(|(found, at)| *found == right(at)), "round {round}");
        assert_eq!(value.len(), PIECE);
    }
    Ok(())
}

#[derive(Serialize, Deserialize)]
struct Bytes(Vec<u8>);

impl ReducerBody for Bytes {
    fn combine(&mut self, other: Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

const LENGTH: usize = 300_000;

/// Rank 3 calls and dies before anybody else calls: its `Vec`, its array and its object count, with no
/// protection at all.
async fn a_process_dies(session: Session) -> everfold::Result<()> {
    let mut news = session.events();
    let mine = session.rank().0 as u8 + 1;
    let vec = || session.allreduce("vec", Sum(vec![mine; LENGTH])).protection(Protection::None).start();
    let array = || {
        let mut array = session.array::<u8>(LENGTH);
        array.fill(mine);
        session.allreduce("array", Sum(array)).protection(Protection::None).start()
    };
    let object =
        || session.allreduce("object", Bytes(vec![mine; LENGTH])).protection(Protection::None).start();
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    if session.rank() == 3 {
        let _called = (vec()?, array()?, object()?);
        session.allreduce("rank 3 has called", Sum(vec![1u8])).await?;
        raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
    }
    session.allreduce("rank 3 has called", Sum(vec![1u8])).await?;
    while session.survivors().contains(3.into()) {
        assert!(news.next().await.is_some());
    }
    let Outcome { value: Sum(vec), report } = vec()?.await?;
    assert!(vec == vec![10; LENGTH] && report.missing.is_empty(), "{report}");
    let Outcome { value: Sum(array), report } = array()?.await?;
    assert!(
        array.iter().all(|sum| *sum == 10) && report.survived == everfold::Path::single(3.into()),
        "{report}"
    );
    let [failure] = &report.failures[..] else { panic!("one has died: {report}") };
    assert!(failure.rank == 3 && failure.evidence.leaves_memory(), "{failure:?}");
    let Bytes(object) = object()?.await?.value;
    assert!(object == vec![10; LENGTH]);
    Ok(())
}

pub(crate) fn kill_victim() -> everfold::Result<()> {
    hit_victim(Signal::SIGKILL)
}

fn hit_victim(signal: Signal) -> everfold::Result<()> {
    let victim = std::env::var(VICTIM).unwrap().parse().unwrap();
    Ok(kill(Pid::from_raw(victim), signal).map_err(std::io::Error::from)?)
}

/// The agent of ranks 2 and 3 dies. They are given up, and the others go on.
async fn a_host_dies(session: Session) -> everfold::Result<()> {
    let mut news = session.events();
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    if session.rank().0 >= EACH {
        if session.rank() == 3 {
            kill_victim()?;
        }
        let never = session.allreduce("never", Sum(vec![1u64; LENGTH])).await;
        assert!(matches!(never, Err(ReduceError::Fenced)), "{:?}", never.map(|outcome| outcome.report));
        return Err(everfold::Error::application("the others go on without this rank"));
    }
    loop {
        match news.next().await {
            Some(News::Failed { rank, evidence }) => {
                assert_eq!(evidence.to_string(), "its host is lost", "rank {rank}");
            }
            Some(News::HostLost { ranks }) => {
                assert_eq!((ranks, session.survivors().len()), (everfold::Path::range(2, 4), 2));
                break;
            }
            other => assert!(other.is_some(), "a lost host is told"),
        }
    }
    let never = session.allreduce("never", Sum(vec![1u64; LENGTH])).await;
    // They may have called before they were given up.
    let gone = Refusal::absent;
    assert!(matches!(&never, Err(ReduceError::Refused(refusal)) if gone(refusal).is_some()));
    let two = session.allreduce("two", Sum(vec![1u64; LENGTH])).group(session.survivors()).await?;
    assert_eq!(two.value, Sum(vec![2; LENGTH]));
    Ok(())
}

async fn a_host_freezes(session: Session) -> everfold::Result<()> {
    a_host_is_located(session, Signal::SIGSTOP, "host_frozen").await
}

async fn a_host_is_killed(session: Session) -> everfold::Result<()> {
    a_host_is_located(session, Signal::SIGKILL, "host_dead").await
}

/// Something happens to the agent of ranks 2 and 3. The others hear which host it is, and what is wrong with it.
async fn a_host_is_located(session: Session, signal: Signal, fault: &str) -> everfold::Result<()> {
    let mut news = session.events();
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    if session.rank().0 >= EACH {
        if session.rank() == 3 {
            hit_victim(signal)?;
        }
        let _ = session.allreduce("never", Sum(vec![1u64; LENGTH])).await;
        return Err(everfold::Error::application("the others go on without this rank"));
    }
    loop {
        match news.next().await {
            Some(News::Located(located)) => {
                assert_eq!(located.fault, fault, "{located}");
                assert!(matches!(&located.component, Component::Host(_)), "{located}");
                assert_eq!(located.component.ranks(), everfold::Path::range(2, 4), "{located}");
                return Ok(());
            }
            other => assert!(other.is_some(), "a lost host is located"),
        }
    }
}

/// With the agent of rank 0's host the master dies, and whatever anybody waits for ends.
async fn the_master_dies(session: Session) -> everfold::Result<()> {
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    if session.rank() == 3 {
        kill_victim()?;
    } else {
        // Rank 3 does not call it.
        let waits = session.allreduce("under way", Sum(vec![1u64; LENGTH])).await;
        assert!(matches!(waits, Err(ReduceError::MasterLost)));
    }
    let later = session.reduce("later", Sum(vec![1u64; LENGTH])).root(0).await;
    assert!(matches!(later, Err(ReduceError::MasterLost)));
    Ok(())
}
