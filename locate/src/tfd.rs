//! TFD (FL-3, algorithm 1 of the paper): brings each symptom to the node that collects those of its suspect.
//!
//! A symptom that is not acknowledged is sent once more, and then goes to the next substitute. Symptoms that
//! a receiver has acknowledged just before it went away go there, too: it may not have analysed them. A
//! symptom may arrive twice, which does no harm.

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
    /// For how long a symptom that was acknowledged is kept for a substitute: as long as it takes to find out
    /// that its receiver is away, and the receiver may have taken to analyse it.
    pub recall: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            repeat: Duration::from_secs(1),
            patience: Duration::from_millis(300),
            absence: Duration::from_secs(10),
            recall: Duration::from_secs(5),
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
    received: Vec<Received>,
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

/// A symptom that a localisation node has acknowledged.
#[derive(Debug)]
struct Received {
    by: Host,
    symptom: Symptom,
    seen: Timestamp,
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
            received: Vec::new(),
            next: 0,
            outbox: VecDeque::new(),
        }
    }

    /// Something was observed here. The same again is sent only after a while.
    pub fn handle_symptom(&mut self, now: Timestamp, symptom: Symptom) {
        let Some(host) = symptom.suspect.host().filter(|&host| self.tree.contains(host)) else { return };
        self.said.retain(|_, said| now.since(*said) < self.pace.repeat);
        self.forget_what_is_old(now);
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
        if let Some(UnderWay { to, symptom, seen, .. }) = self.under_way.remove(&ticket) {
            self.handle_present(to);
            if to != ROOT && self.received.len() < UNDER_WAY_MAX {
                let key = (symptom.kind, symptom.suspect);
                self.received.retain(|it| (it.symptom.kind, it.symptom.suspect) != key);
                self.received.push(Received { by: to, symptom, seen });
            }
        }
    }

    /// A host is there, and has room.
    pub fn handle_present(&mut self, host: Host) {
        self.absent.remove(&host);
        self.back.remove(&host);
    }

    /// A host is away, or has no room. A substitute begins with what that host has acknowledged of late.
    pub fn handle_absent(&mut self, now: Timestamp, host: Host, why: Absence) {
        self.absent.insert(host, why);
        self.back.insert(host, now + self.pace.absence);
        self.forget_what_is_old(now);
        let lost: Vec<Received> = self.received.extract_if(.., |it| it.by == host).collect();
        for Received { symptom, .. } in lost {
            // It counts from now on: nobody has analysed it.
            if let Some(suspect) = symptom.suspect.host() {
                self.send(now, suspect, symptom, now);
            }
        }
    }

    /// The root has located a fault of a host because of which nothing runs there, or found out that it is
    /// over.
    pub fn handle_stopped(&mut self, now: Timestamp, host: Host, is_over: bool) {
        match is_over {
            true => self.handle_present(host),
            false => self.handle_absent(now, host, Absence::Dead),
        }
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

    fn forget_what_is_old(&mut self, now: Timestamp) {
        self.received.retain(|it| now.since(it.seen) < self.pace.recall);
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
    fn what_a_node_has_acknowledged_before_it_went_away_goes_to_its_substitute() {
        let tree = Tree::new(20, 3).unwrap();
        let mut tfd = Tfd::new(Host(0), tree, Pace::default());
        let symptom = |suspect| Symptom {
            kind: Kind::Ended,
            suspect: Place::Host(Host(suspect)),
            witness: Host(0),
            ago: Duration::ZERO,
            value: 1.0,
            threshold: 1.0,
        };
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        // Host 4 collects of hosts 13 and 14, host 5 of host 16.
        for (ms, suspect) in [(0, 14), (4000, 13), (4500, 16)] {
            tfd.handle_symptom(at(ms), symptom(suspect));
            while let Some(Action::Send { ticket, .. }) = tfd.poll_action() {
                tfd.handle_received(ticket);
            }
        }
        tfd.handle_absent(at(6000), Host(4), Absence::Dead);
        let sent: Vec<_> = core::iter::from_fn(|| tfd.poll_action()).collect();
        let [Action::Send { to, symptom, .. }] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!((*to, symptom.suspect), (Host(1), Place::Host(Host(13))), "host 14's was long ago");
        tfd.handle_absent(at(6500), Host(4), Absence::Dead);
        assert_eq!(tfd.poll_action(), None, "it was sent");
    }

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
