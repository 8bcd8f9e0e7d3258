//! What processes lend of their bodies to readers on other hosts, and who waits until it is given back.
//!
//! A read is under way from the beginning of what it is for until that is done. If its reader is frozen or gone without a
//! word meanwhile, nothing but [`Readers::depart`] gives back what it was lent.

use std::collections::BTreeSet;

use everfold_protocol::{
    ProcessId, Rank, ReductionId, TaskId,
    message::{Data, Piece, Source, WindowRef},
};
use everfold_worker::{machine::End, readers::Readers};

use crate::{
    events::Work,
    process::{Process, Share, Shown},
    world::World,
};

/// What a process lends over one connection: what of which reductions, and what for.
pub(crate) type Lent = BTreeSet<(ReductionId, Purpose, Thing)>;

/// What is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thing {
    /// A body, with a contribution or a result.
    Body,
    /// A partial. It goes back to the application if the result was copied over it.
    Partial,
}

/// What something is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Task(ReductionId, TaskId),
    Result(ReductionId),
    Copy(ReductionId, Rank, u32),
}

impl Work {
    fn purpose(&self) -> Purpose {
        match self {
            Self::Execute(task) => Purpose::Task(task.segment.reduction, task.task),
            Self::Collect(reduction, ..) => Purpose::Result(*reduction),
            Self::Keep(keep) => Purpose::Copy(keep.reduction, keep.source.process.rank, keep.segments.start),
        }
    }

    /// What it reads, and whose that is.
    fn reads(&self) -> Vec<(ProcessId, &WindowRef)> {
        let (sources, pieces): (&[Source], &[Piece]) = match self {
            Self::Execute(task) => (&task.sources, &[]),
            Self::Collect(_, pieces, _) => (&[], pieces),
            Self::Keep(keep) => (std::slice::from_ref(&keep.source), &[]),
        };
        let sources = sources.iter().map(|source| (source.process, &source.data));
        let all = sources.chain(pieces.iter().map(|piece| (piece.process, &piece.data)));
        all.filter_map(|(process, data)| Some((process, window_of(data)?))).collect()
    }
}

fn window_of(data: &Data) -> Option<&WindowRef> {
    match data {
        Data::Window(window) => Some(window),
        Data::Inline(_) | Data::Private => None,
    }
}

impl Process {
    /// Lends something of a call to a reader, unless that has departed.
    fn lend(&mut self, reader: ProcessId, lent: (ReductionId, Purpose, Thing)) {
        let connected = self.readers.connection(reader).is_some();
        if connected || self.readers.admit(reader, Lent::new()).is_ok() {
            self.readers.connection(reader).expect("it is connected").insert(lent);
        }
    }

    /// Whether a reader was lent the body of a call.
    pub fn lends_body(&self, reduction: ReductionId) -> bool {
        lends(&self.readers, reduction, |thing| thing == Thing::Body)
    }

    /// Whether a reader was lent what goes back to the application when a call ends with the result.
    pub fn lends(&self, reduction: ReductionId) -> bool {
        let beside = self.shares.get(&reduction).is_some_and(|share| share.how.beside);
        lends(&self.readers, reduction, |thing| thing == Thing::Body || beside)
    }

    /// Gives a call whose body was not lent to anybody any more its end, if it waits for that.
    fn idle(&mut self) -> Option<(ReductionId, End)> {
        let readers = &self.readers;
        let idle = |id: &ReductionId, share: &Share| {
            !lends(readers, *id, |thing| thing == Thing::Body || share.how.beside)
        };
        let mut waiting =
            self.shares.iter_mut().filter(|(id, share)| share.waits.is_some() && idle(id, share));
        waiting.next().and_then(|(id, share)| Some((*id, share.waits.take()?)))
    }
}

fn lends(readers: &Readers<Lent>, reduction: ReductionId, which: impl Fn(Thing) -> bool) -> bool {
    let mut lent = readers.connections().flatten();
    lent.any(|(of, _, thing)| *of == reduction && which(*thing))
}

impl World {
    /// Lends `reader` what it begins to read on other hosts for `work`.
    pub(crate) fn lend(&mut self, reader: ProcessId, work: &Work) {
        if !self.settings.follow {
            return;
        }
        let (purpose, reduction) = (work.purpose(), work.reduction().called());
        for (owner, window) in work.reads() {
            let is_far = self.settings.host(owner.rank) != self.settings.host(reader.rank);
            let cut = self.is_severed(reader.rank, owner.rank) || self.is_severed(owner.rank, reader.rank);
            let cut = cut || self.gap(reader.rank, owner.rank).is_some();
            let process = self.process_mut(owner.rank);
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
    pub(crate) fn take_back(&mut self, reader: ProcessId, work: &Work) {
        let lent = (work.reduction().called(), work.purpose());
        for (owner, _) in work.reads() {
            if let Some(connection) = self.process_mut(owner.rank).readers.connection(reader) {
                connection.retain(|(reduction, purpose, _)| (*reduction, *purpose) != lent);
            }
            self.end_waits(owner.rank);
        }
    }

    /// Takes back all that a process was lent that has died: everyone sees its connections break.
    pub(crate) fn hang_up_reads(&mut self, reader: ProcessId) {
        for owner in (0..self.settings.ranks).map(Rank) {
            if let Some(connection) = self.process_mut(owner).readers.connection(reader) {
                connection.clear();
            }
            self.end_waits(owner);
        }
    }

    /// Takes in that `owner` hears that a reader was declared failed.
    pub(crate) fn depart(&mut self, owner: Rank, reader: ProcessId) {
        drop(self.process_mut(owner).readers.depart(reader));
        self.end_waits(owner);
    }

    /// Ends the calls of `owner` that have waited for its body, which it has back.
    fn end_waits(&mut self, owner: Rank) {
        while let Some((reduction, end)) = self.process_mut(owner).idle() {
            self.resolve(owner, reduction, end);
        }
    }
}
