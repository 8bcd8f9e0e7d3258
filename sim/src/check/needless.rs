//! Where nothing goes wrong, nothing is done in vain.

use everfold_protocol::spec::{Delivery, Protection};
use everfold_worker::machine::End;

use super::{
    judge::{Case, Judgement, cases},
    schedule::{Planned, Schedule},
    tally::Tally,
    violation::Violation,
};
use crate::World;

const FOLDED: &str = "where nothing goes wrong, nothing is folded again, nor by two";
const COPIED: &str =
    "where nothing goes wrong, nothing is copied that is in other hands, or that is not protected";

/// The rules that judge what was done in vain.
pub(super) const RULES_OF_THRIFT: [&str; 2] = [FOLDED, COPIED];

impl Judgement<'_> {
    /// Judges what was done in a world in which nothing goes wrong.
    pub(super) fn nothing_was_done_in_vain(&self, tally: &mut Tally) -> Result<(), Violation> {
        if !is_fair(self.schedule) {
            return Ok(());
        }
        for planned in &self.schedule.reductions {
            let Some(first) = cases(planned).next() else { continue };
            for case in cases(planned) {
                tally.judge(FOLDED);
                self.nothing_was_redone(&case)?;
            }
            tally.judge(COPIED);
            // A batch tells the master of several things before it says what follows from the first.
            if self.schedule.batch_us == 0 {
                no_copy_was_needless(self.world, &first)?;
            }
        }
        Ok(())
    }

    fn nothing_was_redone(&self, case: &Case) -> Result<(), Violation> {
        let Some(End::Finished(report) | End::Received(report)) = self.end(case).map(|ended| &ended.end)
        else {
            return Ok(());
        };
        let Planned { name, sequence, .. } = case.planned;
        let folds = u64::from(self.world.folds(name, *sequence));
        // What is short goes to all who are to have the result, and each of them folds it.
        let executors = match case.spec.delivery {
            Delivery::All if case.planned.inline => case.spec.group.len() as u64,
            _ => 1,
        };
        if report.folds_redone + report.tasks_doubled > 0 || folds > report.folds * executors {
            let (redone, doubled) = (report.folds_redone, report.tasks_doubled);
            let found =
                format!("{folds} folds of {}, {redone} done again, {doubled} tasks doubled", report.folds);
            return Err(case.broken(FOLDED, found));
        }
        Ok(())
    }
}

fn is_fair(schedule: &Schedule) -> bool {
    let Schedule { faults, leaves, damage_percent, keep_failures_percent, windowless, .. } = schedule;
    let mishaps = damage_percent + keep_failures_percent;
    // Processes without a window refuse to keep copies.
    let goes_wrong = faults.iter().any(|fault| !fault.what.is_only_told());
    !goes_wrong && leaves.is_empty() && windowless.is_empty() && mishaps == 0
}

fn no_copy_was_needless(world: &World, case: &Case) -> Result<(), Violation> {
    let Planned { name, sequence, protection, .. } = case.planned;
    let (ordered, in_vain) = world.copies(name, *sequence);
    let is_called_for = *protection > Protection::None || case.planned.disagrees.is_some();
    if in_vain > 0 || (ordered > 0 && !is_called_for) {
        return Err(case.broken(COPIED, format!("{ordered} copies at level {protection}, {in_vain} in vain")));
    }
    Ok(())
}
