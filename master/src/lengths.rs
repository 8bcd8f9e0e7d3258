//! How long segments between hosts should be, learnt from what reductions took.
//!
//! Short segments keep slow links busy and balance well; long ones cost fewer messages, which is what counts
//! on fast links. Which links there are, nobody tells. So reductions of about the same size are cut in
//! different ways, *rungs* of a ladder: the first has the length that suits slow links
//! ([`Policy::segment_len`]), each of the next is four times as long, and on the last the body is one piece
//! that one task folds. A class climbs: its rung and a neighbour take turns, and it goes to the neighbour if
//! that is quicker. So it never tries what is far from the best. Once both neighbours have lost it rests, for
//! longer each time, and then tries them again, as links may change. Turns matter: both see the same load, and
//! a link that lets more pass after a pause does so for both.
//!
//! Only reductions tell that had the master to themselves, whose ranks came at about the same time, and in
//! which nobody died. Times come in; there is no clock and no chance here.

use alloc::collections::BTreeMap;
use core::time::Duration;

use everfold_protocol::{
    ReductionSpec,
    spec::{BodyKind, Delivery},
};
use smallvec::SmallVec;

use crate::policy::Policy;

/// How much longer the segments of a rung are than those of the one before.
const STEP: u64 = 4;
/// Times of each of the two rungs that a trial compares.
const TIMES: usize = 5;
/// A rung is better if it takes less than this part of the time, in sixteenths.
const BETTER: u128 = 15;
/// Reductions of a class between two trials: the first number once both neighbours have lost, and each time
/// twice as many, up to the second number.
const PAUSES: (u32, u32) = (32, 1024);

/// How a body is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Length of a segment in bytes; zero for objects.
    pub segment_bytes: u64,
    /// Whether one task folds all partials of a segment.
    pub in_one_go: bool,
    /// What its time tells of, if it tells anything.
    lesson: Option<(Class, usize)>,
}

impl Cut {
    /// Segments of a given length, from which nothing is learnt.
    pub fn fixed(segment_bytes: u64) -> Self {
        Self { segment_bytes, in_one_go: false, lesson: None }
    }
}

/// Reductions of about the same size: as powers of two, the length of a body and the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    body: u32,
    ranks: u32,
    for_all: bool,
}

/// What is known of each class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths(BTreeMap<Class, Ladder>);

/// The rungs of a class.
#[derive(Clone, Debug, Default)]
struct Ladder {
    /// The best so far.
    best: usize,
    trial: Option<Trial>,
    /// Whether the rung above is tried next, or the one below.
    below: bool,
    /// Trials that were lost since the last that was won.
    lost: u32,
    /// Reductions until the next trial.
    rest: u32,
}

/// The best rung and a neighbour take turns.
#[derive(Clone, Debug)]
struct Trial {
    rung: usize,
    /// Of the best and of the other, in nanoseconds for 1024 bytes of a body.
    times: [SmallVec<[u64; TIMES]>; 2],
}

impl Lengths {
    /// How the body of a reduction is to be cut.
    pub fn cut(&mut self, spec: &ReductionSpec, policy: &Policy, share_memory: bool) -> Cut {
        let ranks = spec.group.len();
        let first = policy.segment_len(&spec.kind, ranks, share_memory);
        let rungs = if share_memory { 1 } else { rungs(&spec.kind, first, ranks, policy) };
        if rungs < 2 {
            return Cut::fixed(first);
        }
        let class = Class::of(spec);
        let rung = self.0.entry(class).or_default().choose(rungs);
        let body = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let in_one_go = rung + 1 == rungs && is_piece(body, ranks, policy);
        let segment_bytes = if in_one_go { body } else { length(first, rung) };
        Cut { segment_bytes, in_one_go, lesson: Some((class, rung)) }
    }

    /// Learns how long a reduction took that was cut in this way.
    pub fn observe(&mut self, cut: &Cut, body_bytes: u64, took: Duration) {
        let Some((class, rung)) = cut.lesson else { return };
        let ns = took.as_nanos() * 1024 / u128::from(body_bytes.max(1));
        let ladder = self.0.entry(class).or_default();
        ladder.observe(rung, u64::try_from(ns).unwrap_or(u64::MAX));
    }
}

impl Class {
    fn of(spec: &ReductionSpec) -> Self {
        let body = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let for_all = matches!(spec.delivery, Delivery::All);
        Self { body: body.max(1).ilog2(), ranks: spec.group.len().max(1).ilog2(), for_all }
    }
}

