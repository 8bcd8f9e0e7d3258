//! Probes: the questions that a localisation node asks before it confirms a fault (FL-5).

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// A question about a suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// Does it answer at all?
    Response,
    /// What does it measure of itself?
    State,
    /// What did it log of late?
    Log,
    /// How fast, and with how many losses, do a few messages pass a link?
    Link,
    /// How long does a small computation take?
    Cpu,
    /// How long does a small write take?
    Disk,
}

macro_rules! readings {
    ($($(#[$doc:meta])* $reading:ident = $name:literal;)*) => {
        /// What an answer may contain.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Reading { $($(#[$doc])* $reading,)* }

        impl Reading {
            /// Every reading.
            pub const ALL: &'static [Self] = &[$(Self::$reading,)*];

            /// Its name in rules, behind `probe.`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$reading => $name,)* }
            }
        }
    };
}

readings! {
    /// 1 if the suspect answered, 0 if its time ran out.
    Answers = "answers";
    /// 1 if the system of the suspect's host still accepts a connection, as it does while its processes are
    /// frozen.
    Connects = "connects";
    /// Of the time in which the ranks of the host want a core, they have none this share of it: others have
    /// it, or other virtual machines.
    CpuStolen = "cpu_stolen";
    /// Share of time in which tasks waited for memory.
    MemoryPressure = "memory_pressure";
    /// 1 if the process that is asked about has not ended.
    Runs = "runs";
    /// 1 if it is stopped, as by a debugger or a signal.
    Stopped = "stopped";
    /// 1 if the system killed the process because memory ran out.
    OutOfMemory = "out_of_memory";
    /// Share of the disk that is free.
    DiskFree = "disk_free";
    /// Errors of the host's disks since the job began there.
    DiskErrors = "disk_errors";
    /// How many times its usual time a small write takes.
    DiskSlowness = "disk_slowness";
    /// How many times the time of its peers a link takes.
    LinkSlowness = "link_slowness";
    /// Share of probes that a link lost.
    LinkLoss = "link_loss";
    /// Share of the time in which the rank computes, or waits for a core to compute.
    Computes = "computes";
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer(pub Vec<(Reading, f64)>);

impl Answer {
    /// Neither the suspect nor the system of its host answered in time. A driver tries more than once before
    /// that.
    pub fn nothing() -> Self {
        Self(Vec::from([(Reading::Answers, 0.0), (Reading::Connects, 0.0)]))
    }
}
