//! TFD (FL-3, algorithm 1 of the paper): brings each symptom to who collects those of its suspect.
//!
//! A symptom that nobody acknowledges is sent once more, and then goes to the next substitute. Symptoms may
//! arrive twice, which analysis does not mind.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::time::Duration;

use everfold_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    place::{Host, Place},
    symptom::{Kind, Symptom},
    tree::{Absence, Absent, ROOT, Tree},
};

/// How many symptoms one host keeps until they are acknowledged. More are dropped: they come again if they last.
const UNDER_WAY_MAX: usize = 256;

/// Names a symptom until its receiver has acknowledged it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ticket(pub u64);

/// How often and how long.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// A symptom that lasts is sent again after this long.
    pub repeat: Duration,
    /// What a receiver has not acknowledged after this long is sent once more. A receiver that does not
    /// acknowledge that in time either is taken for cut off.
    pub patience: Duration,
    /// For how long it is, unless something is heard of it.
    pub absence: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            repeat: Duration::from_secs(1),
            patience: Duration::from_millis(300),
            absence: Duration::from_secs(10),
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send it to a localisation node, which answers with the ticket.
    Send {
        /// To whom.
        to: Host,
        /// What to acknowledge.
        ticket: Ticket,
        /// What was observed.
        symptom: Symptom,
    },
    /// This host collects it itself.
    Keep(Symptom),
}

/// The machine that each host has until the job ends.
#[derive(Debug)]
pub struct Tfd {
    me: Host,
    tree: Tree,
    pace: Pace,
    absent: Absent,
    back: BTreeMap<Host, Timestamp>,
    said: BTreeMap<(Kind, Place), Timestamp>,
    under_way: BTreeMap<Ticket, UnderWay>,
    next: u64,
    outbox: VecDeque<Action>,
}

#[derive(Debug)]
struct UnderWay {
    to: Host,
    symptom: Symptom,
    seen: Timestamp,
    due: Timestamp,
    is_repeated: bool,
}

impl Tfd {
    /// A machine for host `me`.
    pub fn new(me: Host, tree: Tree, pace: Pace) -> Self {
        Self {
            me,
            tree,
            pace,
            absent: Absent::new(),
            back: BTreeMap::new(),
            said: BTreeMap::new(),
            under_way: BTreeMap::new(),
            next: 0,
            outbox: VecDeque::new(),
        }
    }

    /// Something was observed here. The same again is sent only after a while.
    pub fn handle_symptom(&mut self, now: Timestamp, symptom: Symptom) {
        let Some(host) = symptom.suspect.host().filter(|&host| self.tree.contains(host)) else { return };
        self.said.retain(|_, said| now.since(*said) < self.pace.repeat);
        let key = (symptom.kind, symptom.suspect);
        if self.said.contains_key(&key) || self.under_way.len() >= UNDER_WAY_MAX {
            return;
        }
        self.said.insert(key, now);
        let seen = now - symptom.ago;
        self.send(now, host, symptom, seen);
    }

    /// A receiver has acknowledged.
    pub fn handle_received(&mut self, ticket: Ticket) {
        if let Some(sent) = self.under_way.remove(&ticket) {
            self.handle_present(sent.to);
        }
    }

    /// A host is there, and has room.
    pub fn handle_present(&mut self, host: Host) {
        self.absent.remove(&host);
        self.back.remove(&host);
    }

    /// A host is away, or has no room.
    pub fn handle_absent(&mut self, now: Timestamp, host: Host, why: Absence) {
        self.absent.insert(host, why);
        self.back.insert(host, now + self.pace.absence);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        let back: Vec<Host> = self.back.iter().filter(|(_, at)| **at <= now).map(|(&host, _)| host).collect();
        for host in back {
            self.handle_present(host);
        }
        let due: Vec<Ticket> =
            self.under_way.iter().filter(|(_, sent)| sent.due <= now).map(|(&ticket, _)| ticket).collect();
        for ticket in due {
            let Some(sent) = self.under_way.get_mut(&ticket) else { continue };
            if !core::mem::replace(&mut sent.is_repeated, true) && !self.absent.contains_key(&sent.to) {
                (sent.symptom.ago, sent.due) = (now.since(sent.seen), now + self.pace.patience);
                self.outbox.push_back(Action::Send { to: sent.to, ticket, symptom: sent.symptom });
                continue;
            }
            let Some(sent) = self.under_way.remove(&ticket) else { continue };
            self.handle_absent(now, sent.to, Absence::CutOff);
            // Where even the root does not answer, a symptom that lasts is observed again.
            if let (Some(host), true) = (sent.symptom.suspect.host(), sent.to != ROOT) {
                self.send(now, host, sent.symptom, sent.seen);
            }
        }
    }

    /// When to call [`Tfd::handle_timeout`] next.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.under_way.values().map(|sent| sent.due).chain(self.back.values().copied()).min()
    }

    /// What to do next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.outbox.pop_front()
    }

    fn send(&mut self, now: Timestamp, host: Host, mut symptom: Symptom, seen: Timestamp) {
        symptom.ago = now.since(seen);
        let to = self.tree.collector(host, &self.absent);
        if to == self.me {
            self.outbox.push_back(Action::Keep(symptom));
            return;
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        let due = now + self.pace.patience;
        self.under_way.insert(ticket, UnderWay { to, symptom, seen, due, is_repeated: false });
        self.outbox.push_back(Action::Send { to, ticket, symptom });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symptom_that_lasts_is_sent_once_in_a_while() {
        let pace = Pace::default();
        let tree = Tree::new(2, 8).unwrap();
        let mut tfd = Tfd::new(Host(1), tree, pace);
        let (kind, suspect) = (Kind::Steal, Place::Host(Host(1)));
        let symptom =
            Symptom { kind, suspect, witness: Host(1), ago: Duration::ZERO, value: 1.0, threshold: 0.5 };
        let mut sent = 0;
        for tenth in 0..30u32 {
            let now = Timestamp::ZERO + tenth * pace.repeat / 10;
            tfd.handle_symptom(now, symptom);
            while let Some(action) = tfd.poll_action() {
                sent += 1;
                if let Action::Send { ticket, .. } = action {
                    tfd.handle_received(ticket);
                }
            }
        }
        assert_eq!(sent, 3, "in three times as long");
    }
}
