//! Hosts that have a directory of checkpoints each, with the parts of their ranks: all is switched off while
//! one of them is ahead of the other, and the next job goes on from the newest generation that both have.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    migrate::{Case, EACH, Job},
    outlive::{CHECKPOINTS, DURABLE, RANKS, RESUME, Scratch, WAITS, digests, undisturbed},
    process::{End, Mark, wait_until},
    suite::Suite,
};

const PROGRAM: &str = "outlive::ignoring";
const FILE: &str = "process = \"ignore\"\n[checkpoint]\ninterval = \"0 s\"";
/// How many generations one host cannot complete.
const BLOCKED: u64 = 100;
/// Jobs that are killed until one was killed at the moment that a test is about.
const TRIES: u32 = 30;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.test("own_directories::one_host_has_a_newer_generation_than_the_other", || {
        for ahead in 0..2 {
            one_is_ahead(ahead);
        }
    });
    suite.test("own_directories::a_host_that_completes_nothing_does_not_cost_what_both_have", one_is_blocked);
    suite.test("own_directories::hosts_that_have_nothing_in_common_are_told", nothing_in_common);
}

/// The directories of the two hosts.
type Directories = [Scratch; (RANKS / EACH) as usize];

/// Starts a job on two hosts, each with a directory of its own.
fn start(variable: &'static str, mark: Mark, directories: &Directories) -> Job {
    start_with(&[], variable, mark, directories)
}

fn start_with(
    variables: &[(&str, &str)],
    variable: &'static str,
    mark: Mark,
    directories: &Directories,
) -> Job {
    let case = Case { file: FILE, ..Case::default() };
    Job::start_with(
        mark,
        |_| PROGRAM,
        &case,
        |host, command| {
            command.env(variable, directories[host as usize].path()).envs(variables.iter().copied());
        },
    )
}

/// Runs a job until a host says `text` so often, and kills everything.
fn run_until(mut job: Job, host: usize, count: usize, text: &str) {
    job.hosts[host].as_mut().unwrap().wait_for(count, text);
    for process in job.mark.living() {
        let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
    }
    let mark = job.mark.clone();
    drop(job);
    wait_until("everything ends", || mark.living().is_empty());
}

/// The complete generations of a directory, the newest last.
fn complete(directory: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut complete: Vec<PathBuf> = all.filter(|path| path.join("manifest").is_file()).collect();
    complete.sort();
    complete
}

fn number(place: &Path) -> u64 {
    place.file_name().unwrap().to_str().unwrap()[..10].parse().unwrap()
}

/// At which steps the ranks of a job went on.
fn steps(ends: &[End]) -> Vec<u64> {
    let said = ends.iter().flat_map(|end| &end.said);
    said.filter_map(|line| line.split_once("goes on at step ")?.1.parse().ok()).collect()
}

/// Goes on, and compares the result. Returns the step at which all went on.
fn goes_on(directories: &Directories) -> u64 {
    let ends = start(RESUME, Mark::new(), directories).end();
    let mut found: Vec<String> = ends.iter().flat_map(digests).collect();
    found.sort_unstable();
    assert_eq!(found, undisturbed(PROGRAM, "tcp"), "{ends:#?}");
    let steps = steps(&ends);
    assert!(steps.len() == RANKS as usize && steps.iter().all(|step| *step == steps[0]), "{ends:#?}");
    steps[0]
}

/// A job that was killed before host `other` had its newest manifest, which host `mine` has. Returns the
/// directories and the number of this generation.
fn killed_between(mine: usize, other: usize) -> (Directories, u64) {
    for _ in 0..TRIES {
        let directories: Directories = [Scratch::new(), Scratch::new()];
        run_until(start(CHECKPOINTS, Mark::new(), &directories), 0, 1, "step 30");
        let [mine, other] = [mine, other].map(|host| complete(directories[host].path()));
        let newest = |places: &[PathBuf]| places.last().map(|place| number(place)).unwrap();
        let both = newest(&mine).min(newest(&other));
        // A host removes a generation when all have the next one: then this moment was past.
        let before = |places: &[PathBuf]| places.iter().map(|it| number(it)).filter(|it| *it < both).max();
        if before(&mine).is_none() || before(&mine) != before(&other) {
            continue;
        }
        for place in mine.iter().chain(&other).filter(|place| number(place) > both) {
            fs::remove_dir_all(place).unwrap();
        }
        let last = other.iter().find(|place| number(place) == both).unwrap();
        fs::remove_file(last.join("manifest")).unwrap();
        return (directories, both);
    }
    panic!("a host never kept the generation before: {TRIES} jobs");
}

fn one_is_ahead(ahead: usize) {
    let (directories, both) = killed_between(ahead, 1 - ahead);
    let [mine, other] = [ahead, 1 - ahead].map(|host| directories[host].path());
    assert!(goes_on(&directories) > 0);
    // What only one had is gone, and what has come since is complete at both.
    let numbers = |path| complete(path).iter().map(|place| number(place)).collect::<Vec<_>>();
    let common = numbers(mine).into_iter().filter(|it| numbers(other).contains(it));
    assert!(common.max() > Some(both), "{:?} {:?}", numbers(mine), numbers(other));
}

/// Generations come and go at one host, and the other completes none of them.
fn one_is_blocked() {
    let directories: Directories = [Scratch::new(), Scratch::new()];
    let mark = Mark::new();
    // So that there are several generations before the job ends, however slow the disk is.
    let mut job = start_with(&[(WAITS, "yes")], CHECKPOINTS, mark.clone(), &directories);
    job.hosts[0].as_mut().unwrap().wait_for(1, &format!("step {}", DURABLE + 2));
    let [free, blocked] = [0, 1].map(|host| directories[host].path());
    let newest = |path| complete(path).last().map(|place| number(place)).unwrap();
    let manifest = |generation| blocked.join(format!("{generation:010}-{:016x}/manifest", mark.number()));
    // A manifest cannot take the place of a folder that is not empty. Those that are there already stay.
    let next = newest(blocked) + 1;
    let manifests: Vec<PathBuf> = (next..next + BLOCKED).map(manifest).collect();
    for manifest in &manifests {
        let _ = fs::create_dir_all(manifest.join("in-the-way"));
    }
    run_until(job, 1, 3, "is not in the directory of checkpoints, as rank 2 could not write");
    for manifest in &manifests {
        let _ = fs::remove_dir_all(manifest);
    }
    assert!(newest(free) >= newest(blocked), "{} {}", newest(free), newest(blocked));
    let kept = complete(free);
    assert!(kept.len() <= 3, "what the other does not have goes again: {kept:?}");
    assert!(goes_on(&directories) >= DURABLE);
}

fn nothing_in_common() {
    let directories: Directories = [Scratch::new(), Scratch::new()];
    for alone in 0..2 {
        let of_this_job = [Scratch::new(), Scratch::new()];
        run_until(start(CHECKPOINTS, Mark::new(), &of_this_job), 0, 1, "step 30");
        fs::rename(of_this_job[alone].path(), directories[alone].path()).unwrap();
    }
    let ends = start(RESUME, Mark::new(), &directories).end();
    let is_told = |line: &String| line.contains("no generation is complete in the directories of all hosts");
    assert!(ends.iter().all(|end| end.code != 0 && end.said.iter().any(is_told)), "{ends:#?}");
}
