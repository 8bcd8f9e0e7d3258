//! What comes of processes that end before they join.
//!
//! No job begins. Each process that has joined hears so as soon as the master can know of anybody who does not
//! join, or is lost after joining: no process waits until the time is over in which all have to join. The same
//! holds when the host of the master is lost. Only what nobody can know of is waited for: hosts that are lost
//! before their agents have found the master. Where there is one host, and rank 0 does not come, the parent of
//! its ranks ends the others.

use std::time::Duration;

use everfold_protocol::{Path, ProcessId, Rank, Timestamp};

use super::{judge::Judgement, schedule::Trouble, tally::Tally, violation::Violation};
use crate::{settings::Stage, world::BRIEFLY};

const NOT_AWAITED: &str = "nobody waits for a process that does not join";
const DISSOLVED: &str = "a job that does not begin is dissolved as soon as all know";

/// The rules that judge them.
pub(crate) const RULES_OF_EARLY_ENDS: [&str; 2] = [NOT_AWAITED, DISSOLVED];

/// Messages that it takes at most until everybody knows what one agent has seen.
const HOPS: u32 = 10;

/// How a host ends, and when.
#[derive(Clone, Copy)]
struct HostEnd {
    at: Timestamp,
    is_silent: bool,
}

impl Judgement<'_> {
    /// Whether no job has begun, and all that lived have heard so in time. `over` is when nothing was left.
    pub(super) fn there_is_no_job(&self, over: Option<Timestamp>) -> Result<Tally, Violation> {
        let mut tally = Tally::of(self.schedule);
        self.suspects.check(&mut tally)?;
        if let Some(rank) = self.world.met().first() {
            return Err(Violation::new(NOT_AWAITED, format!("for rank {rank} the job has begun")));
        }
        let gone = self.never_there();
        for rank in (0..self.schedule.ranks()).map(Rank).filter(|rank| !gone.contains(*rank)) {
            tally.judge(NOT_AWAITED);
            self.judge_told(rank, &gone)?;
        }
        let due = self.all_over();
        tally.judge(DISSOLVED);
        match over {
            Some(over) if over <= due => {}
            Some(over) => return Err(Violation::new(DISSOLVED, late(over, due))),
            None => return Err(Violation::new(DISSOLVED, "somebody is left")),
        }
        tally.take_events(self.world.seen());
        Ok(tally)
    }

    /// Judges what a rank has heard that was to be in the job, and when it has ended.
    fn judge_told(&self, rank: Rank, gone: &Path) -> Result<(), Violation> {
        let due = self.due(self.host(rank));
        let ended = self.world.facts().ends.get(&ProcessId::first(rank)).copied();
        let told = self.world.incomplete().get(&rank);
        let is_true = |missing: &Path| !missing.is_empty() && missing.is_subset(gone);
        let may_hear_nothing = !self.is_ever_led() || self.end_of(self.masters_host()).is_some();
        match ended {
            Some(at) if at > due => {
                Err(Violation::new(NOT_AWAITED, format!("rank {rank} {}", late(at, due))))
            }
            Some(_) if told.map_or(may_hear_nothing, is_true) => Ok(()),
            _ => Err(Violation::new(NOT_AWAITED, format!("rank {rank} was told {told:?}"))),
        }
    }

    /// Ranks that do not join, die or go with their hosts.
    fn never_there(&self) -> Path {
        let goes = |rank: &Rank| {
            let ends = self.early_end(*rank).is_some() || self.kill(*rank).is_some();
            ends || self.end_of(self.host(*rank)).is_some()
        };
        (0..self.schedule.ranks()).map(Rank).filter(goes).collect()
    }

    /// When everybody on a host that has joined has to have heard that there is no job.
    fn due(&self, host: u64) -> Timestamp {
        let masters = self.end_of(self.masters_host());
        if !self.has_others() && !self.is_ever_led() {
            // Those beside rank 0 hear of its end by their parent.
            return self.rank_0_ends().filter(|_| masters.is_none()).unwrap_or(self.given_up())
                + self.slack();
        }
        let known = self.known().filter(|_| self.is_ever_led()).unwrap_or(self.given_up());
        // What the master hears just before its end, it tells nobody.
        let without_master = masters.filter(|end| end.at <= known + self.slack());
        let lost = without_master.map(|end| match self.is_ever_led() || self.is_known(host, end) {
            true => end.at + self.silence(end),
            false => self.given_up(),
        });
        lost.unwrap_or(known) + self.slack()
    }

    /// When the master can know first that somebody does not join, or is lost.
    fn known(&self) -> Option<Timestamp> {
        let ranks = (0..self.schedule.ranks()).map(Rank);
        let ends = ranks.filter_map(|rank| {
            let at = self.early_end(rank).or(self.kill(rank))?;
            let told = self.joined(at).max(self.led());
            let is_seen = self.end_of(self.host(rank)).is_none_or(|end| end.at > told + self.slack());
            is_seen.then_some(told)
        });
        let hosts = self.hosts().filter(|host| *host != self.masters_host());
        let hosts = hosts.filter_map(|host| {
            let end = self.end_of(host)?;
            self.is_known(host, end).then(|| end.at + self.silence(end))
        });
        ends.chain(hosts).min().map(|at| at.max(self.led()))
    }

    /// Whether the agent of a host had certainly joined before that host ended, or the master's.
    fn is_known(&self, host: u64, end: HostEnd) -> bool {
        let joined = self.joined(self.suspects.began) + self.slack();
        end.at > joined && self.end_of(host).is_none_or(|own| own.at > joined)
    }

    /// When an agent that sees something can tell the master.
    fn joined(&self, at: Timestamp) -> Timestamp {
        at.max(self.suspects.began + self.world.settings().agents_join)
    }

    /// When nothing is left.
    fn all_over(&self) -> Timestamp {
        let settings = self.world.settings();
        let ends = self.schedule.early_ends.iter().map(|early| self.suspects.at(early.at_us));
        let hosts = self.hosts().filter_map(|host| self.end_of(host)).map(|end| end.at + self.silence(end));
        let dues = self.hosts().map(|host| self.due(host));
        let last = ends.chain(hosts).chain(dues).max().unwrap_or(self.suspects.began) + settings.agents_join;
        let due = last + self.slack() * 2;
        let is_unknown = |host: &u64| self.end_of(*host).is_some_and(|end| !self.is_known(*host, end));
        // Ranks are waited for of whose loss nobody can tell, or a master that nobody has found.
        match self.hosts().any(|host| is_unknown(&host)) || !(self.has_others() || self.is_ever_led()) {
            true => due.max(self.given_up()) + BRIEFLY + self.slack(),
            false => due,
        }
    }

    /// Whether there is ever a master: rank 0 brings it along, or its agent starts one that tells other hosts
    /// of the end of rank 0.
    fn is_ever_led(&self) -> bool {
        let Some(at) = self.rank_0_ends() else { return true };
        let is_there = self.end_of(self.masters_host()).is_none_or(|end| end.at > at);
        self.has_others() && is_there
    }

    fn has_others(&self) -> bool {
        self.world.settings().has_several_hosts()
    }

    /// From when on there is one.
    fn led(&self) -> Timestamp {
        self.rank_0_ends().unwrap_or(self.suspects.began)
    }

    /// When rank 0 ends, if it does not come to its agent.
    fn rank_0_ends(&self) -> Option<Timestamp> {
        let first = self.schedule.early_ends.iter().find(|early| early.rank == 0)?;
        (first.stage == Stage::Started).then(|| self.suspects.at(first.at_us))
    }

    fn early_end(&self, rank: Rank) -> Option<Timestamp> {
        let early = self.schedule.early_ends.iter().find(|early| early.rank == rank.0)?;
        Some(self.suspects.at(early.at_us))
    }

    fn kill(&self, rank: Rank) -> Option<Timestamp> {
        let kills = self.schedule.faults.iter().filter(|fault| fault.what == Trouble::Kill(rank.0));
        kills.map(|fault| self.suspects.at(fault.at_us)).min()
    }

    fn end_of(&self, host: u64) -> Option<HostEnd> {
        let ends = self.schedule.faults.iter().filter_map(|fault| match fault.what {
            Trouble::LoseHost(lost) => Some((lost, fault.at_us, true)),
            Trouble::EndHost(lost) => Some((lost, fault.at_us, false)),
            _ => None,
        });
        let here = ends.filter(|(lost, ..)| u64::from(*lost) == host);
        let first = here.min_by_key(|(_, at_us, _)| *at_us);
        first.map(|(_, at_us, is_silent)| HostEnd { at: self.suspects.at(at_us), is_silent })
    }

    /// How long it takes until others notice that a host has ended.
    fn silence(&self, end: HostEnd) -> Duration {
        match end.is_silent {
            true => self.world.settings().policy.limits.silence_max(),
            false => Duration::ZERO,
        }
    }

    fn hosts(&self) -> impl Iterator<Item = u64> {
        (0..self.schedule.ranks()).map(|rank| self.host(Rank(rank)))
    }

    fn host(&self, rank: Rank) -> u64 {
        self.world.settings().host(rank)
    }

    fn masters_host(&self) -> u64 {
        self.world.settings().master_host()
    }

    /// When those give up who look for a master that does not come.
    fn given_up(&self) -> Timestamp {
        self.suspects.began + self.world.settings().policy.join_timeout
    }

    fn slack(&self) -> Duration {
        Duration::from_micros(self.schedule.latency_us.1 + self.schedule.batch_us) * HOPS
    }
}

fn late(at: Timestamp, due: Timestamp) -> String {
    let [at, due] = [at, due].map(|at| at.as_nanos() as f64 / 1e6);
    format!("ended at {at} ms, {due} ms were expected")
}
