//! Which recovery is chosen for which fault.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use serde::{Deserialize, Serialize};

pub use everfold_protocol::message::Recovery;

/// Recoveries in the order in which they are tried. If none of them can be done, the job goes on without the
/// rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain([Option<Recovery>; Self::LONGEST]);

impl Chain {
    /// Most recoveries in a row.
    pub const LONGEST: usize = 4;

    /// One recovery, and none behind it.
    pub const fn of(first: Recovery) -> Self {
        Self([Some(first), None, None, None])
    }

    /// `first`, and if it cannot be done, `second`.
    pub const fn then(first: Recovery, second: Recovery) -> Self {
        Self([Some(first), Some(second), None, None])
    }

    /// These in a row; `None` if there are none, or more than [`LONGEST`](Self::LONGEST), or if one stands
    /// there twice.
    pub fn new(recoveries: &[Recovery]) -> Option<Self> {
        let mut chain = [None; Self::LONGEST];
        for (index, recovery) in recoveries.iter().enumerate() {
            if chain.contains(&Some(*recovery)) {
                return None;
            }
            *chain.get_mut(index)? = Some(*recovery);
        }
        chain[0].map(|_| Self(chain))
    }

    /// The recoveries, in order.
    pub fn iter(&self) -> impl Iterator<Item = Recovery> + '_ {
        self.0.iter().flatten().copied()
    }

    /// Whether `recovery` stands there.
    pub fn contains(&self, recovery: Recovery) -> bool {
        self.iter().any(|other| other == recovery)
    }
}

impl From<Recovery> for Chain {
    fn from(recovery: Recovery) -> Self {
        Self::of(recovery)
    }
}

/// The recovery of each fault.
///
/// The detector of located faults looks at the end of a process first, then that of repeated faults. If
/// neither sees one, the one of process faults does. A host that is lost is looked at by the detector of
/// network faults first, and then by that of physical faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recoveries {
    /// Recoveries if a process has ended and its host is well.
    pub process: Chain,
    /// Recoveries if a process has ended on a host that is known to be faulty.
    pub located: Option<LocatedFaults>,
    /// Recoveries if processes of one host end again and again.
    pub repeated: Option<Repeated>,
    /// Recoveries if a host is lost.
    pub physical: Chain,
    /// Recoveries if several hosts of a domain are lost.
    pub network: Option<Network>,
    /// How ranks are started again.
    pub restart: Restart,
    /// Most bytes of replicas that an agent holds, where ranks migrate.
    pub replica_bytes_max: u64,
}

/// A host has a fault that was located and is not over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocatedFaults {
    /// What rules call these faults. One that is about a domain is one of each of its hosts; one that is
    /// about a rank or a link is none of any host.
    pub faults: Vec<String>,
    /// Recoveries if a process ends there.
    pub recovery: Chain,
}

/// More process faults on one host than its programs explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeated {
    /// With this number of process faults on a host ...
    pub faults: u32,
    /// ... within this time, the next one counts as repeated.
    pub within: Duration,
    /// Its recoveries.
    pub recovery: Chain,
}

/// More hosts of one domain are lost than their own faults explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// A host that is lost counts as lost with its domain if more than this share of the domain's hosts, in
    /// percent, is lost then, and it is not the only one.
    pub share_percent: u32,
    /// Its recoveries. Ranks migrate to hosts of other domains only.
    pub recovery: Chain,
}

/// How ranks are started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// How often a rank is started again in a job.
    pub starts_max: u32,
    /// How often in a row without a contribution to a reduction that the rank had not contributed to before.
    pub fruitless_max: u32,
    /// The pause before a rank is started again that has made no progress since its last start. It doubles
    /// each time. A rank that has made progress is started at once.
    pub pause: Duration,
    /// Longest pause.
    pub pause_max: Duration,
    /// How long a process has to join, from when it is to be started. After that its rank is given up.
    pub join_timeout: Duration,
}

impl Recoveries {
    /// The job goes on without ranks whose processes have died.
    pub const IGNORE: Self = Self {
        process: Chain::of(Recovery::Ignore),
        located: None,
        repeated: None,
        physical: Chain::of(Recovery::Ignore),
        network: None,
        restart: Restart::USUAL,
        replica_bytes_max: 4 << 30,
    };
    /// Ranks are started again whose processes have died.
    pub const RESTART: Self = Self { process: Chain::of(Recovery::Restart), ..Self::IGNORE };
    /// Ranks are started again whose processes have died, on another host if theirs is lost.
    pub const MIGRATE: Self = Self { physical: Chain::of(Recovery::Migrate), ..Self::RESTART };

