//! `everfold sim` as a user runs it.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "other tests need more of it")]
mod support;

use std::{
    fs,
    process::{Command, Output},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::{Traces, said, wait_until};

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_everfold")).arg("sim").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_seeds_show_does_not_depend_on_threads() {
    let hash = |jobs: &str| {
        let output = sim(&["check", "--seeds", "0..300", "--jobs", jobs, "--hash"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.contains("300 seeds held"), "{text}");
        text.lines().find(|line| line.starts_with("hash ")).unwrap().to_owned()
    };
    assert_eq!(hash("1"), hash("3"));
}

#[test]
fn a_trace_tells_who_does_what_and_when() {
    let output = sim(&["check", "--seed", "5", "--trace"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for words in
        [" ms  rank 0    hears: welcome", " ms  master    hears rank 0: leaves", "calls r0:", "all holds"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    for option in ["--trace", "--print"] {
        let output = sim(&["check", option]);
        assert_eq!(output.status.code(), Some(2), "of which run?");
        assert!(stderr(&output).contains(option), "{}", stderr(&output));
    }
}

#[test]
fn the_last_seeds_of_all_come_to_an_end() {
    let output = sim(&["check", "--seeds", "18446744073709551610..18446744073709551615", "--jobs", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("5 seeds held"), "{}", stdout(&output));
}

#[test]
fn a_request_to_end_is_met_while_seeds_run() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let run = Traces::new();
        let child = run.command("sim check --seeds 0..1000000000000 --jobs 1".split(' ')).spawn().unwrap();
        let listens = || {
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
            u64::from_str_radix(blocked.trim(), 16).unwrap() & (1 << (signal as u32 - 1)) != 0
        };
        wait_until("it listens to signals", listens);
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    }
}

#[test]
fn what_fails_is_told_and_made_small() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twice.toml");
    let file = path.to_str().unwrap();
    // A rank that makes the same call twice breaks what the machines may rely on.
    let schedule = stdout(&sim(&["check", "--seed", "3", "--print"]));
    let again = schedule.find("[[reductions]]").map(|at| &schedule[at..]).unwrap();
    let again = &again[..again[1..].find("\n[[reductions]]").or(again.find("\n[[faults]]")).unwrap() + 1];
    fs::write(&path, format!("{schedule}\n{again}\n")).unwrap();
    let output = sim(&["check", "--replay", file]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("each call has its own sequence number"), "{}", stderr(&output));
    assert!(stderr(&output).contains("sim check --replay"), "{}", stderr(&output));
    let output = sim(&["check", "--replay", file, "--shrink"]);
    assert_eq!(output.status.code(), Some(1));
    let shrunk = stdout(&output);
    assert!(shrunk.len() < schedule.len() && !shrunk.contains("[[faults]]"), "{shrunk}");
    fs::write(&path, shrunk).unwrap();
    assert_eq!(sim(&["check", "--replay", file]).status.code(), Some(1), "the small one fails, too");
}

#[test]
fn files_that_cannot_be_read_are_told_by_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.toml");
    let file = path.to_str().unwrap();
    fs::write(&path, "seed = 1\nhsots = [0, 1]\n").unwrap();
    let output = sim(&["check", "--replay", file]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("line 2") && stderr(&output).contains("hsots"), "{}", stderr(&output));
    fs::write(&path, "ranks = 4\nsizes = [\"1MiB\"]\nlink = \"wet string\"\n").unwrap();
    let output = sim(&["what-if", file]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("line 3") && text.contains("link") && text.contains("wet string"), "{text}");
}

#[test]
fn a_question_is_answered_with_a_table_a_picture_and_figures() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.toml");
    fs::write(&path, "ranks = 8\nsizes = [\"64KiB\", \"1MiB\"]\nprotection = \"commit-first\"\n").unwrap();
    let output = sim(&["what-if", path.to_str().unwrap(), "--repeat", "2", "--deaths", "4"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("8 ranks, protection commit-first"), "{}", stdout(&output));
    let csv = fs::read_to_string(folder.path().join("cluster.csv")).unwrap();
    assert!(csv.contains("protection commit-first,1048576,"), "{csv}");
    let svg = fs::read_to_string(folder.path().join("cluster.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("time to result"), "{svg}");
}
