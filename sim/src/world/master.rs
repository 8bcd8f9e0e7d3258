//! The master: what it hears, and what it does.

use everfold_agent::Event as AgentEvent;
use everfold_master::{self as master, coordinator::Coming};
use everfold_protocol::{
    AgentId,
    message::{FromAgent, Header, MASTER, ToMaster},
};

use super::World;
use crate::{events::Happening, settings::JOB};

impl World {
    /// Puts what comes to the master behind what waits for it already, if it takes messages in batches. Gives
    /// back what it takes in at once: everything else, and answers to pings while nothing waits.
    pub(super) fn put_off(&mut self, what: Happening) -> Option<Happening> {
        if self.settings.batch.is_zero() || !what.is_for_master() || (self.inbox.is_empty() && what.is_idle())
        {
            return Some(what);
        }
        if self.inbox.is_empty() {
            self.schedule(self.now() + self.settings.batch, Happening::Turn);
        }
        self.inbox.put(what);
        None
    }

    /// Lets the master take in everything that waits for it, in the order in which it came.
    pub(super) fn take_in(&mut self) {
        self.inbox.take().into_iter().for_each(|what| self.hear(what));
    }

    /// Lets the master take in what has come to it.
    pub(super) fn hear(&mut self, what: Happening) {
        match what {
            Happening::ToMaster(sender, epoch, message) => {
                if self.stands_by(sender) || !self.of_mut(sender).outbox.loses() {
                    if matches!(*message, ToMaster::Join { .. }) {
                        self.driver.connect(sender);
                    }
                    let header = Header { job: JOB, epoch, sender };
                    self.driver.hear(master::Event::Message { header, message: *message });
                    self.run_coordinator();
                }
            }
            Happening::Disconnected(process) => {
                self.driver.hear(master::Event::Disconnected(process));
                self.run_coordinator();
            }
            Happening::FromAgent(host, said) if !self.driver.is_done() => {
                if matches!(said, FromAgent::Join(_)) {
                    self.facts.take_in_agent(host);
                }
                self.driver.hear(master::Event::Agent(AgentId(host), said));
                self.run_coordinator();
            }
            Happening::AgentLost(host) if !self.driver.is_done() => {
                self.driver.hear(master::Event::AgentLost(AgentId(host)));
                self.run_coordinator();
            }
            Happening::Located(fault, over) if !self.driver.is_done() => self.hear_located(*fault, over),
            // Nobody is there any more.
            Happening::FromAgent(..) | Happening::AgentLost(_) | Happening::Located(..) => {}
            other => unreachable!("it does not come to the master: {other:?}"),
        }
    }

    /// Lets the master hear of what comes, and those wake up who may have slept too long.
    pub(super) fn run_coordinator(&mut self) {
        while let Some(coming) = self.driver.poll_coming() {
            let call = match &coming {
                Coming::Event(master::Event::Message { header, message }) => {
                    self.note_coming(header.sender, message)
                }
                Coming::Event(master::Event::Disconnected(process)) => {
                    self.facts.hang_up(*process, self.host_of(*process));
                    None
                }
                Coming::Event(master::Event::Agent(agent, FromAgent::Ended { process, .. }))
                    if !self.stands_by(*process) =>
                {
                    self.facts.hang_up(*process, agent.0);
                    None
                }
                _ => None,
            };
            self.driver.take_in(self.agenda.now(), coming);
            call.into_iter().for_each(|call| self.note_heard(call));
        }
        let late = self.driver.take_late();
        self.wake_late(late);
    }

    /// Lets the master do what it has decided.
    pub(super) fn run_master(&mut self) {
        while let Some(action) = self.driver.poll_action() {
            match action {
                master::Action::Send { to, message } => {
                    if self.settings.follow {
                        self.trace.said(to, &message);
                    }
                    self.note_said(to, &message);
                    self.give_up(to, &message);
                    self.copies.order(&message);
                    let header = Header { job: JOB, epoch: self.master().epoch(), sender: MASTER };
                    self.courier.tell_worker(&mut self.agenda, to, &header, message);
                }
                master::Action::SendAgent { to, message } => {
                    self.check_start(to.0, &message);
                    self.courier.tell_agent(&mut self.agenda, to.0, AgentEvent::Master(message));
                }
                // It is given up.
                master::Action::DisconnectAgent(agent) => {
                    self.facts.lose_host(self.agenda.now(), agent.0);
                    self.courier.tell_agent(&mut self.agenda, agent.0, AgentEvent::MasterLost);
                }
                master::Action::Report(_) => unreachable!("it is no deputy"),
                // What it fences hears that. What comes too late finds its connection broken.
                master::Action::Disconnect(process) => {
                    self.turn_standby_away(process);
                    if !self.of(process).plays {
                        self.courier.lose_master(&mut self.agenda, process);
                    }
                }
                master::Action::Notice(notice) => {
                    self.hear_notice(notice);
                    self.run_coordinator();
                }
                master::Action::Done => {
                    self.driver.finish();
                    self.turn_away_those_who_come();
                    self.hang_up_agents();
                }
            }
        }
        if let Some(due) = self.driver.poll_due() {
            self.schedule(due.max(self.now()), Happening::Timeout);
        }
    }

    /// Breaks the connections of those who have come too late to take part.
    fn turn_away_those_who_come(&mut self) {
        self.turn_standbys_away();
        for process in self.processes.iter().filter(|process| !process.plays) {
            self.courier.lose_master(&mut self.agenda, process.id);
        }
    }

    /// Breaks everyone's connection to the master, which is no more.
    pub(super) fn lose_master(&mut self) {
        self.turn_standbys_away();
        for process in &self.processes {
            self.courier.lose_master(&mut self.agenda, process.id);
        }
        self.hang_up_agents();
    }
}
