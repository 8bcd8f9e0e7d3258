//! From a run of a program to its profile: loops are found again.
//!
//! A trace is the points that a run has reached, one after the other. Where the same names come again and
//! again, with about the same live bytes, they are the body of a section. A loop whose passes get longer or
//! shorter becomes several sections.
//!
//! # Invariants
//! - Sections unrolled are the points of the trace, name by name, and last as long as it.
//! - A pass of a section begins at about the time at which it has begun in the trace.
//! - The live bytes of a point are the most of all its passes: a plan never counts on fewer bytes than there are.

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};
use core::ops::Range;

use crate::profile::{BYTES_MOST, Point, Section};

/// Points that a trace has at most. Beyond that it is not recorded.
pub const TRACE_POINTS_MOST: usize = 10_000_000;
/// Points in the body of a loop at most.
const BODY_MOST: usize = 4096;
/// Lengths of a body that are tried at one point at most.
const TRIES: usize = 64;
/// Live bytes that are the same: they differ by less than the larger of these.
const SAME_PART: u64 = 20;
const SAME_BYTES: u64 = 4096;
/// Passes are equally long if each begins no further than one part in this many of the run from where it would
/// begin if they were.
const EVEN_PART: u64 = 50;

/// The points that a run has reached.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    names: BTreeMap<String, u32>,
    reached: Vec<Reached>,
}

#[derive(Clone, Copy, Debug)]
struct Reached {
    name: u32,
    at_ns: u64,
    host_bytes: u64,
    device_bytes: u64,
}

/// A body of points, and how often it follows itself.
struct Loop {
    /// The first pass, in the trace.
    body: Range<usize>,
    times: usize,
}

impl Trace {
    /// The program reaches a point, at this time from its beginning, with these live bytes. Returns false if
    /// there is no room for it.
    pub fn reach(&mut self, name: &str, at_ns: u64, host_bytes: u64, device_bytes: u64) -> bool {
        if self.reached.len() >= TRACE_POINTS_MOST {
            return false;
        }
        let number = match self.names.get(name) {
            Some(number) => *number,
            None => {
                let number = self.names.len() as u32;
                self.names.insert(name.to_string(), number);
                number
            }
        };
        let at_ns = self.reached.last().map_or(at_ns, |last| at_ns.max(last.at_ns));
        let (host_bytes, device_bytes) = (host_bytes.min(BYTES_MOST), device_bytes.min(BYTES_MOST));
        self.reached.push(Reached { name: number, at_ns, host_bytes, device_bytes });
        true
    }

    /// Number of points that were reached.
    pub fn len(&self) -> usize {
        self.reached.len()
    }

    /// Whether no point was reached.
    pub fn is_empty(&self) -> bool {
        self.reached.is_empty()
    }

    /// The sections of a program that has ended at `end_ns`.
    pub fn sections(&self, end_ns: u64) -> Vec<Section> {
        let mut written = Written { names: self.by_number(), sections: vec![], at_ns: 0 };
        let begin_ns = self.reached.first().map_or(end_ns, |first| first.at_ns);
        written.quiet(begin_ns);
        let loops = self.loops().into_iter();
        for Loop { body, times } in loops.flat_map(|found| self.even_parts(found, end_ns / EVEN_PART)) {
            let end = body.start + body.len() * times;
            let until_ns = self.reached.get(end).map_or(end_ns.max(written.at_ns), |next| next.at_ns);
            written.passes(&self.reached[body.start..end], body.len(), until_ns);
        }
        written.sections
    }

    fn by_number(&self) -> Vec<&str> {
        let mut names = vec![""; self.names.len()];
        self.names.iter().for_each(|(name, number)| names[*number as usize] = name);
        names
    }

    /// All of the trace, in order.
    fn loops(&self) -> Vec<Loop> {
        let again = self.again();
        let mut loops: Vec<Loop> = vec![];
        let mut at = 0;
        while at < self.reached.len() {
            match self.best(at, &again) {
                Some(found) => {
                    at += found.body.len() * found.times;
                    loops.push(found);
                }
                None => {
                    // Points that do not come again are the body of a section that is passed once.
                    match loops.last_mut().filter(|last| last.times == 1 && last.body.len() < BODY_MOST) {
                        Some(last) => last.body.end += 1,
                        None => loops.push(Loop { body: at..at + 1, times: 1 }),
                    }
                    at += 1;
                }
            }
        }
        loops
    }

