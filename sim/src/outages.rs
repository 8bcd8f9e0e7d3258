//! Where the network does not carry what it is to carry, and what is held back there.

use crate::{
    events::Happening,
    faults::{Cut, Gap},
};

/// What is cut off from what at the moment.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    /// Where the network is cut.
    cuts: Vec<Cut>,
    /// Hosts that do not reach each other's memory.
    gaps: Vec<Gap>,
    /// What does not get through.
    held_back: Vec<Happening>,
}

impl Outages {
    /// Begins a cut.
    pub fn cut(&mut self, cut: Cut) {
        self.cuts.push(cut);
    }

    /// Ends a cut. Returns all that was held back: some of it may get through now.
    pub fn heal(&mut self, cut: &Cut) -> Vec<Happening> {
        if let Some(position) = self.cuts.iter().position(|other| other == cut) {
            self.cuts.remove(position);
        }
        std::mem::take(&mut self.held_back)
    }

    /// Lets two hosts not reach each other's memory any more.
    pub fn part(&mut self, gap: Gap) {
        self.gaps.push(gap);
    }

    /// Lets two hosts reach each other's memory again.
    pub fn meet(&mut self, gap: &Gap) {
        if let Some(position) = self.gaps.iter().position(|other| other == gap) {
            self.gaps.swap_remove(position);
        }
    }

    /// Keeps what does not get through.
    pub fn hold_back(&mut self, what: Happening) {
        self.held_back.push(what);
    }

    /// Whether messages from one host to another are held back.
    pub fn severs(&self, from: u64, to: u64) -> bool {
        self.cuts.iter().any(|cut| cut.severs(from, to))
    }

    /// Whether messages between two hosts are held back in one direction at least.
    pub fn separates(&self, one: u64, other: u64) -> bool {
        self.severs(one, other) || self.severs(other, one)
    }

    /// What keeps the processes of one host from the memory of another's, although messages get through.
    pub fn gap(&self, reader: u64, owner: u64) -> Option<Gap> {
        self.gaps.iter().find(|gap| gap.parts(reader, owner)).copied()
    }
}
