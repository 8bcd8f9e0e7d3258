//! Tasks that are late: others do them, too. Slow is not dead (DR-8).

use alloc::{borrow::ToOwned, collections::BTreeMap, string::String};

use everfold_protocol::{Rank, ReductionId, Timestamp};
use smallvec::SmallVec;

use super::Scheduler;
use crate::{
    desk::Desk,
    pace::Paces,
    reduction::{Reduction, Reductions, Segment},
    task::Running,
};

/// How many times longer than usual a task may take before others do it, too.
pub(super) const LATE_FACTOR: u32 = 8;

/// Tasks that a worker may have ahead of one that it was given: it is late once it has taken as many times
/// longer, however many others it has answered meanwhile.
const AHEAD_MAX: u32 = 16;

impl Scheduler {
    /// Lets others do the tasks that are late. Tells whose, of which reductions, and what these are called.
    pub fn overtake(
        &mut self,
        reductions: &mut Reductions,
        desk: &Desk,
    ) -> BTreeMap<(ReductionId, Rank), String> {
        let Self { lanes, paces, worked_on, .. } = self;
        let Desk { now, policy, members, .. } = desk;
        let mut overtaken = BTreeMap::new();
        worked_on.retain(|id| reductions.get(id).is_some_and(|it| it.tasks().next().is_some()));
        for id in &*worked_on {
            let Some(reduction) = reductions.get_mut(id) else { continue };
            let root = reduction.spec().delivery.root();
            for index in reduction.indices() {
                let segment = reduction.segment(index);
                let is_late = |executor: &Rank| {
                    let answered = lanes[*executor].answered();
                    is_late(reduction, segment, &segment.running()[executor], *now, answered, paces)
                };
                let others = segment.running().keys().filter(|executor| Some(**executor) != root);
                let late: SmallVec<[Rank; 1]> = others.copied().filter(is_late).collect();
                for executor in late {
                    reduction.segment_mut(index).put_off(executor, *now + policy.limits.ping_interval);
                    if reduction.overtake(index, executor, members) {
                        overtaken.insert((*id, executor), reduction.name().to_owned());
                    }
                }
            }
        }
        overtaken
    }
}

/// Whether the executor of a task is slow. `answered`: when it last answered any task. With a predefined
/// operation the time decides that was set when the task was granted. With one of the application the
/// executor is compared with others; if one of them has worked just as long on the same contributions, or on
/// others while no worker was done sooner, the fold is slow, and not the executor.
fn is_late(
    reduction: &Reduction,
    segment: &Segment,
    running: &Running,
    now: Timestamp,
    answered: Timestamp,
    paces: &Paces,
) -> bool {
    if running.late > now || reduction.spec().kind.folds_surely() {
        return running.late <= now;
    }
    // Its task may have waited behind others, but not behind any number of them.
    let waited = now.since(running.load.since);
    let elapsed = now.since(running.load.since.max(answered)).max(waited / AHEAD_MAX);
    let is_another = |rank: Rank| rank != running.executor.rank;
    let takes_as_long =
        |other: &Running| is_another(other.executor.rank) && now.since(other.load.since) * 2 >= elapsed;
    let mut doubled = segment.given_up().filter(|other| !other.path.is_disjoint(&running.path));
    let folds_slowly = doubled.any(takes_as_long)
        || (reduction.tasks().any(takes_as_long) && !reduction.have_done_tasks().any(is_another));
    let expected = paces.expected(&reduction.spec().kind, running);
    expected.is_some_and(|expected| elapsed > expected * LATE_FACTOR) && !folds_slowly
}