impl Ladder {
    /// The rung for the next reduction, of `rungs` that there are.
    fn choose(&mut self, rungs: usize) -> usize {
        let best = self.best.min(rungs - 1);
        if self.trial.is_none() && self.rest == 0 {
            self.trial = self.neighbour(rungs).map(|rung| Trial { rung, times: Default::default() });
        }
        self.rest = self.rest.saturating_sub(1);
        match &self.trial {
            Some(Trial { rung, times: [of_best, of_other] })
                if *rung < rungs && of_other.len() < of_best.len() =>
            {
                *rung
            }
            _ => best,
        }
    }

    /// The rung that is tried next: the other neighbour if there is none there.
    fn neighbour(&mut self, rungs: usize) -> Option<usize> {
        let above = Some(self.best + 1).filter(|above| *above < rungs);
        let below = self.best.checked_sub(1);
        match self.below {
            false => above.or(below),
            true => below.or(above),
        }
    }

    fn observe(&mut self, rung: usize, ns: u64) {
        let best = self.best;
        let Some(trial) = &mut self.trial else { return };
        match rung {
            _ if rung == best => trial.add(0, ns),
            _ if rung == trial.rung => trial.add(1, ns),
            _ => {}
        }
        if let Some(is_won) = trial.is_won() {
            let rung = trial.rung;
            self.end_trial(is_won.then_some(rung));
        }
    }

    /// Goes on in the same direction as long as that pays, then in the other, then rests.
    fn end_trial(&mut self, won: Option<usize>) {
        self.trial = None;
        match won {
            Some(rung) => (self.best, self.lost) = (rung, 0),
            None => {
                (self.below, self.lost) = (!self.below, self.lost.saturating_add(1));
                let (pause, pause_max) = PAUSES;
                let longer = (self.lost / 2).saturating_sub(1).min(10);
                self.rest = if self.lost < 2 { 0 } else { (pause << longer).min(pause_max) };
            }
        }
    }
}

impl Trial {
    fn add(&mut self, which: usize, ns: u64) {
        if self.times[which].len() < TIMES {
            self.times[which].push(ns);
        }
    }

    /// Whether the other rung is better, once that is known.
    fn is_won(&self) -> Option<bool> {
        let [best, other] = self.times.each_ref().map(median);
        Some(u128::from(other?) * 16 < u128::from(best?) * BETTER)
    }
}

/// The one in the middle, once all are there.
fn median(times: &SmallVec<[u64; TIMES]>) -> Option<u64> {
    let mut times = times.clone();
    times.sort_unstable();
    times.get(TIMES / 2).copied().filter(|_| times.len() == TIMES)
}

/// Length of the segments of a rung.
fn length(first: u64, rung: usize) -> u64 {
    first.saturating_mul(STEP.saturating_pow(rung as u32))
}

/// How many rungs there are for a body whose first one has segments of that length.
fn rungs(kind: &BodyKind, first: u64, ranks: usize, policy: &Policy) -> usize {
    let body = kind.array_bytes().map_or(0, |(bytes, _)| bytes);
    if first == 0 || body <= first || !kind.folds_surely() {
        return 1;
    }
    let longest = policy.segment_bytes.min(body - 1);
    let cut = 1 + (1..).take_while(|rung| length(first, *rung) <= longest).count();
    cut + usize::from(is_piece(body, ranks, policy))
}

