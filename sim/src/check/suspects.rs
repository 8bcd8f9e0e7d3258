//! Who had to do with what went wrong, from when on.
//!
//! A fault excuses what it can bring about, and nothing before: a process is a suspect once the master has
//! declared it failed, or once it has given the master up. Both are judged themselves, by what hindered them
//! ([`Suspects::check`]). So whoever stands still for less than a silence that counts, is cut off for less,
//! or is only slow, excuses nothing.

use std::collections::BTreeSet;

use everfold_master::Notice;
use everfold_protocol::{
    Path, ProcessId, Rank, Timestamp,
    message::{Evidence, News},
};

use super::{schedule::Schedule, tally::Tally, violation::Violation};
use crate::{World, events::Place};

pub(crate) const FENCED: &str =
    "whoever is declared failed has ended, or was hindered for as long as a silence lasts";
pub(crate) const DESERTED: &str =
    "whoever gives the master up could not hear it for as long as a silence lasts";

pub(crate) const TOGETHER: &str = "with a host that is given up all its ranks are declared failed";
pub(crate) const TOLD: &str = "a host that is given up is told, and a domain with the last of its hosts";

/// Who was gone, or about to leave, at which time.
pub(crate) struct Suspects<'a> {
    pub schedule: &'a Schedule,
    pub world: &'a World,
    /// When the times of the schedule begin.
    pub began: Timestamp,
    /// When all that lived began to leave, if they have.
    pub closing: Option<Timestamp>,
}

