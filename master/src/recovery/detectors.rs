//! The fault of which a death is a sign, and the recovery that is chosen for it.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::time::Duration;

use everfold_protocol::{AgentId, Rank, Timestamp, message::NoReturn};

use super::choice::{Chain, LocatedFaults, Recoveries, Recovery, Repeated, Restart};
use crate::located::{Fault, Faults};

/// The recovery of a rank whose process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is started again after this pause, where it was.
    Restart(Duration),
    /// It is started on another host.
    Migrate,
    /// Its standby takes its place.
    Promote,
    /// The job goes on without it.
    Ignore(NoReturn),
}

/// A verdict, and which recoveries could not be done that stand before it in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The recovery.
    pub verdict: Verdict,
    /// The recoveries that could not be done, and why.
    pub passed: Vec<(Recovery, NoReturn)>,
}

/// The sign that a death gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A process has ended, and the host of this agent is well.
    Process(AgentId),
    /// The host is lost.
    Host,
    /// The host is lost, and too many others of its domain are, too.
    Domain,
}

impl Sign {
    /// The sign of the loss of a host, if `lost` of `all` hosts of its domain are lost by now.
    pub fn of_loss(choice: &Recoveries, lost: usize, all: usize) -> Self {
        match choice.network {
            Some(network) if lost > 1 && lost * 100 > all * network.share_percent as usize => Self::Domain,
            _ => Self::Host,
        }
    }
}

/// Whether another host can take a rank, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// It can be started there from its replica.
    pub migrate: Result<(), NoReturn>,
    /// A process of it stands by there.
    pub promote: Result<(), NoReturn>,
}

/// The memory of earlier faults and starts.
///
/// # Memory
/// A number for each rank that was started again, for each host as many times as the choice counts, and the
/// faults that were located and are not over.
#[derive(Clone, Debug, Default)]
pub struct Detectors {
    starts: BTreeMap<Rank, Starts>,
    /// When the latest process faults of each host were, the earliest first.
    faults: BTreeMap<AgentId, VecDeque<Timestamp>>,
    /// When the latest repeated fault of each host was that had one.
    repeated: BTreeMap<AgentId, Timestamp>,
    located: Faults,
}

/// How often a rank was started again.
#[derive(Clone, Copy, Debug, Default)]
struct Starts {
    all: u32,
    /// Since it has made progress, but for those after which hosts were lost.
    fruitless: u32,
    /// Of these, on the host where it is.
    here: u32,
}

impl Detectors {
    /// Takes in that a rank has lost its process, and chooses the recovery. `elsewhere` tells whether another
    /// host can take the rank.
    pub fn judge(
        &mut self,
        now: Timestamp,
        rank: Rank,
        sign: Sign,
        choice: &Recoveries,
        elsewhere: Elsewhere,
    ) -> Judgement {
        let detected = self.detect(now, sign, choice);
        self.choose(detected, rank, sign, choice, elsewhere)
    }

    /// The same, where a detector has chosen these recoveries that was asked first. The death counts here all
    /// the same: the next one may be handed over.
    pub(crate) fn judge_chosen(
        &mut self,
        chosen: Chain,
        now: Timestamp,
        rank: Rank,
        sign: Sign,
        choice: &Recoveries,
        elsewhere: Elsewhere,
    ) -> Judgement {
        self.detect(now, sign, choice);
        let ignored = match sign {
            Sign::Process(_) => NoReturn::Ignored,
            Sign::Host | Sign::Domain => NoReturn::HostLost,
        };
        self.choose((chosen, ignored), rank, sign, choice, elsewhere)
    }

