//! What is observed of hosts, links and processes (FL-2). Declared once: rules, messages and documents use these names.

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
    ($($(#[$doc:meta])* $kind:ident = $name:literal from $source:ident;)*) => {
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

            /// Who observes it.
            pub fn source(self) -> Source {
                match self { $(Self::$kind => Source::$source,)* }
            }
        }
    };
}

symptoms! {
    /// A rank contributes later than its group; the value is how many times later than the median.
    Late = "late" from Reductions;
    /// Reads of an owner's bytes by one reader take long; the value is the ratio to peers.
    SlowRead = "slow_read" from Reductions;
    /// Folds of a worker take long; the value is the ratio to peers.
    SlowFold = "slow_fold" from Reductions;
    /// A read failed, or its time ran out.
    FailedRead = "failed_read" from Reductions;
    /// Bytes arrived damaged.
    Damaged = "damaged" from Reductions;
    /// A rank's call disagrees with that of its group.
    Diverging = "diverging" from Reductions;
    /// A rank has not called what its group waits for; the value is for how many seconds.
    NotCalled = "not_called" from Reductions;
    /// A task had to be done elsewhere.
    Redone = "redone" from Reductions;
    /// The same ranks are late in each reduction, and their hosts compute all the time.
    Unbalanced = "unbalanced" from Reductions;
    /// Nothing is heard of a host or rank; the value is for how many seconds.
    Silence = "silence" from Job;
    /// A connection broke.
    Broken = "broken" from Job;
    /// A process ended by a signal, or with an exit code that is not 0.
    Ended = "ended" from Job;
    /// The system killed a process because memory ran out.
    OutOfMemory = "out_of_memory" from System;
    /// Cores are busy; the value is their share.
    CpuUse = "cpu_use" from System;
    /// Other virtual machines take the cores; the value is their share.
    Steal = "steal" from System;
    /// Tasks wait for a core; the value is the share of time.
    CpuPressure = "cpu_pressure" from System;
    /// Tasks wait for memory; the value is the share of time.
    MemoryPressure = "memory_pressure" from System;
    /// Tasks wait for the disk; the value is the share of time.
    DiskSlow = "disk_slow" from System;
    /// The disk returned an error.
    DiskError = "disk_error" from System;
    /// No room is left on the disk.
    DiskFull = "disk_full" from System;
    /// An interface counted errors or drops; the value is how many per second.
    LinkErrors = "link_errors" from Network;
    /// An interface's rate fell; the value is the ratio to its past.
    LinkRate = "link_rate" from Network;
    /// The wall clock jumped; the value is by how many seconds.
    ClockJump = "clock_jump" from System;
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
    /// How long ago it was observed when it was sent. Points in time do not travel: hosts have different clocks.
    pub ago: Duration,
    /// What was observed; its kind says the unit.
    pub value: f64,
    /// From which value on it counts as a symptom.
    pub threshold: f64,
}
