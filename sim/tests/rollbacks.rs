//! Jobs whose ranks save together and go back together: whichever rank dies at whichever moment, the
//! invariants hold.

#![allow(clippy::unwrap_used)]

use everfold_sim::rollbacks::{Course, run};

/// Seeds that the test runs.
const SEEDS: u64 = 20_000;

#[test]
fn whoever_dies_when_all_go_on_from_what_is_complete() {
    let mut all = Course::default();
    for seed in 0..SEEDS {
        let course = run(seed).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        assert_eq!(run(seed).unwrap(), course, "seed {seed} describes a run completely");
        all.back += course.back;
        all.resumed = (all.resumed.0 + course.resumed.0, all.resumed.1 + course.resumed.1);
        all.settled = (all.settled.0 + course.settled.0, all.settled.1 + course.settled.1);
        all.deaths_on_the_way += course.deaths_on_the_way;
    }
    assert!(all.back > 1000 && all.resumed.0 > 1000 && all.resumed.1 > 30, "{all:?}");
    assert!(all.settled.0 > 10_000 && all.settled.1 > 300 && all.deaths_on_the_way > 100, "{all:?}");
}
