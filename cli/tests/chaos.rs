//! `everfold chaos` on real processes: what it counts, that a trial can be repeated, and that nothing is left
//! of it.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

mod support;

use std::{
    ffi::OsStr,
    fs,
    ops::Deref,
    os::unix::ffi::OsStrExt,
    path::Path,
    process::{Child, Command, Output},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use support::{Traces, can_make_hosts, can_mount, said, wait_until};

/// A run of `everfold chaos`.
struct Run(Traces);

impl Deref for Run {
    type Target = Traces;

    fn deref(&self) -> &Traces {
        &self.0
    }
}

impl Run {
    fn new() -> Self {
        Self(Traces::new())
    }

    fn command(&self, arguments: &str) -> Command {
        let (options, program) = arguments.split_once(" -- ").unwrap_or((arguments, ""));
        let mut command = self.0.command(["chaos"].into_iter().chain(options.split_whitespace()));
        command.args(["--keep", &self.path("kept")]);
        if !program.is_empty() {
            command.args(["--", "sh", "-c", program]);
        }
        command
    }

    /// Runs to the end. Nothing may be left then but what is asked for.
    #[track_caller]
    fn end(&self, arguments: &str) -> Output {
        let output = self.command(arguments).output().unwrap();
        self.assert_nothing_is_left();
        output
    }

    /// Runs to the end, which has to be a good one, and gives all figures.
    #[track_caller]
    fn figures(&self, arguments: &str) -> Value {
        let file = self.path("figures.json");
        let (options, program) = arguments.split_once(" -- ").unwrap_or((arguments, ""));
        let separator = if program.is_empty() { "" } else { " -- " };
        let output = self.end(&format!("{options} --json {file}{separator}{program}"));
        assert!(output.status.success(), "{}", said(&output));
        assert!(!Path::new(&self.path("kept")).exists(), "{}", said(&output));
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    }
}

#[track_caller]
fn assert_recovered_or_lost(figures: &Value, trials: u64) {
    let count = |name: &str| figures["summary"][name].as_u64().unwrap();
    assert_eq!(count("trials"), trials);
    assert_eq!(count("recovered") + count("lost"), trials, "{figures:#}");
    assert_eq!(count("wrong") + count("hung") + count("other"), 0, "{figures:#}");
}

#[test]
fn whoever_is_killed_the_others_recover_or_say_what_is_lost() {
    for options in [
        "--kind array --bytes 1MiB",
        "--kind vec --bytes 256KiB --transport tcp --all",
        "--kind object --bytes 64KiB --rounds 3",
        "--kind vec --bytes 1KiB --faults 1..2 --victims 0..3",
    ] {
        let figures = Run::new().figures(&format!("--kill 2 --ranks 5 --trials 4 {options}"));
        assert_recovered_or_lost(&figures, 4);
        for trial in figures["trials"].as_array().unwrap() {
            assert!(trial["verdict"] != "recovered" || trial["result_ms"].as_f64().unwrap() > 0.0);
        }
        assert_eq!(figures["without_faults"].as_array().unwrap().len(), 5);
    }
}

#[test]
fn whoever_fails_and_lives_on_gives_nothing_back_that_others_still_read() {
    for options in [
        "--kind array --bytes 4MiB --all",
        "--kind vec --bytes 1MiB --all",
        "--kind vec --bytes 300KiB --transport tcp",
        "--kind object --bytes 64KiB",
        "--kind array --bytes 1KiB --rounds 3 --all",
        // So long that what is given back is gone at once.
        "--kind array --bytes 600MiB --all --trials 2 --ranks 3 --timeout 120s",
    ] {
        let trials = if options.contains("--trials") { 2 } else { 5 };
        let defaults = if trials == 2 { "" } else { "--ranks 4 --trials 5 " };
        let figures = Run::new().figures(&format!("--fail 1 {defaults}{options}"));
        assert_recovered_or_lost(&figures, trials);
    }
}

#[test]
fn slow_ranks_spoil_nothing() {
    let figures = Run::new().figures("--slow 1 --corrupt 1 --ranks 3 --bytes 64KiB --trials 2");
    assert_recovered_or_lost(&figures, 2);
}

#[test]
fn one_trial_can_be_repeated() {
    let run = Run::new();
    let all =
        run.figures("--kill 1 --slow 1 --faults 1..2 --ranks 4 --bytes 64KiB --seed 9 --trials 3 --time 2ms");
    let one =
        run.figures("--kill 1 --slow 1 --faults 1..2 --ranks 4 --bytes 64KiB --seed 9 --trial 2 --time 2ms");
    let faults = |trial: &Value| -> Vec<Value> {
        trial["faults"].as_array().unwrap().iter().map(|injected| injected["fault"].clone()).collect()
    };
    assert_eq!(one["trials"].as_array().unwrap().len(), 1);
    assert_eq!(one["trials"][0]["number"], 2);
    assert_eq!(faults(&one["trials"][0]), faults(&all["trials"][2]));
    assert_ne!(faults(&all["trials"][1]), faults(&all["trials"][2]));
}

#[test]
fn the_experiment_of_the_paper_is_set_beside_its_figures() {
    let output = Run::new().end("table2 --ranks 3 --bytes 64KiB --trials-per-case 1");
    let said = said(&output);
    assert!(output.status.success() && said.contains("98.43 % recovered"), "{said}");
    assert!(said.contains("paper, 200 processes"), "{said}");
}

/// A `Vec` takes as long to copy as to reduce: who was killed early would not have called.
#[test]
fn the_rank_is_killed_after_its_call() {
    let options = "table2 --ranks 4 --kind vec --bytes 8MiB --trials-per-case 2";
    let figures = Run::new().figures(options);
    assert_recovered_or_lost(&figures, 14);
    for trial in figures["trials"].as_array().unwrap() {
        assert_ne!(trial["loss"], "absent", "{trial:#}");
    }
}

#[test]
fn what_counts_only_after_its_copy_is_never_lost() {
    let options =
        "--kill 1 --ranks 4 --bytes 1MiB --kind vec --transport tcp --protection commit-first --trials 6";
    let figures = Run::new().figures(options);
    assert_recovered_or_lost(&figures, 6);
    for trial in figures["trials"].as_array().unwrap() {
        assert_ne!(trial["loss"], "contribution", "{trial:#}");
    }
}

#[test]
fn ranks_that_freeze_spoil_nothing() {
    let figures = Run::new().figures("--stop 1 --ranks 4 --bytes 1MiB --trials 3");
    assert_recovered_or_lost(&figures, 3);
}

#[test]
fn other_programs_are_judged_by_their_exit_codes() {
    let figures = Run::new().figures("--kill 1 --ranks 3 --trials 2 -- sleep 0.1");
    assert_recovered_or_lost(&figures, 2);
    let output = Run::new().end("--kill 1 --ranks 2 --trials 1 -- echo it goes wrong; exit 3");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("exit code 3") && text.contains("it goes wrong"), "{text}");
    // What it says by them of a death is its own affair.
    let output = Run::new().end("--kill 1 --ranks 2 --trials 1 --time 1ms -- exit 3");
    let text = said(&output);
    assert!(
        output.status.success() && text.contains("trial 0: failed, rank 0: it ended with exit code 3"),
        "{text}"
    );
}

