//! What a process has noted is there although it was killed.

use std::{
    env,
    fs::File,
    io::{BufRead, BufReader, IoSlice},
    os::fd::AsRawFd,
    process::{self, Command, Stdio},
};

use everfold_storage::vault::Vault;

use super::{OPTIONS, OWNER, empty, open};

/// Environment variables that tell [`appends_until_it_is_killed`] which files are its own.
const FILES: [&str; 2] = ["EVERFOLD_TEST_FIRST", "EVERFOLD_TEST_SECOND"];
const ACKNOWLEDGED: &str = "acknowledged ";
const PART_BYTES: usize = 100_000;

/// The value of outcome `index`: short ones and such as take several writes.
fn value(index: u64) -> Vec<u8> {
    vec![index as u8; if index.is_multiple_of(3) { 400_000 + index as usize } else { index as usize % 100 }]
}

/// No test but a process that the next test kills: it appends, and saves a checkpoint now and then.
#[test]
#[ignore = "the process that another test kills"]
fn appends_until_it_is_killed() {
    let Some(first) = env::var_os(FILES[0]) else { return };
    let open = |path| File::options().read(true).write(true).open(path).unwrap();
    let files = [open(first), open(env::var_os(FILES[1]).unwrap())];
    let mut vault = Vault::create(files, OWNER, OPTIONS).unwrap();
    for index in 0_u64.. {
        if index % 8 == 7 {
            vault.checkpoint(&index.to_le_bytes(), &[&[index as u8; PART_BYTES]]).unwrap();
        } else {
            vault.append(&index.to_le_bytes(), &[IoSlice::new(&value(index))]).unwrap();
        }
        println!("\n{ACKNOWLEDGED}{index}");
    }
}

#[test]
fn what_was_acknowledged_is_there_when_the_process_was_killed() {
    for after in [0, 1, 2, 6, 7, 8, 15, 16, 40, 63, 64, 100] {
        let files = empty();
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "killed::appends_until_it_is_killed", "--ignored", "--nocapture"])
            .envs(
                FILES
                    .iter()
                    .zip(&files)
                    .map(|(name, file)| (name, format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd()))),
            )
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .filter_map(|line| Some(line.unwrap().strip_prefix(ACKNOWLEDGED)?.parse::<u64>().unwrap()));
        assert!(acknowledged.any(|index| index == after), "the child failed");
        child.kill().unwrap();
        child.wait().unwrap();
        let last = acknowledged.last().unwrap_or(after);
        check(&files, last);
    }
}

/// Everything up to what was `acknowledged` is there, and perhaps the one after it.
fn check(files: &[File; 2], acknowledged: u64) {
    let (vault, found) = open(files).unwrap();
    vault.verify().unwrap();
    let saved = found.checkpoint.map(|(header, parts)| {
        let index = u64::from_le_bytes(header.try_into().unwrap());
        assert_eq!(parts, [vec![index as u8; PART_BYTES]]);
        index
    });
    let first = saved.map_or(0, |index| index + 1);
    for (outcome, index) in found.outcomes.iter().zip(first..) {
        assert!(*outcome == (index.to_le_bytes().to_vec(), value(index)), "outcome {index}");
    }
    let next = first + found.outcomes.len() as u64;
    assert!((acknowledged + 1..=acknowledged + 2).contains(&next), "{next} after {acknowledged}");
}
