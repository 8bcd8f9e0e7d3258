//! Files of living jobs stay, files of crashed jobs go.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use everfold_protocol::{Incarnation, JobId, ProcessId};
use everfold_storage::{
    Durability, JobDirectory, Kind, Store,
    job_directory::{JobDirectoryError, remove_orphans},
};
use support::{Helper, helper_directory, key, random, ready};

const JOB: JobId = JobId(0x00c0_ffee);

fn join(base: &Path, rank: u32) -> JobDirectory {
    JobDirectory::join(base, JOB, ProcessId::first(rank)).unwrap()
}

/// All that is left of any job below `base`.
fn leftovers(base: &Path) -> Vec<String> {
    let host = fs::read_dir(base.join("jobs")).unwrap().next().unwrap().unwrap().path();
    fs::read_dir(host).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn the_last_to_leave_removes_everything() {
    let base = tempfile::tempdir().unwrap();
    let base = base.path().join("not").join("there yet");
    let (first, second) = (join(&base, 0), join(&base, 1));
    assert_eq!(first.path(), second.path());
    assert!(first.path().ends_with("0000000000c0ffee"));
    assert!(first.store_path().ends_with("0000000000c0ffee/0.0"));
    for directory in [&first, &second] {
        Store::open(&directory.store_path()).unwrap();
    }
    let (path, store) = (first.path().to_owned(), first.store_path());

    assert!(!first.leave().unwrap());
    assert!(!store.exists());
    assert!(second.store_path().exists());
    assert!(second.leave().unwrap());
    assert!(!path.exists());
    assert_eq!(leftovers(&base), [""; 0]);
}

#[test]
fn incarnations_have_stores_of_their_own() {
    let base = tempfile::tempdir().unwrap();
    let second = ProcessId { incarnation: Incarnation(1), ..ProcessId::first(4) };
    let second = JobDirectory::join(base.path(), JOB, second).unwrap();
    assert!(second.store_path().ends_with("4.1"));
    assert_ne!(second.store_path(), join(base.path(), 4).store_path());
}

#[test]
fn only_this_user_may_look_inside() {
    use std::os::unix::fs::PermissionsExt;
    let base = tempfile::tempdir().unwrap();
    let base = base.path().join("base");
    let directory = join(&base, 0);
    for path in [&base, directory.path()] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
    }
}

#[test]
#[ignore = "a process that other tests start"]
fn process_of_a_job() {
    let Some(base) = helper_directory() else { return };
    let directory = join(&base, 0);
    let store = Store::open(&directory.store_path()).unwrap();
    store.put(Kind::Original, key(1, 0), b"value", Durability::Stored).unwrap();
    ready();
}

#[test]
fn the_kernel_gives_up_a_killed_process_s_files_and_not_before() {
    let base = tempfile::tempdir().unwrap();
    let helper = Helper::start("process_of_a_job", base.path());
    let orphans = remove_orphans(base.path()).unwrap();
    assert_eq!((orphans.in_use, orphans.removed), (vec![JOB], vec![]));
    // It may live on only because this process is in the same job; that must be enough.
    let here = join(base.path(), 1);
    helper.kill();
    assert_eq!(remove_orphans(base.path()).unwrap().in_use, [JOB]);
    let store = Store::open(&here.path().join("0.0")).unwrap();
    assert_eq!(store.get(Kind::Original, key(1, 0)).unwrap().unwrap(), b"value");
    drop((store, here));

    let orphans = remove_orphans(base.path()).unwrap();
    assert!(orphans.failed.is_empty(), "{:?}", orphans.failed);
    assert_eq!((orphans.in_use, orphans.removed), (vec![], vec![JOB]));
    assert_eq!(leftovers(base.path()), [""; 0]);
}

#[test]
fn a_removal_that_was_interrupted_is_finished_later() {
    let base = tempfile::tempdir().unwrap();
    // Only the directory, only the lock, and things that are not ours.
    let host = join(base.path(), 0).path().parent().unwrap().to_owned();
    fs::remove_file(host.join("0000000000c0ffee.lock")).unwrap();
    fs::write(host.join("0000000000000001.lock"), "").unwrap();
    fs::create_dir(host.join("notes")).unwrap();
    fs::write(host.join("notes.lock"), "").unwrap();

    let orphans = remove_orphans(base.path()).unwrap();
    assert_eq!(orphans.removed, [JOB]);
    let mut left = leftovers(base.path());
    left.sort();
    assert_eq!(left, ["notes", "notes.lock"]);
}

#[test]
fn where_no_job_ever_was_there_are_no_orphans() {
    let base = tempfile::tempdir().unwrap();
    let orphans = remove_orphans(&base.path().join("nothing")).unwrap();
    assert!(orphans.removed.is_empty() && orphans.in_use.is_empty() && orphans.failed.is_empty());
}

#[test]
fn a_base_that_cannot_be_is_an_error_with_its_path() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("file");
    fs::write(&file, "").unwrap();
    let error = JobDirectory::join(&file, JOB, ProcessId::first(0)).unwrap_err();
    assert!(matches!(error, JobDirectoryError::Io { .. }), "{error:?}");
    assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
}

/// Many processes of one job come, go and crash while others look for orphans. Each of them has its file for as long as
/// it is there. (A lock belongs to an open file, not to a process, so that threads compete for it as processes do.)
#[test]
fn nobody_loses_files_while_it_is_there() {
    const COMERS: u32 = 3;
    const REMOVALS: usize = 200;
    const ROUNDS_MAX: usize = 100_000;
    let base = tempfile::tempdir().unwrap();
    let base = base.path();
    let over = AtomicBool::new(false);
    let removals = AtomicUsize::new(0);
    thread::scope(|scope| {
        let comers: Vec<_> = (0..COMERS)
            .map(|rank| {
                let removals = &removals;
                scope.spawn(move || {
                    let mut state = rank.into();
                    for round in 0.. {
                        if removals.load(Ordering::Relaxed) >= REMOVALS {
                            break;
                        }
                        assert!(round < ROUNDS_MAX, "the job is never over: the test has lost its point");
                        let directory = join(base, rank);
                        fs::create_dir_all(directory.store_path()).expect("the job's directory is there");
                        let file = directory.store_path().join("file");
                        fs::write(&file, "value").expect("the directory is there");
                        pause(&mut state);
                        assert_eq!(fs::read(&file).expect("the file is there"), b"value");
                        if random(&mut state).is_multiple_of(2) {
                            let last = directory.leave().expect("nothing is in the way of leaving");
                            removals.fetch_add(last.into(), Ordering::Relaxed);
                        } else {
                            drop(directory);
                        }
                        pause(&mut state);
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let orphans = remove_orphans(base).unwrap();
                    assert!(orphans.failed.is_empty(), "{:?}", orphans.failed);
                    removals.fetch_add(orphans.removed.len(), Ordering::Relaxed);
                    thread::yield_now();
                }
            });
        }
        let results: Vec<_> = comers.into_iter().map(|comer| comer.join()).collect();
        over.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    remove_orphans(base).unwrap();
    assert_eq!(leftovers(base), [""; 0]);
}

fn pause(state: &mut u64) {
    thread::sleep(Duration::from_micros(random(state) % 1000));
}
