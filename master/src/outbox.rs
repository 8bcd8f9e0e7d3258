//! What is to be done, in order.

use alloc::{boxed::Box, collections::VecDeque, vec};

use everfold_protocol::{
    AgentId, Path, ProcessId, ReductionId,
    message::{Effort, Opened, Part, ToAgent, ToMaster, ToWorker},
};

use crate::event::{Action, Notice};

/// Actions that the driver has yet to take.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox(VecDeque<Action>);

impl Outbox {
    /// Tells a worker.
    pub fn send(&mut self, to: ProcessId, message: ToWorker) {
        self.0.push_back(Action::Send { to, message });
    }

    /// Tells each of these workers the same.
    pub fn send_each(&mut self, to: impl IntoIterator<Item = ProcessId>, message: &ToWorker) {
        to.into_iter().for_each(|to| self.send(to, message.clone()));
    }

    /// Closes the connection to a process.
    pub fn disconnect(&mut self, process: ProcessId) {
        self.0.push_back(Action::Disconnect(process));
    }

    /// Tells an agent.
    pub fn send_agent(&mut self, to: AgentId, message: ToAgent) {
        self.0.push_back(Action::SendAgent { to, message });
    }

    /// Closes the connection to an agent.
    pub fn disconnect_agent(&mut self, agent: AgentId) {
        self.0.push_back(Action::DisconnectAgent(agent));
    }

    /// Tells the watchers.
    pub fn notice(&mut self, notice: Notice) {
        self.0.push_back(Action::Notice(notice));
    }

    /// Tells the watchers that a message of `sender` was dropped.
    pub fn stale(&mut self, sender: ProcessId, what: &'static str) {
        self.notice(Notice::Stale { sender, what });
    }

    /// Tells that the master is no longer needed.
    pub fn done(&mut self) {
        self.0.push_back(Action::Done);
    }

    /// At a deputy: tells the master that the team has contributed.
    pub fn report_open(&mut self, opened: Opened) {
        self.0.push_back(Action::Report(ToMaster::Opened(Box::new(opened))));
    }

    /// At a deputy: tells the master of a segment that the team has folded, and with the last one what all of
    /// them took. Those of one turn go together.
    pub fn report_part(&mut self, id: ReductionId, part: Part, effort: Option<Effort>) {
        if let Some(Action::Report(ToMaster::Parts { reduction, parts, effort: all })) = self.0.back_mut()
            && *reduction == id
        {
            parts.push(part);
            *all = effort;
        } else {
            let parts = ToMaster::Parts { reduction: id, parts: vec![part], effort };
            self.0.push_back(Action::Report(parts));
        }
    }

    /// At a deputy: asks the master to dissolve an attempt of `group`.
    pub fn ask_to_dissolve(&mut self, reduction: ReductionId, group: Path) {
        self.0.push_back(Action::Report(ToMaster::Dissolve { reduction, group }));
    }

    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next thing to do.
    pub fn take(&mut self) -> Option<Action> {
        self.0.pop_front()
    }
}