    /// Standbys of ranks take their places. Without one, they are started again: where they were, or on another host if
    /// theirs is lost.
    pub const PROMOTE: Self = Self {
        process: Chain::then(Recovery::Promote, Recovery::Restart),
        physical: Chain::then(Recovery::Promote, Recovery::Migrate),
        ..Self::RESTART
    };

    /// Whether ranks may come back.
    pub fn ranks_return(&self) -> bool {
        self.have(Recovery::Restart) || self.ranks_migrate()
    }

    /// Whether ranks may come back on other hosts: each keeps a replica there.
    pub fn ranks_migrate(&self) -> bool {
        self.have(Recovery::Migrate) || self.ranks_stand_by()
    }

    /// Whether a second process of each rank stands by on another host.
    pub fn ranks_stand_by(&self) -> bool {
        self.have(Recovery::Promote)
    }

    fn have(&self, recovery: Recovery) -> bool {
        let located = self.located.as_ref().map(|located| located.recovery);
        let repeated = self.repeated.map(|repeated| repeated.recovery);
        let network = self.network.map(|network| network.recovery);
        let all = [Some(self.process), located, repeated, Some(self.physical), network];
        all.iter().flatten().any(|chain| chain.contains(recovery))
    }
}

impl Default for Recoveries {
    fn default() -> Self {
        Self::IGNORE
    }
}

impl Restart {
    /// A crash loop ends after some 13 s, and a rank that gets on is started whenever it dies.
    pub const USUAL: Self = Self {
        starts_max: 100,
        fruitless_max: 8,
        pause: Duration::from_millis(100),
        pause_max: Duration::from_secs(10),
        join_timeout: Duration::from_secs(60),
    };

    /// The pause before a rank is started that was started `fruitless` times in a row without progress.
    pub fn pause_after(&self, fruitless: u32) -> Duration {
        match fruitless {
            0 => Duration::ZERO,
            _ => self.pause.saturating_mul(1 << (fruitless - 1).min(30)).min(self.pause_max),
        }
    }
}

impl Default for Restart {
    fn default() -> Self {
        Self::USUAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let restart = Restart::USUAL;
        let pauses_ms = [0, 1, 2, 3, 7, 8, 9, u32::MAX].map(|times| restart.pause_after(times).as_millis());
        assert_eq!(pauses_ms, [0, 100, 200, 400, 6400, 10_000, 10_000, 10_000]);
        let endless = Restart { pause: Duration::MAX, pause_max: Duration::MAX, ..restart };
        assert_eq!(endless.pause_after(2), Duration::MAX);
    }

    #[test]
    fn a_chain_has_each_recovery_once() {
        use Recovery::{Ignore, Migrate, Promote, Restart};
        let chain = Chain::new(&[Restart, Migrate, Ignore]).unwrap();
        assert!(chain.iter().eq([Restart, Migrate, Ignore]));
        assert_eq!(Chain::new(&[]), None);
        assert_eq!(Chain::new(&[Migrate, Migrate]), None);
        assert_eq!(Chain::new(&[Restart, Migrate, Ignore, Restart]), None);
        assert!(Chain::new(&[Promote, Restart, Migrate, Ignore]).is_some());
    }

    #[test]
    fn ranks_come_back_where_a_chain_says_so() {
        assert!(!Recoveries::IGNORE.ranks_return());
        assert!(Recoveries::RESTART.ranks_return() && !Recoveries::RESTART.ranks_migrate());
        let only = Recoveries { physical: Recovery::Migrate.into(), ..Recoveries::IGNORE };
        assert!(only.ranks_return() && only.ranks_migrate());
        let network = Network { share_percent: 50, recovery: Recovery::Migrate.into() };
        assert!(Recoveries { network: Some(network), ..Recoveries::IGNORE }.ranks_migrate());
        let located = LocatedFaults { faults: Vec::new(), recovery: Recovery::Migrate.into() };
        assert!(Recoveries { located: Some(located), ..Recoveries::IGNORE }.ranks_migrate());
        let standbys = Recoveries { process: Recovery::Promote.into(), ..Recoveries::IGNORE };
        assert!(standbys.ranks_return() && standbys.ranks_migrate() && standbys.ranks_stand_by());
        assert!(!Recoveries::MIGRATE.ranks_stand_by() && Recoveries::PROMOTE.ranks_stand_by());
    }
}
