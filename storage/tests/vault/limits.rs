//! Writes that fail, and files that may not grow.

use std::{env, fs::File, io::IoSlice, os::fd::AsRawFd, process::Command};

use everfold_storage::vault::{Generation, Half, Vault, VaultError};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{OPTIONS, OWNER, again, append, empty, open, outcomes, small};

/// Tells [`appends_under_a_limit_on_files`] that it is meant.
const LIMITED: &str = "EVERFOLD_TEST_LIMITED";
const ALL_WELL: &str = "all is well";

#[test]
fn a_write_that_fails_leaves_what_was_there() {
    let (files, _, now) = small();
    // The other half can only be read.
    let path = format!("/proc/self/fd/{}", files[1].as_raw_fd());
    let read_only = [files[0].try_clone().unwrap(), File::open(path).unwrap()];
    let (mut unable, _) = Vault::open(read_only, OWNER, OPTIONS).unwrap();
    let Err(error @ VaultError::Io { action: "write", half: Half::Second, .. }) = unable.checkpoint(b"", &[])
    else {
        panic!("the file can only be read");
    };
    assert!(error.to_string().starts_with("cannot write the second file of the vault"));
    assert_eq!(unable.generation(), Generation(2));
    assert_eq!(open(&files).unwrap().1, now);
    append(&mut unable, "still", "there");
    assert_eq!(open(&files).unwrap().1.outcomes.len(), 4);
}

/// No test but a process with a limit of its own, which the next test starts.
#[test]
#[ignore = "the process that another test starts"]
fn appends_under_a_limit_on_files() {
    if env::var_os(LIMITED).is_none() {
        return;
    }
    let files = empty();
    let mut vault = Vault::create(again(&files), OWNER, OPTIONS).unwrap();
    append(&mut vault, "a", "1");
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, 500_000, hard).unwrap();
    // The first of its writes are within the limit.
    let too_long = vec![7; 1_000_000];
    let refused = vault.append(b"long", &[IoSlice::new(&too_long)]).unwrap_err();
    assert!(refused.to_string().contains("ulimit -f"), "{refused}");
    append(&mut vault, "b", "2");
    let mut draft = vault.begin(b"too long").unwrap();
    assert!(matches!(draft.part(&too_long), Err(VaultError::Io { .. })));
    assert!(matches!(draft.part(b"short"), Err(VaultError::Unfinished)));
    assert!(matches!(vault.seal(draft), Err(VaultError::Unfinished)));
    append(&mut vault, "c", "3");
    vault.verify().unwrap();
    assert_eq!(open(&files).unwrap().1.outcomes, outcomes(&[("a", "1"), ("b", "2"), ("c", "3")]));
    setrlimit(Resource::RLIMIT_FSIZE, hard, hard).unwrap();
    vault.append(b"long", &[IoSlice::new(&too_long)]).unwrap();
    vault.checkpoint(b"", &[&too_long]).unwrap();
    assert!(open(&files).unwrap().1.checkpoint == Some((Vec::new(), vec![too_long])));
    println!("\n{ALL_WELL}");
}

#[test]
fn a_limit_on_files_ends_no_process_and_costs_only_what_is_over_it() {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "limits::appends_under_a_limit_on_files", "--ignored", "--nocapture"])
        .env(LIMITED, "")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&child.stdout).contains(ALL_WELL), "{child:?}");
}
