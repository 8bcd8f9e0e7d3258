//! `everfold bench compare`: that it measures what it can, says what it cannot, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

#[allow(dead_code, reason = "other tests need more of it")]
mod support;

use std::{collections::BTreeSet, fs, path::PathBuf};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use support::{Traces, said, wait_until};

fn command(run: &Traces, arguments: &str) -> std::process::Command {
    run.command(["bench", "compare"].into_iter().chain(arguments.split_whitespace()))
}

/// Runs to the end, which has to be a good one, and gives all figures.
#[track_caller]
fn figures(arguments: &str) -> Value {
    let run = Traces::new();
    let file = run.path("figures.json");
    let output =
        command(&run, arguments).args(["--json", &file, "--svg", &run.path("svg")]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    run.assert_nothing_is_left();
    let pictures = fs::read_dir(run.path("svg")).unwrap().count();
    let figures: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert!(pictures > 0 || sizes(&figures).len() < 2);
    figures
}

fn sizes(figures: &Value) -> BTreeSet<u64> {
    let results = figures["results"].as_array().unwrap().iter();
    results.map(|result| result["bytes"].as_u64().unwrap()).collect()
}

#[track_caller]
fn assert_sides_were_measured(figures: &Value) {
    for result in figures["results"].as_array().unwrap() {
        let sides = result["sides"].as_array().unwrap();
        assert!(sides.len() >= 2 && sides[0]["library"].is_null(), "{result:#}");
        for side in sides {
            let times: Vec<f64> =
                side["seconds"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
            assert!(times.len() >= 3 && times.iter().all(|time| *time > 0.0), "{side:#}");
            let [q1, median, q3] = ["q1_s", "median_s", "q3_s"].map(|name| side[name].as_f64().unwrap());
            assert!(q1 <= median && median <= q3, "{side:#}");
            let ratio = side["everfold_over"]["ratio"].as_f64().unwrap();
            assert!((ratio - sides[0]["median_s"].as_f64().unwrap() / median).abs() < 1e-9, "{side:#}");
        }
    }
}

#[test]
fn every_case_is_measured_alone_or_left_out() {
    let figures = figures("--cases a,b,e,g,h --ranks 2 --sizes 8,64k --quick --seconds 0.1 --no-peers");
    assert_sides_were_measured(&figures);
    let cases = figures["results"].as_array().unwrap().iter().map(|result| result["case"].as_str().unwrap());
    assert_eq!(
        cases.collect::<Vec<_>>(),
        ["quiet", "quiet", "late", "late", "overlap", "allreduce", "allreduce"]
    );
    let left_out = figures["left_out"].as_array().unwrap();
    assert!(
        left_out.len() == 1 && left_out[0].as_str().unwrap().contains("one host has no links"),
        "{left_out:?}"
    );
}

/// The peers, if an earlier run has installed them: tests do not.
#[test]
fn peers_are_measured_beside_it() {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).unwrap();
    let is_there = |name: &str| cache.join("everfold/peers").join(name).join("bin/mpicc").exists();
    if !is_there("openmpi-5.0.11") {
        return println!("skipped: Open MPI is not there; `everfold bench compare` installs it");
    }
    let figures = figures("--cases a,f,h --ranks 2 --sizes 8,64k --quick --seconds 0.1 --peers openmpi");
    assert_sides_were_measured(&figures);
    for result in figures["results"].as_array().unwrap() {
        let sides = result["sides"].as_array().unwrap();
        assert!(
            sides.iter().any(|side| side["maker"]["library"] == "open_mpi" && side["name"] == "as it comes"),
            "{result:#}"
        );
    }
    assert_eq!(figures["left_out"], Value::Array(Vec::new()));
}

#[test]
fn nothing_is_left_of_it_on_a_cluster_that_is_asked_to_end() {
    let run = Traces::new();
    let arguments =
        "--cases d --hosts 2 --sizes 64k --seconds 3600 --precision 0 --repetitions 1000000 --no-peers";
    let child = command(&run, arguments).spawn().unwrap();
    let groups = format!("everfold-{}-", child.id());
    // The driver and two ranks; the driver alone ends where hosts cannot be made.
    let alone = |living: Vec<i32>| living.len() == 3 || living.is_empty();
    wait_until("both ranks are there, or nobody is", || alone(run.living()));
    let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGINT);
    let output = child.wait_with_output().unwrap();
    let text = said(&output);
    assert!(output.status.code() == Some(130) || text.contains("left out: 2 hosts"), "{text}");
    // An agent that a rank has just started, and not hailed yet, waits a minute for ranks.
    wait_until("agents have ended", || run.living().is_empty());
    run.assert_nothing_is_left();
    let all_groups = fs::read_dir("/sys/fs/cgroup/cpu").or_else(|_| fs::read_dir("/sys/fs/cgroup"));
    let names = all_groups
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert_eq!(names.filter(|name| name.starts_with(&groups)).count(), 0);
}
