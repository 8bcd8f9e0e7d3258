//! Random worlds: hosts in a tree, faults, noise, and localisation nodes that die or are overloaded
//! meanwhile.
//!
//! A world is decided by its seed. `LOCATE_SEEDS=100000` runs more of them, `LOCATE_FIRST=27284
//! LOCATE_SEEDS=1` that one.

#![allow(clippy::unwrap_used)]

mod world {
    pub mod draw;
    pub mod host;
    pub mod injected;
    pub mod judge;
    pub mod run;
}

use everfold_locate::rules::{DEFAULT, RuleBase};
use world::{
    injected::Injected,
    run::{Rates, Settings, World},
};

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(otherwise)
}

/// The first `share` of the seeds that are asked for.
fn seeds(share: f64) -> std::ops::Range<u64> {
    let (first, count) = (number("LOCATE_FIRST", 0), number("LOCATE_SEEDS", 2000));
    first..first + (count as f64 * share).ceil() as u64
}

#[test]
fn every_confirmed_fault_was_injected_and_every_injected_fault_is_confirmed() {
    for seed in seeds(1.0) {
        let mut world = World::random(seed);
        world.run();
        world.check().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn a_fault_is_over_when_it_is_and_not_before() {
    for seed in seeds(0.05) {
        let mut world = World::random(seed);
        world.run();
        world.recover();
        world.check().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn a_substitute_finds_what_its_dead_or_overloaded_localisation_node_would_have_found() {
    // Host 13 is a child of host 4, which is a child of host 1.
    for overloaded in [false, true] {
        let away = if overloaded { Injected::Overloaded(4) } else { Injected::Dead(4) };
        let mut world = World::new(1, Settings::new(40, vec![(0, away), (2000, Injected::Dead(13))]));
        world.run();
        world.check().unwrap();
    }
}

#[test]
fn a_fault_is_over_although_the_localisation_node_that_has_confirmed_it_is_dead() {
    // Host 4 confirms it, as host 13 is its child. Hosts with odd numbers recover.
    let faults = vec![(0, Injected::DiskFull(13)), (6000, Injected::Dead(4))];
    let mut world = World::new(1, Settings::new(40, faults));
    world.run();
    assert_eq!(world.confirmed().count(), 2);
    world.recover();
    world.check().unwrap();
    assert_eq!(world.confirmed().count(), 1);
}

#[test]
fn other_rules_do_not_make_a_node_forget_what_it_has_confirmed() {
    let world = || {
        let faults = vec![(0, Injected::DiskFull(13))];
        let mut world = World::new(1, Settings::new(40, faults));
        world.run();
        world.check().unwrap();
        world
    };
    let mut same = world();
    same.deploy(RuleBase::default());
    same.recover();
    assert_eq!(same.confirmed().count(), 0);

    let (trigger, rules) = DEFAULT.split_once("[[").unwrap();
    let other = format!("{trigger}[[{}", rules.replace("\"disk_full\"", "\"no_room\""));
    let mut renamed = world();
    renamed.deploy(RuleBase::parse(&other).unwrap());
    renamed.go_on();
    assert_eq!(renamed.confirmed().map(|it| &*it.fault).collect::<Vec<_>>(), ["no_room"]);
}

#[test]
fn noise_alone_is_no_fault() {
    for seed in 0..50 {
        let mut world = World::new(seed, Settings { noise: 0.2, ..Settings::new(40, vec![]) });
        world.run();
        assert_eq!(world.confirmed().count(), 0, "seed {seed}");
    }
}

/// `cargo test --release -p everfold-locate --test world flat -- --nocapture` prints what docs/locating.md
/// says.
#[test]
fn messages_per_host_and_second_stay_flat() {
    let mut rates = Vec::new();
    for hosts in [4, 16, 64, 128, 1000, 10_000] {
        // Little happens in a small world: the mean of many of them. One host in 64 has a fault, in all of them.
        let seeds = 0..(2048 / hosts).max(1);
        let rates_of = |seed: u32| {
            let count = (seed + 1) * hosts / 64 - seed * hosts / 64;
            let victims = (0..count).map(|index| (index * 64 + 63).min(hosts - 1));
            let faults = victims.map(|host| (500, Injected::Unbalanced(host))).collect();
            let settings = Settings { noise: 0.05, ..Settings::new(hosts, faults) };
            let mut world = World::new(seed.into(), settings);
            world.run();
            world.check().unwrap();
            world.messages_per_host_and_second()
        };
        let worlds: Vec<Rates> = seeds.map(rates_of).collect();
        let mean = |of: fn(&Rates) -> f64| worlds.iter().map(of).sum::<f64>() / worlds.len() as f64;
        let (all, busiest, root) = (mean(|it| it.mean), mean(|it| it.busiest), mean(|it| it.root));
        println!(
            "{hosts:6} hosts: {all:.2} messages per host and second, {root:.2} at the root, {busiest:.2} at the \
             busiest of the others"
        );
        rates.push(all);
    }
    let (least, most) =
        (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
    assert!(most < least * 1.5, "{rates:?}");
}
