//! Memory of dead processes that reductions may still read: it stays mapped on its host until they have ended.

use std::collections::{BTreeMap, BTreeSet};

use everfold_protocol::{ProcessId, ReductionId, message::ToWorker};

use crate::machine::Master;

/// Which reductions may read the memory of which dead process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remains(BTreeMap<ProcessId, BTreeSet<ReductionId>>);

impl Remains {
    /// Notes that `dead` has left its memory to these reductions.
    fn leave(&mut self, dead: ProcessId, reductions: BTreeSet<ReductionId>) {
        self.0.insert(dead, reductions);
    }

    /// Takes in that a reduction has ended. Returns those whose memory nobody needs any more.
    fn end(&mut self, reduction: ReductionId) -> Vec<ProcessId> {
        for reductions in self.0.values_mut() {
            reductions.remove(&reduction);
        }
        self.unneeded()
    }

    /// Whether no memory of a dead process is needed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn unneeded(&mut self) -> Vec<ProcessId> {
        let mut unneeded = Vec::new();
        self.0.retain(|process, reductions| {
            unneeded.extend(reductions.is_empty().then_some(*process));
            !reductions.is_empty()
        });
        unneeded
    }
}

impl Master {
    /// Keeps the memory of `dead` for the reductions that it took part in.
    pub(crate) fn keep_remains(&mut self, dead: ProcessId) {
        let takes_part =
            self.reductions.iter().filter(|(_, reduction)| reduction.spec.group.contains(dead.rank));
        let reductions = takes_part.map(|(id, _)| *id).collect();
        self.remains.leave(dead, reductions);
        let unneeded = self.remains.unneeded();
        self.let_be_forgotten(unneeded);
    }

    /// Takes in that a reduction has ended.
    pub(crate) fn end_remains(&mut self, reduction: ReductionId) {
        let unneeded = self.remains.end(reduction);
        self.let_be_forgotten(unneeded);
    }

    /// Tells those who have mapped it that nobody needs the memory of these processes any more.
    pub(crate) fn let_be_forgotten(&mut self, unneeded: Vec<ProcessId>) {
        for process in unneeded {
            let host = self.membership.host(process.rank);
            let here = self.membership.peers().filter(|peer| Some(peer.host) == host);
            let here: Vec<_> = here.map(|peer| peer.process).collect();
            here.into_iter().for_each(|to| self.send(to, ToWorker::Forget { process }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_needed_until_the_last_reduction_has_ended() {
        let mut remains = Remains::default();
        let [first, second] = [0, 1].map(|sequence| ReductionId::new("sum", sequence));
        let [one, two] = [1, 2].map(ProcessId::first);
        remains.leave(one, BTreeSet::from([first, second]));
        remains.leave(two, BTreeSet::from([second]));
        assert!(remains.unneeded().is_empty());
        assert!(remains.end(first).is_empty());
        assert_eq!(remains.end(second), [one, two]);
        assert!(remains.end(second).is_empty());
    }
}
