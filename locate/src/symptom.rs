//! Symptoms of hosts, links and processes (FL-2). Declared once: rules, messages and documents use these
//! names.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::place::{Host, Place};

/// Who observes a symptom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Reductions: messages, reads, folds.
    Reductions,
    /// The network interfaces of a host.
    Network,
    /// The operating system of a host.
    System,
    /// The agents and the master, which start processes and hear from them.
    Job,
}

macro_rules! symptoms {
    ($($(#[$doc:meta])* $kind:ident = $name:literal from $source:ident, in $unit:literal;)*) => {
        /// What is observed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Its name in rules.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The unit of its values; empty for those that only count.
            pub fn unit(self) -> &'static str {
                match self { $(Self::$kind => $unit,)* }
            }

            /// Who observes it.
            pub fn source(self) -> Source {
                match self { $(Self::$kind => Source::$source,)* }
            }
        }
    };
}

symptoms! {
    /// A rank keeps its group waiting, again and again; the value is the share of the time.
    Late = "late" from Reductions, in "of the time";
    /// Reads of one host's bytes by another take long; the value is how many times longer than usual.
    SlowRead = "slow_read" from Reductions, in "times the usual time";
    /// A read failed, or its time ran out.
    FailedRead = "failed_read" from Reductions, in "";
    /// Bytes arrived damaged.
    Damaged = "damaged" from Reductions, in "";
    /// A rank's call disagrees with those of most of its group.
    Diverging = "diverging" from Reductions, in "";
    /// A rank has not called what most of its group wait for.
    NotCalled = "not_called" from Reductions, in "s";
    /// A task of a rank had to be done elsewhere, too.
    Redone = "redone" from Reductions, in "";
    /// Nothing is heard of a host or rank, and it was given up.
    Silence = "silence" from Job, in "s";
    /// A connection broke.
    Broken = "broken" from Job, in "";
    /// A process ended before it had left the job.
    Ended = "ended" from Job, in "";
    /// The system killed a process because memory ran out.
    OutOfMemory = "out_of_memory" from System, in "";
    /// Other virtual machines take the cores.
    Steal = "steal" from System, in "of the time";
    /// Ranks wait for a core, longer than those of other hosts.
    CpuPressure = "cpu_pressure" from System, in "of the time they want one";
    /// Tasks wait for memory.
    MemoryPressure = "memory_pressure" from System, in "of the time";
    /// Tasks wait for a disk.
    DiskSlow = "disk_slow" from System, in "of the time";
    /// Requests to the disk on which everfold keeps replicas take long; the value is their mean time.
    DiskLate = "disk_late" from System, in "s";
    /// A file system counted errors of its disk.
    DiskError = "disk_error" from System, in "";
    /// The disk on which everfold keeps replicas is full; the value is the share that is used.
    DiskFull = "disk_full" from System, in "used";
    /// An interface counted errors or drops.
    LinkErrors = "link_errors" from Network, in "per second";
    /// The wall clock jumped.
    ClockJump = "clock_jump" from System, in "s";
}

/// Something observed that is over its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Symptom {
    /// What is observed.
    pub kind: Kind,
    /// What it is about.
    pub suspect: Place,
    /// The host that observes it.
    pub witness: Host,
    /// How long ago it was observed when it was sent. Points in time do not travel: hosts have different
    /// clocks.
    pub ago: Duration,
    /// What was observed; its kind says the unit.
    pub value: f64,
    /// From which value on it counts as a symptom.
    pub threshold: f64,
}