impl Suspects<'_> {
    /// A time of the schedule.
    pub fn at(&self, us: u64) -> Timestamp {
        self.began + std::time::Duration::from_micros(us)
    }

    /// Ranks that the master has declared failed by `at`.
    pub fn failed_by(&self, at: Timestamp) -> Path {
        self.world.facts().failed_by(at)
    }

    /// Ranks that have closed their sessions by `at`, dead or not.
    pub fn closed_by(&self, at: Timestamp) -> Path {
        if self.closing.is_some_and(|closing| closing <= at) {
            return Path::range(0, self.schedule.ranks());
        }
        let leaves = self.schedule.leaves.iter().filter(|leave| self.at(leave.at_us) <= at);
        leaves.map(|leave| Rank(leave.rank)).collect()
    }

    /// Ranks that had gone by `at`, whether the master knew or not.
    pub fn gone_by(&self, at: Timestamp) -> Path {
        self.world.facts().gone_by(at)
    }

    /// Whether the process of `rank` has ended.
    pub fn is_dead(&self, rank: Rank) -> bool {
        self.world.facts().ended.contains_key(&rank)
    }

    /// Whether nothing is left of the master.
    pub fn master_is_dead(&self) -> bool {
        self.world.facts().master_ended.is_some()
    }

    /// Whether hosts that are given up are told as such, and their domain with the last of them.
    fn check_news(&self, tally: &mut Tally) -> Result<(), Violation> {
        let (settings, lost) = (self.world.settings(), &self.world.facts().hosts_lost);
        if self.world.met().is_empty() {
            return Ok(());
        }
        let was_told = |news: &News| {
            let is_it = |notice: &Notice| matches!(notice, Notice::News(told) if told == news);
            self.world.notices().iter().any(is_it)
        };
        let all: BTreeSet<u64> = (0..settings.ranks).map(|rank| settings.host(Rank(rank))).collect();
        for &host in lost.keys() {
            tally.judge(TOLD);
            let ranks: Path = settings.ranks_on(host).collect();
            if self.world.migrates() {
                // Others may have come to it.
                let is_it = |notice: &Notice| matches!(notice, Notice::News(News::HostLost { ranks: told }) if ranks.is_subset(told));
                if !self.world.notices().iter().any(is_it) {
                    return Err(Violation::new(TOLD, format!("host {host}")));
                }
                continue;
            }
            if !was_told(&News::HostLost { ranks }) {
                return Err(Violation::new(TOLD, format!("host {host}")));
            }
            let Some(domain) = settings.domain(host) else { continue };
            let of_domain = |other: &&u64| settings.domain(**other).as_ref() == Some(&domain);
            let hosts: Vec<&u64> = all.iter().filter(of_domain).collect();
            let is_lost = hosts.len() > 1 && hosts.iter().all(|host| lost.contains_key(host));
            let ranks = hosts.iter().flat_map(|host| settings.ranks_on(**host)).collect();
            tally.judge_if(TOLD, is_lost);
            if was_told(&News::DomainLost { domain, ranks }) != is_lost {
                return Err(Violation::new(TOLD, format!("the domain of host {host}")));
            }
        }
        Ok(())
    }

    /// Whether the agent of a host had missed pings when one of its ranks was silent: where ranks migrate, it
    /// is not waited for longer.
    fn is_late_beside_a_silent_rank(&self, host: u64, at: Timestamp) -> bool {
        let (facts, settings) = (self.world.facts(), self.world.settings());
        let is_silent =
            |process: ProcessId| facts.was_silent(settings, (Place::Rank(process.rank), host), at);
        self.world.migrates()
            && facts.missed_pings(settings, host, at)
            && self.world.processes_on(host).any(is_silent)
    }

    /// Whether every failure that was declared has its reason.
    pub fn check(&self, tally: &mut Tally) -> Result<(), Violation> {
        let (facts, settings) = (self.world.facts(), self.world.settings());
        let by = |since: Option<&Timestamp>, at| since.is_some_and(|since| *since <= at);
        for (&process, &(at, evidence)) in &facts.failures {
            let rank = process.rank;
            tally.judge(FENCED);
            let has_reason = match evidence {
                Evidence::Disconnected => [&facts.ends, &facts.deserters, &facts.broken]
                    .iter()
                    .any(|gone| by(gone.get(&process), at)),
                Evidence::Ended(_) => by(facts.ends.get(&process), at),
                Evidence::Silent(_) => {
                    let place = (Place::Rank(rank), self.world.host_of(process));
                    by(facts.ends.get(&process), at) || facts.was_silent(settings, place, at)
                }
                Evidence::HostLost => {
                    let host = self.world.host_of(process);
                    by(facts.hosts_ended.get(&host), at)
                        || facts.was_silent(settings, (Place::Agent(host), host), at)
                        || self.is_late_beside_a_silent_rank(host, at)
                }
            };
            if !has_reason {
                return Err(Violation::new(FENCED, format!("rank {rank}: {evidence}")));
            }
        }
        for (&host, &at) in &facts.hosts_lost {
            tally.judge(TOGETHER);
            let is_gone = |process: &ProcessId| {
                let left = |notice: &Notice| matches!(notice, Notice::Left(other) if other == process);
                by(facts.failures.get(process).map(|(since, _)| since), at)
                    // It may not have joined.
                    || (self.world.met().is_empty() && by(facts.ends.get(process), at))
                    || self.world.notices().iter().any(left)
            };
            if let Some(process) = self.world.processes_on(host).find(|process| !is_gone(process)) {
                return Err(Violation::new(TOGETHER, format!("{process} of host {host}")));
            }
        }
        self.check_news(tally)?;
        for (&process, &at) in &facts.deserters {
            let rank = process.rank;
            tally.judge(DESERTED);
            // Whoever comes back too late is turned away.
            let is_given_up = by(facts.failed.get(&rank).map(|(since, _)| since), at);
            let is_back = |notice: &Notice| matches!(notice, Notice::Returned(other) if *other == process);
            let comes_late = process != ProcessId::first(rank) && !self.world.notices().iter().any(is_back);
            let is_fenced = is_given_up
                || comes_late
                || facts.failures.get(&process).is_some_and(|(since, _)| *since <= at);
            if !is_fenced
                && !by(facts.broken.get(&process), at)
                && !facts.master_had_died(at)
                && !facts.was_left_alone(settings, (rank, self.world.host_of(process)), at)
            {
                return Err(Violation::new(DESERTED, format!("rank {rank}")));
            }
        }
        Ok(())
    }
}

pub(crate) fn join(one: &Path, other: &Path) -> Path {
    one.iter().chain(other.iter()).collect()
}