    /// The first recovery that can be done.
    fn choose(
        &mut self,
        (chain, ignored): (Chain, NoReturn),
        rank: Rank,
        sign: Sign,
        choice: &Recoveries,
        elsewhere: Elsewhere,
    ) -> Judgement {
        let (mut passed, mut last) = (Vec::new(), ignored);
        for recovery in chain.iter() {
            let done = match recovery {
                Recovery::Ignore => return Judgement { verdict: Verdict::Ignore(last), passed },
                // No agent is there to do it.
                Recovery::Restart if !matches!(sign, Sign::Process(_)) => Err(NoReturn::HostLost),
                Recovery::Restart => self.restart(rank, choice).map(Verdict::Restart),
                Recovery::Migrate => {
                    elsewhere.migrate.and_then(|()| self.leave(rank, sign, choice)).map(|()| Verdict::Migrate)
                }
                Recovery::Promote => {
                    elsewhere.promote.and_then(|()| self.leave(rank, sign, choice)).map(|()| Verdict::Promote)
                }
            };
            match done {
                Ok(verdict) => return Judgement { verdict, passed },
                Err(reason) => {
                    last = reason;
                    passed.push((recovery, reason));
                }
            }
        }
        // That the last one cannot be done is why the rank does not come back.
        passed.pop();
        Judgement { verdict: Verdict::Ignore(last), passed }
    }

    /// The recoveries that were chosen for a fault, and the reason that is told if it is ignored.
    fn detect(&mut self, now: Timestamp, sign: Sign, choice: &Recoveries) -> (Chain, NoReturn) {
        let agent = match sign {
            Sign::Process(agent) => agent,
            Sign::Host => return (choice.physical, NoReturn::HostLost),
            Sign::Domain => {
                let network = choice.network.map(|network| network.recovery);
                return (network.unwrap_or(choice.physical), NoReturn::HostLost);
            }
        };
        // It counts there, too, if it is met otherwise.
        let repeated = choice.repeated.filter(|repeated| self.is_repeated(now, agent, repeated));
        match (self.located_on(agent, choice), repeated) {
            (Some(located), _) => (located.recovery, NoReturn::Located),
            (None, Some(Repeated { faults, within, recovery })) => {
                (recovery, NoReturn::Repeated { faults, within })
            }
            (None, None) => (choice.process, NoReturn::Ignored),
        }
    }

    /// Takes in that a fault was located, or is over.
    pub fn see_located(&mut self, fault: &Fault, over: bool) {
        self.located.see(fault, over);
    }

