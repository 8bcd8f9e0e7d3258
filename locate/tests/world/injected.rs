//! Faults that are injected, the symptoms they cause, and what probes answer.

use everfold_locate::{
    place::{Host, Place},
    probe::Reading,
    symptom::Kind,
    tree::ROOT,
};
use everfold_protocol::Rank;

/// A fault. Each rank runs on the host of its number. Of a fault with two hosts, the first is faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injected {
    Dead(u32),
    Frozen(u32),
    Overloaded(u32),
    MemoryShort(u32),
    DiskFull(u32),
    DiskFailing(u32),
    OutOfMemory(u32),
    Crashed(u32),
    Diverging(u32),
    Unbalanced(u32),
    NeverCalled(u32),
    LinkSlow(u32, u32),
    LinkLossy(u32, u32),
    NetworkSlow(u32, u32),
    NetworkLossy(u32, u32),
}

/// Who observes a symptom.
#[derive(Clone, Copy, Debug)]
pub enum Witness {
    /// Some other hosts.
    Peers,
    /// This one.
    One(u32),
}

/// For how long the end of a process is told. Other symptoms last as long as their fault.
const ENDED_MS: u64 = 1000;

impl Injected {
    /// What rules call it.
    pub fn fault(self) -> &'static str {
        match self {
            Self::Dead(_) => "host_dead",
            Self::Frozen(_) => "host_frozen",
            Self::Overloaded(_) => "host_overloaded",
            Self::MemoryShort(_) => "memory_short",
            Self::DiskFull(_) => "disk_full",
            Self::DiskFailing(_) => "disk_failing",
            Self::OutOfMemory(_) => "out_of_memory",
            Self::Crashed(_) => "process_crashed",
            Self::Diverging(_) => "rank_diverges",
            Self::Unbalanced(_) => "unbalanced",
            Self::NeverCalled(_) => "never_called",
            Self::LinkSlow(..) => "link_slow",
            Self::LinkLossy(..) => "link_lossy",
            Self::NetworkSlow(..) => "network_slow",
            Self::NetworkLossy(..) => "network_lossy",
        }
    }

    /// What else may be told of its host until it is confirmed itself: it explains that. A rank that does not
    /// call does not compute either, as one does that waits.
    pub fn explains(self) -> &'static [&'static str] {
        match self {
            Self::NeverCalled(_) => &["waits"],
            Self::MemoryShort(_) => &["host_overloaded", "waits", "never_called"],
            Self::NetworkSlow(..) => &["link_slow"],
            Self::NetworkLossy(..) => &["link_lossy"],
            _ => &[],
        }
    }

    pub fn host(self) -> u32 {
        match self {
            Self::LinkSlow(host, _) | Self::LinkLossy(host, _) => host,
            Self::NetworkSlow(host, _) | Self::NetworkLossy(host, _) => host,
            Self::Dead(host) | Self::Frozen(host) | Self::Overloaded(host) | Self::DiskFull(host) => host,
            Self::MemoryShort(host) | Self::DiskFailing(host) | Self::OutOfMemory(host) => host,
            Self::Crashed(host) | Self::Diverging(host) => host,
            Self::Unbalanced(host) | Self::NeverCalled(host) => host,
        }
    }

    pub fn place(self) -> Place {
        let host = Host(self.host());
        match self {
            Self::LinkSlow(_, to) | Self::LinkLossy(_, to) => Place::Link { from: host, to: Host(to) },
            Self::OutOfMemory(_)
            | Self::Crashed(_)
            | Self::Diverging(_)
            | Self::Unbalanced(_)
            | Self::NeverCalled(_) => self.rank(),
            _ => Place::Host(host),
        }
    }

    fn rank(self) -> Place {
        Place::Rank { rank: Rank(self.host()), host: Host(self.host()) }
    }

    /// Whether the host does not run any more.
    pub fn stops(self) -> bool {
        matches!(self, Self::Dead(_) | Self::Frozen(_))
    }

    /// Symptoms that it causes in each period, of which place, and who observes them, `age_ms` after it
    /// began.
    pub fn symptoms(self, age_ms: u64) -> Vec<(Kind, Place, Witness)> {
        let (place, itself) = (self.place(), Witness::One(self.host()));
        match self {
            Self::Dead(_) => {
                vec![(Kind::Silence, place, Witness::Peers), (Kind::Broken, place, Witness::Peers)]
            }
            Self::Frozen(_) => vec![(Kind::Silence, place, Witness::Peers)],
            Self::Overloaded(_) => {
                vec![(Kind::Late, place, Witness::Peers), (Kind::CpuPressure, place, itself)]
            }
            Self::MemoryShort(_) => vec![
                (Kind::Late, self.rank(), Witness::Peers),
                (Kind::MemoryPressure, place, itself),
                (Kind::CpuPressure, place, itself),
            ],
            Self::DiskFull(_) => vec![(Kind::DiskFull, place, itself)],
            Self::DiskFailing(_) => vec![(Kind::DiskError, place, itself), (Kind::DiskSlow, place, itself)],
            // Who stands beside the master sees them, once.
            Self::OutOfMemory(_) | Self::Crashed(_) if age_ms >= ENDED_MS => vec![],
            Self::OutOfMemory(_) => {
                [Kind::Ended, Kind::OutOfMemory].map(|kind| (kind, place, Witness::One(ROOT.0))).to_vec()
            }
            Self::Crashed(_) => vec![(Kind::Ended, place, Witness::One(ROOT.0))],
            Self::Diverging(_) => vec![(Kind::Diverging, place, Witness::Peers)],
            Self::Unbalanced(_) => vec![(Kind::Late, place, Witness::Peers)],
            Self::NeverCalled(_) => vec![(Kind::NotCalled, place, Witness::Peers)],
            Self::LinkSlow(_, to) => vec![(Kind::SlowRead, place, Witness::One(to))],
            Self::LinkLossy(_, to) => [Kind::FailedRead, Kind::SlowRead, Kind::LinkErrors]
                .map(|kind| (kind, place, Witness::One(to)))
                .to_vec(),
            // One link of the host shows it first of all.
            Self::NetworkSlow(host, to) | Self::NetworkLossy(host, to) => {
                let link = Place::Link { from: Host(host), to: Host(to) };
                [place, link].map(|place| (Kind::SlowRead, place, Witness::One(to))).to_vec()
            }
        }
    }

    /// What a probe of a place reads that differs from what is usual.
    pub fn readings(self, of: Place) -> &'static [(Reading, f64)] {
        if of.host() != Some(Host(self.host())) {
            return &[];
        }
        match (self, of) {
            (Self::MemoryShort(_), Place::Host(_)) => {
                &[(Reading::MemoryPressure, 0.5), (Reading::CpuStolen, 0.6)]
            }
            // Who waits for memory does not compute.
            (Self::MemoryShort(_), Place::Rank { .. }) => &[(Reading::Computes, 0.1)],
            (Self::NetworkSlow(..), Place::Host(_) | Place::Link { .. }) => &[(Reading::LinkSlowness, 10.0)],
            (Self::NetworkLossy(..), Place::Host(_) | Place::Link { .. }) => {
                &[(Reading::LinkSlowness, 5.0), (Reading::LinkLoss, 0.1)]
            }
            _ if of != self.place() => &[],
            (Self::Overloaded(_), _) => &[(Reading::CpuStolen, 0.6)],
            (Self::DiskFull(_), _) => &[(Reading::DiskFree, 0.0)],
            (Self::DiskFailing(_), _) => &[(Reading::DiskErrors, 7.0)],
            (Self::OutOfMemory(_), _) => &[(Reading::OutOfMemory, 1.0), (Reading::Runs, 0.0)],
            (Self::Crashed(_), _) => &[(Reading::Runs, 0.0)],
            (Self::Unbalanced(_), _) => &[(Reading::Computes, 0.95)],
            (Self::NeverCalled(_), _) => &[(Reading::Computes, 0.0)],
            // It has a fifth of the rate of others, which are not idle.
            (Self::LinkSlow(..), _) => &[(Reading::LinkSlowness, 4.0)],
            (Self::LinkLossy(..), _) => &[(Reading::LinkSlowness, 5.0), (Reading::LinkLoss, 0.1)],
            _ => &[],
        }
    }
}

/// What a healthy place answers.
pub const USUAL: &[(Reading, f64)] = &[
    (Reading::Answers, 1.0),
    (Reading::Connects, 1.0),
    (Reading::CpuStolen, 0.02),
    (Reading::MemoryPressure, 0.0),
    (Reading::Runs, 1.0),
    (Reading::Stopped, 0.0),
    (Reading::OutOfMemory, 0.0),
    (Reading::DiskFree, 0.4),
    (Reading::DiskErrors, 0.0),
    (Reading::DiskSlowness, 1.0),
    (Reading::LinkSlowness, 1.1),
    (Reading::LinkLoss, 0.0),
    (Reading::Computes, 0.5),
];
