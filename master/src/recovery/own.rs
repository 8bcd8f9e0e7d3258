//! Detectors that a programmer adds, beside the built-in ones (FR-4).
//!
//! An own detector only chooses among recoveries. Whether a recovery can be done is the master's affair, and
//! so are its limits: so no choice makes a contribution count twice, or starts a rank without end.

use alloc::{boxed::Box, vec::Vec};
use core::{fmt, time::Duration};

use everfold_protocol::{
    AgentId, ProcessId, Timestamp,
    message::{Comeback, Evidence, FromAgent, ToMaster},
};

use super::{
    choice::Chain,
    detectors::{Elsewhere, Sign},
};

/// Least time between two calls of [`Detector::wake`], however soon a detector wants to be woken.
const WAKE_PAUSE: Duration = Duration::from_millis(1);

/// A detector of a programmer's own: it chooses the recoveries of deaths.
///
/// The master asks its own detectors in their order, before the built-in ones. The first that answers
/// decides.
///
/// The master calls it between two of its events, on its thread: a method that takes long holds the job up,
/// and one that panics ends the job. All time comes as an argument. A detector that asks no clock and draws
/// no random number decides the same whenever it sees the same, as the built-in detectors do.
///
/// ```
/// use everfold_master::recovery::{Chain, Death, Detector, Recovery, Sign};
/// use everfold_protocol::Timestamp;
///
/// /// Ranks that die while others run on their host leave it.
/// #[derive(Debug)]
/// struct Leave;
///
/// impl Detector for Leave {
///     fn judge(&mut self, _now: Timestamp, death: &Death) -> Option<Chain> {
///         match death.sign {
///             Sign::Process(_) => Some(Chain::then(Recovery::Migrate, Recovery::Restart)),
///             Sign::Host | Sign::Domain => None,
///         }
///     }
/// }
/// ```
pub trait Detector: fmt::Debug + Send {
    /// Chooses the recoveries of a death, in the order in which they are tried. `None` hands the death over
    /// to the next detector.
    ///
    /// The master passes a recovery that cannot be done, or that its limits forbid, and tries the next one.
    /// If none is left, the job goes on without the rank. Ranks have replicas and standbys only where the
    /// choice for the built-in detectors has [`Migrate`](super::Recovery::Migrate) or
    /// [`Promote`](super::Recovery::Promote).
    fn judge(&mut self, now: Timestamp, death: &Death) -> Option<Chain>;

    /// Chooses the host on which a rank is started that migrates from the host of `from`. `None`, or a host
    /// that is not among `hosts`, hands the choice over to the next detector.
    fn choose_host(
        &mut self,
        _now: Timestamp,
        _process: ProcessId,
        _from: AgentId,
        _hosts: &[Candidate<'_>],
    ) -> Option<AgentId> {
        None
    }

    /// Takes in something that the master has seen.
    fn see(&mut self, _now: Timestamp, _seen: Seen<'_>) {}

    /// When the master is to call [`wake`](Self::wake) next. The master asks again after each event.
    fn wake_at(&self) -> Option<Timestamp> {
        None
    }

    /// Takes in that the time has come that [`wake_at`](Self::wake_at) has said. Calls are at least a
    /// millisecond apart.
    fn wake(&mut self, _now: Timestamp) {}
}

/// A process has died, or could not be started, and its rank may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// The process.
    pub process: ProcessId,
    /// The agent of the host where it was, or where it was to be started.
    pub agent: AgentId,
    /// The fault of which the death is a sign.
    pub sign: Sign,
    /// How it has died; `None` if it had not joined yet.
    pub evidence: Option<Evidence>,
    /// Whether another host can take the rank.
    pub elsewhere: Elsewhere,
}

/// A host that can take a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its agent.
    pub agent: AgentId,
    /// The number of ranks that are there, or are on their way to it.
    pub ranks: usize,
    /// The label of what it shares with other hosts, if that is known.
    pub domain: Option<&'a str>,
}

/// Something that the master has seen.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A host has joined.
    HostCame {
        /// Its agent.
        agent: AgentId,
        /// The label of what it shares with other hosts, if its agent has said one.
        domain: Option<&'a str>,
    },
    /// A host is lost, with all processes there.
    HostLost {
        /// Its agent.
        agent: AgentId,
        /// The label of what it shares with other hosts, if that is known.
        domain: Option<&'a str>,
    },
    /// A process was declared failed. No detector is asked about it where no agent held anything of it: its
    /// rank does not come back.
    Died {
        /// The process.
        process: ProcessId,
        /// What spoke for it.
        evidence: Evidence,
    },
    /// A rank is where it was when its process died.
    CameBack {
        /// Its process.
        process: ProcessId,
        /// The time since the first death after which it was not.
        lost: Duration,
        /// Parts of that time, as the process has measured them.
        comeback: Comeback,
    },
    /// A process of the job says something to the master.
    Message {
        /// The process.
        from: ProcessId,
        /// Its message.
        message: &'a ToMaster,
    },
    /// An agent says something to the master.
    AgentSaid {
        /// The agent.
        agent: AgentId,
        /// Its message.
        message: &'a FromAgent,
    },
}

/// The own detectors of a job, in their order.
#[derive(Debug, Default)]
pub(crate) struct Own {
    detectors: Vec<Box<dyn Detector>>,
    /// The earliest time at which one of them wants to be woken, as it has said that.
    wanted: Option<Timestamp>,
}

