//! What several test files need.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use everfold_protocol::{Incarnation, ProcessId, Rank, ReductionId, SegmentIndex};
use everfold_storage::RecordKey;

/// Environment variable that tells a helper where to work.
pub const DIRECTORY: &str = "EVERFOLD_TEST_DIRECTORY";
const READY: &str = "the helper is ready";

/// A second process: one of the ignored tests of the same file, which are no tests but meant for this. It
/// ends when the test does.
pub struct Helper {
    process: Child,
    _stdin: ChildStdin,
}

impl Helper {
    /// Runs `test` on `directory` until it says that it is [`ready`].
    pub fn start(test: &str, directory: &Path) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(READY)), "the helper {test} failed");
        Self { process, _stdin: stdin }
    }

    /// SIGKILL: nothing of it runs any more.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The directory that this process was started for, if it is a helper.
pub fn helper_directory() -> Option<PathBuf> {
    env::var_os(DIRECTORY).map(PathBuf::from)
}

/// In a helper: tells the test to go on, and waits to be killed.
pub fn ready() {
    println!("\n{READY}");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// The `sequence`-th reduction.
pub fn reduction(sequence: u64) -> ReductionId {
    ReductionId::new("test", sequence)
}

/// Key of a whole contribution.
pub fn key(sequence: u64, rank: u32) -> RecordKey {
    let owner = ProcessId { rank: Rank(rank), incarnation: Incarnation(0) };
    RecordKey { reduction: reduction(sequence), owner, segment: None }
}

/// Key of a segment.
pub fn segment(sequence: u64, rank: u32, index: u32) -> RecordKey {
    RecordKey { segment: Some(SegmentIndex(index)), ..key(sequence, rank) }
}

/// Bytes that no other seed has.
pub fn value(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut words = std::iter::repeat_with(|| random(&mut state).to_le_bytes());
    words.by_ref().take(bytes.div_ceil(8)).flatten().take(bytes).collect()
}

/// The next of a sequence of numbers that look random.
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *state ^ *state >> 29
}

/// Copies the files of one directory into another, which is created.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
