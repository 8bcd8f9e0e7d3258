//! How long segments between hosts should be, and whether bodies should come inlined, learnt from what
//! reductions took.
//!
//! Short segments keep slow links busy and balance well; long ones cost fewer messages, which is what counts
//! on fast links. There it is quicker still to send a body of some ten kilobytes with the message, through
//! the master's hands, than to have it read. Which links there are, nobody tells. So reductions of about the
//! same size are cut in different ways, *rungs* of a ladder: the first has the length that suits slow links
//! ([`Policy::segment_len`]), each of the next is four times as long, then the body is one piece that one
//! task folds, and on the last it comes inlined. A class climbs: its rung and a neighbour take turns, and it
//! goes to the neighbour if that is quicker. So it never tries what is far from the best. Once both
//! neighbours have lost it rests, for longer each time, and then tries them again, as links may change. Turns
//! matter: both see the same load, and a link that lets more pass after a pause does so for both.
//!
//! Only reductions tell that had the master to themselves, and in which nobody died. How long one took, its
//! ranks tell with the next call: the master hears of an inlined body only when all of it is there. What
//! counts is the time from the latest call on, so that it does not matter how long the others had waited
//! for it. Times come in; there is no clock and no chance here.
//!
//! Ranks have to know before they call whether their bodies are to come inlined. They hear it with the
//! outcome of the reduction before, so what comes next is decided when one ends ([`Lengths::end`]). A rank
//! that has not heard it does as it did before; such a mixture is correct, and tells nothing.

use alloc::collections::BTreeMap;
use core::time::Duration;

use everfold_protocol::{
    Path, Rank, ReductionId, ReductionSpec, class::Class, message::Learning, spec::Delivery,
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
    /// Whether bodies are to come inlined although they are long.
    pub inlined: bool,
    /// What its time tells of, if it tells anything.
    lesson: Option<Lesson>,
}

/// One rung of the ladder of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lesson {
    class: Class,
    rung: usize,
    rungs: Rungs,
}

/// The rungs that there are for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rungs {
    /// On which it is cut into segments; at least one.
    cut: usize,
    /// On which it is one piece that one task folds.
    piece: bool,
    /// On which it comes inlined.
    inlined: bool,
}

impl Cut {
    /// Segments of a given length, from which nothing is learnt.
    pub fn fixed(segment_bytes: u64) -> Self {
        Self { segment_bytes, in_one_go: false, inlined: false, lesson: None }
    }
}

/// What is known of each class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths {
    ladders: BTreeMap<Class, Ladder>,
    /// The latest reduction of each class of which ranks have yet to tell how long it took.
    untold: BTreeMap<Class, Untold>,
}

/// A reduction that is over and tells something, as far as the master knows it.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// Which.
    pub id: ReductionId,
    /// Length of a body.
    pub body_bytes: u64,
    /// Who took part.
    pub group: Path,
    /// Who alone receives the result, and how long ago the master heard its call.
    pub root: Option<(Rank, Duration)>,
}

/// What ranks have told of a reduction.
#[derive(Clone, Debug)]
struct Untold {
    ended: Ended,
    rung: usize,
    /// What the root has told, and the shortest that another rank has.
    of_root: Option<Duration>,
    shortest: Option<Duration>,
}

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
        let rungs = if share_memory { Rungs::ONE } else { Rungs::of(spec, first, policy) };
        let Some(class) = Class::of(spec).filter(|_| rungs.count() > 1) else { return Cut::fixed(first) };
        let ladder = self.ladders.entry(class).or_insert_with(|| {
            let mut ladder = Ladder::default();
            ladder.go_on(rungs.count());
            ladder
        });
        let rung = ladder.rung(rungs.count());
        let (inlined, in_one_go) = (rungs.is_inlined(rung), rung >= rungs.cut);
        let body = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let segment_bytes = if in_one_go { body } else { length(first, rung) };
        Cut { segment_bytes, in_one_go, inlined, lesson: Some(Lesson { class, rung, rungs }) }
    }

    /// Takes the next turn when a reduction ends that was cut in this way, and perhaps tells something.
    pub fn end(&mut self, cut: &Cut, ended: Option<Ended>) -> Learning {
        let Some(Lesson { class, rung, rungs }) = cut.lesson else { return Learning::default() };
        let ladder = self.ladders.entry(class).or_default();
        ladder.go_on(rungs.count());
        let ended = ended.filter(|_| ladder.awaits(rung));
        let asks = ended.is_some();
        match ended {
            Some(ended) => self.untold.insert(class, Untold { ended, rung, of_root: None, shortest: None }),
            None => self.untold.remove(&class),
        };
        Learning { inlines: rungs.is_inlined(ladder.rung(rungs.count())), asks }
    }

    /// Takes in how long a reduction took at one of its ranks. Returns whether somebody wants to know it.
    pub fn hear(&mut self, id: ReductionId, rank: Rank, took: Duration) -> bool {
        let Some((&class, untold)) = self.untold.iter_mut().find(|(_, untold)| untold.ended.id == id) else {
            return false;
        };
        let is_news = untold.hear(rank, took);
        if let Some(took) = untold.took() {
            let ns = took.as_nanos() * 1024 / u128::from(untold.ended.body_bytes.max(1));
            let ladder = self.ladders.entry(class).or_default();
            ladder.observe(untold.rung, u64::try_from(ns).unwrap_or(u64::MAX));
            self.untold.remove(&class);
        }
        is_news
    }
}