impl Clone for Own {
    /// None: a programmer's own cannot be copied.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Own {
    /// These, in their order.
    pub fn new(detectors: Vec<Box<dyn Detector>>) -> Self {
        Self { detectors, wanted: None }
    }

    /// Lets all take something in.
    pub fn see(&mut self, now: Timestamp, seen: Seen<'_>) {
        self.detectors.iter_mut().for_each(|detector| detector.see(now, seen));
    }

    /// The choice of the first that makes one.
    pub fn judge(&mut self, now: Timestamp, death: &Death) -> Option<Chain> {
        self.detectors.iter_mut().find_map(|detector| detector.judge(now, death))
    }

    /// The host that the first one chooses that chooses one of these.
    pub fn choose_host<'a>(
        &mut self,
        now: Timestamp,
        process: ProcessId,
        from: AgentId,
        hosts: impl Iterator<Item = Candidate<'a>>,
    ) -> Option<AgentId> {
        if self.detectors.is_empty() {
            return None;
        }
        let hosts: Vec<Candidate<'a>> = hosts.collect();
        let is_there = |agent: &AgentId| hosts.iter().any(|host| host.agent == *agent);
        let mut asked = self.detectors.iter_mut();
        asked.find_map(|detector| detector.choose_host(now, process, from, &hosts).filter(is_there))
    }

    /// Wakes those that want to be woken by now.
    pub fn wake(&mut self, now: Timestamp) {
        self.wanted = None;
        let is_due = |detector: &&mut Box<dyn Detector>| detector.wake_at().is_some_and(|at| at <= now);
        self.detectors.iter_mut().filter(is_due).for_each(|detector| detector.wake(now));
    }

    /// When they are to be woken, if that has changed since it was asked last; `Some(None)`: not at all.
    pub fn poll_wake(&mut self, now: Timestamp) -> Option<Option<Timestamp>> {
        if self.detectors.is_empty() {
            return None;
        }
        let wanted = self.detectors.iter().filter_map(|detector| detector.wake_at()).min();
        if self.wanted == wanted {
            return None;
        }
        self.wanted = wanted;
        Some(wanted.map(|at| at.max(now + WAKE_PAUSE)))
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::message::NoReturn;

    use super::*;
    use crate::recovery::Recovery;

    const HOST: AgentId = AgentId(7);

    /// Chooses this, and that host; is woken once.
    #[derive(Debug)]
    struct Fixed(Option<Recovery>, Option<AgentId>, Option<Timestamp>);

    impl Detector for Fixed {
        fn judge(&mut self, _: Timestamp, _: &Death) -> Option<Chain> {
            self.0.map(Chain::of)
        }

        fn choose_host(
            &mut self,
            _: Timestamp,
            _: ProcessId,
            _: AgentId,
            _: &[Candidate<'_>],
        ) -> Option<AgentId> {
            self.1
        }

        fn wake_at(&self) -> Option<Timestamp> {
            self.2
        }

        fn wake(&mut self, _: Timestamp) {
            self.2 = None;
        }
    }

    fn own(detectors: impl IntoIterator<Item = Fixed>) -> Own {
        Own::new(detectors.into_iter().map(|detector| Box::new(detector) as Box<dyn Detector>).collect())
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::default() + Duration::from_millis(ms)
    }

    #[test]
    fn the_first_that_chooses_decides() {
        let elsewhere = Elsewhere { migrate: Ok(()), promote: Err(NoReturn::NoStandby) };
        let process = ProcessId::first(1);
        let death = Death { process, agent: HOST, sign: Sign::Process(HOST), evidence: None, elsewhere };
        let judge = |chosen: &[Option<Recovery>]| {
            own(chosen.iter().map(|chosen| Fixed(*chosen, None, None))).judge(at(0), &death)
        };
        assert_eq!(judge(&[None, None]), None, "it is handed over");
        let (migrate, ignore) = (Some(Recovery::Migrate), Some(Recovery::Ignore));
        assert_eq!(judge(&[None, migrate, ignore]), migrate.map(Chain::of));
    }

    #[test]
    fn only_a_host_that_can_take_the_rank_is_chosen() {
        let candidate = |agent| Candidate { agent: AgentId(agent), ranks: 1, domain: None };
        let choose = |chosen: &[Option<u64>]| {
            let mut own = own(chosen.iter().map(|chosen| Fixed(None, chosen.map(AgentId), None)));
            own.choose_host(at(0), ProcessId::first(1), HOST, [8, 9].map(candidate).into_iter())
        };
        assert_eq!(choose(&[Some(9), Some(8)]), Some(AgentId(9)));
        assert_eq!(choose(&[None, Some(7), Some(8)]), Some(AgentId(8)));
        assert_eq!(choose(&[Some(7)]), None, "the rank comes from there");
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn they_are_woken_when_they_want_but_never_without_end() {
        let mut own = own([Fixed(None, None, None), Fixed(None, None, Some(at(50)))]);
        assert_eq!(own.poll_wake(at(0)), Some(Some(at(50))));
        assert_eq!(own.poll_wake(at(10)), None, "that is known");
        own.wake(at(50));
        assert_eq!(own.poll_wake(at(50)), None, "it wants nothing more");
        own.detectors[0] = Box::new(Fixed(None, None, Some(at(20))));
        assert_eq!(own.poll_wake(at(60)), Some(Some(at(61))), "time passes in between");
        assert_eq!(own.poll_wake(at(70)), None, "not later because of what happens meanwhile");
        own.detectors[0] = Box::new(Fixed(None, None, None));
        assert_eq!(own.poll_wake(at(71)), Some(None));
    }
}
