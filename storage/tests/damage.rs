//! Damaged files are told as damage; a wrong value is never handed out.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
};

use everfold_storage::{Durability, Kind, RecordKey, Store, StoreError};
use support::{copy, key, random, segment, value};

const SEEDS: u64 = 100;

fn records() -> impl Iterator<Item = (Kind, RecordKey, Vec<u8>)> {
    (0..20).map(|seed| {
        let kind = Kind::ALL[seed as usize % 2];
        // Half of them blobs.
        let bytes = if seed % 4 < 2 { 10_000 } else { 500 };
        (kind, segment(seed, 1, 2), value(seed, bytes))
    })
}

/// A store with all [`records`], in its log only.
fn log(path: &Path) {
    let store = Store::open(path).unwrap();
    for (kind, key, value) in records() {
        store.put(kind, key, &value, Durability::Stored).unwrap();
    }
}

/// Flips a bit of a file in `store`, if there is one that `chosen` likes.
fn flip(store: &Path, state: &mut u64, chosen: impl Fn(&str) -> bool) -> PathBuf {
    let files = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| chosen(path.file_name().unwrap().to_str().unwrap()))
        .filter(|path| fs::metadata(path).unwrap().len() > 0)
        .collect();
    files.sort();
    let file = files.swap_remove(random(state) as usize % files.len());
    let mut bytes = fs::read(&file).unwrap();
    let bit = random(state) as usize % (bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
    fs::write(&file, bytes).unwrap();
    file
}

/// How the records of a damaged store were found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    whole: usize,
    missing: usize,
    corrupted: usize,
    failed: usize,
    closed: usize,
}

fn look(store: &Path, found: &mut Found, about: &str) {
    let store = match Store::open(store) {
        Ok(store) => store,
        Err(StoreError::Corrupted { .. } | StoreError::Failed { .. }) => return found.closed += 1,
        Err(error) => panic!("{about}: {error:?}"),
    };
    for (kind, key, value) in records() {
        match store.get(kind, key) {
            Ok(Some(got)) => {
                assert!(got == value, "{about}: a wrong value for {key}");
                found.whole += 1;
            }
            Ok(None) => found.missing += 1,
            Err(StoreError::Corrupted { subject, .. }) => {
                assert_eq!(subject.unwrap().key, key);
                found.corrupted += 1;
            }
            Err(StoreError::Failed { .. }) => found.failed += 1,
            Err(error) => panic!("{about}: {error:?}"),
        }
    }
}

#[test]
fn a_flipped_bit_in_a_value_s_file_costs_that_value_and_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let good = directory.path().join("good");
    log(&good);
    // Opening it once more moves the log into blobs and sorted files.
    drop(Store::open(&good).unwrap());
    let mut found = Found::default();
    for seed in 0..SEEDS {
        let bad = directory.path().join(format!("bad-{seed}"));
        copy(&good, &bad);
        let file = flip(&bad, &mut (seed + 1), |name| name.ends_with(".blob") || name.ends_with(".sst"));
        look(&bad, &mut found, &format!("seed {seed}, {}", file.display()));
    }
    eprintln!("{found:?}");
    assert_eq!(found.missing, 0, "a damaged value is told, not left out");
    assert!(found.corrupted > 0 && found.whole > found.corrupted);
}

#[test]
fn a_flipped_bit_anywhere_never_gives_a_wrong_value() {
    let directory = tempfile::tempdir().unwrap();
    let good = directory.path().join("good");
    log(&good);
    let mut found = Found::default();
    for seed in 0..SEEDS {
        let bad = directory.path().join(format!("bad-{seed}"));
        copy(&good, &bad);
        let file = flip(&bad, &mut (seed + 1), |_| true);
        look(&bad, &mut found, &format!("seed {seed}, {}", file.display()));
    }
    eprintln!("{found:?}");
    // A log is read up to the damage: what comes after is missing.
    assert!(found.missing > 0 && found.whole > 0);
}

/// Two values of one record, the second over the first, and a record behind them.
#[test]
fn a_log_that_ends_at_any_byte_has_what_was_stored_before() {
    let directory = tempfile::tempdir().unwrap();
    let good = directory.path().join("good");
    let (one, two) = (segment(1, 1, 2), segment(2, 1, 2));
    let puts = [(one, value(1, 300)), (one, value(2, 200)), (two, value(3, 100))];
    let store = Store::open(&good).unwrap();
    for (key, value) in &puts {
        store.put(Kind::Replica, *key, value, Durability::Stored).unwrap();
    }
    let log = |store: &Path| {
        let files = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
        let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
        files.filter(is_log).max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
    };
    // As a killed process leaves it.
    let killed = directory.path().join("killed");
    copy(&good, &killed);
    drop(store);
    let bytes = fs::read(log(&killed)).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut reached = 0;
    // Every byte where a record of the log begins or ends would take minutes: the step meets all kinds of
    // bytes.
    for cut in (0..=end).filter(|cut| cut % 11 == 0 || *cut == end) {
        let torn = directory.path().join(format!("torn-{cut}"));
        copy(&killed, &torn);
        fs::write(log(&torn), &bytes[..cut]).unwrap();
        let store = Store::open(&torn).unwrap();
        let found = [one, two].map(|key| store.get(Kind::Replica, key).unwrap());
        // Of the calls, the first so many.
        let after = |calls: usize| {
            [one, two].map(|key| puts[..calls].iter().rfind(|put| put.0 == key).map(|put| put.1.clone()))
        };
        let calls = (0..=puts.len()).find(|calls| after(*calls) == found);
        let calls = calls.unwrap_or_else(|| panic!("cut after {cut} bytes, it has another value"));
        assert!(calls >= reached, "cut after {cut} bytes, it has less than with fewer");
        reached = calls;
        drop(store);
        fs::remove_dir_all(torn).unwrap();
    }
    assert_eq!(reached, puts.len());
}

#[test]
fn an_error_names_the_store_and_the_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("3.1");
    let store = Store::open(&path).unwrap();
    store.put(Kind::Replica, key(1, 5), &value(1, 10_000), Durability::Stored).unwrap();
    drop(store);
    drop(Store::open(&path).unwrap());
    let mut files = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let blob = files.find(|path| path.extension().is_some_and(|extension| extension == "blob")).unwrap();
    let mut bytes = fs::read(&blob).unwrap();
    bytes[5_000] ^= 1;
    fs::write(&blob, bytes).unwrap();
    let error = Store::open(&path).unwrap().get(Kind::Replica, key(1, 5)).unwrap_err().to_string();
    for part in [path.to_str().unwrap(), "replica", "rank 5.0", "#1"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
}
