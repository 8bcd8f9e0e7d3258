//! The machine that decides for a team, as a rank hosts it.

use std::sync::Arc;

use everfold_master::{Action, Event, Master, Policy};
use everfold_protocol::{
    Epoch, JobId, ProcessId, ReductionId, Timestamp,
    message::{Evidence, Header, Peer, Task, ToMaster, ToWorker},
};

/// What a deputy wants done.
#[derive(Debug)]
pub(crate) enum Decision {
    /// A member is to do a task.
    Task(ProcessId, Task),
    /// The master is to hear this.
    Report(ToMaster),
}

/// What decides for a team.
#[derive(Debug)]
pub(crate) struct Deputy {
    job: JobId,
    machine: Master,
}

impl Deputy {
    /// The deputy that `host` hosts, in a job of `peers`.
    pub fn new(now: Timestamp, job: JobId, host: ProcessId, peers: Arc<[Peer]>, policy: Policy) -> Self {
        Self { job, machine: Master::deputy(now, job, host.rank, peers, policy) }
    }

    /// Takes in what a member has said.
    pub fn hear(&mut self, now: Timestamp, sender: ProcessId, message: ToMaster) {
        let header = Header { job: self.job, epoch: Epoch(0), sender };
        self.machine.handle_event(now, Event::Message { header, message });
    }

    /// Takes in that a process was declared failed.
    pub fn depart(&mut self, now: Timestamp, process: ProcessId, evidence: Evidence) {
        self.machine.handle_event(now, Event::Departed(process, evidence));
    }

    /// Takes in that an attempt is over.
    pub fn forget(&mut self, now: Timestamp, attempt: ReductionId) {
        self.machine.handle_event(now, Event::Over(attempt));
    }

    /// Takes in that time has passed.
    pub fn wake(&mut self, now: Timestamp) {
        self.machine.handle_timeout(now);
    }

    /// When [`wake`](Self::wake) is due.
    pub fn due(&self) -> Option<Timestamp> {
        self.machine.poll_timeout()
    }

    /// The next thing to do.
    pub fn decide(&mut self) -> Option<Decision> {
        loop {
            match self.machine.poll_action()? {
                Action::Send { to, message: ToWorker::Task(task) } => return Some(Decision::Task(to, task)),
                Action::Report(message) => return Some(Decision::Report(message)),
                // All else that there is to be told is the master's affair.
                _ => {}
            }
        }
    }
}
