//! A run of the command, in a folder of its own, of which nothing may be left.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::{
    env,
    fmt::Display,
    fs,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

/// No test takes longer, on whatever machine.
pub const DEADLINE: Duration = Duration::from_secs(90);
/// In the environment of all processes of one run, by which they are found.
const MARK: &str = "EVERFOLD_TEST_MARK";

/// A run in a folder of its own, where everything is that it leaves.
pub struct Traces {
    pub folder: TempDir,
    mark: String,
}

impl Traces {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{MARK}={}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        Self { folder, mark }
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let (name, value) = self.mark.split_once('=').unwrap();
        // Whoever runs the tests may ignore signals that some of them send.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_everfold")]).args(arguments);
        command.current_dir(self.folder.path()).env("TMPDIR", self.path("tmp")).env(name, value);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Processes of this run. A zombie has no environment any more, and so does not count.
    pub fn living(&self) -> Vec<i32> {
        let processes = fs::read_dir("/proc").unwrap();
        let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_ours = |number: &i32| {
            let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == self.mark.as_bytes())
        };
        numbers.filter(is_ours).collect()
    }

    pub fn scratch(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path().join("tmp")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect()
    }

    #[track_caller]
    pub fn assert_nothing_is_left(&self) {
        assert_eq!(self.living(), [0; 0], "processes are left");
        assert_eq!(self.scratch(), [""; 0], "files are left");
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // Only if a test has failed is there anything.
        for process in self.living() {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
    }
}

/// Whether hosts can be made here, which takes rights and iproute2. If not, what needs them is left out.
#[track_caller]
pub fn can_make_hosts() -> bool {
    let why = everfold_lab::hosts_unavailable();
    if let Some(why) = &why {
        leave_out(why);
    }
    why.is_none()
}

/// Whether file systems can be mounted here, which takes rights. If not, what needs them is left out.
#[track_caller]
pub fn can_mount() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "mount", "-t", "tmpfs", "tmpfs"]).arg(folder.path());
    let can = command.output().is_ok_and(|output| output.status.success());
    if !can {
        leave_out("nothing can be mounted");
    }
    can
}

/// Says that something is left out. With EVERFOLD_TESTS_SKIP_NOTHING=1 the test fails instead.
#[track_caller]
fn leave_out(why: impl Display) {
    let must_run = env::var_os("EVERFOLD_TESTS_SKIP_NOTHING").is_some_and(|value| value == "1");
    assert!(!must_run, "this test cannot run here: {why}");
    println!("skipped: {why}");
}

pub fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
