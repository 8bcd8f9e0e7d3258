//! One process of a job, from its start to its end.

use std::{io, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use everfold_protocol::{ProcessId, message::Ending};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{process::Child, sync::watch, time::timeout};

use super::failures::Failures;
use crate::{
    agent::Ends,
    launch::{
        output::{Forwarder, Sink},
        rollback::ROLLED_BACK,
    },
};

/// Ctrl-C on a terminal ends the processes directly. We get the same signal, but may hear of it so much
/// later.
const SIGNAL_LAG: Duration = Duration::from_millis(100);

/// A process that was started.
pub(super) struct Process {
    id: ProcessId,
    /// Whether its death is none of the job's.
    may_die: bool,
    child: Child,
    output: [Forwarder; 2],
}

impl Process {
    /// `may_die` says whether its death is none of the job's.
    pub(super) fn new(id: ProcessId, may_die: bool, child: Child, output: [Forwarder; 2]) -> Self {
        Self { id, may_die, child, output }
    }

    pub(super) fn id(&self) -> ProcessId {
        self.id
    }

    /// Has the process killed. Its end is still to be [waited](Self::gone) for.
    pub(super) fn kill(&mut self) {
        let _ = self.child.start_kill();
    }

    /// Waits until it has ended.
    pub(super) async fn gone(mut self) {
        let _ = self.child.wait().await;
    }

    /// Forwards the output of the process, passes on orders, and reports its failure, if it fails. Returns
    /// whether it has.
    pub(super) async fn attend(
        self,
        mut stops: Stops,
        failures: Failures,
        notices: Option<Sink>,
        ends: Ends,
    ) -> bool {
        let [stdout, stderr] = self.output;
        let (alive, ended) = watch::channel(());
        let until_ended = || {
            let mut ended = ended.clone();
            async move { while ended.changed().await.is_ok() {} }
        };
        let process = async {
            let end = wait(self.child, stops.clone()).await;
            // Before the output is forwarded, which may take its time: the first to fail counts.
            match end.code {
                0 => failures.note_survivor(),
                code if self.may_die && end.is_death => failures.note_death(self.id, code),
                code => failures.note(self.id, code),
            }
            ends.ended(self.id, end.ending);
            drop(alive);
            end
        };
        let (end, (), ()) = tokio::join!(process, stdout.run(until_ended()), stderr.run(until_ended()));
        // The others end because one has failed.
        let is_told = ![0, ROLLED_BACK].contains(&end.code) && !*stops.is_over.borrow();
        if let Some(notices) = notices
            && is_told
            && timeout(SIGNAL_LAG, stops.orders.wait_for(Option::is_some)).await.is_err()
        {
            let rank = self.id.rank;
            let notice = match *stops.stands_by.borrow() {
                true => {
                    format!("the standby of rank {rank} {}; the rank itself is not affected", end.in_words)
                }
                false => format!("rank {rank} {}", end.in_words),
            };
            notices.send(format!("everfold: {notice}\n")).await;
        }
        end.code != 0
    }
}

/// What ends processes, and how their ends are told.
#[derive(Clone)]
pub(super) struct Stops {
    /// Signals that are passed on to all of them.
    pub(super) orders: watch::Receiver<Option<Signal>>,
    /// Whether the process is to end by itself, or because the run is over.
    pub(super) is_over: watch::Receiver<bool>,
    /// Whether the process stands by: until it takes a place.
    pub(super) stands_by: watch::Receiver<bool>,
}

/// Waits until the process has ended, and sends it the signals that are ordered meanwhile.
async fn wait(mut child: Child, Stops { mut orders, mut is_over, .. }: Stops) -> End {
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return status.into(),
            true = async { is_over.wait_for(|is_over| *is_over).await.is_ok() } => {
                let _ = child.start_kill();
                return child.wait().await.into();
            }
            Ok(()) = orders.changed() => {
                let order = *orders.borrow_and_update();
                // The id is still that of the child, as it was not waited for.
                if let Some(pid) = child.id() {
                    let _ = kill(Pid::from_raw(pid as i32), order);
                }
            }
        }
    }
}

/// How a process has ended.
struct End {
    code: u8,
    /// Whether a signal has killed it.
    is_death: bool,
    /// The same for the agent.
    ending: Ending,
    in_words: String,
}

impl From<io::Result<ExitStatus>> for End {
    fn from(status: io::Result<ExitStatus>) -> Self {
        let (code, in_words) = match status.as_ref().map(|status| (status.code(), status.signal())) {
            Ok((Some(code), _)) => (code, format!("exited with code {code}")),
            Ok((None, Some(number))) => match Signal::try_from(number) {
                Ok(signal) => (128 + number, format!("was killed by {signal}")),
                Err(_) => (128 + number, format!("was killed by signal {number}")),
            },
            Ok((None, None)) | Err(_) => (1, format!("ended in an unknown way: {status:?}")),
        };
        let code = u8::try_from(code).unwrap_or(u8::MAX);
        let ending = match status.as_ref().map(|status| (status.code(), status.signal())) {
            Ok((Some(code), _)) => Ending::Code(code),
            Ok((None, Some(signal))) => Ending::Signal(signal),
            Ok((None, None)) | Err(_) => Ending::Unknown,
        };
        let is_death = matches!(ending, Ending::Signal(_));
        Self { code, is_death, ending, in_words }
    }
}
