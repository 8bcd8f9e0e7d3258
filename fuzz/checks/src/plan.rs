//! Plans of checkpoints that a program is to follow, as anybody may write them.

use std::path::PathBuf;

use everfold::plan::PlanFile;
use everfold_planner::{
    follow::{Follower, Save},
    leveled::{Depth, LeveledPlan},
    plan::Plan,
};

use crate::memory::bounded;

/// # Panics
/// If a plan that can be followed is not followed to its end.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parse = || PlanFile::parse(text, PathBuf::from("plan.toml")).map(drop);
    if let Err(error) = bounded((256 << 10) + 256 * data.len(), parse) {
        return assert!(error.to_string().contains("plan.toml"));
    }
    // One list, or one of the host and one of the device, each in the order of the program.
    let lists = match toml::from_str::<LeveledPlan>(text) {
        Ok(plan) => {
            let how = |level: &str| Save::UpTo(Depth::of_level(level).expect("it can be followed"));
            let stops = plan.stops.iter().map(|stop| (stop.point.clone(), stop.pass, how(&stop.level)));
            vec![(Follower::leveled(&plan).unwrap(), stops.collect())]
        }
        Err(_) => {
            let plan: Plan = toml::from_str(text).unwrap();
            let how = if plan.tracks.len() == 1 { Save::Waiting } else { Save::Behind };
            let list = |at: usize| {
                let stops = plan.tracks[at].stops.iter().map(|stop| (stop.point.clone(), stop.pass, how));
                // The other one is followed in its turn.
                let mut alone = plan.clone();
                alone
                    .tracks
                    .iter_mut()
                    .enumerate()
                    .filter(|(each, _)| *each != at)
                    .for_each(|(_, it)| it.stops.clear());
                Some((Follower::new(&alone).ok()?, stops.collect()))
            };
            (0..plan.tracks.len()).filter_map(list).collect()
        }
    };
    lists.into_iter().for_each(|(follower, stops)| follow(follower, stops));
}

/// A program that passes its points as a list says meets all of them.
fn follow(mut follower: Follower, stops: Vec<(String, u64, Save)>) {
    if !stops.iter().all(|(_, pass, _)| *pass < 100) || stops.len() > 100 {
        return;
    }
    let mut passed = std::collections::BTreeMap::<&str, u64>::new();
    for (point, pass, how) in &stops {
        let times = passed.entry(point).or_default();
        while *times <= *pass {
            let reached = follower.reach(point);
            // Another order than that of the program, or a point that the plan itself does not name.
            let Ok(saves) = reached else { return };
            assert_eq!(saves, (*times == *pass).then_some(*how));
            *times += 1;
        }
    }
    assert_eq!(follower.end(), Ok(()));
}

pub fn samples() -> Vec<Vec<u8>> {
    let head = "placement = \"synchronous\"\nrule = \"cheapest\"\noffset_ns = 0\nrun_ns = 9\ntaken_ns = 0\nhidden_ns = 0\n";
    let track = "[[tracks]]\npart = \"whole\"\napart_ns = 5\n";
    let stop = "[[tracks.stops]]\npoint = \"a\"\npass = 3\nat_ns = 5\nsince_ns = 5\nbytes = 1\nwrite_ns = 1\n\
         hidden_ns = 0\nmoved_ns = 0\namong = 1\n";
    let level = |name: &str, pass: u64| {
        format!("[[stops]]\npoint = \"a\"\npass = {pass}\nat_ns = 5\nlevel = \"{name}\"\nwrite_ns = 1\n")
    };
    [
        format!("title = \"t\"\n{head}points = [\"a\", \"b\"]\n{track}{stop}{}", stop.replace("= 3", "= 4")),
        format!("{head}expected_s = 9.5\n{track}{stop}{}", stop.replace("\"a\"", "\"b\"")),
        format!("{head}{track}{stop}{stop}"),
        format!(
            "{}{}{stop}{}{stop}{}",
            head.replace("synchronous", "asynchronous"),
            track.replace("whole", "host"),
            track.replace("whole", "device"),
            stop.replace("= 3", "= 4")
        ),
        format!("{}{track}{stop}", head.replace("synchronous", "asynchronous")),
        format!(
            "title = \"t\"\nrun_ns = 1\nexpected_s = 1.0\npoints = [\"a\"]\n{}{}",
            level("region", 0),
            level("disk", 1)
        ),
        format!("title = \"t\"\nrun_ns = 1\nexpected_s = 1.0\n{}", level("tape", 0)),
        "title = \"t\"\nrun_ns = 1\nexpected_s = 1.0\n[[stops]]\npoint = \"a\"".to_owned(),
    ]
    .map(String::into_bytes)
    .into()
}
