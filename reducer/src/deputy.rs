//! The master's machine as a deputy, for workers to host.

use std::sync::Arc;

use everfold_master::{self as master, Action, Policy};
use everfold_protocol::{
    ProcessId, ReductionId, Timestamp,
    message::{Evidence, ToMaster, ToWorker},
};
use everfold_worker::deputies::{Decision, Deputy, MakeDeputy};

/// Makes deputies that schedule by `policy`, within the limits of their job.
pub(crate) fn make(policy: Policy) -> MakeDeputy {
    MakeDeputy(Arc::new(move |now, job, process, peers, limits| {
        let policy = Policy { limits, ..policy };
        Box::new(TeamMaster(master::Deputy::new(now, job, process.rank, peers, policy)))
    }))
}

struct TeamMaster(master::Deputy);

impl Deputy for TeamMaster {
    fn hear(&mut self, now: Timestamp, sender: ProcessId, message: ToMaster) {
        self.0.hear(now, sender, message);
    }

    fn depart(&mut self, now: Timestamp, process: ProcessId, evidence: Evidence) {
        self.0.depart(now, process, evidence);
    }

    fn forget(&mut self, now: Timestamp, attempt: ReductionId) {
        self.0.forget(now, attempt);
    }

    fn wake(&mut self, now: Timestamp) {
        self.0.handle_timeout(now);
    }

    fn due(&self) -> Option<Timestamp> {
        self.0.poll_timeout()
    }

    fn decide(&mut self) -> Option<Decision> {
        loop {
            match self.0.poll_action()? {
                Action::Send { to, message: ToWorker::Task(task) } => return Some(Decision::Task(to, task)),
                Action::Report(message) => return Some(Decision::Report(message)),
                // Whatever else there is to be told is the master's affair.
                _ => {}
            }
        }
    }
}
