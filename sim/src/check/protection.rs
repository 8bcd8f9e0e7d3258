//! What has to hold of replicas.
//!
//! The world notes what was ordered and said, and what memory held at that moment; here it is judged.

use std::{collections::BTreeMap, time::Duration};

use everfold_protocol::{Rank, ReductionId, spec::Protection};

use super::{
    schedule::{Planned, Schedule},
    tally::Tally,
    violation::Violation,
};
use crate::{Ordered, World};

const HELD: &str = "nothing is called lost that a known copy or the master holds";
const TRUE: &str = "what is called protected is held by another process";
const WHOLE: &str = "where a replica comes first, only what is whole in another process's hands is folded";
const CALLER: &str = "copies are ordered from others that have called, and of what is to be protected";
const NEEDED: &str = "where nothing goes wrong, only those copies are ordered that the rules call for";

/// The part of a ping interval that a reduction lasts at least before its originals are copied.
const COPY_WAIT: u32 = 20;

/// Judges what was noted about copies.
pub(crate) fn judge(schedule: &Schedule, world: &World, tally: &mut Tally) -> Result<(), Violation> {
    let name = |id: ReductionId| planned(schedule, id).map_or("?", |planned| &planned.name);
    for lost in world.contributions_lost() {
        tally.meet(if lost.is_left_out { "judged: left out" } else { "judged: lost" }, 1);
        if !lost.there.is_empty() {
            let found = format!(
                "of {}, {} is called lost, and {} could be had",
                name(lost.reduction),
                lost.ranks,
                lost.there
            );
            return Err(Violation::new(HELD, found));
        }
    }
    for told in world.contributions_protected() {
        tally.meet("judged: called protected", 1);
        // What travels in messages is in the master's hands, also what was folded of bodies that did not.
        let is_mixed = planned(schedule, told.reduction).is_some_and(|it| it.inline && !it.long.is_empty());
        if !is_mixed && !told.alone.is_empty() {
            let found = format!(
                "of {}, {} is called protected, and nobody else holds {}",
                name(told.reduction),
                told.ranks,
                told.alone
            );
            return Err(Violation::new(TRUE, found));
        }
    }
    for counted in world.contributions_counted() {
        tally.meet("judged: counted with a replica", 1);
        if !counted.early.is_empty() {
            let found = format!("of {}, {} is folded", name(counted.reduction), counted.early);
            return Err(Violation::new(WHOLE, found));
        }
    }
    let mut ordered = BTreeMap::new();
    for order in world.copies_ordered() {
        tally.meet("judged: orders for copies", 1);
        let planned = planned(schedule, order.reduction);
        let is_wanted = planned.is_some_and(|planned| planned.protection > Protection::None);
        if !order.has_called || order.keeper == order.owner || !is_wanted {
            return Err(Violation::new(CALLER, format!("{order:?}")));
        }
        if let Some(planned) = planned.filter(|_| is_fair(schedule)) {
            tally.meet("judged: orders where nothing goes wrong", 1);
            is_called_for(schedule, planned, order, &mut ordered)?;
        }
    }
    world.copies_met().iter().for_each(|(what, count)| tally.meet(what, *count));
    tally.meet("batches of messages", world.batches());
    Ok(())
}

/// Whether nothing happens that could keep a copy from being made, or a reduction from ending as it should.
fn is_fair(schedule: &Schedule) -> bool {
    let Schedule { faults, leaves, keep_failures_percent, damage_percent, reductions, windowless, .. } =
        schedule;
    let is_plain = |planned: &Planned| planned.disagrees.is_none() && planned.absent.is_empty();
    let percent = keep_failures_percent + damage_percent;
    faults.iter().all(|fault| fault.what.is_only_told())
        && leaves.is_empty()
        && windowless.is_empty()
        && percent == 0
        && reductions.iter().all(is_plain)
}

/// Each segment of an original is ordered once. Contributions that do not have to be copied before they count
/// are left alone for a part of a ping interval; when all have come, folding is left to protect them for a
/// whole one.
fn is_called_for(
    schedule: &Schedule,
    planned: &Planned,
    order: &Ordered,
    before: &mut BTreeMap<(ReductionId, Rank, u32), Rank>,
) -> Result<(), Violation> {
    for segment in order.segments.clone() {
        if before.insert((order.reduction, order.owner, segment), order.keeper).is_some() {
            return Err(Violation::new(NEEDED, format!("segment {segment} once more: {order:?}")));
        }
    }
    let interval = Duration::from_micros(schedule.ping_interval_us);
    let (first, last, count) = order.contributed;
    let least = match () {
        () if planned.protection == Protection::CommitFirst => first,
        () if count == planned.calls.len() => last + interval,
        () => first + interval / COPY_WAIT,
    };
    if order.at < least {
        return Err(Violation::new(NEEDED, format!("before {least:?}: {order:?}")));
    }
    Ok(())
}

fn planned(schedule: &Schedule, id: ReductionId) -> Option<&Planned> {
    let is_it = |planned: &&Planned| ReductionId::new(&planned.name, planned.sequence) == id.called();
    schedule.reductions.iter().find(is_it)
}
