//! Files of living jobs stay, files of crashed jobs go.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use everfold_protocol::{Incarnation, JobId, ProcessId};
use everfold_storage::{
    Durability, JobDirectory, JobDirectoryError, Kind, Store, job_directory::remove_orphans,
};
use nix::{sys::stat::Mode, unistd::mkfifo};
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

/// What another user can prepare in a directory that is open to all, and what must outlive it.
struct Trap {
    _all: tempfile::TempDir,
    base: PathBuf,
    precious: PathBuf,
}

impl Trap {
    /// A base with the directory of this host in it, open to all as if somebody else had made it.
    fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        let (base, precious) = (all.path().join("base"), all.path().join("precious"));
        join(&base, 0).leave().unwrap();
        fs::create_dir_all(precious.join("0000000000c0ffee/0.0")).unwrap();
        fs::write(precious.join("0000000000c0ffee/0.0/file"), "value").unwrap();
        let trap = Self { _all: all, base, precious };
        for path in [trap.base.join("jobs"), trap.host()] {
            fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        }
        trap
    }

    fn host(&self) -> PathBuf {
        fs::read_dir(self.base.join("jobs")).unwrap().next().unwrap().unwrap().path()
    }

    /// Nobody can be made to touch what is elsewhere, neither by joining nor by tidying up.
    #[track_caller]
    fn is_harmless(&self, is_expected: fn(&JobDirectoryError) -> bool) {
        let process = ProcessId::first(0);
        let refused = JobDirectory::join(&self.base, JOB, process).err();
        assert!(refused.as_ref().is_some_and(is_expected), "{refused:?}");
        let tidied = match remove_orphans(&self.base) {
            Err(error) => Some(error),
            Ok(mut orphans) => {
                assert_eq!(orphans.removed, []);
                orphans.failed.pop().map(|(_, error)| error)
            }
        };
        // The directory of a process is looked at when the process joins; of a link nothing but itself is
        // removed.
        assert!(tidied.as_ref().is_none_or(is_expected), "{tidied:?}");
        assert_eq!(fs::read(self.precious.join("0000000000c0ffee/0.0/file")).unwrap(), b"value");
    }
}

fn is_unexpected(error: &JobDirectoryError) -> bool {
    matches!(error, JobDirectoryError::Unexpected { .. })
}

fn is_foreign(error: &JobDirectoryError) -> bool {
    matches!(error, JobDirectoryError::Foreign { owner: 4242, .. })
}

#[test]
fn links_are_not_followed() {
    let trap = Trap::new();
    symlink(trap.precious.join("0000000000c0ffee"), trap.host().join("0000000000c0ffee")).unwrap();
    trap.is_harmless(is_unexpected);

    let trap = Trap::new();
    symlink(trap.precious.join("new"), trap.host().join("0000000000c0ffee.lock")).unwrap();
    trap.is_harmless(is_unexpected);
    assert!(!trap.precious.join("new").exists());

    let trap = Trap::new();
    let host = trap.host();
    fs::remove_dir(&host).unwrap();
    symlink(&trap.precious, &host).unwrap();
    trap.is_harmless(is_unexpected);

    let trap = Trap::new();
    fs::rename(trap.base.join("jobs"), trap.base.join("old")).unwrap();
    symlink(trap.base.join("old"), trap.base.join("jobs")).unwrap();
    trap.is_harmless(is_unexpected);
}

#[test]
fn the_store_of_a_process_is_no_link_either() {
    let trap = Trap::new();
    let job = trap.host().join("0000000000c0ffee");
    fs::create_dir(&job).unwrap();
    symlink(trap.precious.join("0000000000c0ffee"), job.join("0.0")).unwrap();
    let refused = JobDirectory::join(&trap.base, JOB, ProcessId::first(0)).unwrap_err();
    assert!(is_unexpected(&refused), "{refused}");
    assert_eq!(remove_orphans(&trap.base).unwrap().removed, [JOB], "the link goes, not where it leads");
    assert!(trap.precious.join("0000000000c0ffee/0.0/file").exists());
}

#[test]
fn nobody_waits_at_a_pipe() {
    let trap = Trap::new();
    mkfifo(&trap.host().join("0000000000c0ffee.lock"), Mode::S_IRWXU).unwrap();
    trap.is_harmless(is_unexpected);

    let trap = Trap::new();
    mkfifo(&trap.host().join("0000000000c0ffee"), Mode::S_IRWXU).unwrap();
    trap.is_harmless(is_unexpected);
}

#[test]
fn a_directory_that_was_open_to_all_is_closed() {
    let trap = Trap::new();
    let directory = join(&trap.base, 0);
    for path in [trap.base.join("jobs"), trap.host(), directory.path().to_owned()] {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", path.display());
    }
}

#[test]
fn a_base_in_which_everybody_may_replace_files_is_refused() {
    let trap = Trap::new();
    fs::set_permissions(&trap.base, Permissions::from_mode(0o777)).unwrap();
    trap.is_harmless(is_unexpected);
    // As /tmp is.
    fs::set_permissions(&trap.base, Permissions::from_mode(0o1777)).unwrap();
    join(&trap.base, 0);
}

/// Only root can give files away.
#[test]
fn what_belongs_to_others_is_refused() {
    let give_away = |path: &Path| std::os::unix::fs::lchown(path, Some(4242), None);
    if give_away(tempfile::tempdir().unwrap().path()).is_err() {
        return println!("skipped: not root");
    }
    for which in ["base", "jobs", "host", "job", "lock", "link"] {
        let trap = Trap::new();
        let job = trap.host().join("0000000000c0ffee");
        let path = match which {
            "base" => trap.base.clone(),
            "jobs" => trap.base.join("jobs"),
            "host" => trap.host(),
            "lock" => job.with_extension("lock"),
            "link" => {
                fs::rename(&trap.base, trap.precious.join("base")).unwrap();
                symlink(trap.precious.join("base"), &trap.base).unwrap();
                trap.base.clone()
            }
            _ => job,
        };
        match which {
            "lock" => fs::write(&path, "").unwrap(),
            "job" => fs::create_dir(&path).unwrap(),
            _ => {}
        }
        give_away(&path).unwrap();
        trap.is_harmless(is_foreign);
        assert!(fs::symlink_metadata(&path).is_ok(), "{which} is left alone");
    }
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

/// Many processes of one job come, go and crash while others look for orphans. Each of them has its file for
/// as long as it is there. (A lock belongs to an open file, not to a process, so that threads compete for it
/// as processes do.)
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