#[test]
fn what_hangs_is_told_kept_and_killed() {
    let run = Run::new();
    let output = run.end(
        "--kill 1 --ranks 3 --seed 5 --trials 1 --time 1ms --timeout 500ms -- echo here; exec sleep 3600",
    );
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("--seed 5 --trial 0 --time 1000us -- sh -c 'echo here; exec sleep 3600'"),
        "{text}"
    );
    let kept = fs::read_to_string(run.path("kept/seed-5-trial-0.txt")).unwrap();
    assert!(kept.contains("== rank 0 did not end") && kept.contains("here"), "{kept}");
}

/// A run that has stopped one of its processes and waits.
fn start_stopping(run: &Run) -> Child {
    let program = "--stop 1 --ranks 3 --trials 1 --time 1ms -- exec sleep 3600";
    let child = run.command(program).spawn().unwrap();
    let is_stopped = |process: i32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.contains(" T ")
    };
    wait_until("a process is stopped", || run.living().into_iter().any(is_stopped));
    child
}

#[test]
fn nothing_is_left_after_a_request_to_end() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let run = Run::new();
        let child = start_stopping(&run);
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        run.assert_nothing_is_left();
    }
}

#[test]
fn a_killed_run_takes_its_processes_along_and_the_next_one_removes_its_files() {
    let run = Run::new();
    let mut child = start_stopping(&run);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("all processes are gone", || run.living().is_empty());
    assert_eq!(run.scratch().len(), 1);
    run.figures("--kill 1 --ranks 2 --trials 1 --time 1ms -- true");
}

