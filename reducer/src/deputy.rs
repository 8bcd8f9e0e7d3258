//! The master's machine as a deputy, for workers to host.

use std::sync::Arc;

use everfold_master::{Action, Event, Master, Policy};
use everfold_protocol::{
    Epoch, JobId, ProcessId, ReductionId, Timestamp,
    message::{Evidence, Header, ToMaster, ToWorker},
};
use everfold_worker::deputies::{Decision, Deputy, MakeDeputy};

/// Makes deputies that schedule by `policy`, within the limits of their job.
pub(crate) fn make(policy: Policy) -> MakeDeputy {
    MakeDeputy(Arc::new(move |now, job, process, peers, limits| {
        let policy = Policy { limits, ..policy };
        Box::new(TeamMaster { job, master: Master::deputy(now, job, process.rank, peers, policy) })
    }))
}

struct TeamMaster {
    job: JobId,
    master: Master,
}

impl Deputy for TeamMaster {
    fn hear(&mut self, now: Timestamp, sender: ProcessId, message: ToMaster) {
        let header = Header { job: self.job, epoch: Epoch(0), sender };
        self.master.handle_event(now, Event::Message { header, message });
    }

    fn depart(&mut self, now: Timestamp, process: ProcessId, evidence: Evidence) {
        self.master.handle_event(now, Event::Departed(process, evidence));
    }

    fn forget(&mut self, now: Timestamp, attempt: ReductionId) {
        self.master.handle_event(now, Event::Over(attempt));
    }

    fn wake(&mut self, now: Timestamp) {
        self.master.handle_timeout(now);
    }

    fn due(&self) -> Option<Timestamp> {
        self.master.poll_timeout()
    }

    fn decide(&mut self) -> Option<Decision> {
        loop {
            match self.master.poll_action()? {
                Action::Send { to, message: ToWorker::Task(task) } => return Some(Decision::Task(to, task)),
                Action::Report(message) => return Some(Decision::Report(message)),
                // Whatever else there is to be told is the master's affair.
                _ => {}
            }
        }
    }
}
