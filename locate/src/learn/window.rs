//! Windows: the symptoms of one host within the trigger's window, and the faults that were confirmed then.
//!
//! A confirmed fault has the window before it; faults that follow within one belong to the same. Symptoms of
//! the host while a fault lasts are explained by it, and belong to no window. All others are cut into windows
//! that begin with a symptom. So windows are disjoint, and each fault counts once, however long it lasts.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec,
    vec::Vec,
};
use core::time::Duration;

use super::{
    record::{Event, Line},
    sets::Set,
};
use crate::{
    place::{Host, Place, Scope},
    symptom::Kind,
    tfa::Finding,
};

/// What was seen of one host within a window.
#[derive(Debug)]
pub(super) struct Window<'a> {
    host: Host,
    begin: Duration,
    end: Duration,
    /// In the order of time.
    pub seen: Vec<(Duration, Kind, Place)>,
    confirmed: BTreeSet<(&'a str, Place)>,
}

impl<'a> Window<'a> {
    /// The faults that were confirmed, and of what kind of place.
    pub fn faults(&self) -> impl Iterator<Item = (&'a str, Scope)> {
        self.confirmed.iter().map(|(fault, place)| (*fault, place.scope()))
    }
}

/// A place in a window: what was seen of it and around it, and its faults.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub seen: Set,
    pub faults: BTreeSet<&'a str>,
}

/// What a node knows of one host.
#[derive(Debug, Default)]
struct History<'a> {
    seen: Vec<(Duration, Kind, Place)>,
    decided: Vec<(Duration, &'a str, Place, Finding)>,
}

/// Cuts records into windows that are so long.
pub(super) fn cut(lines: &[Line], length: Duration) -> Vec<Window<'_>> {
    let mut histories = BTreeMap::<(u32, Host), History<'_>>::new();
    for Line { node, at, event } in lines {
        let (Event::Seen { place, .. } | Event::Decided { place, .. }) = event;
        let Some(host) = place.host() else { continue };
        let history = histories.entry((*node, host)).or_default();
        match event {
            Event::Seen { kind, place, .. } => history.seen.push((*at, *kind, *place)),
            Event::Decided { fault, place, finding } => history.decided.push((*at, fault, *place, *finding)),
        }
    }
    histories.into_iter().flat_map(|((_, host), history)| history.windows(host, length)).collect()
}

impl<'a> History<'a> {
    fn windows(mut self, host: Host, length: Duration) -> Vec<Window<'a>> {
        self.seen.sort_by_key(|(at, ..)| *at);
        self.decided.sort_by_key(|(at, ..)| *at);
        let mut with_faults = self.with_faults(host, length);
        let mut without = Vec::<Window<'_>>::new();
        for seen in &self.seen {
            let at = seen.0;
            let is_in = |window: &&mut Window<'_>| (window.begin..=window.end).contains(&at);
            if let Some(window) = with_faults.iter_mut().find(is_in) {
                window.seen.push(*seen);
            } else if self.is_explained(at) {
                continue;
            } else if let Some(window) = without.last_mut().filter(|window| at < window.end) {
                window.seen.push(*seen);
            } else {
                let confirmed = BTreeSet::new();
                without.push(Window { host, begin: at, end: at + length, seen: vec![*seen], confirmed });
            }
        }
        with_faults.append(&mut without);
        with_faults
    }

    /// The windows before confirmed faults, empty.
    fn with_faults(&self, host: Host, length: Duration) -> Vec<Window<'a>> {
        let mut windows = Vec::<Window<'_>>::new();
        for &(at, fault, place, _) in self.decided.iter().filter(|it| it.3 == Finding::Confirmed) {
            match windows.last_mut() {
                Some(window) if at < window.end + length => {
                    window.end = at;
                    window.confirmed.insert((fault, place));
                }
                _ => {
                    let (begin, confirmed) = (at.saturating_sub(length), [(fault, place)].into());
                    windows.push(Window { host, begin, end: at, seen: Vec::new(), confirmed });
                }
            }
        }
        windows
    }

    /// Whether a fault lasts then that was confirmed before.
    fn is_explained(&self, at: Duration) -> bool {
        let mut lasting = BTreeSet::new();
        for &(_, fault, place, finding) in self.decided.iter().take_while(|it| it.0 <= at) {
            match finding {
                Finding::Confirmed => drop(lasting.insert((fault, place))),
                Finding::Over => drop(lasting.remove(&(fault, place))),
                Finding::Rejected | Finding::Superseded => {}
            }
        }
        !lasting.is_empty()
    }
}

