//! Operations that take long: nobody does again what another one does as fast as anybody could, and nobody
//! waits for one worker who folds alone what several could fold at once.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use everfold_protocol::{
    Path, Rank, ReductionSpec,
    report::Report,
    spec::{BodyKind, Delivery, Limits, Order, Protection},
};
use everfold_sim::{Call, Settings, World};
use everfold_worker::machine::End;

const FOLD: Duration = Duration::from_secs(3);
const NAME: &str = "slow";

/// A job in which each fold of [`NAME`] takes so long, and that is pinged as usual.
fn world(ranks: u32, fold: Duration) -> World {
    let mut settings = Settings::new(ranks, 0);
    settings.hosts = vec![0; ranks as usize];
    settings.fold_time.insert(NAME.to_owned(), fold);
    settings.policy.limits = Limits::default();
    let mut world = World::new(settings);
    while world.met().len() < ranks as usize && world.step() {}
    world
}

/// Lets all ranks allreduce objects, and runs until they have ended. Tells what is reported, and how long it
/// took.
fn allreduce(world: &mut World, (sequence, inline, order): (u64, bool, Order)) -> (Report, Duration) {
    let ranks = world.met().len() as u32;
    let spec = ReductionSpec {
        group: Path::range(0, ranks),
        delivery: Delivery::All,
        kind: BodyKind::Object { type_name: "slow object".to_owned() },
        order,
        deadline: None,
        protection: Protection::None,
        allow_missing: false,
        trace: false,
    };
    let (started, ended) = (world.now(), world.calls_ended());
    for rank in 0..ranks {
        let (rank, name) = (Rank(rank), NAME.to_owned());
        world.call(Duration::ZERO, Call { rank, name, sequence, spec: spec.clone(), inline });
    }
    while world.calls_ended() < ended + u64::from(ranks) && world.step() {}
    let ended = world.ended(Rank(0), NAME, sequence).unwrap();
    let End::Received(report) = &ended.end else { panic!("{ended:?}") };
    (report.clone(), ended.at.since(started))
}

#[test]
fn each_contribution_is_folded_once_and_several_at_a_time() {
    for ranks in [2u32, 3, 5, 8, 16] {
        for (inline, order) in [(true, Order::Arrival), (false, Order::Arrival), (true, Order::Fixed)] {
            let mut world = world(ranks, FOLD);
            // Of the first nobody knows what its folds take.
            for sequence in 0..3 {
                let (report, took) = allreduce(&mut world, (sequence, inline, order));
                assert_eq!((world.folds(NAME, sequence), report.tasks_doubled), (ranks - 1, 0));
                let rounds = ranks.next_power_of_two().ilog2();
                assert!(took < FOLD * rounds + FOLD / 2, "{ranks} ranks took {took:?}");
            }
        }
    }
}

#[test]
fn quick_folds_are_one_task_once_they_are_known_to_be_quick() {
    let mut world = world(8, Duration::from_micros(5));
    let tasks = |report: Report| report.tasks_per_worker.iter().map(|(_, tasks)| tasks).sum::<u64>();
    assert_eq!(tasks(allreduce(&mut world, (0, true, Order::Arrival)).0), 7);
    for sequence in 1..4 {
        assert_eq!(tasks(allreduce(&mut world, (sequence, true, Order::Arrival)).0), 1);
    }
}

/// Rank 0, whom nobody was slower than, takes a minute for what took it and the others a moment.
#[test]
fn a_worker_that_is_slow_beside_others_is_overtaken() {
    let mut world = world(4, Duration::from_millis(20));
    allreduce(&mut world, (0, true, Order::Arrival));
    world.slow_down(Duration::ZERO, Rank(0), Duration::from_secs(60), Duration::from_secs(600));
    let (report, took) = allreduce(&mut world, (1, true, Order::Arrival));
    assert_eq!(report.tasks_doubled, 1);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// A worker that was given up is done before the one that was given its task, or after it.
#[test]
fn the_first_result_counts_whoever_has_it() {
    for seconds in [[10, 30], [30, 10]] {
        let mut world = world(2, Duration::from_millis(20));
        allreduce(&mut world, (0, true, Order::Arrival));
        for (rank, seconds) in [0, 1].map(Rank).into_iter().zip(seconds) {
            let (slow, long) = (Duration::from_secs(seconds), Duration::from_secs(600));
            world.slow_down(Duration::ZERO, rank, slow, long);
        }
        let (report, took) = allreduce(&mut world, (1, true, Order::Arrival));
        assert_eq!(report.tasks_doubled, 1, "nobody else is there to do it once more");
        assert!(took < Duration::from_secs(11), "{took:?}");
    }
}
