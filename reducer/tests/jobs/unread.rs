//! A rank dies that has contributed to a round on the board and does not know that the round is complete: its next
//! process finds the outcome there, as the master has never heard of the call.

use std::time::Duration;

use everfold::{Session, Sum};
use nix::{
    sys::signal::{Signal, kill, raise},
    unistd::Pid,
};

use crate::{
    come_back::{Fate, config},
    process::{Process, job},
    suite::Suite,
};

const RANKS: u32 = 3;
/// Who dies.
const DIES: u32 = 1;

pub(crate) fn add_to(suite: &mut Suite) {
    let name = "unread::who_dies_before_it_has_read_a_complete_round_finds_it_again";
    suite.program_with(config(), name, program);
    suite.test(name, move || Process::spawn(job(name, RANKS, "shm")).end().assert_done(0..RANKS));
}

async fn program(session: Session) -> everfold::Result<()> {
    let (me, life) = (session.rank().0, Fate::of(&session).life);
    session.resume::<()>().await?;
    let pid = if me == DIES { u64::from(std::process::id()) } else { 0 };
    let Sum(pids) = session.allreduce("pid", Sum(vec![pid])).await?.value;
    let pid = Pid::from_raw(pids[0] as i32);
    if me == 0 {
        wait_until_stopped(pid);
    }
    let future = session.allreduce("sum", Sum(vec![u64::from(me) + 1; 100])).start()?;
    if (me, life) == (DIES, 0) {
        raise(Signal::SIGSTOP).expect("a process may stop itself");
    }
    let Sum(sums) = future.await?.value;
    assert_eq!(sums, [6; 100]);
    if me == 0 {
        kill(pid, Signal::SIGKILL).expect("it is stopped");
    }
    let Sum(lives) = session.allreduce("lives", Sum(vec![u64::from(life)])).await?.value;
    assert_eq!(lives, [1], "it has come back");
    Ok(())
}

/// Waits until a process has stopped itself.
fn wait_until_stopped(pid: Pid) {
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    while !is_stopped() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
