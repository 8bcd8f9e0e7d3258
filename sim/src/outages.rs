//! Where the network does not carry what it is to carry, and what is held back there.

use everfold_protocol::Rank;

use crate::{
    events::{Happening, Place},
    faults::{Cut, Gap},
    settings::Settings,
};

/// What is cut off from what at the moment.
#[derive(Debug)]
pub(crate) struct Outages {
    /// By rank.
    hosts: Vec<u64>,
    /// That of the master.
    master: u64,
    /// Where the network is cut.
    cuts: Vec<Cut>,
    /// Hosts that do not reach each other's memory.
    gaps: Vec<Gap>,
    /// What does not get through.
    held_back: Vec<Happening>,
}

impl Outages {
    /// A network that carries everything.
    pub fn new(settings: &Settings) -> Self {
        let hosts = (0..settings.ranks).map(|rank| settings.host(Rank(rank))).collect();
        Self {
            hosts,
            master: settings.master_host(),
            cuts: Vec::new(),
            gaps: Vec::new(),
            held_back: Vec::new(),
        }
    }

    /// Begins a cut.
    pub fn cut(&mut self, cut: Cut) {
        self.cuts.push(cut);
    }

    /// Ends a cut; tells what gets through now.
    pub fn heal(&mut self, cut: &Cut) -> Vec<Happening> {
        if let Some(position) = self.cuts.iter().position(|other| other == cut) {
            self.cuts.remove(position);
        }
        let held = std::mem::take(&mut self.held_back);
        let (held, free) = held.into_iter().partition(|what| self.stops(what));
        self.held_back = held;
        free
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

    /// Whether something does not get through to where it goes.
    pub fn stops(&self, what: &Happening) -> bool {
        let host = |place| match place {
            Place::Rank(rank) => self.hosts[rank.index()],
            Place::Agent(host) => host,
            Place::Master => self.master,
        };
        let severs = |(from, to)| self.cuts.iter().any(|cut| cut.severs(host(from), host(to)));
        what.way().is_some_and(severs)
    }

    /// Keeps what does not get through.
    pub fn hold_back(&mut self, what: Happening) {
        self.held_back.push(what);
    }

    /// Whether messages from one rank's host to another's are held back.
    fn severs(&self, from: Rank, to: Rank) -> bool {
        let [from, to] = [from, to].map(|rank| self.hosts[rank.index()]);
        self.cuts.iter().any(|cut| cut.severs(from, to))
    }

    /// Whether messages between the hosts of two ranks are held back in one direction at least.
    pub fn separates(&self, one: Rank, other: Rank) -> bool {
        self.severs(one, other) || self.severs(other, one)
    }

    /// What keeps `reader` from the memory of `owner`, although messages get through.
    pub fn gap(&self, reader: Rank, owner: Rank) -> Option<Gap> {
        let [reader, owner] = [reader, owner].map(|rank| self.hosts[rank.index()]);
        self.gaps.iter().find(|gap| gap.parts(reader, owner)).copied()
    }

    /// Whether some hosts do not reach each other's memory.
    pub fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }
}