#[test]
fn disks_are_filled_and_files_corrupted() {
    let run = Run::new();
    if can_mount() {
        let fills = "while head -c 4096 /dev/zero >> $EVERFOLD_DIR/$EVERFOLD_RANK; do :; done";
        let figures = run.figures(&format!("--disk-full --ranks 2 --trials 1 --time 1ms -- {fills}"));
        assert!(figures["trials"][0]["faults"][0]["at_ms"].is_number());
    } else {
        let output = run.end("--disk-full --ranks 2 --trials 1");
        assert!(output.status.success() && said(&output).contains("--disk-full is skipped"));
    }
    let waits = "cd $EVERFOLD_DIR; echo same > a; until [ \"$(cat a)\" != same ]; do sleep 0.01; done";
    let figures = run.figures(&format!("--corrupt 1 --ranks 1 --trials 1 --time 1ms -- {waits}"));
    assert_eq!(figures["trials"][0]["faults"][0]["note"], "it was a");
}

#[test]
fn arguments_need_not_be_text() {
    let run = Run::new();
    let options =
        format!("--kill 1 --ranks 2 --trials 1 --time 1ms --json {} -- true", run.path("figures.json"));
    let output = run.command(&options).arg(OsStr::from_bytes(b"\xff")).output().unwrap();
    run.assert_nothing_is_left();
    assert!(output.status.success(), "{}", said(&output));
    let figures: Value = serde_json::from_slice(&fs::read(run.path("figures.json")).unwrap()).unwrap();
    assert!(figures["machine"]["command"].as_str().unwrap().ends_with('\u{fffd}'), "{figures:#}");
}

#[test]
fn hosts_are_cut_off() {
    let run = Run::new();
    // It ends when the host of rank 0 does not answer rank 2 any more.
    let pings = "[ $EVERFOLD_RANK != 2 ] || while timeout 0.3 bash -c 'true < /dev/tcp/10.77.0.1/1' 2> refused; \
         grep -q refused refused; do :; done";
    if !can_make_hosts() {
        let output = run.end("--cut 1 --ranks 3 --trials 1 -- true");
        return assert!(output.status.success() && said(&output).contains("faults of hosts are skipped"));
    }
    let figures = run.figures(&format!("--cut 1 --ranks 3 --victims 2 --trials 1 --time 1ms -- {pings}"));
    let fault = &figures["trials"][0]["faults"][0];
    assert!(fault["fault"]["action"]["cut"].is_object() && fault["at_ms"].is_number(), "{figures:#}");
}

#[test]
fn a_domain_is_killed_as_a_whole() {
    let run = Run::new();
    let what = "--lose-domain 1 --hosts 4 --domains 2 --ranks 4 --trials 1 --bytes 64KiB --allow-missing";
    if !can_make_hosts() {
        let output = run.end(what);
        return assert!(!output.status.success(), "hosts cannot be made");
    }
    let figures = run.figures(what);
    let fault = &figures["trials"][0]["faults"][0];
    assert_eq!(fault["fault"]["action"]["lose_domain"]["domain"], 1, "{figures:#}");
    // The trial may have been over before.
    let death = if fault["at_ms"].is_number() { "domain" } else { "nothing" };
    assert_eq!(figures["summary"]["by_death"][death]["trials"], 1, "{figures:#}");
}
