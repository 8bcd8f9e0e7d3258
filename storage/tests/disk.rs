//! What happens on a disk that is full, or cannot be written.
//!
//! The tests run on a small file system of their own, which takes a mount namespace. Where the system does
//! not allow one, they say so and prove nothing, or fail with EVERFOLD_TESTS_SKIP_NOTHING=1.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use everfold_protocol::{JobId, ProcessId};
use everfold_storage::{Durability, JobDirectory, Kind, Store, StoreError};
use support::{DIRECTORY, helper_directory, key, reduction, value};

const VALUE_BYTES: usize = 1 << 20;
const DISK_BYTES: u64 = 96 << 20;
/// Left of the disk for the database before somebody makes room.
const SPARE_BYTES: usize = 64 << 20;
/// The database looks for room every five seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the ignored `test` with its directory on a small disk.
fn on_a_small_disk(test: &str) {
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command
    };
    let directory = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size={DISK_BYTES} tmpfs '{}'", directory.path().display());
    if !namespace(&mount).output().is_ok_and(|output| output.status.success()) {
        let must_run = std::env::var_os("EVERFOLD_TESTS_SKIP_NOTHING").is_some_and(|value| value == "1");
        assert!(!must_run, "{test} cannot run here: this system has no mount namespaces for us");
        return eprintln!("{test} was not run: this system has no mount namespaces for us");
    }
    // A call that never returns is what these tests are most afraid of.
    let script = format!("{mount} && exec timeout 300 \"$0\" --exact {test} --ignored --nocapture");
    let mut command = namespace(&script);
    let status =
        command.arg(std::env::current_exe().unwrap()).env(DIRECTORY, directory.path()).status().unwrap();
    assert!(status.success(), "{test} failed");
}

/// Fills the disk, and says how many records were taken.
fn fill(store: &Store, disk: &Path, durability: Durability) -> u64 {
    fs::write(disk.join("ballast"), value(0, DISK_BYTES as usize - SPARE_BYTES)).unwrap();
    let mut stored = 0;
    let error = loop {
        match store.put(Kind::Replica, key(stored, 0), &value(stored, VALUE_BYTES), durability) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < DISK_BYTES, "the disk takes more than it can");
    };
    assert!(matches!(error, StoreError::Full { subject: Some(_), .. }), "{error:?}");
    assert!(stored > 16, "full after {stored} records");
    stored
}

fn make_room(disk: &Path) {
    fs::remove_file(disk.join("ballast")).unwrap();
}

fn all_are_there(store: &Store, stored: u64) {
    for sequence in 0..stored {
        assert!(store.get(Kind::Replica, key(sequence, 0)).unwrap().unwrap() == value(sequence, VALUE_BYTES));
    }
}

#[test]
fn a_full_disk_is_told_and_the_store_works_again_when_there_is_room() {
    on_a_small_disk("with_a_full_disk");
}

#[test]
#[ignore = "runs on a small disk, started by another test"]
fn with_a_full_disk() {
    let Some(disk) = helper_directory() else { return };
    for durability in [Durability::Memory, Durability::Stored, Durability::Synced] {
        let path = disk.join(format!("{durability:?}"));
        let store = Store::open(&path).unwrap();
        let stored = fill(&store, &disk, durability);
        all_are_there(&store, stored);
        let error = store.release(reduction(0)).unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        all_are_there(&store, stored);

        make_room(&disk);
        let start = Instant::now();
        while let Err(error) = store.put(Kind::Original, key(stored, 0), b"value", durability) {
            assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
            assert!(start.elapsed() < PATIENCE, "there is room, but still: {error}");
            thread::sleep(Duration::from_millis(50));
        }
        all_are_there(&store, stored);
        (0..=stored).for_each(|sequence| store.release(reduction(sequence)).unwrap());
        assert!(store.is_empty().unwrap());
        drop(store);
        fs::remove_dir_all(path).unwrap();
    }
}

#[test]
fn a_store_that_is_closed_on_a_full_disk_opens_again_with_all_that_was_stored() {
    on_a_small_disk("closing_on_a_full_disk");
}

#[test]
#[ignore = "runs on a small disk, started by another test"]
fn closing_on_a_full_disk() {
    let Some(disk) = helper_directory() else { return };
    let unsaved = Store::open(&disk.join("0.0")).unwrap();
    unsaved.put(Kind::Replica, key(0, 0), &value(0, 8 * VALUE_BYTES), Durability::Memory).unwrap();
    let path = disk.join("1.0");
    let store = Store::open(&path).unwrap();
    let stored = fill(&store, &disk, Durability::Stored);
    // Closing tries to write what is only in memory, and must not wait for room.
    drop((store, unsaved));
    match Store::open(&path) {
        Ok(store) => all_are_there(&store, stored),
        Err(error) => assert!(matches!(error, StoreError::Full { .. }), "{error:?}"),
    }
    make_room(&disk);
    all_are_there(&Store::open(&path).unwrap(), stored);
}

#[test]
fn a_disk_that_cannot_be_written_is_told() {
    on_a_small_disk("on_a_read_only_disk");
}

#[test]
#[ignore = "runs on a small disk, started by another test"]
fn on_a_read_only_disk() {
    let Some(disk) = helper_directory() else { return };
    let (old, new) = (disk.join("0.0"), disk.join("1.0"));
    drop(Store::open(&old).unwrap());
    let status = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk).status().unwrap();
    assert!(status.success());
    for path in [old, new] {
        let error = Store::open(&path).unwrap_err();
        assert!(matches!(&error, StoreError::ReadOnly { path: of, .. } if *of == path), "{error:?}");
    }
    let error = JobDirectory::join(&disk, JobId(1), ProcessId::first(0)).unwrap_err().to_string();
    assert!(error.contains("Read-only file system"), "{error}");
}
