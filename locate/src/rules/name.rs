//! The values that conditions may use.

use alloc::string::{String, ToString};

use crate::{probe::Reading, symptom::Kind};

/// A value that a condition uses.
#[derive(Clone, Debug, PartialEq)]
pub enum Name {
    /// `KIND.count`, `KIND.value`, `KIND.worst` or `KIND.witnesses`: of symptoms of the place, or with
    /// `host.` before it of all places of its host.
    Seen {
        /// Which symptoms.
        kind: Kind,
        /// What of them.
        what: What,
        /// Of all places of the host.
        around: bool,
    },
    /// `found.FAULT`: whether a rule has concluded it from the same group.
    Found(String),
    /// `probe.READING`: what a probe has answered.
    Probe(Reading),
    /// `confirmed.FAULT`: on how many hosts of a domain the fault is confirmed.
    Confirmed(String),
    /// `hosts`: how many hosts a domain has.
    Hosts,
}

/// What a condition asks about symptoms of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// How often it was observed.
    Count,
    /// The value that is the largest in multiples of its threshold, in the unit of its kind.
    Value,
    /// The same, in these multiples.
    Worst,
    /// How many hosts have observed it.
    Witnesses,
}

impl Name {
    pub(super) fn of(parts: &[&str]) -> Option<Self> {
        let seen = |kind: &str, what: &str, around| {
            let kind = Kind::ALL.iter().copied().find(|known| known.name() == kind)?;
            let what = match what {
                "count" => What::Count,
                "value" => What::Value,
                "worst" => What::Worst,
                "witnesses" => What::Witnesses,
                _ => return None,
            };
            Some(Self::Seen { kind, what, around })
        };
        match *parts {
            ["hosts"] => Some(Self::Hosts),
            ["found", fault] => Some(Self::Found(fault.to_string())),
            ["confirmed", fault] => Some(Self::Confirmed(fault.to_string())),
            ["probe", reading] => {
                Reading::ALL.iter().copied().find(|known| known.name() == reading).map(Self::Probe)
            }
            ["host", kind, what] => seen(kind, what, true),
            [kind, what] => seen(kind, what, false),
            _ => None,
        }
    }
}