    /// The choice that a host has a fault of which was located.
    fn located_on<'a>(&self, agent: AgentId, choice: &'a Recoveries) -> Option<&'a LocatedFaults> {
        let is_there = |located: &&LocatedFaults| {
            self.located.of(agent).any(|name| located.faults.iter().any(|fault| fault == name))
        };
        choice.located.as_ref().filter(is_there)
    }

    /// Takes in that a rank has contributed to a reduction to which none of its processes has before.
    pub fn see_progress(&mut self, rank: Rank) {
        if let Some(starts) = self.starts.get_mut(&rank) {
            (starts.fruitless, starts.here) = (0, 0);
        }
    }

    /// Whether there were enough faults on a host before this one, which counts from now on.
    fn is_repeated(&mut self, now: Timestamp, agent: AgentId, repeated: &Repeated) -> bool {
        let times = self.faults.entry(agent).or_default();
        while times.front().is_some_and(|time| now.since(*time) > repeated.within) {
            times.pop_front();
        }
        let is_repeated = times.len() >= repeated.faults as usize;
        if is_repeated {
            times.pop_front();
            self.repeated.insert(agent, now);
        }
        times.push_back(now);
        is_repeated
    }

    /// Of these hosts, with the number of ranks of each, the one that takes another rank: one with located or
    /// repeated faults only if there is no other one, until those are over, and none of these counts that
    /// have led to the latest of them; else the one with the fewest ranks.
    pub fn choose_host(
        &self,
        now: Timestamp,
        choice: &Recoveries,
        hosts: impl Iterator<Item = (AgentId, usize)>,
    ) -> Option<AgentId> {
        let order = |&(agent, ranks): &(AgentId, usize)| (self.is_bad(now, agent, choice), ranks, agent);
        hosts.min_by_key(order).map(|(agent, _)| agent)
    }

    /// Whether a host has located or repeated faults that are not over.
    pub fn is_bad(&self, now: Timestamp, agent: AgentId, choice: &Recoveries) -> bool {
        let latest = self.repeated.get(&agent);
        let is_repeated = |(repeated, latest): (Repeated, &Timestamp)| now.since(*latest) <= repeated.within;
        self.located_on(agent, choice).is_some() || choice.repeated.zip(latest).is_some_and(is_repeated)
    }

    fn restart(&mut self, rank: Rank, choice: &Recoveries) -> Result<Duration, NoReturn> {
        let starts = self.starts.entry(rank).or_default();
        let restart = choice.restart;
        if starts.all >= restart.starts_max {
            return Err(NoReturn::Starts(starts.all));
        }
        if starts.here >= restart.fruitless_max {
            return Err(NoReturn::Fruitless(starts.here));
        }
        let pause = restart.pause_after(starts.here);
        *starts = Starts { all: starts.all + 1, fruitless: starts.fruitless + 1, here: starts.here + 1 };
        Ok(pause)
    }

    /// On another host a rank that has made no progress has as many chances again. Which of them that is does not
    /// matter then: it would fail on all of them. If its host was lost, the rank is not to blame.
    fn leave(&mut self, rank: Rank, sign: Sign, choice: &Recoveries) -> Result<(), NoReturn> {
        let starts = self.starts.entry(rank).or_default();
        let Restart { starts_max, fruitless_max, .. } = choice.restart;
        if starts.all >= starts_max {
            return Err(NoReturn::Starts(starts.all));
        }
        let is_its_own = matches!(sign, Sign::Process(_));
        if is_its_own && starts.fruitless >= fruitless_max.saturating_mul(2).max(1) {
            return Err(NoReturn::Fruitless(starts.fruitless));
        }
        let fruitless = starts.fruitless + u32::from(is_its_own);
        *starts = Starts { all: starts.all + 1, fruitless, here: 1 };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{located::Place, recovery::Network};

    const HOST: AgentId = AgentId(7);
    const NOWHERE: Elsewhere =
        Elsewhere { migrate: Err(NoReturn::NoHost), promote: Err(NoReturn::NoStandby) };
    const ANYWHERE: Elsewhere = Elsewhere { migrate: Ok(()), promote: Ok(()) };

    fn at(ms: u64) -> Timestamp {
        Timestamp::default() + Duration::from_millis(ms)
    }

    #[test]
    fn a_rank_that_makes_no_progress_is_started_after_pauses_and_then_no_more() {
        let mut detectors = Detectors::default();
        let restart = Restart { starts_max: 6, fruitless_max: 3, ..Restart::USUAL };
        let choice = Recoveries { restart, ..Recoveries::RESTART };
        let mut judge = |progress: bool| {
            if progress {
                detectors.see_progress(Rank(1));
            }
            detectors.judge(at(0), Rank(1), Sign::Process(HOST), &choice, NOWHERE).verdict
        };
        let pause = |ms| Verdict::Restart(Duration::from_millis(ms));
        assert_eq!([false; 3].map(&mut judge), [pause(0), pause(100), pause(200)]);
        assert_eq!(judge(false), Verdict::Ignore(NoReturn::Fruitless(3)));
        assert_eq!([true, false, true].map(&mut judge), [pause(0), pause(100), pause(0)]);
        assert_eq!(judge(true), Verdict::Ignore(NoReturn::Starts(6)));
        let other = detectors.judge(at(0), Rank(2), Sign::Process(HOST), &choice, NOWHERE);
        assert_eq!(other.verdict, pause(0), "that is another rank");
    }

    /// A survivor of a rank that is lost for good fails wherever it is started.
    #[test]
    fn a_rank_that_makes_no_progress_on_two_hosts_is_started_no_more_unless_they_were_lost() {
        let process = Chain::then(Recovery::Restart, Recovery::Migrate);
        let restart = Restart { fruitless_max: 3, ..Restart::USUAL };
        let choice = Recoveries { process, restart, ..Recoveries::MIGRATE };
        let mut detectors = Detectors::default();
        let starts = |sign, detectors: &mut Detectors| -> Vec<Verdict> {
            let judge = || detectors.judge(at(0), Rank(1), sign, &choice, ANYWHERE).verdict;
            core::iter::repeat_with(judge).take(7).collect()
        };
        let pause = |ms| Verdict::Restart(Duration::from_millis(ms));
        let on_one = [pause(0), pause(100), pause(200)];
        let on_two = [&on_one[..], &[Verdict::Migrate], &on_one[1..]].concat();
        let given_up = Verdict::Ignore(NoReturn::Fruitless(6));
        let process = Sign::Process(HOST);
        assert_eq!(starts(process, &mut detectors), [&on_two[..], &[given_up]].concat());
        detectors.see_progress(Rank(1));
        assert_eq!(starts(process, &mut detectors), [&on_two[..], &[given_up]].concat());
        assert_eq!(starts(Sign::Host, &mut detectors), [Verdict::Migrate; 7], "it is not the rank");
    }

    #[test]
    fn a_rank_that_is_not_restarted_is_told_how_often_it_was_started_on_its_host() {
        let restart = Restart { fruitless_max: 1, ..Restart::USUAL };
        let choice = Recoveries { restart, process: Recovery::Restart.into(), ..Recoveries::MIGRATE };
        let mut detectors = Detectors::default();
        let mut judge = |sign| detectors.judge(at(0), Rank(1), sign, &choice, ANYWHERE).verdict;
        assert_eq!(judge(Sign::Host), Verdict::Migrate);
        assert_eq!(judge(Sign::Process(HOST)), Verdict::Ignore(NoReturn::Fruitless(1)));
    }

    #[test]
    fn faults_of_one_host_count_as_repeated_while_there_were_enough_in_time() {
        let mut detectors = Detectors::default();
        let within = Duration::from_millis(100);
        let repeated = Some(Repeated { faults: 2, within, recovery: Recovery::Ignore.into() });
        let choice = Recoveries { repeated, ..Recoveries::RESTART };
        let mut is_repeated = |ms, host| {
            let judged = detectors.judge(at(ms), Rank(ms as u32), Sign::Process(host), &choice, NOWHERE);
            judged.verdict == Verdict::Ignore(NoReturn::Repeated { faults: 2, within })
        };
        assert!(!is_repeated(0, HOST) && !is_repeated(10, HOST));
        assert!(!is_repeated(20, AgentId(8)), "that is another host");
        assert!(is_repeated(100, HOST), "the first was as long ago as counts");
        assert!(is_repeated(110, HOST), "each one counts");
        assert!(!is_repeated(250, HOST));
    }

    #[test]
    fn a_host_with_repeated_faults_takes_a_rank_only_if_no_other_one_can_and_is_forgiven_in_time() {
        let mut detectors = Detectors::default();
        let within = Duration::from_millis(100);
        let repeated = Some(Repeated { faults: 1, within, recovery: Recovery::Migrate.into() });
        let choice = Recoveries { repeated, ..Recoveries::MIGRATE };
        let mut fail = |ms, host| {
            drop(detectors.judge(at(ms), Rank(1), Sign::Process(host), &choice, ANYWHERE));
            detectors.clone()
        };
        let hosts = [(HOST, 0), (AgentId(8), 3), (AgentId(9), 2)];
        let find = |detectors: &Detectors, ms, hosts: &[_]| {
            detectors.choose_host(at(ms), &choice, hosts.iter().copied())
        };
        assert_eq!(find(&fail(0, HOST), 0, &hosts), Some(HOST), "one fault is none too many");
        let bad = fail(50, HOST);
        assert_eq!(find(&bad, 50, &hosts), Some(AgentId(9)));
        assert_eq!(find(&bad, 50, &hosts[..1]), Some(HOST), "no other one can");
        assert_eq!(find(&bad, 50, &[]), None);
        assert_eq!(find(&bad, 150, &hosts), Some(AgentId(9)));
        assert_eq!(find(&bad, 151, &hosts), Some(HOST), "no fault of it counts any more");
        fail(200, AgentId(9));
        fail(210, AgentId(9));
        fail(220, AgentId(8));
        assert_eq!(find(&fail(230, AgentId(8)), 230, &hosts[1..]), Some(AgentId(9)), "both are bad");
    }

    /// Hosts have this fault, or have it no more.
    fn locate(detectors: &mut Detectors, name: &str, hosts: &[AgentId], over: bool) {
        let place = Place::Hosts(hosts.into());
        detectors.see_located(&Fault { name: name.into(), place, harmless: false }, over);
    }

    fn met_if_located(faults: &[&str], recovery: Recovery) -> Recoveries {
        let faults = faults.iter().map(|name| (*name).into()).collect();
        let located = Some(LocatedFaults { faults, recovery: recovery.into() });
        Recoveries { located, ..Recoveries::RESTART }
    }

    #[test]
    fn a_process_that_ends_on_a_host_with_a_located_fault_is_met_otherwise_until_that_is_over() {
        let choice = met_if_located(&["disk_failing", "host_overloaded"], Recovery::Migrate);
        let mut detectors = Detectors::default();
        let judge = |detectors: &mut Detectors, host| {
            detectors.see_progress(Rank(1));
            detectors.judge(at(0), Rank(1), Sign::Process(host), &choice, ANYWHERE).verdict
        };
        let restarted = Verdict::Restart(Duration::ZERO);
        locate(&mut detectors, "disk_full", &[HOST], false);
        assert_eq!(judge(&mut detectors, HOST), restarted, "that fault is not named");
        locate(&mut detectors, "disk_failing", &[HOST], false);
        locate(&mut detectors, "host_overloaded", &[HOST], false);
        assert_eq!(judge(&mut detectors, HOST), Verdict::Migrate);
        assert_eq!(judge(&mut detectors, AgentId(8)), restarted, "that is another host");
        locate(&mut detectors, "disk_failing", &[HOST], true);
        assert_eq!(judge(&mut detectors, HOST), Verdict::Migrate, "the other one is not over");
        locate(&mut detectors, "host_overloaded", &[HOST], true);
        assert_eq!(judge(&mut detectors, HOST), restarted);
    }

    #[test]
    fn a_located_fault_is_met_before_a_repeated_one_which_counts_all_the_same() {
        let within = Duration::from_millis(100);
        let repeated = Some(Repeated { faults: 1, within, recovery: Recovery::Ignore.into() });
        let choice = Recoveries { repeated, ..met_if_located(&["disk_failing"], Recovery::Restart) };
        let mut detectors = Detectors::default();
        let judge = |detectors: &mut Detectors| {
            detectors.see_progress(Rank(1));
            detectors.judge(at(0), Rank(1), Sign::Process(HOST), &choice, ANYWHERE).verdict
        };
        locate(&mut detectors, "disk_failing", &[HOST], false);
        assert_eq!([(); 2].map(|()| judge(&mut detectors)), [Verdict::Restart(Duration::ZERO); 2]);
        locate(&mut detectors, "disk_failing", &[HOST], true);
        let reason = NoReturn::Repeated { faults: 1, within };
        assert_eq!(judge(&mut detectors), Verdict::Ignore(reason));
        let ignore = met_if_located(&["disk_failing"], Recovery::Ignore);
        locate(&mut detectors, "disk_failing", &[HOST], false);
        let judged = detectors.judge(at(0), Rank(1), Sign::Process(HOST), &ignore, ANYWHERE).verdict;
        assert_eq!(judged, Verdict::Ignore(NoReturn::Located));
    }

    #[test]
    fn a_located_fault_changes_nothing_about_a_host_that_is_lost() {
        let choice = Recoveries {
            physical: Recovery::Migrate.into(),
            ..met_if_located(&["host_dead"], Recovery::Ignore)
        };
        let mut detectors = Detectors::default();
        locate(&mut detectors, "host_dead", &[HOST], false);
        let judged = detectors.judge(at(0), Rank(1), Sign::Host, &choice, ANYWHERE).verdict;
        assert_eq!(judged, Verdict::Migrate);
    }

    #[test]
    fn a_host_with_a_located_fault_takes_a_rank_only_if_no_other_one_can() {
        let choice = met_if_located(&["domain_bad"], Recovery::Migrate);
        let mut detectors = Detectors::default();
        let hosts = [(HOST, 0), (AgentId(8), 3), (AgentId(9), 2)];
        let find =
            |detectors: &Detectors, hosts: &[_]| detectors.choose_host(at(0), &choice, hosts.iter().copied());
        assert_eq!(find(&detectors, &hosts), Some(HOST));
        locate(&mut detectors, "domain_bad", &[HOST, AgentId(9)], false);
        assert_eq!(find(&detectors, &hosts), Some(AgentId(8)));
        assert_eq!(find(&detectors, &hosts[..1]), Some(HOST), "no other one can");
        locate(&mut detectors, "domain_bad", &[HOST, AgentId(9)], true);
        assert_eq!(find(&detectors, &hosts), Some(HOST));
    }

    #[test]
    fn a_repeated_fault_may_be_met_by_a_restart_and_a_single_one_ignored() {
        let repeated = Repeated { faults: 0, within: Duration::ZERO, recovery: Recovery::Restart.into() };
        let choice = Recoveries { repeated: Some(repeated), ..Recoveries::IGNORE };
        let judge =
            |choice| Detectors::default().judge(at(0), Rank(1), Sign::Process(HOST), choice, NOWHERE).verdict;
        assert_eq!(judge(&choice), Verdict::Restart(Duration::ZERO));
        assert_eq!(judge(&Recoveries::IGNORE), Verdict::Ignore(NoReturn::Ignored));
    }

    #[test]
    fn what_cannot_be_done_is_followed_by_the_next() {
        let process = Chain::then(Recovery::Restart, Recovery::Migrate);
        let restart = Restart { fruitless_max: 0, ..Restart::USUAL };
        let choice = Recoveries { process, restart, ..Recoveries::IGNORE };
        let judge = |can| Detectors::default().judge(at(0), Rank(1), Sign::Process(HOST), &choice, can);
        let passed = [(Recovery::Restart, NoReturn::Fruitless(0))];
        assert_eq!(judge(ANYWHERE), Judgement { verdict: Verdict::Migrate, passed: passed.into() });
        let ignored = Verdict::Ignore(NoReturn::NoReplica);
        let nowhere = Elsewhere { migrate: Err(NoReturn::NoReplica), ..NOWHERE };
        assert_eq!(judge(nowhere), Judgement { verdict: ignored, passed: passed.into() });
    }

    #[test]
    fn a_standby_takes_the_place_on_every_kind_of_host_and_without_one_the_next_is_tried() {
        let process = Chain::then(Recovery::Promote, Recovery::Restart);
        let choice = Recoveries { process, physical: process, ..Recoveries::IGNORE };
        let judge = |sign, can| Detectors::default().judge(at(0), Rank(1), sign, &choice, can);
        for sign in [Sign::Process(HOST), Sign::Host, Sign::Domain] {
            assert_eq!(judge(sign, ANYWHERE), Judgement { verdict: Verdict::Promote, passed: Vec::new() });
        }
        let passed = Vec::from([(Recovery::Promote, NoReturn::NoStandby)]);
        let verdict = Verdict::Restart(Duration::ZERO);
        assert_eq!(judge(Sign::Process(HOST), NOWHERE), Judgement { verdict, passed: passed.clone() });
        let verdict = Verdict::Ignore(NoReturn::HostLost);
        assert_eq!(judge(Sign::Host, NOWHERE), Judgement { verdict, passed });
    }

    #[test]
    fn hosts_and_domains_have_recoveries_of_their_own() {
        let judge = |choice: &Recoveries, sign| {
            Detectors::default().judge(at(0), Rank(1), sign, choice, ANYWHERE).verdict
        };
        let lost = Verdict::Ignore(NoReturn::HostLost);
        assert_eq!(judge(&Recoveries::RESTART, Sign::Host), lost);
        assert_eq!(judge(&Recoveries::MIGRATE, Sign::Host), Verdict::Migrate);
        assert_eq!(judge(&Recoveries::MIGRATE, Sign::Domain), Verdict::Migrate);
        let network = Some(Network { share_percent: 50, recovery: Recovery::Ignore.into() });
        let choice = Recoveries { network, ..Recoveries::MIGRATE };
        assert_eq!([Sign::Host, Sign::Domain].map(|sign| judge(&choice, sign)), [Verdict::Migrate, lost]);
    }
}
