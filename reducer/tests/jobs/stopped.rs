//! A rank stops in the middle of reading the others' originals, and stays like that: neither its connections
//! break nor does it take another byte.

use std::{
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use everfold::{Config, ElementWise, Outcome, Path, Rank, Session, Sum};
use nix::{
    sys::signal::{Signal, kill, raise},
    unistd::Pid,
};

use crate::{
    process::{Process, job},
    suite::Suite,
};

/// Far more than the sockets of all connections hold.
const LENGTH: usize = 256 << 17;
const RANKS: u32 = 4;
const STOPPED: Rank = Rank(2);

pub(crate) fn add_to(suite: &mut Suite) {
    let name = "stopped::who_was_to_be_read_by_a_stopped_rank_goes_on";
    let config = Config::default().ping_interval(Duration::from_millis(200));
    suite.program_with(config, name, reader);
    suite.test(format!("{name}::tcp"), move || {
        Process::spawn(with_short_sockets(job(name, RANKS, "tcp"))).end().assert_ended(137, [0, 1, 3]);
    });
}

/// The same command where sockets hold less than one answer, so that a rank is bound to stop in the middle of
/// some. Where a network of its own is not allowed it runs as it is.
fn with_short_sockets(job: Command) -> Command {
    const PREPARE: &str = "ip link set lo up && cd /proc/sys/net/ipv4 && \
        echo 4096 65536 65536 >tcp_rmem && echo 4096 16384 65536 >tcp_wmem && cd -";
    let inside = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", "--map-root-user", "sh", "-c", &format!("{PREPARE} && {script}"), "sh"]);
        command
    };
    let tried = inside("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        return job;
    }
    let mut command = inside("exec \"$@\"");
    command.arg(job.get_program()).args(job.get_args());
    command
}

/// Stops this process the first time that it is called.
fn stop() {
    static HAS_STOPPED: AtomicBool = AtomicBool::new(false);
    if !HAS_STOPPED.swap(true, Ordering::Relaxed) {
        raise(Signal::SIGSTOP).expect("a process may stop itself");
    }
}

/// The stopped rank is killed by one that could end its part, once all others have.
async fn reader(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let stops = me == STOPPED;
    let pid = u64::from(std::process::id());
    let Sum(pids) = session.allreduce("pids", Sum(vec![if stops { pid } else { 0 }])).await?.value;
    let body = ElementWise::new("sum, or stop", vec![1u64; LENGTH], move |a: u64, b: u64| {
        if stops {
            stop();
        }
        a + b
    });
    let Outcome { value, report } = session.allreduce("long", body).allow_missing().await?;
    assert_eq!(report.missing, Path::single(STOPPED), "{report}");
    assert!(value.iter().all(|sum| *sum == u64::from(RANKS) - 1));
    let others = session.world().filter(|rank| rank != STOPPED.0);
    session.allreduce("all others have gone on", Sum(vec![1u8])).group(others).await?;
    if me == 0 {
        let stopped = Pid::from_raw(pids[0] as i32);
        kill(stopped, Signal::SIGKILL).map_err(std::io::Error::from)?;
    }
    Ok(())
}
