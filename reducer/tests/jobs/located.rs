//! Faults are located while the job runs: which component it is, and that it is none.

use std::time::Duration;

use everfold::{
    News, Rank, Session, Sum,
    locating::{Component, Located},
};
use futures::{FutureExt, Stream, StreamExt};
use nix::{
    sys::signal::{Signal, kill, raise},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};

use crate::{
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
    let (mut events, mut found) = (session.events(), None);
    loop {
        if session.rank() == HIT {
            compute(Duration::from_millis(80));
        }
        while let Some(Some(event)) = events.next().now_or_never() {
            if let News::Located(located) = event {
                assert!(located.harmless, "{located}");
                found = found.or_else(|| Some(located).filter(|located| located.fault == "unbalanced"));
            }
        }
        let has_heard = u64::from(found.is_some());
        let Sum(have_heard) = session.allreduce("step", Sum(vec![has_heard; LENGTH])).await?.value;
        if have_heard[0] == u64::from(RANKS) {
            assert_eq!(found.map(|located| located.component.clone()), Some(Component::Rank(HIT)));
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