    /// The parts of a loop, in order, whose passes are equally long but for `drift_ns`.
    fn even_parts(&self, found: Loop, drift_ns: u64) -> Vec<Loop> {
        let (mut parts, mut open) = (vec![], vec![found]);
        while let Some(Loop { body, times }) = open.pop() {
            match self.least_even(&body, times).filter(|(_, off_ns)| *off_ns > drift_ns) {
                None => parts.push(Loop { body, times }),
                Some((pass, _)) => {
                    let rest = body.start + pass * body.len();
                    open.push(Loop { body: rest..rest + body.len(), times: times - pass });
                    open.push(Loop { body, times: pass });
                }
            }
        }
        parts
    }

    /// The pass whose begin is furthest from where it would be if all were equally long, and how far it is.
    fn least_even(&self, body: &Range<usize>, times: usize) -> Option<(usize, u64)> {
        let begin_ns = |pass: usize| self.reached[body.start + pass * body.len()].at_ns;
        let (last, first_ns) = (times - 1, begin_ns(0));
        let all_ns = u128::from(begin_ns(last) - first_ns);
        let off_ns = |pass: usize| {
            let even_ns = (all_ns * pass as u128 / last as u128) as u64;
            begin_ns(pass).abs_diff(first_ns + even_ns)
        };
        (1..last).map(|pass| (pass, off_ns(pass))).max_by_key(|(_, off_ns)| *off_ns)
    }

    /// For each point, the next one that looks the same; `usize::MAX` if there is none.
    fn again(&self) -> Vec<usize> {
        let mut next = vec![usize::MAX; self.names.len()];
        let mut again = vec![usize::MAX; self.reached.len()];
        for (at, reached) in self.reached.iter().enumerate().rev() {
            again[at] = core::mem::replace(&mut next[reached.name as usize], at);
        }
        again
    }

    /// The loop that begins here and covers most; of two the one with the shorter body.
    fn best(&self, at: usize, again: &[usize]) -> Option<Loop> {
        let mut best: Option<Loop> = None;
        let mut other = again[at];
        for _ in 0..TRIES {
            let length = match other.checked_sub(at) {
                Some(length) if length <= BODY_MOST && other < self.reached.len() => length,
                _ => break,
            };
            let times = self.times(at, length);
            if times > 1 && best.as_ref().is_none_or(|best| times * length > best.times * best.body.len()) {
                best = Some(Loop { body: at..at + length, times });
            }
            other = again[other];
        }
        best
    }

    /// How often the body of this length follows itself.
    fn times(&self, at: usize, length: usize) -> usize {
        let body = &self.reached[at..at + length];
        let passes = self.reached[at + length..].chunks_exact(length);
        1 + passes.take_while(|pass| body.iter().zip(*pass).all(|(a, b)| a.is_like(b))).count()
    }
}

impl Reached {
    fn is_like(&self, other: &Self) -> bool {
        let same = |a: u64, b: u64| a.abs_diff(b) <= (a.max(b) / SAME_PART).max(SAME_BYTES);
        self.name == other.name
            && same(self.host_bytes, other.host_bytes)
            && same(self.device_bytes, other.device_bytes)
    }
}

/// Sections, as they are written one after the other.
struct Written<'a> {
    names: Vec<&'a str>,
    sections: Vec<Section>,
    /// Where the last of them ends.
    at_ns: u64,
}