/// Each place of this kind that a rule would have looked at.
pub(super) fn cases<'a>(windows: &[Window<'a>], about: Scope) -> Vec<Case<'a>> {
    let of_window = |window: &Window<'a>| {
        let seen = window.seen.iter().map(|&(_, _, place)| place);
        let confirmed = window.confirmed.iter().map(|&(_, place)| place);
        let places = seen.chain(confirmed).chain([Place::Host(window.host)]);
        let places: BTreeSet<Place> = places.filter(|place| place.scope() == about).collect();
        let case = |place| Case {
            seen: window.seen.iter().map(|&(_, kind, at)| Set::of_seen(kind, at == place)).collect(),
            faults: window.confirmed.iter().filter(|(_, at)| *at == place).map(|(fault, _)| *fault).collect(),
        };
        places.into_iter().map(case).collect::<Vec<_>>()
    };
    windows.iter().flat_map(of_window).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::record, *};

    #[test]
    fn a_fault_has_the_window_before_it_and_explains_what_is_seen_while_it_lasts() {
        let text = "
            ab 1.0 seen silence host1 by host0 value 1
            ab 3.9 seen redone rank1@host1 by host0 value 1
            ab 4.1 seen damaged host1>host2 by host0 value 1
            ab 9.5 seen late rank1@host1 by host0 value 1
            ab 10.0 seen ended rank1@host1 by host0 value 1
            ab 10.0 seen broken host2 by host0 value 1
            cd 10.0 seen steal host1 by host0 value 1
            ab 10.5 confirmed crashed rank1@host1
            ab 11.0 confirmed dead host1
            ab 12.0 seen ended rank1@host1 by host0 value 1
            ab 13.0 over crashed rank1@host1
            ab 14.0 seen broken host1 by host0 value 1
            ab 20.0 over dead host1
            ab 21.0 seen disk_full host1 by host1 value 1
            ab 40.0 confirmed mended host1
        ";
        let lines = record::parse(text).unwrap();
        let windows = cut(&lines, Duration::from_secs(3));
        let told = |window: &Window<'_>| {
            let faults: Vec<&str> = window.confirmed.iter().map(|(fault, _)| *fault).collect();
            let kinds: Vec<&str> = window.seen.iter().map(|(_, kind, _)| kind.name()).collect();
            (window.host.0, faults.join(" "), kinds.join(" "))
        };
        let expected = [
            (1, "crashed dead", "late ended"),
            (1, "mended", ""),
            (1, "", "silence redone"),
            (1, "", "damaged"),
            (1, "", "disk_full"),
            (2, "", "broken"),
            (1, "", "steal"),
        ];
        let expected = expected.map(|(host, faults, kinds)| (host, faults.into(), kinds.into()));
        assert_eq!(windows.iter().map(told).collect::<Vec<_>>(), expected);

        let ranks = cases(&windows[..1], Scope::Rank);
        assert_eq!(
            ranks.iter().map(|case| case.seen).collect::<Vec<_>>(),
            [[Set::of_seen(Kind::Late, true), Set::of_seen(Kind::Ended, true)].into_iter().collect::<Set>()]
        );
        assert_eq!(ranks[0].faults, ["crashed"].into());
        let hosts = cases(&windows[..1], Scope::Host);
        assert_eq!(
            hosts[0].seen,
            [Kind::Late, Kind::Ended].map(|kind| Set::of_seen(kind, false)).into_iter().collect()
        );
        assert_eq!(hosts[0].faults, ["dead"].into());
    }
}
