use everfold_protocol::{
    Path, Rank,
    spec::{BodyKind, Delivery, ElementType, Limits, Operation, Order, Protection},
};
use proptest::prelude::*;

use super::{rungs::may_come_inlined, *};

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
        *learning =
            lengths.end(&cut, Some(Ended { id, group: spec.group.clone(), root: None, before: Vec::new() }));
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
    let cuts = job.run(&spec(256 * K, 4), 100, |segment| 20_000_000 / segment);
    let tries = |length| cuts.iter().filter(|cut| **cut == length * K).count();
    assert_eq!(cuts[0], 64 * K, "four for each rank");
    assert_eq!([tries(16), tries(64)], [0, 5], "a trial against the next");
    assert!(cuts[20..].iter().filter(|cut| **cut == 1024 * K).count() > 70, "the last is best");
}

#[test]
fn bodies_go_down_where_bytes_cost_most() {
    let mut job = Job::default();
    let cuts = job.run(&spec(1024 * K, 4), 60, |segment| segment / 1000);
    let tries = |length| cuts.iter().filter(|cut| **cut == length * K).count();
    assert_eq!(cuts[0], 64 * K, "no longer than that");
    assert_eq!([tries(256), tries(1024)], [3, 0], "given up soon");
    assert!(cuts[20..].iter().filter(|cut| **cut == 16 * K).count() > 30, "the lowest is best");
}

#[test]
fn one_task_folds_a_segment_where_each_rank_has_one_at_most() {
    let mut job = Job::default();
    let took = |cut: &Cut| Duration::from_nanos(20_000_000_000 / cut.segment_bytes);
    let cuts: Vec<_> = (0..100).map(|_| job.reduce(&spec(256 * K, 4), took)).collect();
    let in_one_go = |length| cuts.iter().find(|cut| cut.segment_bytes == length * K).map(|cut| cut.in_one_go);
    assert_eq!([64, 256, 1024].map(in_one_go), [Some(false), Some(true), Some(true)]);
}

#[test]
fn what_cannot_pay_is_not_tried() {
    // 32 MiB over links of 500 Mbit/s: 537 ms, of which fewer messages could save 15.
    let mut job = Job::default();
    let slow = job.run(&spec(8192 * K, 4), 100, |_| 16_400);
    assert!(slow.iter().all(|length| *length == 64 * K), "neither longer nor shorter segments");
    // Over links of 20 Gbit/s they could save more than half.
    let mut job = Job::default();
    let fast = job.run(&spec(8192 * K, 4), 100, |segment| 400 + 40_000_000 / segment);
    assert_eq!([fast[0], fast[99]], [64 * K, 1024 * K]);
}

#[test]
fn a_slow_start_does_not_keep_a_class_from_climbing() {
    let mut job = Job::default();
    let cold = job.run(&spec(256 * K, 4), 5, |_| 1_000_000);
    assert!(cold.iter().all(|length| *length <= 64 * K), "longer ones cannot pay");
    let warm = job.run(&spec(256 * K, 4), 40, |segment| 20_000_000 / segment);
    assert_eq!(warm.last(), Some(&(1024 * K)));
}

#[test]
fn doubt_takes_more_turns() {
    let mut job = Job::default();
    let turns = core::cell::RefCell::new(BTreeMap::<u64, u64>::new());
    let time = |segment| {
        let mut turns = turns.borrow_mut();
        let turn = turns.entry(segment).or_default();
        *turn += 1;
        *turn % 2 + 10
    };
    let cuts = job.run(&spec(256 * K, 4), 20, time);
    let turns = |length| cuts[..10].iter().filter(|cut| **cut == length * K).count();
    assert_eq!([turns(64), turns(256)], [5, 5], "before anything else is tried");
}

#[test]
fn what_is_far_from_the_best_is_never_tried() {
    let mut job = Job::default();
    let cuts = job.run(&spec(1024 * K, 4), 1000, |segment| segment / 1000);
    assert!(cuts[20..].iter().all(|length| *length <= 64 * K), "the best and its neighbour");
    let tries = cuts.iter().filter(|length| **length == 64 * K).count();
    assert!((10..40).contains(&tries), "fewer and fewer: {tries}");
}

