//! Faults that are injected, the symptoms they cause, and what probes answer.

use everfold_locate::{
    place::{Host, Place},
    probe::Reading,
    symptom::Kind,
};
use everfold_protocol::Rank;

/// A fault. Each rank runs on the host of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injected {
    Dead(u32),
    Frozen(u32),
    Overloaded(u32),
    DiskFull(u32),
    DiskFailing(u32),
    OutOfMemory(u32),
    Crashed(u32),
    Diverging(u32),
    Unbalanced(u32),
    NeverCalled(u32),
    LinkSlow(u32, u32),
    LinkLossy(u32, u32),
}

impl Injected {
    /// What rules call it.
    pub fn fault(self) -> &'static str {
        match self {
            Self::Dead(_) => "host_dead",
            Self::Frozen(_) => "host_frozen",
            Self::Overloaded(_) => "host_overloaded",
            Self::DiskFull(_) => "disk_full",
            Self::DiskFailing(_) => "disk_failing",
            Self::OutOfMemory(_) => "out_of_memory",
            Self::Crashed(_) => "process_crashed",
            Self::Diverging(_) => "rank_diverges",
            Self::Unbalanced(_) => "unbalanced",
            Self::NeverCalled(_) => "never_called",
            Self::LinkSlow(..) => "link_slow",
            Self::LinkLossy(..) => "link_lossy",
        }
    }

    /// What it is beside noise: a rank that does not call does not compute either, as one does that waits.
    pub fn looks_like(self) -> Option<&'static str> {
        matches!(self, Self::NeverCalled(_)).then_some("waits")
    }

    pub fn host(self) -> u32 {
        match self {
            Self::LinkSlow(host, _) | Self::LinkLossy(host, _) => host,
            Self::Dead(host) | Self::Frozen(host) | Self::Overloaded(host) | Self::DiskFull(host) => host,
            Self::DiskFailing(host) | Self::OutOfMemory(host) | Self::Crashed(host) => host,
            Self::Diverging(host) | Self::Unbalanced(host) | Self::NeverCalled(host) => host,
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
            | Self::NeverCalled(_) => Place::Rank { rank: Rank(host.0), host },
            _ => Place::Host(host),
        }
    }

    /// Whether the host does not run any more.
    pub fn stops(self) -> bool {
        matches!(self, Self::Dead(_) | Self::Frozen(_))
    }

    /// Symptoms that it causes in each period, and whether peers (or else the host itself, or its reader) observe them.
    pub fn symptoms(self) -> &'static [(Kind, bool)] {
        match self {
            Self::Dead(_) => &[(Kind::Silence, true), (Kind::Broken, true)],
            Self::Frozen(_) => &[(Kind::Silence, true)],
            Self::Overloaded(_) => &[(Kind::Late, true), (Kind::CpuPressure, false)],
            Self::DiskFull(_) => &[(Kind::DiskFull, false)],
            Self::DiskFailing(_) => &[(Kind::DiskError, false), (Kind::DiskSlow, false)],
            Self::OutOfMemory(_) => &[(Kind::Ended, false), (Kind::OutOfMemory, false)],
            Self::Crashed(_) => &[(Kind::Ended, false)],
            Self::Diverging(_) => &[(Kind::Diverging, true)],
            Self::Unbalanced(_) => &[(Kind::Late, true)],
            Self::NeverCalled(_) => &[(Kind::NotCalled, true)],
            Self::LinkSlow(..) => &[(Kind::SlowRead, false)],
            Self::LinkLossy(..) => {
                &[(Kind::FailedRead, false), (Kind::SlowRead, false), (Kind::LinkErrors, false)]
            }
        }
    }

    /// Who observes what is not observed by peers.
    pub fn observer(self) -> u32 {
        match self {
            Self::LinkSlow(_, to) | Self::LinkLossy(_, to) => to,
            other => other.host(),
        }
    }

    /// What a probe of its place reads that differs from what is usual.
    pub fn readings(self) -> &'static [(Reading, f64)] {
        match self {
            Self::Dead(_) | Self::Frozen(_) => &[],
            Self::Overloaded(_) => &[(Reading::CpuStolen, 0.6)],
            Self::DiskFull(_) => &[(Reading::DiskFree, 0.0)],
            Self::DiskFailing(_) => &[(Reading::DiskErrors, 7.0)],
            Self::OutOfMemory(_) => &[(Reading::OutOfMemory, 1.0), (Reading::Runs, 0.0)],
            Self::Crashed(_) => &[(Reading::Runs, 0.0)],
            Self::Diverging(_) => &[],
            Self::Unbalanced(_) => &[(Reading::Computes, 0.95)],
            Self::NeverCalled(_) => &[(Reading::Computes, 0.0)],
            Self::LinkSlow(..) => &[(Reading::LinkSlowness, 10.0)],
            Self::LinkLossy(..) => &[(Reading::LinkSlowness, 5.0), (Reading::LinkLoss, 0.1)],
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
