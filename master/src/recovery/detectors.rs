//! Which fault a death is a sign of, and what follows from the choice.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use everfold_protocol::{AgentId, Rank, Timestamp, message::NoReturn};

use super::choice::{Recoveries, Recovery, Repeated};

/// What becomes of a rank whose process has ended on a host that is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is started again after this pause.
    Restart(Duration),
    /// The job goes on without it.
    Ignore(NoReturn),
}

/// What is remembered of faults.
///
/// # Memory
/// A number for each rank that was started again, and for each host as many times as the choice counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detectors {
    starts: BTreeMap<Rank, Starts>,
    /// When the latest process faults of each host were, the earliest first.
    faults: BTreeMap<AgentId, VecDeque<Timestamp>>,
}

/// How often a rank was started again.
#[derive(Clone, Copy, Debug, Default)]
struct Starts {
    all: u32,
    /// Since it has made progress.
    fruitless: u32,
}

impl Detectors {
    /// Takes in that the process of a rank has ended on the host of `agent`, and says what is done about it.
    pub fn judge(&mut self, now: Timestamp, rank: Rank, agent: AgentId, choice: &Recoveries) -> Verdict {
        let repeated = choice.repeated.filter(|repeated| self.is_repeated(now, agent, repeated));
        let recovery = repeated.map_or(choice.process, |repeated| repeated.recovery);
        match (recovery, repeated) {
            (Recovery::Restart, _) => self.restart(rank, choice),
            (Recovery::Ignore, Some(Repeated { faults, within, .. })) => {
                Verdict::Ignore(NoReturn::Repeated { faults, within })
            }
            (Recovery::Ignore, None) => Verdict::Ignore(NoReturn::Ignored),
        }
    }

    /// Takes in that a rank has contributed to a reduction to which none of its processes has before.
    pub fn see_progress(&mut self, rank: Rank) {
        if let Some(starts) = self.starts.get_mut(&rank) {
            starts.fruitless = 0;
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
        }
        times.push_back(now);
        is_repeated
    }

    fn restart(&mut self, rank: Rank, choice: &Recoveries) -> Verdict {
        let starts = self.starts.entry(rank).or_default();
        let restart = choice.restart;
        if starts.all >= restart.starts_max {
            return Verdict::Ignore(NoReturn::Starts(starts.all));
        }
        if starts.fruitless >= restart.fruitless_max {
            return Verdict::Ignore(NoReturn::Fruitless(starts.fruitless));
        }
        let pause = restart.pause_after(starts.fruitless);
        *starts = Starts { all: starts.all + 1, fruitless: starts.fruitless + 1 };
        Verdict::Restart(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::Restart;

    const HOST: AgentId = AgentId(7);

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
            detectors.judge(at(0), Rank(1), HOST, &choice)
        };
        let pause = |ms| Verdict::Restart(Duration::from_millis(ms));
        assert_eq!([false; 3].map(&mut judge), [pause(0), pause(100), pause(200)]);
        assert_eq!(judge(false), Verdict::Ignore(NoReturn::Fruitless(3)));
        assert_eq!([true, false, true].map(&mut judge), [pause(0), pause(100), pause(0)]);
        assert_eq!(judge(true), Verdict::Ignore(NoReturn::Starts(6)));
        assert_eq!(detectors.judge(at(0), Rank(2), HOST, &choice), pause(0), "that is another rank");
    }

    #[test]
    fn faults_of_one_host_count_as_repeated_while_there_were_enough_in_time() {
        let mut detectors = Detectors::default();
        let within = Duration::from_millis(100);
        let repeated = Some(Repeated { faults: 2, within, recovery: Recovery::Ignore });
        let choice = Recoveries { repeated, ..Recoveries::RESTART };
        let mut is_repeated = |ms, host| {
            let verdict = detectors.judge(at(ms), Rank(ms as u32), host, &choice);
            verdict == Verdict::Ignore(NoReturn::Repeated { faults: 2, within })
        };
        assert!(!is_repeated(0, HOST) && !is_repeated(10, HOST));
        assert!(!is_repeated(20, AgentId(8)), "that is another host");
        assert!(is_repeated(100, HOST), "the first was as long ago as counts");
        assert!(is_repeated(110, HOST), "each one counts");
        assert!(!is_repeated(250, HOST));
    }

    #[test]
    fn a_repeated_fault_may_be_met_by_a_restart_and_a_single_one_ignored() {
        let repeated = Repeated { faults: 0, within: Duration::ZERO, recovery: Recovery::Restart };
        let choice = Recoveries { repeated: Some(repeated), ..Recoveries::IGNORE };
        let judge = |choice| Detectors::default().judge(at(0), Rank(1), HOST, choice);
        assert_eq!(judge(&choice), Verdict::Restart(Duration::ZERO));
        assert_eq!(judge(&Recoveries::IGNORE), Verdict::Ignore(NoReturn::Ignored));
    }
}
