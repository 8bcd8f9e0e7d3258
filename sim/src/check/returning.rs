//! What comes of ranks that come back.
//!
//! While a world goes on, each future is compared with what its rank has noted before, and with how the same
//! call has ended for an earlier process. Here it is judged what was missed.

use everfold_protocol::report::Refusal;
use everfold_worker::machine::End;

use super::{
    judge::{Judgement, cases},
    schedule::{Body, Planned, Schedule, Trouble},
    tally::Tally,
    violation::Violation,
};
use crate::world::AGAIN;

const TIME: &str = "where all come back who die, deaths cost nothing but time";
const REPLAY: &str = "a call that is made again ends as it has ended before";

/// The rules that judge what comes of ranks that come back.
pub(super) const RULES_OF_RETURNS: [&str; 2] = [TIME, REPLAY];

impl Judgement<'_> {
    /// Where nothing goes wrong but that processes die, and all of their ranks come back, reductions end as
    /// they would without: with all contributions, and with the result for all who are to have it.
    pub(super) fn deaths_cost_nothing_but_time(&self, tally: &mut Tally) -> Result<(), Violation> {
        if self.schedule.returns.is_none() {
            return Ok(());
        }
        let seen = |what| self.world.seen().get(what).copied().unwrap_or_default();
        tally.judge_times(REPLAY, seen(AGAIN));
        if !is_harmless(self.schedule) || self.world.given_up() > 0 {
            return Ok(());
        }
        for planned in self.schedule.reductions.iter().filter(|planned| is_plain(self.schedule, planned)) {
            for case in cases(planned) {
                let is_hit = planned.group().iter().any(|rank| self.world.facts().has_come_back(rank));
                tally.judge_if(TIME, is_hit);
                let end = self.end(&case).map(|ended| &ended.end);
                match end {
                    Some(End::Finished(report) | End::Received(report))
                        if report.contributors == case.spec.group => {}
                    Some(End::Refused(Refusal::ResultLost { .. })) if may_lose_results(self.schedule) => {}
                    other => return Err(case.broken(TIME, format!("{other:?}"))),
                }
            }
        }
        Ok(())
    }
}

/// Whether processes take along what they have folded, or give it back before they end, or lose it with
/// their host, or are silent, so that nobody reads it. A result that was copied over contributions may be lost
/// with it.
fn may_lose_results(schedule: &Schedule) -> bool {
    let leaves = |what: &Trouble| {
        matches!(what, Trouble::Abandon(_) | Trouble::Break(_) | Trouble::EndHost(_) | Trouble::Freeze(_))
    };
    !schedule.private.is_empty() || schedule.faults.iter().any(|fault| leaves(&fault.what))
}

/// Whether only processes die, and nothing keeps their ranks from coming back.
fn is_harmless(schedule: &Schedule) -> bool {
    let Schedule { hosts, returns, agents_join_us, faults, leaves, damage_percent, full, windowless, .. } =
        schedule;
    let is_death = |what: &Trouble| {
        use Trouble::{Abandon, Break, Crash, EndHost, Freeze, Kill, LetGo, Slow};
        let migrates = returns.is_some_and(|returns| returns.migrates.is_some());
        matches!(what, Kill(_) | LetGo(_) | Abandon(_) | Break(_) | Crash { .. } | Slow { .. } | Freeze(_))
            || (migrates && matches!(what, EndHost(host) if *host != hosts[0]))
    };
    faults.iter().all(|fault| is_death(&fault.what) || fault.what.is_only_told())
        && returns.is_some_and(|returns| returns.start_failures_percent + returns.hang_percent == 0)
        // Of a process that dies before, nobody holds the memory.
        && *agents_join_us == 0
        && leaves.is_empty()
        && *damage_percent == 0
        && full.is_empty()
        && windowless.is_empty()
}

/// Whether nothing else can end a reduction. Objects that lie in private memory go with their processes, also
/// when a part of the group has received them.
fn is_plain(schedule: &Schedule, planned: &Planned) -> bool {
    planned.absent.is_empty()
        && planned.disagrees.is_none()
        && planned.deadline_us.is_none()
        && (planned.body != Body::Object || schedule.private.is_empty())
}
