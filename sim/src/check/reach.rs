//! What nobody may miss who could have had it, and who may not be given up.
//!
//! Faults of reads, hosts that do not reach each other's memory and bytes that are damaged on their way, hit
//! no process. So nobody is declared failed for them, nothing of a process that lives is missing, and a
//! reduction goes on as long as those who take part reach each other, or a host that relays what others hold.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    schedule::{Planned, Schedule, Trouble},
    suspects::join,
    tally::Tally,
};
use everfold_protocol::{Path, Rank, report::Refusal, spec::Order};

const REACHED: &str = "what somebody can relay is not out of reach";
const HEALED: &str = "damage that heals costs no contribution and no result";

/// The rules that judge by what could be read.
pub(super) const RULES_OF_REACH: [&str; 2] = [REACHED, HEALED];

/// Damaged reads of what lies at one process that heal: it is read again.
pub(super) const HEALS_MAX: u32 = 3;

/// Judges by what could be read.
pub(crate) struct Reaches<'a> {
    schedule: &'a Schedule,
    /// Ranks that have failed or left.
    pub gone: Path,
    /// Pairs of hosts that do not reach each other in the end.
    gaps: BTreeSet<(u32, u32)>,
    /// Ranks whose bytes stay damaged.
    pub spoilt: Path,
    /// Whether reads fail at times.
    pub fail: bool,
}

impl<'a> Reaches<'a> {
    pub fn new(schedule: &'a Schedule, gone: Path) -> Self {
        let mut gaps = BTreeSet::new();
        let mut damaged = BTreeMap::<u32, u32>::new();
        let mut fail = false;
        for fault in &schedule.faults {
            match fault.what {
                Trouble::Unreachable { a, b, .. } => {
                    fail = true;
                    if fault.lasts_us == 0 {
                        gaps.extend([(a, b), (b, a)]);
                    }
                }
                Trouble::Garble { rank, reads } => {
                    fail = true;
                    let all = damaged.entry(rank).or_default();
                    *all = all.saturating_add(reads);
                }
                // That it is so for one reader alone does not show.
                Trouble::Damage { rank, copies: false, .. } => {
                    fail = true;
                    damaged.insert(rank, u32::MAX);
                }
                _ => {}
            }
        }
        let spoilt = damaged.into_iter().filter(|(_, reads)| *reads > HEALS_MAX);
        let spoilt = spoilt.map(|(rank, _)| Rank(rank)).collect();
        Self { schedule, gone, gaps, spoilt, fail }
    }

    /// Counts a call that ends where reads fail.
    pub fn count(&self, tally: &mut Tally) {
        tally.judge_if(REACHED, self.fail);
        tally.judge_if(HEALED, self.fail);
    }

    /// The rule that a refusal breaks: nothing is out of reach that somebody can relay, and damage that heals
    /// costs nothing.
    pub fn forbids(&self, planned: &Planned, refusal: &Refusal) -> Option<&'static str> {
        match refusal {
            Refusal::FoldFailed { .. } if self.fail && self.is_whole(planned) => Some(REACHED),
            Refusal::ContributionLost { ranks } if self.fail && ranks.is_disjoint(&self.gone) => {
                self.is_whole(planned).then_some(HEALED)
            }
            // Nobody may be left on a third host who lends it. Where ranks come back, nobody does.
            Refusal::ResultLost { ranks }
                if self.fail && self.schedule.returns.is_none() && ranks.is_disjoint(&self.gone) =>
            {
                let is_undisturbed = !self.is_parted(planned) && planned.group().is_disjoint(&self.gone);
                (is_undisturbed && self.is_whole(planned)).then_some(HEALED)
            }
            _ => None,
        }
    }

    /// Whether a reduction may end because something could not be reached, or not be read.
    pub fn excuses(&self, planned: &Planned, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::FoldFailed { .. } => !self.is_whole(planned),
            Refusal::ContributionLost { ranks } => {
                !ranks.is_disjoint(&self.spoilt) && ranks.is_subset(&join(&self.spoilt, &self.gone))
            }
            Refusal::ResultLost { .. } => self.is_parted(planned) || !self.is_whole(planned),
            _ => false,
        }
    }

    /// Whether two hosts of a reduction do not reach each other in the end.
    pub fn is_parted(&self, planned: &Planned) -> bool {
        let hosts = self.hosts_of(planned);
        self.gaps.iter().any(|(a, b)| hosts.contains(a) && hosts.contains(b))
    }

    fn hosts_of(&self, planned: &Planned) -> BTreeSet<u32> {
        planned.group().iter().map(|rank| self.schedule.hosts[rank.index()]).collect()
    }

    fn is_whole(&self, planned: &Planned) -> bool {
        self.is_connected(planned) && planned.group().is_disjoint(&self.spoilt)
    }

    /// Whether any two hosts of a reduction reach each other, or both reach a host with a rank of it that is
    /// well and not the root, which folds into its own contribution only. What has to be relayed twice may be
    /// out of reach.
    fn is_connected(&self, planned: &Planned) -> bool {
        let host = |rank: Rank| self.schedule.hosts[rank.index()];
        let group = planned.group();
        let hosts = self.hosts_of(planned);
        let is_apart = |a: &u32| hosts.iter().any(|b| self.gaps.contains(&(*a, *b)));
        if planned.order == Order::Fixed && hosts.iter().any(is_apart) {
            // A rank that holds a bracket that waits for its sibling has no place for what others cannot
            // read.
            return false;
        }
        let root = planned.spec(Rank(0)).delivery.root();
        let is_well = |rank: &Rank| !self.gone.contains(*rank) && root != Some(*rank);
        let relays: BTreeSet<u32> = group.iter().filter(is_well).map(host).collect();
        let reach = |a: u32, b: u32| !self.gaps.contains(&(a, b));
        let meet = |a: u32, b: u32| reach(a, b) || relays.iter().any(|at| reach(a, *at) && reach(*at, b));
        hosts.iter().all(|a| hosts.iter().all(|b| meet(*a, *b)))
    }
}
