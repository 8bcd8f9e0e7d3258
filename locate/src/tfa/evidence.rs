//! Purify and group (FL-4): the symptoms of one host, its ranks and its links.
//!
//! Groups are disjoint: each symptom belongs to the host of its suspect. Duplicates and similar symptoms are
//! one entry.

use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;

use everfold_protocol::time::Timestamp;

use crate::{
    place::{Host, Place},
    rules::What,
    symptom::{Kind, Symptom},
    tfa::Seen,
};

/// How many different symptoms of one host are kept.
const ENTRIES_MAX: usize = 1024;

/// How many symptoms are told of a fault.
const SEEN_MAX: usize = 8;

/// The symptoms of one group.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    entries: BTreeMap<(Kind, Place, Host), Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    count: u32,
    /// The largest value in thresholds, and that value.
    worst: f64,
    value: f64,
    first: Timestamp,
    last: Timestamp,
}

impl Evidence {
    pub(super) fn add(&mut self, now: Timestamp, symptom: &Symptom) {
        let key = (symptom.kind, symptom.suspect, symptom.witness);
        if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(&key) {
            return;
        }
        let seen = now - symptom.ago;
        let worst = symptom.value / symptom.threshold;
        let entry = self.entries.entry(key).or_insert(Entry {
            count: 0,
            worst,
            value: symptom.value,
            first: seen,
            last: seen,
        });
        entry.count = entry.count.saturating_add(1);
        if worst > entry.worst {
            (entry.worst, entry.value) = (worst, symptom.value);
        }
        entry.last = entry.last.max(seen);
    }

    /// Forgets what was seen too long ago.
    pub(super) fn expire(&mut self, now: Timestamp, window: Duration) {
        self.entries.retain(|_, entry| now.since(entry.last) < window);
    }

    /// How many different symptoms there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What symptoms are about, each place once.
    pub(super) fn places(&self) -> Vec<Place> {
        let mut places: Vec<Place> = self.entries.keys().map(|&(_, place, _)| place).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// What speaks for a fault of this place, and since when. All that is known of a host may speak for its
    /// faults.
    pub(super) fn of(&self, place: Place) -> (Vec<Seen>, Option<Timestamp>) {
        let belongs = |at: Place| at == place || matches!(place, Place::Host(_));
        let entries = || self.entries.iter().filter(|((_, at, _), _)| belongs(*at));
        let seen = entries().map(|(&(kind, place, witness), entry)| Seen {
            kind,
            place,
            witness,
            count: entry.count,
            value: entry.value,
        });
        (seen.take(SEEN_MAX).collect(), entries().map(|(_, entry)| entry.first).min())
    }

    /// What is known of one kind, of one place or, without it, of all.
    pub(super) fn value(&self, kind: Kind, place: Option<Place>, what: What) -> f64 {
        let belongs = |at: Place| place.is_none_or(|place| place == at);
        let entries = self.entries.iter().filter(|((of, at, _), _)| *of == kind && belongs(*at));
        match what {
            What::Count => entries.map(|(_, entry)| f64::from(entry.count)).sum(),
            What::Value => {
                let worst = entries.max_by(|(_, one), (_, other)| one.worst.total_cmp(&other.worst));
                worst.map_or(0.0, |(_, entry)| entry.value)
            }
            What::Worst => entries.map(|(_, entry)| entry.worst).fold(0.0, f64::max),
            What::Witnesses => {
                let mut witnesses: Vec<Host> = entries.map(|((_, _, witness), _)| *witness).collect();
                witnesses.sort_unstable();
                witnesses.dedup();
                witnesses.len() as f64
            }
        }
    }
}
