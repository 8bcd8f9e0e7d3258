//! What a process lends of its bodies to readers on other hosts.

use std::collections::BTreeSet;

use everfold_protocol::{ProcessId, ReductionId};
use everfold_worker::{machine::End, readers::Readers};

use super::{Process, Share};
use crate::work::Purpose;

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

impl Process {
    /// Lends something of a call to a reader, unless that has departed.
    pub fn lend(&mut self, reader: ProcessId, lent: (ReductionId, Purpose, Thing)) {
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
    pub fn idle(&mut self) -> Option<(ReductionId, End)> {
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
