//! Standard output that cannot be written, and one that nobody reads.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

#[allow(dead_code, reason = "other tests need more of it")]
mod support;

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
};

use support::{Traces, said};

/// `EX_IOERR`.
const OUTPUT_LOST: i32 = 74;
/// What a shell says of a process that SIGPIPE has killed.
const SIGPIPE: i32 = 141;

/// One of each command that prints.
const COMMANDS: [&str; 17] = [
    "--help",
    "--version",
    "run --help",
    "sim check --seeds 0..3 --hash",
    "sim check --seed 1 --trace",
    "sim check --seed 1 --print",
    "sim scale --ranks 4 --bytes 64k",
    "sim costs --ranks 8 --open 2 --dead 1 --json",
    "sim what-if question.toml --repeat 1 --deaths 1",
    "sim paper --quick --out paper",
    "plan profile.toml",
    "plan paper --runs 2 --out paper",
    "bench reduce --ranks 2 --bytes 8 --repeat 3 --json figures.json",
    "bench detect --ranks 2 --repeat 1",
    "chaos --kill 1 --ranks 2 --trials 1 --bytes 8",
    "chaos compare recovery.toml -n 1 --process-faults 1 --steps 3",
    "sim recoveries --trials 2 --json figures.json",
];

fn run(command: &str) -> Traces {
    let run = Traces::new();
    if command.contains("question") {
        fs::write(run.path("question.toml"), "ranks = 4\nsizes = [\"64KiB\"]\n").unwrap();
    }
    if command.contains("recovery.toml") {
        fs::write(run.path("recovery.toml"), "process = \"restart\"\n").unwrap();
    }
    if command.contains("profile.toml") {
        let machine = "[machine]\nstorage = \"1 MB/s\"\nmtbf_host = \"9 s\"\n";
        let section =
            "[[section]]\nname = \"s\"\nlasts = \"9 s\"\npoints = [{ name = \"a\", at = \"4500 ms\" }]\n";
        fs::write(run.path("profile.toml"), format!("{machine}{section}")).unwrap();
    }
    run
}

fn command(run: &Traces, command: &str) -> Command {
    run.command(command.split_whitespace())
}

fn on_a_full_disk(mut command: Command) -> Output {
    let full = File::options().write(true).open("/dev/full").unwrap();
    command.stdout(full).spawn().unwrap().wait_with_output().unwrap()
}

fn into_a_closed_pipe(mut command: Command) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer).spawn().unwrap().wait_with_output().unwrap()
}

#[track_caller]
fn assert_told_once(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    let told = text.lines().filter(|line| line.contains("cannot write to standard output: No space left"));
    assert_eq!(told.count(), 1, "{text}");
}

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    for name in COMMANDS {
        let run = run(name);
        let output = on_a_full_disk(command(&run, name));
        assert_eq!(output.status.code(), Some(OUTPUT_LOST), "{name}: {}", said(&output));
        assert_told_once(&output);
        if name.contains("figures.json") {
            assert!(fs::metadata(run.path("figures.json")).unwrap().len() > 0, "files are written before");
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_is_named_before_anything_is_measured() {
    for name in [
        "bench reduce --ranks 2 --bytes 8 --repeat 3 --json missing/file",
        "bench reduce --ranks 2 --bytes 8 --repeat 3 --timeline missing/file",
        "bench compare --cases a --ranks 2 --sizes 8 --no-peers --json missing/file",
        "chaos --kill 1 --ranks 2 --trials 1 --bytes 8 --json missing/file",
        "chaos table2 --ranks 2 --trials-per-case 1 --bytes 8 --json missing/file",
        "chaos compare recovery.toml -n 1 --process-faults 1 --steps 3 --json missing/file",
        "chaos compare recovery.toml -n 1 --process-faults 1 --steps 3 --plot missing/file",
        "sim recoveries --trials 2 --json missing/file",
    ] {
        let run = run(name);
        let output = command(&run, name).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {}", said(&output));
        assert!(said(&output).contains("missing/file: No such file"), "{name}: {}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{name}");
    }
}

/// Nobody looks at a device before there are results.
#[test]
fn results_are_printed_although_their_file_cannot_be_written() {
    for name in [
        "bench reduce --ranks 2 --bytes 8 --repeat 3 --json /dev/full",
        "chaos --kill 1 --ranks 2 --trials 1 --bytes 8 --json /dev/full",
        "chaos table2 --ranks 2 --trials-per-case 1 --bytes 8 --json /dev/full",
        "chaos compare recovery.toml -n 1 --process-faults 1 --steps 3 --json /dev/full",
        "sim recoveries --trials 2 --json /dev/full",
    ] {
        let run = run(name);
        let output = command(&run, name).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {}", said(&output));
        assert!(said(&output).contains("/dev/full: No space left"), "{name}: {}", said(&output));
        assert!(String::from_utf8_lossy(&output.stdout).lines().count() > 3, "{name}: {}", said(&output));
    }
}

#[test]
fn a_reader_that_goes_ends_the_command_in_silence() {
    for name in COMMANDS {
        let run = run(name);
        let output = into_a_closed_pipe(command(&run, name));
        assert_eq!(output.status.code(), Some(SIGPIPE), "{name}: {}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
    }
}

#[test]
fn nobody_has_to_take_messages() {
    let run = Traces::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = command(&run, "sim what-if there-is-no-such-file.toml").stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_job_whose_output_is_lost_says_so_and_fails() {
    let run = Traces::new();
    let script = "echo line; echo another";
    let job = |script| run.command(["run", "-n", "3", "--", "sh", "-c", script]);
    let output = on_a_full_disk(job(script));
    assert_eq!(output.status.code(), Some(OUTPUT_LOST), "{}", said(&output));
    assert_told_once(&output);

    let output = on_a_full_disk(job("echo line; exit 5"));
    assert_eq!(output.status.code(), Some(5), "a rank that fails counts first: {}", said(&output));

    let full = File::options().write(true).open("/dev/full").unwrap();
    let status = job("echo line >&2").stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(OUTPUT_LOST), "nobody can be told, but the code can");
}

#[test]
fn a_job_whose_reader_goes_comes_to_its_end() {
    let run = Traces::new();
    let script = "echo begun; read line; seq 10000; touch end.$EVERFOLD_RANK";
    let mut job = run.command(["run", "-n", "2", "--", "sh", "-c", script]);
    let mut job = job.stdin(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(job.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    drop(reader);
    let output = job.wait_with_output().unwrap();
    assert_eq!((output.status.code(), said(&output).trim()), (Some(0), ""));
    for rank in 0..2 {
        assert!(fs::exists(run.path(&format!("end.{rank}"))).unwrap());
    }
}
