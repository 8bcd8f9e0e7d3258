//! `everfold jobs`, `everfold faults` and `everfold rules push` beside a job that runs.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// No step takes longer, on whatever machine.
const DEADLINE: Duration = Duration::from_secs(60);
const EVERFOLD: &str = env!("CARGO_BIN_EXE_everfold");

/// A job that is killed when this is dropped.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn everfold(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(EVERFOLD).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Waits for something that nothing announces.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until all ranks have joined. Gives the job's number.
fn number_of_begun(job: &Job) -> String {
    let of_job = format!("process {}:", job.0.id());
    wait_for("the job begins", || {
        let (code, listed, _) = everfold(&["jobs"]);
        assert_eq!(code, Some(0));
        let line = listed.lines().find(|line| line.contains(&of_job) && line.contains("3 ranks"))?;
        Some(line.split_whitespace().next()?.to_owned())
    })
}

/// A process that a process has started.
fn child_of(parent: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split_whitespace().last()?.parse().ok().map(Pid::from_raw)
}

#[test]
fn a_running_job_tells_what_is_faulty_and_takes_other_rules() {
    let mut run = Command::new(EVERFOLD);
    run.args(["run", "-n", "3", "--survive-deaths", "--", EVERFOLD, "chaos", "rank"]);
    run.args(["--bytes=1MiB", "--rounds=1000000", "--all", "--allow-missing"]);
    let job = Job(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let number = number_of_begun(&job);
    assert_eq!(everfold(&["faults", &number]), (Some(0), String::new(), String::new()));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let push = |text: &str| {
        fs::write(&file, text).unwrap();
        everfold(&["rules", "push", file.to_str().unwrap(), "--job", &number])
    };
    let rules = include_str!("../../locate/src/rules/default.toml");
    let (code, _, wrong) = push(&rules.replacen("ended.count", "endet.count", 1));
    assert!(code == Some(2) && wrong.contains("line "), "{wrong}");
    let other = rules.replace("\"process_crashed\"", "\"other_name\"");
    let (code, said, wrong) = push(&other);
    assert!(code == Some(0) && said.contains("rules hold from now on"), "{said}{wrong}");

    kill(child_of(job.0.id()).unwrap(), Signal::SIGKILL).unwrap();
    let faults = wait_for("the death is located", || {
        let (code, told, _) = everfold(&["faults", &number]);
        (code == Some(3)).then_some(told)
    });
    assert!(faults.contains("other_name: the process ended before its job did"), "{faults}");
}

#[test]
fn what_a_job_has_recorded_of_a_killed_rank_is_learnt() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (record, draft) = (path("symptoms"), path("draft.toml"));
    let mut run = Command::new(EVERFOLD);
    run.args([
        "run",
        "-n",
        "3",
        "--survive-deaths",
        "--record-symptoms",
        &record,
        "--",
        EVERFOLD,
        "chaos",
        "rank",
    ]);
    run.args(["--bytes=1MiB", "--rounds=1000000", "--all", "--allow-missing"]);
    let job = Job(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let wait_for_line = |what: &str| {
        wait_for(what, || fs::read_to_string(&record).ok().filter(|text| text.contains(what)));
    };
    wait_for_line("is the node of host0");
    number_of_begun(&job);
    kill(child_of(job.0.id()).unwrap(), Signal::SIGKILL).unwrap();
    wait_for_line(" confirmed process_crashed rank");
    drop(job);

    let (code, learnt, wrong) = everfold(&["rules", "learn", &record, "--support", "1"]);
    assert_eq!((code, &*wrong), (Some(0), ""), "{learnt}");
    assert!(learnt.contains("learnt from 1 occurrence\""), "{learnt}");
    fs::write(&draft, learnt).unwrap();
    let (code, said, wrong) = everfold(&["rules", "check", &draft]);
    assert_eq!((code, &*wrong), (Some(0), ""), "{said}");
    let rule = "process_crashed, of a rank: the process ended before its job did";
    assert!(said.contains(rule) && said.contains("if ended.count > 0"), "{said}");

    let (code, said, wrong) = everfold(&["rules", "learn", &record]);
    assert!(code == Some(1) && said.is_empty() && wrong.contains("confirmed 3 times"), "{said}{wrong}");
}

#[test]
fn a_job_that_does_not_run_is_told() {
    let (code, _, said) = everfold(&["faults", "123456789"]);
    assert!(code == Some(1) && said.contains("no job 123456789 of yours"), "{said}");
    let (code, _, said) = everfold(&["faults", "xyz"]);
    assert!(code == Some(2) && said.contains("hexadecimal"), "{said}");
}
