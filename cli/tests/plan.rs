//! `everfold plan`: what it writes and prints, and how it refuses.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::{
    fs,
    process::{Command, Output},
};

use tempfile::TempDir;

const PROFILE: &str = r#"
title = "a loop"

[machine]
storage = "100 MB/s"
bus = "4 GB/s"
mtbf_host = "400 s"
mtbf_device = "240 s"
restart = "1 s"

[[section]]
name = "step"
times = 1000
lasts = "1 s"
points = [
  { name = "full", at = "0 s", host = "100 MB", device = "400 MB" },
  { name = "lean", at = "600 ms", host = "100 MB", device = "100 MB" },
]

[[level]]
name = "region"
bandwidth = "8 GB/s"
restart = "1 s"
mtbf = "5 min"

[[level]]
name = "disk"
bandwidth = "100 MB/s"
restart = "10 s"
mtbf = "2 h"
"#;

fn plan(folder: &TempDir, profile: &str, arguments: &[&str]) -> Output {
    fs::write(folder.path().join("profile.toml"), profile).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_everfold"));
    command.current_dir(folder.path()).args(["plan", "profile.toml"]).args(arguments).output().unwrap()
}

fn read(folder: &TempDir, name: &str) -> String {
    fs::read_to_string(folder.path().join(name)).unwrap()
}

#[track_caller]
fn refused(profile: &str, arguments: &[&str], exit_code: i32, words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = plan(&folder, profile, arguments);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(exit_code), "{told}");
    assert!(told.contains(words), "{told}");
    assert!(!folder.path().join("plan.toml").exists());
}

#[test]
fn a_plan_is_printed_written_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let output = plan(&folder, PROFILE, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["a loop: 2000 candidate points", "no checkpoints", "Young's interval", "lean", "cheapest"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let written: toml::Table = read(&folder, "plan.toml").parse().unwrap();
    let stops = written["tracks"][0]["stops"].as_array().unwrap();
    assert_eq!(stops.len(), 13, "a checkpoint per 75 s of 1000 s");
    assert!(stops.iter().all(|stop| stop["point"].as_str() == Some("lean")));
    assert!(read(&folder, "plan.svg").contains("13 checkpoints"));
}

#[test]
fn host_and_device_have_plans_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let output = plan(&folder, PROFILE, &["--async", "--offset", "2s"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written: toml::Table = read(&folder, "plan.toml").parse().unwrap();
    let counts = written["tracks"].as_array().unwrap().iter();
    let counts: Vec<usize> = counts.map(|track| track["stops"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [4, 8], "1000 s by 200 s, the end needs none; by 120 s");
    let picture = read(&folder, "plan.svg");
    assert!(picture.contains("host, 4 checkpoints") && picture.contains("device, 8 checkpoints"));
}

#[test]
fn levels_are_used_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let output = plan(&folder, PROFILE, &["--levels"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written: toml::Table = read(&folder, "plan.toml").parse().unwrap();
    let stops = written["stops"].as_array().unwrap();
    let of = |level: &str| stops.iter().filter(|stop| stop["level"].as_str() == Some(level)).count();
    assert!(of("region") > of("disk"), "{} and {}", of("region"), of("disk"));
}

#[test]
fn what_cannot_be_is_refused_with_line_key_and_exit_code() {
    refused(PROFILE, &["--apart", "500ms"], 3, "from 0 s to 0.6 s there is no candidate point");
    refused(PROFILE, &["--apart", "150s"], 3, "failures of the part Whole come every 150 s");
    refused(&PROFILE.replace("lasts", "last"), &[], 2, "unknown field `last`");
    refused(&PROFILE.replace("\"600 ms\"", "\"600\""), &[], 2, "it has no unit");
    refused(&PROFILE.replace("\"600 ms\"", "\"2 s\""), &[], 2, "line 17: section \"step\": point \"lean\"");
    refused(&PROFILE.replace("level", "stage"), &["--levels"], 2, "unknown field `stage`");
    refused(PROFILE, &["--apart", "75"], 2, "it has no unit");
    refused(PROFILE, &["--sync", "--async"], 2, "cannot be used with");
}

#[test]
fn a_profile_is_not_replaced_by_its_plan() {
    for levels in [&[][..], &["--levels"]] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("plan.toml"), PROFILE).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_everfold"));
        let output =
            command.current_dir(folder.path()).args(["plan", "./plan.toml"]).args(levels).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains("--out"), "{told}");
        assert_eq!(read(&folder, "plan.toml"), PROFILE);
    }
}

#[test]
fn the_paper_is_beside_ours_and_the_same_twice() {
    let folder = tempfile::tempdir().unwrap();
    let write = |out: &str, seed: &str| {
        let arguments = ["plan", "paper", "--runs", "50", "--seed", seed, "--out", out];
        let output =
            Command::new(env!("CARGO_BIN_EXE_everfold")).current_dir(folder.path()).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        ["alone", "table1", "table2", "fig11", "fig12", "failures"]
            .map(|name| read(&folder, &format!("{out}/{name}.csv")))
    };
    let first = write("first", "1");
    assert!(first[1].lines().any(|line| line.starts_with("Swim,14,14,") && line.contains(",5/9,5/9,")));
    assert!(first.iter().all(|table| table.lines().count() == 1 + 6));
    assert_eq!(first, write("second", "1"));
    assert_ne!(first[5], write("third", "2")[5]);
    assert!(read(&folder, "first/swim-async.svg").contains("Swim: device, "));
}
