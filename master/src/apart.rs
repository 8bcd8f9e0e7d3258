//! Processes that do not reach each other's memory, and how a reduction goes on in spite of them.
//!
//! Two processes may both live, both be heard by the master, and yet not read each other: the link between
//! their hosts is cut or refuses connections. A reader whose task failed for that is *apart* from the owner.
//! Partials that it cannot read are folded by others:
//!
//! 1. By the owners of other partials that wait; the reader then reads their folds.
//! 2. If all of them are apart from all partials that they could fold: by a process whose own partial is not
//!    needed. It begins afresh with partials that it reaches, with a single one if need be. That task is a
//!    copy, and *relays* the partial to readers that reach this process but not the owner.
//! 3. If no process can do that, all readers that are apart try again, with a pause before each try that
//!    grows with the time tried, until they have tried for longer than any silence is tolerated. Then the
//!    reduction ends in [`FoldFailed`](everfold_protocol::report::Refusal::FoldFailed).

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use everfold_protocol::{Path, Rank, Timestamp, message::Data};

use crate::{queue::Ready, tries::TimeTried};

/// Readers on one host that did not reach an owner before no others on that host are sent there.
const READERS_MAX: u32 = 2;

/// If readers on this many hosts did not reach an owner, no process is sent there just to relay: the owner is
/// most likely out of reach of all.
const HOSTS_MAX: usize = 8;

/// A rank that reads, and the host where it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    pub rank: Rank,
    pub host: u64,
}

/// Readers that did not reach owners.
#[derive(Clone, Debug, Default)]
pub(crate) struct Apart {
    /// By reader and owner.
    pairs: BTreeSet<(Rank, Rank)>,
    /// How many readers, by owner and their host.
    hosts: BTreeMap<(Rank, u64), u32>,
    /// Before this time readers that did not reach an owner do not try again.
    next_try: Timestamp,
}

impl Apart {
    /// Takes in that `reader` did not reach `owner`.
    pub fn part(&mut self, reader: Reader, owner: Rank) {
        if reader.rank != owner && self.pairs.insert((reader.rank, owner)) {
            *self.hosts.entry((owner, reader.host)).or_default() += 1;
        }
    }

    /// Forgets a process that was declared failed.
    pub fn forget(&mut self, dead: Rank) {
        self.pairs.retain(|(_, owner)| *owner != dead);
        self.hosts.retain(|(owner, _), _| *owner != dead);
    }

    /// Whether everybody reached everybody.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Before this time readers that did not reach an owner do not try again.
    pub fn next_try(&self) -> Timestamp {
        self.next_try
    }

    /// Lets all try again, and then not before `next_try`.
    pub fn try_again(&mut self, next_try: Timestamp) {
        *self = Self { next_try, ..Self::default() };
    }

    /// Whether `reader` can read a partial as far as is known.
    pub fn reaches(&self, reader: Reader, ready: &Ready) -> bool {
        let owner = ready.process.rank;
        let is_private = matches!(ready.data, Data::Private);
        reader.rank == owner || ready.is_inline() || !(is_private || self.are(reader, owner))
    }

    /// Whether `reader`, or enough others on its host, did not reach `owner`.
    pub fn are(&self, reader: Reader, owner: Rank) -> bool {
        let others = || self.hosts.get(&(owner, reader.host)).is_some_and(|readers| *readers >= READERS_MAX);
        self.pairs.contains(&(reader.rank, owner)) || others()
    }

    /// The owners that `reader` is not to read.
    pub fn owners(&self, reader: Reader) -> Path {
        let owners: BTreeSet<Rank> = self.pairs.iter().map(|(_, owner)| *owner).collect();
        owners.into_iter().filter(|owner| *owner != reader.rank && self.are(reader, *owner)).collect()
    }

    /// Whether readers on [`HOSTS_MAX`] hosts did not reach `owner`: it is most likely out of reach of all.
    pub fn is_remote(&self, owner: Rank) -> bool {
        self.hosts.range((owner, 0)..=(owner, u64::MAX)).take(HOSTS_MAX).count() == HOSTS_MAX
    }
}

/// The tries of a segment whose partials no process can bring together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tries {
    /// Whether a pause is under way, after which those that are apart try again.
    pauses: bool,
    /// Whether there was a pause since the latest try.
    rested: bool,
    /// Whether no process was left that could do it.
    is_last: bool,
    /// Whether that was tried for long enough: the next task that fails for it is the last one.
    is_over: bool,
    /// For how long it was tried since then.
    tried: TimeTried,
}

impl Tries {
    /// Begins a pause. Returns false if there is one.
    pub fn pause(&mut self) -> bool {
        !core::mem::replace(&mut self.pauses, true)
    }

    /// Ends the pause.
    pub fn go_on(&mut self) {
        (self.pauses, self.rested) = (false, true);
    }

    /// Whether there was a pause since the latest try.
    pub fn are_rested(&self) -> bool {
        self.rested
    }

    /// Takes in that no process is left that could do it, so that all try again. Returns the pause before the
    /// next try.
    pub fn begin(&mut self, now: Timestamp) -> Duration {
        self.is_last = true;
        self.tried.begin(now);
        self.tried.pause()
    }

    /// Takes in that a try failed, for which a process waits for `patience` at most; one of a process that
    /// did not reach `itself` counts, too. Returns whether it was tried for longer than `most`, and no other
    /// process could do it.
    pub fn fail(&mut self, now: Timestamp, itself: bool, patience: Duration, most: Duration) -> bool {
        if self.is_last || itself {
            self.tried.again(now, patience);
        }
        self.rested = false;
        self.is_over = self.tried.exceeds(most);
        self.is_over
    }

    /// Whether it was tried for long enough.
    pub fn are_over(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_did_not_reach_whom_is_known_until_one_of_them_dies() {
        let mut apart = Apart::default();
        let on_host = |rank, host| Reader { rank: Rank(rank), host };
        let [one, two, three] = [1, 2, 3].map(|rank| on_host(rank, 0));
        apart.part(one, Rank(1));
        assert!(apart.is_empty(), "who holds up itself is not apart from itself");
        apart.part(one, Rank(5));
        apart.part(one, Rank(5));
        assert!(apart.are(one, Rank(5)) && !apart.are(on_host(5, 7), Rank(1)), "one way");
        assert!(!apart.are(three, Rank(5)), "it may be the reader");
        apart.part(two, Rank(5));
        assert!(apart.are(three, Rank(5)), "it is the host");
        assert_eq!(apart.owners(three), Path::single(Rank(5)));
        apart.part(one, Rank(6));
        apart.forget(Rank(5));
        assert!(!apart.are(one, Rank(5)) && !apart.are(three, Rank(5)) && apart.are(one, Rank(6)));
        (1..HOSTS_MAX as u64).for_each(|host| apart.part(on_host(10 + host as u32, host), Rank(6)));
        assert!(apart.is_remote(Rank(6)) && !apart.is_remote(Rank(5)));
    }
}
