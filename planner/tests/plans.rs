//! What holds for plans of any profile.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

use everfold_planner::{
    levels::{self, Level},
    machine::{Machine, Part},
    plan::{Placement, Plan, PlanError, Planner, Rule, Wish},
    profile::{Point, Profile, Section},
};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const MACHINE: Machine = Machine {
    storage_bytes_per_s: 100.0,
    bus_bytes_per_s: 4000.0,
    mtbf_host_s: 400.0,
    mtbf_device_s: 240.0,
    restart_s: 2.0,
    reread: 1.0,
};

/// Points 1 to 20 s apart, in a loop.
fn profile() -> impl Strategy<Value = Profile> {
    let point = (1..20_u64, 0..2000_u64, 0..2000_u64);
    (prop::collection::vec(point, 1..12), 1..20_u64).prop_map(|(steps, times)| {
        let mut at_ns = 0;
        let points = steps.into_iter().enumerate().map(|(index, (step, host_bytes, device_bytes))| {
            at_ns += step * SECOND;
            Point { name: index.to_string(), at_ns, host_bytes, device_bytes }
        });
        let points: Vec<Point> = points.collect();
        let lasts_ns = points.last().unwrap().at_ns;
        Profile::new(vec![Section { name: "loop".to_owned(), times, lasts_ns, points }]).unwrap()
    })
}

fn place(profile: &Profile, placement: Placement, rule: Rule, offset_s: u64) -> Plan {
    let wish = Wish { placement, rule, apart_ns: None, offset_ns: offset_s * SECOND };
    Planner::new(profile, &MACHINE).unwrap().place(&wish).unwrap()
}

fn bytes(plan: &Plan) -> u64 {
    plan.tracks.iter().flat_map(|track| &track.stops).map(|stop| stop.bytes).sum()
}

proptest! {
    #[test]
    fn an_offset_never_saves_more_bytes_and_keeps_the_distance(profile in profile(), offset_s in 1..20_u64) {
        for placement in [Placement::Synchronous, Placement::Asynchronous] {
            let (plan, moved) = (
                place(&profile, placement, Rule::Cheapest, 0),
                place(&profile, placement, Rule::Cheapest, offset_s),
            );
            prop_assert!(bytes(&moved) <= bytes(&plan));
            for track in &moved.tracks {
                let mut last_ns = 0;
                let ends = track.stops.iter().map(|stop| stop.at_ns).chain([profile.run_ns()]);
                for at_ns in ends {
                    prop_assert!(at_ns >= last_ns && at_ns - last_ns <= track.apart_ns + 2 * offset_s * SECOND);
                    last_ns = at_ns;
                }
                let far = track.stops.iter().map(|stop| stop.moved_ns.unsigned_abs()).max();
                prop_assert!(far.is_none_or(|far| far <= offset_s * SECOND));
            }
        }
    }

    #[test]
    fn what_the_host_writes_is_hidden(profile in profile()) {
        // So slow that much of what the host writes is not written before its next checkpoint.
        let machine = Machine { storage_bytes_per_s: 5.0, ..MACHINE };
        let wish =
            Wish { placement: Placement::Asynchronous, rule: Rule::Cheapest, apart_ns: None, offset_ns: 0 };
        let plan = Planner::new(&profile, &machine).unwrap().place(&wish).unwrap();
        let [host, device] = plan.tracks.as_slice() else { panic!("host and device") };
        prop_assert_eq!((host.part, device.part), (Part::Host, Part::Device));
        let of = |track: &everfold_planner::plan::Track| -> (u64, u64) {
            let stops = &track.stops;
            (stops.iter().map(|stop| stop.write_ns).sum(), stops.iter().map(|stop| stop.hidden_ns).sum())
        };
        let ((host_write, host_hidden), (device_write, device_hidden)) = (of(host), of(device));
        prop_assert_eq!(device_hidden, 0);
        prop_assert_eq!(plan.hidden_ns, host_hidden);
        prop_assert_eq!(plan.taken_ns, host_write - host_hidden + device_write);
        let next_ns = host.stops.iter().skip(1).map(|next| next.at_ns).chain([profile.run_ns()]);
        for (stop, next_ns) in host.stops.iter().zip(next_ns) {
            prop_assert_eq!(stop.hidden_ns, stop.write_ns.min(next_ns - stop.at_ns));
        }
    }

    #[test]
    fn no_plan_ends_sooner_than_the_soonest(profile in profile()) {
        let soonest = place(&profile, Placement::Synchronous, Rule::Soonest, 0).expected_s.unwrap();
        for rule in [Rule::Nothing, Rule::Cheapest, Rule::Every, Rule::Young, Rule::Daly] {
            let other = place(&profile, Placement::Synchronous, rule, 0).expected_s;
            prop_assert!(other.is_none_or(|other| soonest <= other * (1.0 + 1e-12)));
        }
    }
}

