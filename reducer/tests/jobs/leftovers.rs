//! However a job ends, nothing of it is left: no process, no file, no shared memory.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{create_dir, read_dir, remove_dir_all},
    path::{Path, PathBuf},
};

use everfold::{Session, Sum};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    process::{End, Mark, Process, job, wait_until},
    suite::Suite,
};

pub(crate) fn add_to(suite: &mut Suite) {
    suite.program("leftovers::work", work);
    suite.program("leftovers::work_without_end", work_without_end);
    suite.test_each("leftovers::after_a_good_end", |transport| {
        leaves_nothing("leftovers::work", transport, |job| {
            let end = job.ended();
            end.assert_done(0..4);
            Some(end)
        });
    });
    suite.test_each("leftovers::after_killing_the_supervisor", |transport| {
        after_signal(transport, Signal::SIGKILL, 137);
    });
    suite.test_each("leftovers::after_ctrl_c", |transport| after_signal(transport, Signal::SIGINT, 130));
    suite.test_each("leftovers::after_a_request_to_end", |transport| {
        after_signal(transport, Signal::SIGTERM, 143)
    });
    suite.test_each("leftovers::after_killing_all_ranks", after_killing_all_ranks);
}

const RANKS: u32 = 4;

/// Bodies of all kinds: in shared memory, in a `Vec`, inlined.
async fn some_work(session: &Session) -> everfold::Result<()> {
    let array = session.array::<f64>(300_000);
    let shared = session.reduce("shared", Sum(array)).root(1).start()?;
    let private = session.allreduce("private", Sum(vec![1.0; 300_000])).start()?;
    session.allreduce("small", Sum(vec![1u8])).await?;
    shared.await?;
    private.await?;
    Ok(())
}

async fn work(session: Session) -> everfold::Result<()> {
    some_work(&session).await
}

async fn work_without_end(session: Session) -> everfold::Result<()> {
    some_work(&session).await?;
    println!("this rank works");
    loop {
        some_work(&session).await?;
    }
}

/// What is in a directory.
fn content(directory: impl AsRef<Path>) -> BTreeSet<OsString> {
    read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

/// The files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(below).collect()
}

/// Runs a job in an empty directory until `end` has seen its end.
fn leaves_nothing(program: &str, transport: &str, end: impl Fn(&mut Process) -> Option<End>) {
    let directory = std::env::temp_dir().join(format!("everfold-leftovers-{:x}", Mark::new().number()));
    create_dir(&directory).unwrap();
    let shared_memory = content("/dev/shm");
    let mut command = job(program, RANKS, transport);
    command.current_dir(&directory).env("TMPDIR", &directory).env("HOME", &directory);
    let mut process = Process::spawn(command);
    let end = end(&mut process);
    let living = || process.mark().living();
    match end {
        // The supervisor was there to the end, and has seen to it.
        Some(end) => assert!(living().is_empty(), "processes {:?} are left after {end:?}", living()),
        // Nobody is left to see to its files; the next job on this machine does.
        None => {
            wait_until("all processes are gone", || living().is_empty());
            let mut next = job("leftovers::work", RANKS, transport);
            next.env("HOME", &directory);
            assert_eq!(Process::spawn(next).ended().code, 0);
        }
    }
    // Something that others on this machine make is gone soon or not ours; they do not make files all the
    // time.
    wait_until("nothing new is in /dev/shm", || content("/dev/shm").is_subset(&shared_memory));
    assert_eq!(files(&directory), Vec::<PathBuf>::new());
    remove_dir_all(directory).unwrap();
}

fn after_signal(transport: &str, signal: Signal, code: i32) {
    leaves_nothing("leftovers::work_without_end", transport, |job| {
        job.wait_for(RANKS as usize, "this rank works");
        job.signal(signal);
        let end = job.ended();
        assert_eq!(end.code, code, "{end:?}");
        (signal != Signal::SIGKILL).then_some(end)
    });
}

fn after_killing_all_ranks(transport: &str) {
    leaves_nothing("leftovers::work_without_end", transport, |job| {
        job.wait_for(RANKS as usize, "this rank works");
        // All at once: none shall hear of the others' death.
        for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
            for process in job.mark().living().into_iter().filter(|process| *process != job.id()) {
                kill(Pid::from_raw(process), signal).unwrap();
            }
        }
        let end = job.ended();
        assert_eq!(end.code, 137, "{end:?}");
        Some(end)
    });
}
