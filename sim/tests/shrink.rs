//! Schedules that fail are made small. What fails here is an oracle that asks for too much, not the machines.

#![allow(clippy::unwrap_used)]

use everfold_sim::check::{Schedule, Violation, draw, run, shrink};

/// Finds fault with what is not to happen.
fn not_to_happen(what: &'static str) -> impl Fn(&Schedule) -> Result<(), Violation> {
    move |schedule| {
        let ran = run(schedule)?;
        let found = format!("{} do", ran.tally.count(what));
        let rule = format!("no future ends {what}");
        if ran.tally.count(what) > 0 { Err(Violation { rule, found }) } else { Ok(()) }
    }
}

/// The first schedule with some of everything in which `what` happens.
fn large(what: &'static str) -> Schedule {
    let is_large = |schedule: &Schedule| {
        let has_many = schedule.reductions.len() >= 3 && schedule.faults.len() >= 3;
        // In a recovery segment a contribution may count without a planned reduction.
        schedule.ranks() >= 10 && has_many && schedule.segments.is_empty()
    };
    let fails = |schedule: &Schedule| not_to_happen(what)(schedule).is_err();
    (0..).map(draw).find(|schedule| is_large(schedule) && fails(schedule)).unwrap()
}

#[test]
fn a_contribution_of_the_dead_takes_a_death_and_two_ranks() {
    let what = "counting contributions of the dead";
    let shrunk = shrink(&large(what), 20_000, not_to_happen(what)).unwrap();
    let Schedule { reductions, faults, .. } = &shrunk.schedule;
    assert!(shrunk.schedule.ranks() <= 3, "{shrunk:#?}");
    assert_eq!((reductions.len(), faults.len()), (1, 1), "{shrunk:#?}");
    assert!(reductions[0].calls.len() <= 2, "{shrunk:#?}");
    assert_eq!(not_to_happen(what)(&shrunk.schedule), Err(shrunk.violation), "it still fails");
}

#[test]
fn a_fenced_process_takes_few_faults() {
    let shrunk = shrink(&large("fenced"), 20_000, not_to_happen("fenced")).unwrap();
    assert!(shrunk.schedule.faults.len() <= 2, "{shrunk:#?}");
    assert!(shrunk.schedule.reductions.len() <= 1, "{shrunk:#?}");
}

#[test]
fn what_does_not_fail_is_not_shrunk() {
    let fair = (0..).map(draw).find(|schedule| schedule.faults.is_empty()).unwrap();
    assert!(shrink(&fair, 100, |schedule| run(schedule).map(|_| ())).is_none());
}

#[test]
fn another_failure_is_not_followed() {
    let schedule = large("fenced");
    let mut runs = 0;
    // Smaller ones fail in another way.
    let shrunk = shrink(&schedule, 500, |smaller| {
        runs += 1;
        let rule = if *smaller == schedule { "one" } else { "another" };
        Err(Violation { rule: rule.to_owned(), found: String::new() })
    });
    let shrunk = shrunk.unwrap();
    assert_eq!((shrunk.schedule, shrunk.runs), (schedule.clone(), runs));
}
