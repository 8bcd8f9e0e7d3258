//! The corpus, and some thousands of mutations of it, through every check.
//!
//! What a fuzzer has found stays in the corpus, so that this test fails until it is mended, and whenever it
//! comes back. It needs neither a fuzzer nor a nightly compiler.

#![allow(clippy::unwrap_used)]

use std::{
    fs, panic,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use everfold_fuzz_checks::{TARGETS, Target, mutate::mutated};

/// Mutations of each target.
const MUTATIONS: u64 = 6000;
/// Slow targets, which start threads, have as many as there is time for.
const TIME_MAX: Duration = Duration::from_secs(2);

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus")
}

/// The inputs of a target with their names, in the order of these.
fn inputs(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = corpus().join(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), fs::read(&path).unwrap()))
        .collect();
    inputs.sort();
    inputs
}

fn replay(target: &Target) {
    let named = inputs(target);
    let all: Vec<Vec<u8>> = named.iter().map(|(_, bytes)| bytes.clone()).chain((target.samples)()).collect();
    let check = |name: &str, bytes: &[u8]| {
        if let Err(cause) = panic::catch_unwind(|| (target.check)(bytes)) {
            eprintln!("{}: {name} breaks a promise: {bytes:02x?}", target.name);
            panic::resume_unwind(cause);
        }
    };
    named.iter().for_each(|(name, bytes)| check(name, bytes));
    (target.samples)()
        .iter()
        .enumerate()
        .for_each(|(number, bytes)| check(&format!("sample {number}"), bytes));
    let start = Instant::now();
    for seed in 0..MUTATIONS {
        if start.elapsed() > TIME_MAX {
            break;
        }
        check(&format!("mutation {seed}"), &mutated(&all, seed));
    }
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(TARGETS.iter().find(|target| target.name == stringify!($name)).unwrap());
        })*

        #[test]
        fn every_target_is_replayed_and_has_a_corpus_and_nothing_else_has() {
            let mut names = vec![$(stringify!($name)),*];
            assert_eq!(names, TARGETS.iter().map(|target| target.name).collect::<Vec<_>>());
            names.sort_unstable();
            let folders = fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().file_name());
            let mut folders: Vec<String> = folders.map(|name| name.into_string().unwrap()).collect();
            folders.sort_unstable();
            assert_eq!(folders, names);
        }
    };
}

replays! {
    frame messages line handshake requests answers remains board agent hail environment question schedule record
    profile plan recovery rules symptoms vault output
}
