//! `everfold checkpoint`.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path, process::Command};

use everfold::Rank;
use everfold_storage::{
    directory::Directory,
    vault::{Generation, Options, Owner, Vault},
};

/// Exit code, stdout and stderr of `everfold checkpoint`.
fn checkpoint(arguments: &[&str], directory: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_everfold"));
    let output = command.arg("checkpoint").args(arguments).arg(directory).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Two ranks save a generation.
fn save(directory: &Directory, generation: u64) {
    let job = everfold_protocol::JobId(7);
    let place = directory.place(Generation(generation), job);
    let parts = [0, 1].map(Rank).map(|rank| {
        let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        let mut vault = Vault::create(files, Owner { job, rank }, Options::in_memory(1 << 20)).unwrap();
        let mut draft = vault.begin_as(Generation(generation), b"header").unwrap();
        draft.part(&[generation as u8; 1000]).unwrap();
        vault.seal(draft).unwrap();
        let state = vault.state().unwrap();
        place.write_part(rank, &state).unwrap();
        state.fingerprint()
    });
    place.complete("solver", 1_700_000_000, parts.to_vec()).unwrap();
}

#[test]
fn a_job_that_has_failed_says_where_it_can_go_on() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("checkpoints");
    save(&Directory::create(&path).unwrap(), 6);
    let mut command = Command::new(env!("CARGO_BIN_EXE_everfold"));
    let output =
        command.args(["run", "-n", "2", "--resume"]).arg(&path).args(["--", "false"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let line = format!("the job can go on from generation 6: start it with --resume {}", path.display());
    assert!(output.status.code() == Some(1) && said.contains(&line), "{said}");
}

#[test]
fn generations_are_listed_verified_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("checkpoints");
    let directory = Directory::create(&path).unwrap();
    let (code, said, _) = checkpoint(&["list"], &path);
    assert_eq!(code, Some(0));
    assert!(said.contains("no generation"), "{said}");
    let (code, _, wrong) = checkpoint(&["verify"], &path);
    assert_eq!(code, Some(2));
    assert!(wrong.contains("no complete checkpoint"), "{wrong}");

    save(&directory, 6);
    save(&directory, 7);
    let (code, said, _) = checkpoint(&["list"], &path);
    assert_eq!(code, Some(0));
    let lines = said.lines().filter(|line| line.contains("complete") && line.contains("2 of 2"));
    assert_eq!(lines.count(), 2, "{said}");
    let (code, said, _) = checkpoint(&["verify"], &path);
    assert_eq!(code, Some(0));
    assert!(said.contains("generation 7: 2 of 2 parts are here and whole"), "{said}");

    let part = directory.place(Generation(7), everfold_protocol::JobId(7)).part_path(Rank(1));
    let mut bytes = fs::read(&part).unwrap();
    bytes[500] ^= 1;
    fs::write(&part, bytes).unwrap();
    let (code, said, _) = checkpoint(&["verify"], &path);
    assert_eq!(code, Some(1));
    assert!(said.contains("generation 7, rank 1") && said.contains("is damaged (part 0"), "{said}");
    assert!(said.contains("generation 6: 2 of 2 parts are here and whole"), "{said}");

    let (code, _, wrong) = checkpoint(&["remove", "--generation", "9"], &path);
    assert_eq!(code, Some(2));
    assert!(wrong.contains("no generation 9"), "{wrong}");
    assert_eq!(checkpoint(&["remove", "--generation", "7"], &path).0, Some(0));
    assert_eq!(checkpoint(&["verify"], &path).0, Some(0));
    // Another host may have it.
    let part = directory.place(Generation(6), everfold_protocol::JobId(7)).part_path(Rank(1));
    fs::remove_file(part).unwrap();
    let (code, said, _) = checkpoint(&["verify"], &path);
    assert_eq!(code, Some(0));
    assert!(said.contains("generation 6: 1 of 2 parts are here and whole"), "{said}");
    assert_eq!(checkpoint(&["remove"], &path).0, Some(0));
    assert!(!path.exists());
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("thesis.tex"), "years of work").unwrap();
    for command in ["list", "verify", "remove"] {
        let (code, said, wrong) = checkpoint(&[command], home.path());
        assert_eq!((code, said.as_str()), (Some(2), ""));
        assert!(wrong.contains("holds other files"), "{wrong}");
    }
    assert!(home.path().join("thesis.tex").exists());
}
