//! Faults are located while the job runs: which component it is, and that it is none.

use std::time::{Duration, Instant};

use everfold::{
    Config, News, Rank, Session, Sum,
    locating::{Component, Located},
};
use futures::{FutureExt, Stream, StreamExt};
use nix::{
    sys::signal::{Signal, kill, raise},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};

use crate::{
    come_back::Fate,
    migrate::{Case, Job},
    process::{Process, job},
    suite::Suite,
};

const RANKS: u32 = 4;
const HIT: Rank = Rank(2);
/// Longer than what ranks of one host fold without the master.
const LENGTH: usize = 1 << 17;

pub(crate) fn add_to(suite: &mut Suite) {
    let killed = "located::a_process_that_was_killed";
    suite.program(killed, a_process_is_killed);
    suite.test_each(killed, |transport| {
        let end = Process::spawn(job("located::a_process_that_was_killed", RANKS, transport)).end();
        end.assert_ended(137, [0, 1, 3]);
    });
    let frozen = "located::a_process_that_is_stopped";
    suite.program(frozen, a_process_is_stopped);
    suite.test(frozen, move || {
        Process::spawn(job(frozen, RANKS, "auto")).end().assert_ended(137, [0, 1, 3]);
    });
    let diverging = "located::a_rank_that_diverges";
    suite.program(diverging, a_rank_diverges);
    suite.test(diverging, move || {
        Process::spawn(job(diverging, RANKS, "auto")).end().assert_done(0..RANKS);
    });
    let unbalanced = "located::an_application_that_is_unbalanced_is_no_fault";
    suite.program(unbalanced, one_has_more_to_do);
    suite.test(unbalanced, move || {
        Process::spawn(job(unbalanced, RANKS, "auto")).end().assert_done(0..RANKS);
    });
    let summary = "located::what_was_located_is_told_when_the_job_has_ended";
    suite.program(summary, all_end_after_a_death);
    suite.test(summary, move || {
        let end = Process::spawn(job(summary, RANKS, "auto")).end();
        end.assert_ended(137, [0, 1, 3]);
        let told = format!("everfold: located: rank {HIT}: process_crashed");
        assert!(end.said.iter().any(|line| line.contains(&told)), "{end:?}");
    });
    let elsewhere = "located::a_rank_whose_host_has_a_located_fault_goes_elsewhere";
    suite
        .program_with(returning(), elsewhere, |session| a_rank_dies_where_a_fault_is_located(session, false));
    suite.test(elsewhere, move || {
        assert_eq!(the_host_is_to_blame(elsewhere, rules(60000)), [false, false, true]);
    });
    let over = "located::a_rank_whose_host_has_none_any_more_stays";
    suite.program_with(returning(), over, |session| a_rank_dies_where_a_fault_is_located(session, true));
    suite.test(over, move || {
        assert_eq!(the_host_is_to_blame(over, rules(300)), [false, true, false]);
    });
}

/// Where a process has ended, the host is to blame: rank 2 shows that, and then rank 3 of the same host dies.
fn the_host_is_to_blame(program: &'static str, rules: &'static str) -> [bool; 3] {
    let file = "[located]\nfaults = [\"disk_failing\", \"host_spoils_processes\"]\nrecovery = \"migrate\"";
    let ends = Job::start(program, &Case { hosts: 2, spares: 1, file, rules, ..Case::default() }).end();
    assert!(
        ends[1].said.iter().any(|line| line.contains("life 1 of rank 2")),
        "nothing was located: {ends:#?}"
    );
    let is_there = |host: usize| ends[host].said.iter().any(|line| line.contains("life 1 of rank 3"));
    [0, 1, 2].map(is_there)
}

/// A rule of one's own, whose fault is over after this time.
fn rules(quiet_ms: u32) -> &'static str {
    let rules = format!(
        "[trigger]\nsymptoms = 2\nat_once = [\"ended\"]\nsettle_ms = 50\nwindow_ms = 1000\nprobe_ms = 1000\n\
         quiet_ms = {quiet_ms}\n[[rule]]\nfault = \"host_spoils_processes\"\nsays = \"processes end there\"\n\
         about = \"host\"\nwhen = \"host.ended.count > 0\"\nconfidence = 0.9\n"
    );
    rules.leak()
}

/// Waits until a fault is located. Everything that is located before has to be harmless.
async fn located(events: &mut (impl Stream<Item = News> + Unpin), fault: &str) -> Located {
    loop {
        match events.next().await {
            Some(News::Located(located)) if located.fault == fault => return (*located).clone(),
            Some(News::Located(located)) => assert!(located.harmless, "{located}"),
            other => assert!(other.is_some(), "{fault} is located"),
        }
    }
}

