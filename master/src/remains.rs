//! Memory of dead processes that reductions may still read: it stays mapped on its host, and its agent holds
//! it, until they have ended.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use everfold_protocol::{
    ProcessId, ReductionId,
    message::{ToAgent, ToWorker},
};

use crate::{desk::Desk, reduction::Reductions};

/// Which reductions may read the memory of which dead processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remains {
    readers: BTreeMap<ReductionId, BTreeSet<ProcessId>>,
    /// How many reductions may read the memory of each.
    counts: BTreeMap<ProcessId, usize>,
}

impl Remains {
    /// Keeps the memory of `dead` for the reductions that it took part in.
    pub fn keep(&mut self, dead: ProcessId, reductions: &Reductions, desk: &mut Desk) {
        let takes_part =
            reductions.iter().filter(|(_, reduction)| reduction.spec().group.contains(dead.rank));
        if self.leave(dead, &takes_part.map(|(id, _)| *id).collect()) {
            forget(dead, desk);
        }
    }

    /// Takes in that a reduction has ended.
    pub fn end(&mut self, reduction: ReductionId, desk: &mut Desk) {
        self.let_go(reduction).into_iter().for_each(|dead| forget(dead, desk));
    }

    /// Notes that `dead` has left its memory to these reductions. Returns whether there are none.
    fn leave(&mut self, dead: ProcessId, reductions: &BTreeSet<ReductionId>) -> bool {
        for reduction in reductions {
            self.readers.entry(*reduction).or_default().insert(dead);
        }
        if !reductions.is_empty() {
            self.counts.insert(dead, reductions.len());
        }
        reductions.is_empty()
    }

    /// Takes in that a reduction has ended. Returns the processes whose memory no reduction needs any more.
    fn let_go(&mut self, reduction: ReductionId) -> Vec<ProcessId> {
        let mut unneeded = Vec::new();
        for dead in self.readers.remove(&reduction).unwrap_or_default() {
            let Some(count) = self.counts.get_mut(&dead) else { continue };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&dead);
                unneeded.push(dead);
            }
        }
        unneeded
    }

    /// Whether no memory of a dead process is needed.
    pub fn is_empty(&self) -> bool {
        self.readers.is_empty() && self.counts.is_empty()
    }
}

/// Tells the processes that have mapped it, and the agent that holds it, that no reduction needs the memory
/// of a process any more.
pub(crate) fn forget(process: ProcessId, desk: &mut Desk) {
    let host = desk.members.host_of(process);
    let here = desk.members.peers().filter(|peer| Some(peer.host) == host);
    desk.outbox.send_each(here.map(|peer| peer.process), &ToWorker::Forget { process });
    let_agent_forget(process, desk);
}

/// Tells the agent that holds it that no process reads the memory of a process any more. Workers know by
/// themselves.
pub(crate) fn let_agent_forget(process: ProcessId, desk: &mut Desk) {
    if let Some(agent) = desk.members.agents().holder(process) {
        desk.outbox.send_agent(agent, ToAgent::Forget { process });
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
        assert!(!remains.leave(one, &BTreeSet::from([first, second])));
        assert!(!remains.leave(two, &BTreeSet::from([second])));
        assert!(remains.leave(ProcessId::first(3), &BTreeSet::new()), "it took part in nothing");
        assert!(remains.let_go(first).is_empty());
        assert_eq!(remains.let_go(second), [one, two]);
        assert!(remains.let_go(second).is_empty() && remains.is_empty());
    }
}
