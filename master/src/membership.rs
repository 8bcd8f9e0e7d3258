//! Who is in the job, and which messages are stale.

use everfold_protocol::{
    Epoch, JobId, Path, ProcessId, Rank,
    message::{Data, Evidence, Header, Peer, Place},
};

use crate::{
    placement::{Member, Placement},
    queue::Ready,
};

/// Where a rank stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not heard of yet.
    Expected,
    /// Takes part.
    Alive(Peer),
    /// Takes part in what it has called, and calls nothing more.
    Closing(Peer),
    /// Left in good order.
    Left,
    /// Declared failed. Fenced: nothing it says counts any more (I2).
    Failed(Evidence),
}

/// A message's place in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// From a process that takes part.
    Current,
    /// From a process that has failed, left, or was replaced by a later incarnation.
    Stale,
    /// From a future that this master has not made, or from another job: the sender is broken.
    Impossible,
}

/// The view of the job at the current epoch.
#[derive(Clone, Debug)]
pub struct Membership {
    job: JobId,
    epoch: Epoch,
    states: Vec<State>,
    /// Where each rank's process runs or ran.
    hosts: Vec<Option<u64>>,
    /// How many are in [`State::Alive`].
    open: u32,
}

impl Membership {
    /// A job of `size` ranks, all still expected.
    pub fn new(job: JobId, size: u32) -> Self {
        let size = size as usize;
        Self { job, epoch: Epoch(0), states: vec![State::Expected; size], hosts: vec![None; size], open: 0 }
    }

    /// Number of the current view.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Number of ranks in the job, whatever their state.
    pub fn size(&self) -> u32 {
        self.states.len() as u32
    }

    /// Sorts a message by who sent it and when.
    pub fn classify(&self, header: &Header) -> Freshness {
        if header.job != self.job || header.epoch > self.epoch {
            return Freshness::Impossible;
        }
        match self.states.get(header.sender.rank.index()) {
            None => Freshness::Impossible,
            Some(State::Alive(peer) | State::Closing(peer)) if peer.process == header.sender => {
                Freshness::Current
            }
            Some(State::Expected) => Freshness::Current,
            Some(_) => Freshness::Stale,
        }
    }

    /// Takes `peer` in. Returns false if its rank is not expected (any more).
    pub fn join(&mut self, peer: Peer) -> bool {
        match self.states.get_mut(peer.process.rank.index()) {
            Some(state @ State::Expected) => {
                self.hosts[peer.process.rank.index()] = Some(peer.host);
                *state = State::Alive(peer);
            }
            _ => return false,
        }
        self.open += 1;
        true
    }

    /// Whether every rank takes part: none is missing yet, none has failed, left or closed its session.
    pub fn everyone_here(&self) -> bool {
        self.open == self.size()
    }

    /// Whether all processes of `group` can read each other's memory.
    pub fn share_memory(&self, group: &Path) -> bool {
        let mut hosts = group.iter().map(|rank| self.hosts[rank.index()]);
        let first = hosts.next().flatten();
        first.is_some() && hosts.all(|host| host == first)
    }

    /// Declares `process` failed and starts a new epoch. Returns false if it was not taking part.
    pub fn fail(&mut self, process: ProcessId, evidence: Evidence) -> bool {
        let taking_part = self.alive(process.rank).is_some_and(|peer| peer.process == process);
        if taking_part {
            self.change(process.rank, State::Failed(evidence));
            self.epoch = self.epoch.next();
        }
        taking_part
    }

    /// Expects no more calls of `rank`.
    pub fn close(&mut self, rank: Rank) {
        if let State::Alive(peer) = &self.states[rank.index()] {
            self.change(rank, State::Closing(peer.clone()));
        }
    }

    /// Whether `rank` takes part, but calls nothing more.
    pub fn is_closing(&self, rank: Rank) -> bool {
        matches!(self.states.get(rank.index()), Some(State::Closing(_)))
    }

    /// Lets `rank`, which takes part, go.
    pub fn leave(&mut self, rank: Rank) {
        self.change(rank, State::Left);
    }

    fn change(&mut self, rank: Rank, state: State) {
        let before = std::mem::replace(&mut self.states[rank.index()], state);
        self.open -= u32::from(matches!(before, State::Alive(_)));
    }

    /// The process of `rank`, if it takes part.
    pub fn alive(&self, rank: Rank) -> Option<&Peer> {
        match self.states.get(rank.index()) {
            Some(State::Alive(peer) | State::Closing(peer)) => Some(peer),
            _ => None,
        }
    }

    /// All processes that take part, by rank.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.states.iter().filter_map(|state| match state {
            State::Alive(peer) | State::Closing(peer) => Some(peer),
            _ => None,
        })
    }

    /// Whether the bytes of `ready` can be read.
    ///
    /// Shared memory stays mapped at the peers when its process has died; what is in it does not change any more. Of a
    /// process that was only silent nothing is read (I2): it may wake up and go on writing.
    pub fn readable(&self, ready: &Ready, share_memory: bool) -> bool {
        match &ready.data {
            Data::Inline(_) => true,
            _ if self.alive(ready.process.rank).is_some_and(|peer| peer.process == ready.process) => true,
            Data::Window(window) => {
                let state = self.states.get(ready.process.rank.index());
                let died = matches!(state, Some(State::Failed(Evidence::Disconnected)));
                share_memory && died && matches!(window.place, Place::Region(_))
            }
            Data::Private => false,
        }
    }

    /// Who keeps the second copies of whose originals, among the living of `group`.
    pub fn placement(&self, group: &Path) -> Placement {
        let members = group.iter().filter_map(|rank| self.alive(rank)).map(|peer| Member {
            rank: peer.process.rank,
            host: peer.host,
            domain: peer.domain.clone(),
        });
        Placement::of(&members.collect::<Vec<_>>())
    }

    /// Ranks in the state that `which` accepts.
    pub fn ranks(&self, which: impl Fn(&State) -> bool) -> Path {
        (0u32..).map(Rank).zip(&self.states).filter(|(_, state)| which(state)).map(|(rank, _)| rank).collect()
    }
}
