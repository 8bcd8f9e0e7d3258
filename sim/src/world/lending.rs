//! What processes lend of their bodies to readers on other hosts, and who waits until it is given back.
//!
//! A read is under way from the beginning of what it is for until that is done. If its reader is frozen or
//! gone without a word meanwhile, nothing but [`Readers::depart`](everfold_worker::readers::Readers::depart)
//! gives back what it was lent.

use everfold_protocol::{ProcessId, Rank};

use super::World;
use crate::{
    process::{Shown, Thing},
    work::Work,
};

impl World {
    /// Lends `reader` what it begins to read on other hosts for `work`.
    pub(super) fn lend(&mut self, reader: ProcessId, work: &Work) {
        if !self.settings.follow {
            return;
        }
        let (purpose, reduction) = (work.purpose(), work.reduction().called());
        for (owner, window) in work.reads() {
            let (here, there) = (self.host_of(reader), self.host_of(owner));
            let is_far = here != there;
            let cut = self.outages.separates(here, there) || self.outages.gap(here, there).is_some();
            let process = self.of_mut(owner);
            let is_there = process.worker.is_some() && process.frozen.is_none();
            let thing = match process.shown(window) {
                Some(Shown::Original | Shown::Result) => Thing::Body,
                Some(Shown::Partial) => Thing::Partial,
                Some(Shown::Encoded(_)) | None => continue,
            };
            if is_far && !cut && is_there {
                process.lend(reader, (reduction, purpose, thing));
            }
        }
    }

    /// Takes back what `reader` was lent for `work`, which is done or goes on by itself later.
    pub(super) fn take_back(&mut self, reader: ProcessId, work: &Work) {
        let lent = (work.reduction().called(), work.purpose());
        for (owner, _) in work.reads() {
            if let Some(connection) = self.of_mut(owner).readers.connection(reader) {
                connection.retain(|(reduction, purpose, _)| (*reduction, *purpose) != lent);
            }
            self.end_waits(owner.rank);
        }
    }

    /// Takes back all that a process was lent that has died: everyone sees its connections break.
    pub(super) fn hang_up_reads(&mut self, reader: ProcessId) {
        for owner in (0..self.settings.ranks).map(Rank) {
            if let Some(connection) = self.process_mut(owner).readers.connection(reader) {
                connection.clear();
            }
            self.end_waits(owner);
        }
    }

    /// Takes in that `owner` hears that a reader was declared failed.
    pub(super) fn depart(&mut self, owner: Rank, reader: ProcessId) {
        drop(self.process_mut(owner).readers.depart(reader));
        self.end_waits(owner);
    }

    /// Takes in that `owner` takes part no more, and serves nobody.
    pub(super) fn serve_nobody(&mut self, owner: Rank) {
        self.process_mut(owner).readers.close_all();
        self.end_waits(owner);
    }

    /// Ends the calls of `owner` that have waited for its body, which it has back.
    fn end_waits(&mut self, owner: Rank) {
        while let Some((reduction, end)) = self.process_mut(owner).idle() {
            self.resolve(owner, reduction, end);
        }
    }
}