impl Untold {
    fn hear(&mut self, rank: Rank, took: Duration) -> bool {
        let is_news = self.ended.group.remove(rank);
        match self.ended.root {
            _ if !is_news => {}
            Some((root, _)) if root == rank => self.of_root = Some(took),
            _ => self.shortest = Some(self.shortest.map_or(took, |shortest| shortest.min(took))),
        }
        is_news
    }

    /// The time from the latest call to the last outcome that somebody waits for, once all have told theirs:
    /// the shortest of all, as who calls last waits for nobody. Where one rank receives the result, the others
    /// hear that it is over before it is there.
    fn took(&self) -> Option<Duration> {
        if !self.ended.group.is_empty() {
            return None;
        }
        let (Some((_, until_over)), Some(of_root)) = (self.ended.root, self.of_root) else {
            return self.shortest;
        };
        let after_that = of_root.saturating_sub(until_over);
        Some(self.shortest.map_or(of_root, |shortest| of_root.min(shortest + after_that)))
    }
}

impl Rungs {
    const ONE: Self = Self { cut: 1, piece: false, inlined: false };

    /// Those for a body whose first one has segments of that length.
    fn of(spec: &ReductionSpec, first: u64, policy: &Policy) -> Self {
        let body = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        if first == 0 || !spec.kind.folds_surely() {
            return Self::ONE;
        }
        let longest = policy.segment_bytes.min(body.saturating_sub(1));
        let longer = (1..).take_while(|rung| length(first, *rung) <= longest).count();
        let piece = body > first && is_piece(body, spec.group.len(), policy);
        Self { cut: 1 + longer, piece, inlined: may_come_inlined(body, spec, policy) }
    }

    fn count(self) -> usize {
        self.cut + usize::from(self.piece) + usize::from(self.inlined)
    }

    fn is_inlined(self, rung: usize) -> bool {
        self.inlined && rung + 1 == self.count()
    }
}

impl Ladder {
    /// The rung for the next reduction, of `rungs` that there are.
    fn rung(&self, rungs: usize) -> usize {
        match &self.trial {
            Some(Trial { rung, times: [of_best, of_other] })
                if *rung < rungs && of_other.len() < of_best.len() =>
            {
                *rung
            }
            _ => self.best.min(rungs - 1),
        }
    }

    /// Whether it matters how long a reduction on that rung took.
    fn awaits(&self, rung: usize) -> bool {
        let is_compared = |trial: &Trial| rung == self.best || rung == trial.rung;
        self.trial.as_ref().is_some_and(is_compared)
    }

