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

use crate::{events::Work, process::Process, world::World};

/// What a process lends over one connection: of which reductions' bodies, and what for.
pub(crate) type Lent = BTreeSet<(ReductionId, Purpose)>;

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
    /// Lends the body of a call to a reader, unless that has departed.
    fn lend(&mut self, reader: ProcessId, reduction: ReductionId, purpose: Purpose) {
        let connected = self.readers.connection(reader).is_some();
        if connected || self.readers.admit(reader, Lent::new()).is_ok() {
            let lent = self.readers.connection(reader).expect("it is connected");
            lent.insert((reduction, purpose));
        }
    }

    /// Whether a reader was lent the body of a call.
    pub fn lends(&self, reduction: ReductionId) -> bool {
        let mut lent = self.readers.connections().flatten();
        lent.any(|(lent, _)| *lent == reduction)
    }

    /// Gives a call whose body was not lent to anybody any more its end, if it waits for that.
    fn idle(&mut self) -> Option<(ReductionId, End)> {
        let idle = |readers: &Readers<Lent>, id: &ReductionId| {
            !readers.connections().flatten().any(|(lent, _)| lent == id)
        };
        let readers = &self.readers;
        let mut waiting =
            self.shares.iter_mut().filter(|(id, share)| share.waits.is_some() && idle(readers, id));
        waiting.next().and_then(|(id, share)| Some((*id, share.waits.take()?)))
    }
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
            // Partials keep nobody waiting.
            if is_far && !cut && is_there && process.shows_body(window) {
                process.lend(reader, reduction, purpose);
            }
        }
    }

    /// Takes back what `reader` was lent for `work`, which is done or goes on by itself later.
    pub(crate) fn take_back(&mut self, reader: ProcessId, work: &Work) {
        let lent = (work.reduction().called(), work.purpose());
        for (owner, _) in work.reads() {
            if let Some(connection) = self.process_mut(owner.rank).readers.connection(reader) {
                connection.remove(&lent);
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
