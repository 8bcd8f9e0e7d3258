//! What waits for a master that takes messages in batches.

use everfold_master as master;
use everfold_protocol::message::Header;

use crate::{
    events::Happening,
    world::{JOB, World},
};

impl World {
    /// Puts what comes to the master behind what waits for it already, if it takes messages in batches. Gives back what it takes
    /// in at once: everything else, and answers to pings while nothing waits.
    pub(crate) fn put_off(&mut self, what: Happening) -> Option<Happening> {
        let is_for_master = matches!(what, Happening::ToMaster(..) | Happening::Disconnected(_));
        if self.settings.batch.is_zero() || !is_for_master || (self.inbox.is_empty() && what.is_idle()) {
            return Some(what);
        }
        if self.inbox.is_empty() {
            self.schedule(self.now() + self.settings.batch, Happening::Turn);
        }
        self.inbox.push(what);
        None
    }

    /// Lets the master take in everything that waits for it, in the order in which it came.
    pub(crate) fn take_in(&mut self) {
        let waiting = std::mem::take(&mut self.inbox);
        if waiting.len() > 1 {
            self.batches += 1;
        }
        waiting.into_iter().for_each(|what| self.hear(what));
    }

    /// Lets the master take in what has come to it.
    pub(crate) fn hear(&mut self, what: Happening) {
        match what {
            Happening::ToMaster(sender, epoch, message) => {
                if !self.loses(sender) {
                    let header = Header { job: JOB, epoch, sender };
                    self.coordinator.hear(master::Event::Message { header, message: *message });
                    self.run_coordinator();
                }
            }
            Happening::Disconnected(process) => {
                self.note_end(process);
                self.coordinator.hear(master::Event::Disconnected(process));
                self.run_coordinator();
            }
            other => unreachable!("it does not come to the master: {other:?}"),
        }
    }

    /// Batches of several messages that the master has taken in.
    pub fn batches(&self) -> u64 {
        self.batches
    }
}
