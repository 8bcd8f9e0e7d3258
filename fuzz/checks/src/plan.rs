//! Plans of checkpoints that a program is to follow, as anybody may write them.

use std::path::PathBuf;

use everfold::plan::PlanFile;
use everfold_planner::{follow::Follower, plan::Plan};

use crate::memory::bounded;

/// # Panics
/// If a plan that can be followed is not followed to its end.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parse = || PlanFile::parse(text, PathBuf::from("plan.toml")).map(drop);
    if let Err(error) = bounded((256 << 10) + 256 * data.len(), parse) {
        return assert!(error.to_string().contains("plan.toml"));
    }
    let plan: Plan = toml::from_str(text).unwrap();
    let mut follower = Follower::new(&plan).unwrap();
    // A program that passes its points as the plan says meets all of them.
    let passes = |stop: &everfold_planner::plan::Stop| stop.pass < 100;
    let stops = &plan.tracks[0].stops;
    if !stops.iter().all(passes) || stops.len() > 100 {
        return;
    }
    let mut passed = std::collections::BTreeMap::<&str, u64>::new();
    for stop in stops {
        let times = passed.entry(&stop.point).or_default();
        while *times <= stop.pass {
            let reached = follower.reach(&stop.point);
            // Another order than that of the program, or a point that the plan itself does not name.
            let Ok(saves) = reached else { return };
            assert_eq!(saves, *times == stop.pass);
            *times += 1;
        }
    }
    drop(follower.end());
}

pub fn samples() -> Vec<Vec<u8>> {
    let head = "placement = \"synchronous\"\nrule = \"cheapest\"\noffset_ns = 0\nrun_ns = 9\ntaken_ns = 0\nhidden_ns = 0\n";
    let track = "[[tracks]]\npart = \"whole\"\napart_ns = 5\n";
    let stop = "[[tracks.stops]]\npoint = \"a\"\npass = 3\nat_ns = 5\nsince_ns = 5\nbytes = 1\nwrite_ns = 1\n\
         hidden_ns = 0\nmoved_ns = 0\namong = 1\n";
    [
        format!("title = \"t\"\n{head}points = [\"a\", \"b\"]\n{track}{stop}{}", stop.replace("= 3", "= 4")),
        format!("{head}expected_s = 9.5\n{track}{stop}{}", stop.replace("\"a\"", "\"b\"")),
        format!("{head}{track}{stop}{stop}"),
        format!("{}{track}{stop}", head.replace("synchronous", "asynchronous")),
        "title = \"t\"\nrun_ns = 1\nexpected_s = 1.0\n[[stops]]\npoint = \"a\"".to_owned(),
    ]
    .map(String::into_bytes)
    .into()
}
