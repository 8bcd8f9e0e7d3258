//! Plans as they are written to `plan.toml`.

use everfold_planner::{
    leveled::{LeveledPlan, LeveledStop},
    levels,
    plan::Plan,
};
use serde::Serialize;

use super::profile::Described;

/// A plan, and what it is for.
#[derive(Serialize)]
struct Saved<'a> {
    title: &'a str,
    #[serde(flatten)]
    plan: &'a Plan,
}

/// The text of `plan.toml`.
///
/// # Errors
/// The plan has numbers that TOML has not.
pub fn plan(title: &str, plan: &Plan) -> Result<String, toml::ser::Error> {
    toml::to_string(&Saved { title, plan })
}

/// The plan with all levels that `described` has.
pub fn leveled(described: &Described) -> LeveledPlan {
    let levels = &described.levels;
    let candidates: Vec<_> = levels.iter().map(|level| level.candidates(&described.profile)).collect();
    let (chosen, expected_s) = levels::place(levels, &candidates);
    let stops = chosen.iter().map(|at| {
        let visit = described.profile.visit(at.point);
        LeveledStop {
            point: visit.point.name.clone(),
            pass: described.profile.passed_before(at.point),
            at_ns: visit.at_ns,
            level: levels[at.level].name.clone(),
            write_ns: candidates[..=at.level]
                .iter()
                .map(|each| each.write_ns(at.point))
                .fold(0, u64::saturating_add),
        }
    });
    LeveledPlan {
        title: described.title.clone(),
        run_ns: described.profile.run_ns(),
        expected_s,
        points: described.profile.names(),
        stops: stops.collect(),
    }
}

#[cfg(test)]
mod tests {
    use everfold_planner::{
        machine::Machine,
        plan::{Placement, Planner, Rule, Wish},
        profile::{Point, Profile, Section},
    };

    use super::*;

    #[test]
    fn a_plan_is_read_again_as_it_was_written() {
        let points = vec![Point { name: "a".to_owned(), at_ns: 5, host_bytes: 100, device_bytes: 3 }];
        let section = Section { name: "loop".to_owned(), times: 9, lasts_ns: 10_000_000_000, points };
        let profile = Profile::new(vec![section]).unwrap();
        let machine = Machine {
            storage_bytes_per_s: 100.0,
            bus_bytes_per_s: 10.0,
            mtbf_host_s: 50.0,
            mtbf_device_s: 60.0,
            restart_s: 1.0,
            reread: 1.0,
        };
        for placement in [Placement::Synchronous, Placement::Asynchronous] {
            let wish = Wish { placement, rule: Rule::Cheapest, apart_ns: None, offset_ns: 0 };
            let made = Planner::new(&profile, &machine).unwrap().place(&wish).unwrap();
            assert!(made.tracks.iter().all(|track| !track.stops.is_empty()));
            let text = plan("program", &made).unwrap();
            assert_eq!(toml::from_str::<Plan>(&text).unwrap(), made);
        }
    }
}