#[test]
fn links_that_change_are_noticed() {
    let mut job = Job::default();
    let spec = spec(256 * K, 4);
    job.run(&spec, 40, |segment| 20_000_000 / segment);
    let cuts = job.run(&spec, 1000, |segment| segment);
    let shortest = cuts[900..].iter().filter(|length| **length == 16 * K).count();
    assert!(shortest > 90, "{shortest}");
}

#[test]
fn one_odd_time_changes_nothing() {
    let mut job = Job::default();
    let spec = spec(256 * K, 4);
    let odd = core::cell::Cell::new(0);
    let time = |segment| {
        odd.set(odd.get() + 1);
        if odd.get() % 5 == 1 { 100 * segment } else { segment }
    };
    let cuts = job.run(&spec, 200, time);
    assert!(cuts[20..].iter().filter(|length| **length > 16 * K).count() < 40);
    assert!(cuts[20..].iter().all(|length| *length <= 64 * K));
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
    assert!(core::iter::repeat_with(cut).take(100).all(|length| length == 64 * K));
}

#[test]
fn bodies_come_inlined_where_that_is_quicker_and_not_where_it_is_slower() {
    let mut job = Job::default();
    let spec = spec(16 * K, 4);
    let mut inlined = |count: u32, inlined_us, piece_us, cut_us| {
        let took = |cut: &Cut| match cut {
            Cut { inlined: true, .. } => inlined_us,
            Cut { segment_bytes, .. } if *segment_bytes == 64 * K => piece_us,
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
    let tells = |root, before: &[(Rank, Duration)], times: [u64; 3]| {
        let (id, group, before) = (ReductionId::new("x", 0), Path::range(0, 3), before.to_vec());
        let spec = spec(256 * K, 4);
        let lesson =
            Lengths::default().cut(&spec, &Policy::default(), false).lesson.expect("it has some rungs");
        let mut untold = Untold::new(Ended { id, group, root, before }, lesson);
        for (rank, took) in (0..).map(Rank).zip(times) {
            assert_eq!(untold.took(), None, "somebody has yet to tell");
            assert!(untold.hear(rank, us(took)));
            assert!(!untold.hear(rank, us(1)), "it was told before");
        }
        untold.took()
    };
    let told = |root, times| tells(root, &[], times);
    assert_eq!(told(None, [900, 300, 500]), Some(us(300)), "rank 1 called last");
    // The result was at rank 0 at once.
    let before = [us(0), us(40), us(10)];
    let before: Vec<_> = (0..).map(Rank).zip(before).collect();
    assert_eq!(tells(None, &before, [50, 900, 880]), Some(us(870)), "rank 2 had it last");
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
    assert!(may(64 * K, 4, true), "to four each one of 256 KiB, which it has folded");
    assert!(!may(128 * K, 4, true));
    assert!(may(8 * K, 16, true) && !may(32 * K, 16, true), "it holds fifteen");
    let mut fixed = spec(32 * K, 4);
    (fixed.order, fixed.delivery) = (Order::Fixed, Delivery::All);
    assert!(!may_come_inlined(128 * K, &fixed, &Policy::default()), "to four each three of 128 KiB");
    assert!(!may(4 * K, 4, false), "so short a body comes inlined anyway");
    assert!(!may(5 * K, 17, false), "no one task folds as many");
    let returning = Limits { ranks_return: true, ..Limits::default() };
    let policy = Policy { limits: returning, ..Policy::default() };
    assert!(!may_come_inlined(64 * K, &spec(16 * K, 4), &policy));
}

#[test]
fn classes_learn_for_themselves() {
    let mut job = Job::default();
    job.run(&spec(256 * K, 4), 40, |segment| 20_000_000 / segment);
    let mut cut = |spec| job.lengths.cut(&spec, &Policy::default(), false).segment_bytes;
    assert_eq!([cut(spec(256 * K, 16)), cut(spec(1024 * K, 4))], [16 * K, 64 * K]);
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
            let is_in_few = body.div_ceil(cut.segment_bytes) <= u64::from(ranks);
            prop_assert_eq!(cut.in_one_go, cut.lesson.is_some() && is_in_few);
        }
    }
}