/// Whether a body may be folded in one piece, by one task.
fn is_piece(body: u64, ranks: usize, policy: &Policy) -> bool {
    body <= policy.segment_bytes && ranks <= policy.fan_in_max
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{
        Path, Rank,
        spec::{ElementType, Operation, Order, Protection},
    };
    use proptest::prelude::*;

    use super::*;

    fn spec(length: u64, ranks: u32) -> ReductionSpec {
        ReductionSpec {
            group: Path::range(0, ranks),
            delivery: Delivery::Root(Rank(0)),
            kind: BodyKind::Array { element: ElementType::F32, operation: Operation::Sum, length },
            order: Order::Arrival,
            deadline: None,
            protection: Protection::None,
            allow_missing: false,
            trace: false,
        }
    }

    /// What comes of `count` reductions that take as long as `time` says.
    fn run(lengths: &mut Lengths, spec: &ReductionSpec, count: u32, time: impl Fn(u64) -> u64) -> Vec<u64> {
        let (policy, (body, _)) = (Policy::default(), spec.kind.array_bytes().expect("it is an array"));
        let mut cuts = Vec::new();
        for _ in 0..count {
            let cut = lengths.cut(spec, &policy, false);
            lengths.observe(&cut, body, Duration::from_nanos(time(cut.segment_bytes)));
            cuts.push(cut.segment_bytes);
        }
        cuts
    }

    const K: u64 = 1 << 10;

    #[test]
    fn bodies_climb_where_messages_cost_most() {
        let mut lengths = Lengths::default();
        let cuts = run(&mut lengths, &spec(256 * K, 4), 100, |segment| 1_000_000_000 / segment);
        let tries = |length| cuts.iter().filter(|cut| **cut == length * K).count();
        assert_eq!([tries(16), tries(64)], [5, 10], "a trial against the next, one against the one before");
        assert!(cuts[40..].iter().filter(|cut| **cut == 1024 * K).count() > 40, "the last is best");
    }

    #[test]
    fn what_is_far_from_the_best_is_never_tried() {
        let mut lengths = Lengths::default();
        let cuts = run(&mut lengths, &spec(2048 * K, 4), 1000, |segment| segment);
        assert_eq!(cuts.iter().max(), Some(&(64 * K)), "the neighbour of the first");
        let tries = cuts.iter().filter(|length| **length == 64 * K).count();
        assert!((10..60).contains(&tries), "fewer and fewer: {tries}");
    }

    #[test]
    fn links_that_change_are_noticed() {
        let mut lengths = Lengths::default();
        let spec = spec(256 * K, 4);
        run(&mut lengths, &spec, 40, |segment| 1_000_000_000 / segment);
        let cuts = run(&mut lengths, &spec, 1000, |segment| segment);
        let shortest = cuts[900..].iter().filter(|length| **length == 16 * K).count();
        assert!(shortest > 90, "{shortest}");
    }

    #[test]
    fn one_odd_time_changes_nothing() {
        let mut lengths = Lengths::default();
        let spec = spec(2048 * K, 4);
        let odd = core::cell::Cell::new(0);
        let time = |segment| {
            odd.set(odd.get() + 1);
            if odd.get() % 5 == 1 { 100 * segment } else { segment }
        };
        let cuts = run(&mut lengths, &spec, 200, time);
        assert!(cuts[20..].iter().filter(|length| **length > 16 * K).count() < 40);
        assert_eq!(cuts.iter().max(), Some(&(64 * K)));
    }

    #[test]
    fn where_nothing_is_learnt_nothing_is_tried() {
        let mut lengths = Lengths::default();
        let policy = Policy::default();
        let cut = || lengths.cut(&spec(256 * K, 4), &policy, false).segment_bytes;
        assert!(core::iter::repeat_with(cut).take(100).all(|length| length == 16 * K));
    }

    #[test]
    fn classes_learn_for_themselves() {
        let mut lengths = Lengths::default();
        run(&mut lengths, &spec(256 * K, 4), 40, |segment| 1_000_000_000 / segment);
        assert_eq!(lengths.cut(&spec(256 * K, 8), &Policy::default(), false).segment_bytes, 16 * K);
        assert_eq!(lengths.cut(&spec(1024 * K, 4), &Policy::default(), false).segment_bytes, 16 * K);
    }

    #[test]
    fn one_host_and_short_bodies_have_nothing_to_learn() {
        let mut lengths = Lengths::default();
        for (length, share_memory) in [(1, false), (4 * K, false), (256 * K, true)] {
            let policy = Policy::default();
            let cut = lengths.cut(&spec(length, 4), &policy, share_memory);
            let fixed = policy.segment_len(&spec(length, 4).kind, 4, share_memory);
            assert_eq!(cut, Cut::fixed(fixed));
        }
    }

    proptest! {
        /// Whatever is observed: segments are whole elements, no longer than the policy allows nor shorter
        /// than the first, and the same observations lead to the same cuts.
        #[test]
        fn cuts_are_sound(
            length in 1u64..1 << 24,
            ranks in 2u32..40,
            times in prop::collection::vec(any::<u32>(), 1..80),
        ) {
            let (spec, policy) = (spec(length, ranks), Policy::default());
            let (body, element) = spec.kind.array_bytes().expect("it is an array");
            let first = policy.segment_len(&spec.kind, ranks as usize, false);
            let [mut lengths, mut twin] = [Lengths::default(), Lengths::default()];
            for ns in times {
                let cut = lengths.cut(&spec, &policy, false);
                prop_assert_eq!(cut, twin.cut(&spec, &policy, false));
                prop_assert!(cut.segment_bytes >= first);
                prop_assert!(cut.segment_bytes <= policy.segment_bytes.max(first));
                prop_assert!(cut.segment_bytes == body || cut.segment_bytes % element == 0);
                prop_assert!(!cut.in_one_go || cut.segment_bytes == body);
                lengths.observe(&cut, body, Duration::from_nanos(ns.into()));
                twin.observe(&cut, body, Duration::from_nanos(ns.into()));
            }
        }
    }
}