fn others(session: &Session) -> everfold::Group {
    session.world().filter(|rank| rank != HIT)
}

async fn a_process_is_killed(session: Session) -> everfold::Result<()> {
    let mut events = session.events();
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    if session.rank() == HIT {
        raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
    }
    let found = located(&mut events, "process_crashed").await;
    assert_eq!((&found.component, found.harmless), (&Component::Rank(HIT), false), "{found}");
    assert!(found.evidence.iter().any(|seen| seen.starts_with("ended of rank 2")), "{found}");
    session.allreduce("all have heard", Sum(vec![1u8])).group(others(&session)).await?;
    Ok(())
}

async fn a_process_is_stopped(session: Session) -> everfold::Result<()> {
    let mut events = session.events();
    let is_hit = session.rank() == HIT;
    let pid = if is_hit { u64::from(std::process::id()) } else { 0 };
    let Sum(pids) = session.allreduce("pids", Sum(vec![pid])).await?.value;
    if is_hit {
        raise(Signal::SIGSTOP).map_err(std::io::Error::from)?;
    }
    let found = located(&mut events, "process_frozen").await;
    assert_eq!(found.component, Component::Rank(HIT), "{found}");
    session.allreduce("all have heard", Sum(vec![1u8])).group(others(&session)).await?;
    if session.rank() == 0 {
        let stopped = Pid::from_raw(pids[0] as i32);
        kill(stopped, Signal::SIGKILL).map_err(std::io::Error::from)?;
    }
    Ok(())
}

async fn a_rank_diverges(session: Session) -> everfold::Result<()> {
    let mut events = session.events();
    let odd = usize::from(session.rank() == HIT);
    let refused = session.allreduce("differs", Sum(vec![1u64; LENGTH + odd])).await;
    assert!(refused.is_err());
    let found = located(&mut events, "rank_diverges").await;
    assert_eq!(found.component, Component::Rank(HIT), "{found}");
    session.allreduce("all have heard", Sum(vec![1u8])).await?;
    Ok(())
}

/// One rank computes long before each reduction, and the others wait for it.
async fn one_has_more_to_do(session: Session) -> everfold::Result<()> {
    const WORK: Duration = Duration::from_millis(80);
    let (mut events, mut found, mut starved) = (session.events(), None, 0);
    loop {
        if session.rank() == HIT {
            let begun = Instant::now();
            compute(WORK);
            starved += u64::from(begun.elapsed() > WORK * 5 / 4);
        }
        while let Some(Some(event)) = events.next().now_or_never() {
            if let News::Located(located) = event {
                let tells = !located.harmless || located.fault == "unbalanced";
                found = found.or_else(|| Some(located).filter(|_| tells));
            }
        }
        let mut mine = vec![u64::from(found.is_some()); LENGTH];
        mine[1] = starved;
        let Sum(all) = session.allreduce("step", Sum(mine)).await?.value;
        if all[0] == u64::from(RANKS) {
            let found = found.expect("all have heard");
            let is_right = found.fault == "unbalanced" && found.component == Component::Rank(HIT);
            // Where other processes take the cores meanwhile, that is located, and explains it.
            assert!(is_right || all[1] > 0 && found.fault == "host_overloaded", "{found}");
            return Ok(());
        }
    }
}

fn compute(time: Duration) {
    let clock = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let until = clock() + time;
    while clock() < until {
        std::hint::spin_loop();
    }
}

/// The job ends at once, before anybody could be told.
async fn all_end_after_a_death(session: Session) -> everfold::Result<()> {
    let mut events = session.events();
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    if session.rank() == HIT {
        raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
    }
    // A job that ends before it is located has nothing to tell of it.
    located(&mut events, "process_crashed").await;
    session.allreduce("all have heard", Sum(vec![1u8])).group(others(&session)).await?;
    Ok(())
}

/// Ranks come back.
fn returning() -> Config {
    Config::default().restart_ranks()
}

/// Rank 2 dies first, and rank 3 of the same host when a fault is located there for that; or once that is
/// over.
async fn a_rank_dies_where_a_fault_is_located(session: Session, over: bool) -> everfold::Result<()> {
    let mut events = session.events();
    let life = Fate::of(&session).life;
    session.resume::<u64>().await?;
    // A call ends once its outcome is in the replica.
    session.allreduce("all are here", Sum(vec![1u64])).await?;
    if life == 0 && session.rank() == HIT {
        raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
    }
    if life == 0 && session.rank() == 3 {
        loop {
            match events.next().await {
                Some(News::Located(located)) if located.over == over => break,
                other => assert!(other.is_some(), "it is located"),
            }
        }
        raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
    }
    session.allreduce("all are here again", Sum(vec![1u64])).await?;
    println!("life {life} of rank {}", session.rank());
    Ok(())
}