#[test]
fn checkpoints_that_take_longer_than_any_program_do_not_overflow() {
    let (host_bytes, device_bytes) = (1 << 60, 1);
    let point = |name: &str, at_ns| Point { name: name.to_owned(), at_ns, host_bytes, device_bytes };
    let points = vec![point("a", 0), point("b", SECOND)];
    let section = Section { name: "loop".to_owned(), times: 20, lasts_ns: 2 * SECOND, points };
    let profile = Profile::new(vec![section]).unwrap();
    let made = |bytes_per_s: f64, placement, rule, apart_ns| {
        let (storage_bytes_per_s, bus_bytes_per_s) = (bytes_per_s, bytes_per_s);
        let machine = Machine { storage_bytes_per_s, bus_bytes_per_s, ..MACHINE };
        let wish = Wish { placement, rule, apart_ns: Some(apart_ns), offset_ns: 0 };
        Planner::new(&profile, &machine).unwrap().place(&wish).unwrap()
    };
    for rule in [Rule::Nothing, Rule::Cheapest, Rule::Every, Rule::Young, Rule::Daly, Rule::Soonest] {
        made(1e-9, Placement::Asynchronous, rule, 2 * SECOND);
        let plan = made(1e-9, Placement::Synchronous, rule, 2 * SECOND);
        let is_taken = !matches!(rule, Rule::Cheapest | Rule::Every) || plan.taken_ns == u64::MAX;
        assert!(is_taken, "{plan:?}");
    }
    let any_distance = made(1e20, Placement::Synchronous, Rule::Soonest, u64::MAX);
    assert!(any_distance.tracks[0].stops.len() > 1, "{any_distance:?}");

    // So short a time between failures that no restart ever ends.
    let level = |mtbf_s: f64| {
        let (latency_s, bytes_per_s, restart_s) = (1e300, 1e-9, 1e9);
        Level { name: mtbf_s.to_string(), latency_s, bytes_per_s, restart_s, mtbf_s }
    };
    let levels = [1e-3, 0.1, 1.0].map(level);
    let candidates: Vec<_> = levels.iter().map(|level| level.candidates(&profile)).collect();
    assert_eq!(levels::place(&levels, &candidates).1, f64::INFINITY);
}

#[test]
fn plans_that_cannot_be_are_refused_with_the_reason() {
    let points = vec![Point { name: "a".to_owned(), at_ns: SECOND, host_bytes: 1, device_bytes: 1 }];
    let section = Section { name: "long".to_owned(), times: 2, lasts_ns: 100 * SECOND, points };
    let profile = Profile::new(vec![section]).unwrap();
    let planner = Planner::new(&profile, &MACHINE).unwrap();
    let wish = |apart_s: u64| Wish {
        placement: Placement::Synchronous,
        rule: Rule::Cheapest,
        apart_ns: Some(apart_s * SECOND),
        offset_ns: 0,
    };
    let Err(PlanError::Gap { gap, .. }) = planner.place(&wish(75)) else { panic!("there is a gap") };
    assert_eq!((gap.from, gap.to, gap.needed_ns), (Some(0), Some(1), 100 * SECOND));
    assert!(planner.place(&wish(100)).is_ok());
    assert!(matches!(planner.place(&wish(150)), Err(PlanError::TooFar { .. })));
    let offset_ns = 30 * SECOND;
    assert!(matches!(planner.place(&Wish { offset_ns, ..wish(100) }), Err(PlanError::TooFar { .. })));
}