    /// Takes in that the next reduction is about to come.
    fn go_on(&mut self, rungs: usize) {
        if self.trial.is_none() && self.rest == 0 {
            self.trial = self.neighbour(rungs).map(|rung| Trial { rung, times: Default::default() });
        }
        self.rest = self.rest.saturating_sub(1);
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

/// Whether a body may be folded in one piece, by one task.
fn is_piece(body: u64, ranks: usize, policy: &Policy) -> bool {
    body <= policy.segment_bytes && ranks <= policy.fan_in_max
}

/// Whether a body may come inlined although it is long: what the master has to send on of such bodies is
/// bounded, and what it holds of them.
fn may_come_inlined(body: u64, spec: &ReductionSpec, policy: &Policy) -> bool {
    let ranks = spec.group.len() as u64;
    let receivers = match spec.delivery {
        Delivery::Root(_) => 1,
        Delivery::All => ranks,
        Delivery::FirstOf(_) => return false,
    };
    let limits = &policy.limits;
    let sent_on = body.saturating_mul(ranks.saturating_sub(1)).saturating_mul(receivers);
    body > limits.inline_bytes_max
        && !limits.ranks_return
        && spec.group.len() <= policy.fan_in_max
        && sent_on <= policy.relay_bytes
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{
        Path, Rank,
        spec::{BodyKind, ElementType, Limits, Operation, Order, Protection},
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

    /// Ranks that reduce again and again, and do as they are told.
    #[derive(Default)]
    struct Job {
        lengths: Lengths,
        learning: Learning,
        took: Duration,
    }

    impl Job {
        /// A reduction that takes so long; with its calls ranks tell how long the one before took.
        fn reduce(&mut self, spec: &ReductionSpec, time: impl Fn(&Cut) -> Duration) -> Cut {
            let Self { lengths, learning, took } = self;
            let cut = lengths.cut(spec, &Policy::default(), false);
            assert_eq!(cut.inlined, learning.inlines, "ranks hear it beforehand");
            assert!(!cut.inlined || cut.in_one_go);
            let id = ReductionId::new("x", 0);
            for rank in spec.group.iter() {
                assert_eq!(lengths.hear(id, rank, *took), learning.asks);
            }
            *took = time(&cut);
            let body_bytes = spec.kind.array_bytes().expect("it is an array").0;
            *learning =
                lengths.end(&cut, Some(Ended { id, body_bytes, group: spec.group.clone(), root: None }));
            cut
        }

        /// The lengths of segments in `count` reductions that take as long as `time` says for a kilobyte.
        fn run(&mut self, spec: &ReductionSpec, count: u32, time: impl Fn(u64) -> u64) -> Vec<u64> {
            let body = spec.kind.array_bytes().expect("it is an array").0;
            let took = |cut: &Cut| Duration::from_nanos(time(cut.segment_bytes).saturating_mul(body / K));
            (0..count).map(|_| self.reduce(spec, took).segment_bytes).collect()
        }
    }

    const K: u64 = 1 << 10;

    #[test]
    fn bodies_climb_where_messages_cost_most() {
        let mut job = Job::default();
        let cuts = job.run(&spec(256 * K, 4), 100, |segment| 1_000_000_000 / segment);
        let tries = |length| cuts.iter().filter(|cut| **cut == length * K).count();
        assert_eq!([tries(16), tries(64)], [5, 10], "a trial against the next, one against the one before");
        assert!(cuts[40..].iter().filter(|cut| **cut == 1024 * K).count() > 40, "the last is best");
    }

    #[test]
    fn what_is_far_from_the_best_is_never_tried() {
        let mut job = Job::default();
        let cuts = job.run(&spec(2048 * K, 4), 1000, |segment| segment);
        assert_eq!(cuts.iter().max(), Some(&(64 * K)), "the neighbour of the first");
        let tries = cuts.iter().filter(|length| **length == 64 * K).count();
        assert!((10..60).contains(&tries), "fewer and fewer: {tries}");
    }

    #[test]
    fn links_that_change_are_noticed() {
        let mut job = Job::default();
        let spec = spec(256 * K, 4);
        job.run(&spec, 40, |segment| 1_000_000_000 / segment);
        let cuts = job.run(&spec, 1000, |segment| segment);
        let shortest = cuts[900..].iter().filter(|length| **length == 16 * K).count();
        assert!(shortest > 90, "{shortest}");
    }

    #[test]
    fn one_odd_time_changes_nothing() {
        let mut job = Job::default();
        let spec = spec(2048 * K, 4);
        let odd = core::cell::Cell::new(0);
        let time = |segment| {
            odd.set(odd.get() + 1);
            if odd.get() % 5 == 1 { 100 * segment } else { segment }
        };
        let cuts = job.run(&spec, 200, time);
        assert!(cuts[20..].iter().filter(|length| **length > 16 * K).count() < 40);
        assert_eq!(cuts.iter().max(), Some(&(64 * K)));
    }

    #[test]
    fn where_nothing_is_learnt_nothing_is_tried() {
        let mut lengths = Lengths::default();
        let policy = Policy::default();
        let cut = || {
            let cut = lengths.cut(&spec(256 * K, 4), &policy, false);
            lengths.end(&cut, None);
            cut.segment_bytes
        };
        assert!(core::iter::repeat_with(cut).take(100).all(|length| length == 16 * K));
    }

    #[test]
    fn bodies_come_inlined_where_that_is_quicker_and_not_where_it_is_slower() {
        let mut job = Job::default();
        let spec = spec(16 * K, 4);
        let mut inlined = |count: u32, inlined_us, piece_us, cut_us| {
            let took = |cut: &Cut| match cut {
                Cut { inlined: true, .. } => inlined_us,
                Cut { in_one_go: true, .. } => piece_us,
                _ => cut_us,
            };
            let times = (0..count).map(|_| job.reduce(&spec, |cut| Duration::from_micros(took(cut))));
            times.filter(|cut| cut.inlined).count()
        };
        assert!(inlined(200, 300, 600, 900) > 150, "on fast links");
        assert!(inlined(2000, 3000, 1000, 900) < 300, "links become slow");
        assert_eq!(inlined(2000, 3000, 1000, 900), 0, "what is far from the best is not tried");
    }

    #[test]
    fn the_time_counts_from_the_latest_call_to_the_last_outcome() {
        let us = Duration::from_micros;
        let told = |root, times: [u64; 3]| {
            let ended = Ended { id: ReductionId::new("x", 0), body_bytes: K, group: Path::range(0, 3), root };
            let mut untold = Untold { ended, rung: 0, of_root: None, shortest: None };
            for (rank, took) in (0..).map(Rank).zip(times) {
                assert_eq!(untold.took(), None, "somebody has yet to tell");
                assert!(untold.hear(rank, us(took)));
                assert!(!untold.hear(rank, us(1)), "it was told before");
            }
            untold.took()
        };
        assert_eq!(told(None, [900, 300, 500]), Some(us(300)), "rank 1 called last");
        // The root called 800 µs before it was over, and had the result 150 µs later.
        let root = Some((Rank(0), us(800)));
        assert_eq!(told(root, [950, 300, 500]), Some(us(450)), "rank 1 called last");
        assert_eq!(told(Some((Rank(0), us(50))), [200, 300, 500]), Some(us(200)), "the root called last");
    }

    #[test]
    fn what_the_master_sends_on_is_bounded() {
        let may = |elements, ranks, for_all: bool| {
            let mut spec = spec(elements, ranks);
            spec.delivery = if for_all { Delivery::All } else { spec.delivery };
            let (body, _) = spec.kind.array_bytes().expect("it is an array");
            may_come_inlined(body, &spec, &Policy::default())
        };
        assert!(may(64 * K, 4, false), "three of 256 KiB");
        assert!(!may(128 * K, 4, false));
        assert!(may(16 * K, 4, true), "to four each three of 64 KiB");
        assert!(!may(32 * K, 4, true));
        assert!(!may(4 * K, 4, false), "so short a body comes inlined anyway");
        assert!(!may(5 * K, 17, false), "no one task folds as many");
        let returning = Limits { ranks_return: true, ..Limits::default() };
        let policy = Policy { limits: returning, ..Policy::default() };
        assert!(!may_come_inlined(64 * K, &spec(16 * K, 4), &policy));
    }

    #[test]
    fn classes_learn_for_themselves() {
        let mut job = Job::default();
        job.run(&spec(256 * K, 4), 40, |segment| 1_000_000_000 / segment);
        let mut cut = |spec| job.lengths.cut(&spec, &Policy::default(), false).segment_bytes;
        assert_eq!([cut(spec(256 * K, 8)), cut(spec(1024 * K, 4))], [16 * K; 2]);
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
        /// Whatever is told: segments are whole elements, no longer than the policy allows nor shorter than the
        /// first, and the same times lead to the same cuts.
        #[test]
        fn cuts_are_sound(
            length in 1u64..1 << 24,
            ranks in 2u32..40,
            times in prop::collection::vec(any::<u32>(), 1..80),
        ) {
            let (spec, policy) = (spec(length, ranks), Policy::default());
            let (body, element) = spec.kind.array_bytes().expect("it is an array");
            let first = policy.segment_len(&spec.kind, ranks as usize, false);
            let [mut job, mut twin] = [Job::default(), Job::default()];
            for ns in times {
                let took = |_: &Cut| Duration::from_nanos(ns.into());
                let cut = job.reduce(&spec, took);
                prop_assert_eq!(cut, twin.reduce(&spec, took));
                prop_assert!(cut.segment_bytes >= first);
                prop_assert!(cut.segment_bytes <= policy.segment_bytes.max(first));
                prop_assert!(cut.segment_bytes == body || cut.segment_bytes % element == 0);
                prop_assert!(!cut.in_one_go || cut.segment_bytes == body);
            }
        }
    }
}
