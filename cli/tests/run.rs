//! `everfold run`: which options and variables count.

#![allow(clippy::unwrap_used)]

use std::{fs, process::Command};

const EVERFOLD: &str = env!("CARGO_BIN_EXE_everfold");

/// Exit code, stdout and stderr of `everfold run` with these variables.
fn run(variables: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(EVERFOLD);
    let output = command.arg("run").args(arguments).envs(variables.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn what_a_process_of_a_job_starts_takes_nothing_from_that_job() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
    let inner = format!(
        "EVERFOLD_HOSTS=4 {EVERFOLD} run --no-prefix -n 2 -- \
         sh -c 'echo $EVERFOLD_SIZE [$EVERFOLD_CHECKPOINTS$EVERFOLD_RECORD$EVERFOLD_RECOVERY]'"
    );
    fs::write(path("recovery.toml"), "").unwrap();
    let outer =
        ["--checkpoints", &path("here"), "--record", &path("profile"), "--recovery", &path("recovery.toml")];
    let program = ["--no-prefix", "-n", "1", "--", "sh", "-c", &inner];
    let (code, said, errors) = run(&[], &[&outer[..], &program].concat());
    assert_eq!((code, said.as_str(), errors.as_str()), (Some(0), "2 []\n2 []\n", ""));
}

#[test]
fn options_count_before_variables() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
    let (old, new) = (path("old"), path("new"));
    let begins =
        ["--no-prefix", "--checkpoints", &new, "-n", "1", "--", "sh", "-c", "echo $EVERFOLD_CHECKPOINTS"];
    let (code, said, errors) = run(&[("EVERFOLD_RESUME", &old)], &begins);
    assert_eq!((code, said, errors.as_str()), (Some(0), format!("{new}\n"), ""));
}

#[test]
fn an_empty_variable_counts_as_none_and_half_of_what_several_hosts_need_is_refused() {
    let alone = ["-n", "1", "--", "true"];
    let empty = [("EVERFOLD_HOSTS", ""), ("EVERFOLD_HOST_INDEX", "")];
    assert_eq!(run(&empty, &alone), (Some(0), String::new(), String::new()));
    let (code, _, errors) = run(&[], &[&["--host-index", "1"][..], &alone].concat());
    assert!(code != Some(0) && errors.contains("--hosts"), "{code:?} {errors}");
}

/// The program may choose the directory that its file needs.
#[test]
fn a_file_without_a_directory_may_have_all_ranks_save_together() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recovery.toml");
    fs::write(&file, "[checkpoint]\nprotocol = \"coordinated\"\n").unwrap();
    let ended = run(&[], &["--recovery", file.to_str().unwrap(), "-n", "1", "--", "true"]);
    assert_eq!(ended, (Some(0), String::new(), String::new()));
    fs::write(&file, "[checkpoint]\nprotocol = \"independent\"\n").unwrap();
    let directory = folder.path().join("here");
    let with = ["--checkpoints", directory.to_str().unwrap()];
    let (code, _, errors) =
        run(&[], &[&["--recovery", file.to_str().unwrap()][..], &with, &["-n", "1", "--", "true"]].concat());
    assert!(code == Some(1) && errors.contains("choose \"coordinated\""), "{code:?} {errors}");
}
