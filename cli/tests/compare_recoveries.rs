//! `everfold chaos compare` on real processes: the same faults for each file, what each makes of them, and that nothing
//! is left of it.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

#[allow(dead_code, reason = "other tests need more of it")]
mod support;

use std::{fs, path::Path, process::Output};

use serde_json::Value;
use support::{Traces, can_make_hosts, said};

const RESTART: &str = "process = \"restart\"\n[checkpoint]\ninterval = \"100 ms\"\n";
const ROLLBACK: &str =
    "process = \"rollback\"\n[checkpoint]\ndirectory = \"/nowhere\"\ninterval = \"100 ms\"\n";
const IGNORE: &str = "process = \"ignore\"\n";
const MIGRATE: &str =
    "process = [\"restart\", \"migrate\"]\nphysical = \"migrate\"\n[checkpoint]\ninterval = \"100 ms\"\n";
const REPEATED: &str = "[repeated]\nfaults = 1\nwithin = \"1 h\"\nrecovery = \"migrate\"\n";

/// Compares files with these contents.
fn compare(run: &Traces, files: &[(&str, &str)], options: &str) -> Output {
    for (name, text) in files {
        fs::write(run.path(name), text).unwrap();
    }
    let names = files.iter().map(|(name, _)| *name);
    let words = ["chaos", "compare"].into_iter().chain(names).chain(options.split_whitespace());
    let output = run.command(words).output().unwrap();
    run.assert_nothing_is_left();
    output
}

#[track_caller]
fn figures(run: &Traces, output: &Output) -> Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&fs::read(run.path("figures.json")).unwrap()).unwrap()
}

fn faults(file: &Value) -> Vec<Value> {
    let trials = file["trials"].as_array().unwrap().iter();
    trials
        .flat_map(|trial| trial["faults"].as_array().unwrap())
        .map(|injected| injected["fault"].clone())
        .collect()
}

#[test]
fn all_files_meet_the_same_faults_and_come_to_the_same_bits() {
    let run = Traces::new();
    let options = "-n 3 --process-faults 3600/hour --steps 120 --seed 3 --same=digest --json figures.json --plot runs.svg";
    let output = compare(&run, &[("restart.toml", RESTART), ("rollback.toml", ROLLBACK)], options);
    let figures = figures(&run, &output);
    let [restart, rollback] = &figures["files"].as_array().unwrap()[..] else { panic!("{figures:#}") };
    let (met, longer) = (faults(restart), faults(rollback));
    assert!(!met.is_empty(), "{figures:#}");
    let both = met.len().min(longer.len());
    assert_eq!(met[..both], longer[..both], "the longer run meets more of them");
    let [row, beside] = &figures["rows"].as_array().unwrap()[..] else { panic!("{figures:#}") };
    let count = |row: &Value, name: &str| row[name].as_f64().unwrap();
    assert!(count(row, "restarts") >= 1.0, "{figures:#}");
    // A rank that has left the job may still be killed.
    assert!(count(row, "restarts") <= count(row, "faults"), "{figures:#}");
    assert_eq!((&row["rollbacks"], &row["lost"]), (&0.0.into(), &0.0.into()));
    assert!(count(beside, "rollbacks") >= 1.0 && count(beside, "restarts") == 0.0, "{figures:#}");
    assert!(fs::read_to_string(run.path("runs.svg")).unwrap().contains("rollback, trial 0"));
    let text = said(&output);
    assert!(text.contains("beside first") && text.contains("1 of 1"), "{text}");
}

#[test]
fn what_does_not_come_to_its_end_is_told_and_is_not_the_same() {
    let run = Traces::new();
    let options = "-n 2 --process-faults 7200/hour --steps 100 --json figures.json";
    let output = compare(&run, &[("ignore.toml", IGNORE)], options);
    let row = &figures(&run, &output)["rows"][0];
    assert!(row["ended"] == 0 && row["lost"].as_f64() >= Some(1.0), "{row:#}");
    assert!(said(&output).contains("ignore.toml, trial 0: host 0 ended with"), "{}", said(&output));
    let kept = fs::read_to_string(run.path("everfold-compare/1-ignore-trial-0.txt")).unwrap();
    assert!(kept.contains("== host 0, events") && kept.contains("\"begun\""), "{kept}");
    let output = compare(&run, &[("ignore.toml", IGNORE)], &format!("{options} --same"));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn a_run_that_takes_too_long_is_killed() {
    let run = Traces::new();
    let words = "-n 1 --process-faults 1 --time-limit 500ms --";
    let program =
        ["chaos", "compare", "a.toml"].into_iter().chain(words.split_whitespace()).chain(["sleep", "3600"]);
    fs::write(run.path("a.toml"), RESTART).unwrap();
    let output = run.command(program).output().unwrap();
    run.assert_nothing_is_left();
    let text = said(&output);
    assert!(output.status.code() == Some(1) && text.contains("it took longer than --time-limit"), "{text}");
}

#[test]
fn mistakes_are_told() {
    let run = Traces::new();
    let files = [("a.toml", RESTART)];
    let told = |options: &str| {
        let output = compare(&run, &files, options);
        assert!(!output.status.success() && !Path::new(&run.path("figures.json")).exists());
        said(&output)
    };
    assert!(told("").contains("nothing is to go wrong"));
    assert!(told("--process-faults lanl").contains("120/hour"));
    assert!(told("--process-faults 1 --bad 3:2").contains("names host 3"));
    assert!(told("--host-faults 1").contains("--hosts"));
    assert!(told("--process-faults 1 --hosts 2 --transport shm").contains("hosts share no memory"));
    assert!(told("--process-faults 1e7 --faster 1000").contains("faults were asked for"));
}

#[test]
fn ranks_leave_a_host_where_processes_die_again_and_again() {
    let run = Traces::new();
    let files = [("stay.toml", MIGRATE), ("leave.toml", &format!("{MIGRATE}{REPEATED}"))];
    let options =
        "-n 1 --hosts 2:3 --process-faults 36/hour --bad 1:200 --steps 150 --same=digest --json figures.json";
    if !can_make_hosts() {
        let output = compare(&run, &files, options);
        return assert!(!output.status.success(), "hosts cannot be made");
    }
    let output = compare(&run, &files, options);
    let rows = &figures(&run, &output)["rows"];
    assert_eq!(rows[0]["migrations"], 0.0, "{rows:#}");
    assert!(rows[0]["restarts"].as_f64() > Some(1.0) && rows[1]["migrations"] == 1.0, "{rows:#}");
}