impl Written<'_> {
    /// Nothing happens up to this time.
    fn quiet(&mut self, until_ns: u64) {
        if until_ns > self.at_ns {
            self.push(1, until_ns - self.at_ns, vec![]);
        }
    }

    /// Passes of a body, the last of which ends at `until_ns` at the latest.
    fn passes(&mut self, reached: &[Reached], body: usize, until_ns: u64) {
        let (times, begin_ns) = (reached.len() / body, self.at_ns);
        // What follows the last point of the last pass may be no part of the loop.
        let whole = if times > 1 { times - 1 } else { 1 };
        let whole_ns = match times {
            1 => until_ns.saturating_sub(begin_ns),
            _ => reached[whole * body].at_ns.saturating_sub(begin_ns),
        };
        let lasts_ns = whole_ns / whole as u64;
        let most_ns = until_ns.saturating_sub(begin_ns) / times as u64;
        let lasts_ns = lasts_ns.min(most_ns).max(1);
        let point = |index: usize| {
            let passes = || reached.iter().skip(index).step_by(body);
            let begins = reached.iter().step_by(body).map(|first| first.at_ns);
            let late_ns: u64 =
                passes().zip(begins).take(whole).map(|(it, begin_ns)| it.at_ns - begin_ns).sum();
            Point {
                name: self.names[reached[index].name as usize].to_string(),
                at_ns: (late_ns / whole as u64).min(lasts_ns),
                host_bytes: passes().map(|it| it.host_bytes).max().unwrap_or_default(),
                device_bytes: passes().map(|it| it.device_bytes).max().unwrap_or_default(),
            }
        };
        let points = (0..body).map(point).collect();
        self.push(times as u64, lasts_ns, points);
        self.quiet(until_ns);
    }

    fn push(&mut self, times: u64, lasts_ns: u64, points: Vec<Point>) {
        let name = format!("section {}", self.sections.len() + 1);
        self.at_ns += times * lasts_ns;
        self.sections.push(Section { name, times, lasts_ns, points });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::profile::Profile;

    fn trace(points: &[(&str, u64, u64)]) -> Trace {
        let mut trace = Trace::default();
        for (name, at_ns, host_bytes) in points {
            assert!(trace.reach(name, *at_ns, *host_bytes, 0));
        }
        trace
    }

    #[test]
    fn loops_are_found_again() {
        let mut points = vec![("begin".to_owned(), 50, 7)];
        for step in 0..1000u64 {
            points.push(("a".to_owned(), 100 + step * 40, 100_000 + step));
            points.push(("b".to_owned(), 115 + step * 40, 200_000));
            points.push(("b".to_owned(), 125 + step * 40, 300_000));
        }
        let points: Vec<(&str, u64, u64)> =
            points.iter().map(|(name, at, bytes)| (&name[..], *at, *bytes)).collect();
        let sections = trace(&points).sections(41_000);
        let told: Vec<(u64, u64, usize)> =
            sections.iter().map(|it| (it.times, it.lasts_ns, it.points.len())).collect();
        assert_eq!(told, [(1, 50, 0), (1, 50, 1), (1000, 40, 3), (1, 900, 0)]);
        let body: Vec<_> =
            sections[2].points.iter().map(|it| (&it.name[..], it.at_ns, it.host_bytes)).collect();
        assert_eq!(body, [("a", 0, 100_999), ("b", 15, 200_000), ("b", 25, 300_000)]);
        assert_eq!(Profile::new(sections).unwrap().run_ns(), 41_000);
    }

    #[test]
    fn a_loop_whose_bytes_grow_becomes_several_sections() {
        let points: Vec<_> = (0..100u64).map(|step| ("a", step * 10, step * 100_000)).collect();
        let sections = trace(&points).sections(1000);
        assert!(sections.len() > 10, "{sections:?}");
        let profile = Profile::new(sections).unwrap();
        for (visit, (_, _, bytes)) in profile.visits().zip(&points) {
            assert!(
                visit.point.host_bytes >= *bytes && visit.point.host_bytes <= bytes + bytes / 10 + 100_000
            );
        }
    }

    #[test]
    fn a_loop_whose_passes_get_shorter_becomes_several_sections() {
        let mut at_ns = 0;
        let points: Vec<_> = (0..1000u64)
            .map(|step| {
                at_ns += (1000 - step).pow(2);
                ("a", at_ns, 0)
            })
            .collect();
        let sections = trace(&points).sections(at_ns);
        assert!((3..20).contains(&sections.len()), "{} sections", sections.len());
        let profile = Profile::new(sections).unwrap();
        for (visit, (_, begins_ns, _)) in profile.visits().zip(&points) {
            let off_ns = visit.at_ns.abs_diff(*begins_ns);
            assert!(off_ns <= at_ns / EVEN_PART + 1_000_000, "{begins_ns}: off by {off_ns} of {at_ns}");
        }
    }

    #[test]
    fn nothing_reached_is_no_point() {
        assert!(Trace::default().is_empty());
        assert!(Trace::default().sections(5).iter().all(|section| section.points.is_empty()));
        assert!(Trace::default().sections(0).is_empty());
    }

    proptest! {
        /// Whatever a program does, a follower of a plan for its profile meets the points in this order.
        #[test]
        fn unrolled_sections_are_the_trace(
            points in prop::collection::vec((0usize..4, 0u64..30, 0u64..3), 1..300), rest in 0u64..100,
        ) {
            let mut at_ns = 0;
            let names = ["a", "b", "c", "d"];
            let points: Vec<_> = points.into_iter().map(|(name, gap_ns, bytes)| {
                at_ns += gap_ns;
                (names[name], at_ns, bytes * 50_000)
            }).collect();
            let end_ns = at_ns + rest;
            let profile = Profile::new(trace(&points).sections(end_ns)).unwrap();
            let unrolled: Vec<&str> = profile.visits().map(|visit| visit.point.name.as_str()).collect();
            let reached: Vec<&str> = points.iter().map(|(name, ..)| *name).collect();
            prop_assert_eq!(unrolled, reached);
            for (visit, (_, _, bytes)) in profile.visits().zip(&points) {
                prop_assert!(visit.point.host_bytes >= *bytes);
            }
            // A pass that takes no time counts as a nanosecond.
            prop_assert!(profile.run_ns() >= end_ns && profile.run_ns() <= end_ns + points.len() as u64 + 1);
        }
    }
}
