//! Starting processes, reading what they say, and making sure that they end.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// No test takes longer, on whatever machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
/// What a rank says at its end, before its number.
pub(crate) const DONE: &str = "this is the end of rank ";
/// In the environment of all processes of one test, by which they are found.
const MARK: &str = "EVERFOLD_TEST_MARK";

/// The command that runs `program` as a job of its own.
pub(crate) fn job(program: &str, ranks: u32, transport: &str) -> Command {
    // Whoever runs the tests may ignore signals that some of them send.
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(std::env::current_exe().unwrap());
    command.args(["run", program, &ranks.to_string(), transport]);
    command
}

/// Marks everything that one test starts.
#[derive(Clone, Debug)]
pub(crate) struct Mark(u64);

impl Mark {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(u64::from(std::process::id()) << 32 | u64::from(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Differs from that of every other test on this machine.
    pub(crate) fn number(&self) -> u64 {
        self.0
    }

    /// Processes with this mark. A zombie has no environment any more, and so does not count.
    pub(crate) fn living(&self) -> Vec<i32> {
        let mark = format!("{MARK}={}", self.0);
        let processes = std::fs::read_dir("/proc").unwrap();
        let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers
            .filter(|number| environment(*number).split(|&byte| byte == 0).any(|v| v == mark.as_bytes()))
            .collect()
    }
}

impl Mark {
    /// The process of a rank with this number, if it lives.
    pub(crate) fn rank(&self, rank: u32, incarnation: u32) -> Option<i32> {
        let expected = [format!("EVERFOLD_RANK={rank}"), format!("EVERFOLD_INCARNATION={incarnation}")];
        let has = |process: &i32, variable: &String| {
            environment(*process).split(|&byte| byte == 0).any(|it| it == variable.as_bytes())
        };
        self.living().into_iter().find(|process| expected.iter().all(|variable| has(process, variable)))
    }
}

fn environment(process: i32) -> Vec<u8> {
    // It may have ended meanwhile, or belong to someone else.
    std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default()
}

/// A process and what it has said. It dies with this value, and so does what it has started.
pub(crate) struct Process {
    child: Child,
    mark: Mark,
    lines: Receiver<String>,
    said: Vec<String>,
    deadline: Instant,
}

/// How a process has ended.
#[derive(Debug)]
pub(crate) struct End {
    /// As a shell tells it: 128 + s for signal s.
    pub(crate) code: i32,
    /// All lines, of stdout and stderr.
    pub(crate) said: Vec<String>,
}

impl Process {
    pub(crate) fn spawn(mut command: Command) -> Self {
        Self::spawn_marked(&mut command, Mark::new())
    }

    /// Spawns a process that belongs together with others.
    pub(crate) fn spawn_marked(command: &mut Command, mark: Mark) -> Self {
        command.env(MARK, mark.0.to_string()).env_remove("RUST_BACKTRACE");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        forward(child.stdout.take().unwrap(), sender.clone());
        forward(child.stderr.take().unwrap(), sender);
        Self { child, mark, lines, said: Vec::new(), deadline: Instant::now() + DEADLINE }
    }

    pub(crate) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// All lines so far.
    pub(crate) fn said(&self) -> &[String] {
        &self.said
    }

    pub(crate) fn id(&self) -> i32 {
        self.child.id() as i32
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id()), signal).unwrap();
    }

    /// Waits until `count` lines in all that contain `text` were said.
    pub(crate) fn wait_for(&mut self, count: usize, text: &str) {
        while self.said.iter().filter(|line| line.contains(text)).count() < count {
            if !self.listen() {
                panic!("it ended before it said {text:?} {count} times: {self}");
            }
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Takes one more line. False if there will be none.
    fn listen(&mut self) -> bool {
        match self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => self.said.push(line),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => panic!("it has not ended in {DEADLINE:?}: {self}"),
        }
        true
    }

    /// Waits until it has ended; nothing that it started may be left then.
    pub(crate) fn end(mut self) -> End {
        let end = self.ended();
        let left = self.mark.living();
        assert!(left.is_empty(), "processes {left:?} are left after {end:?}");
        end
    }

    /// Waits until it has ended, whatever the others do that bear its mark.
    pub(crate) fn ended(&mut self) -> End {
        while self.listen() {}
        let mut status = None;
        wait_until("a process without output ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        End { code: code(status.unwrap()), said: std::mem::take(&mut self.said) }
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "so far it said\n  {}", self.said.join("\n  "))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            // Whatever is wrong here must not disturb the next test.
            for process in self.mark.living() {
                let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
            }
        }
    }
}

impl End {
    /// All of `ranks` came to their end, and the job with them.
    #[track_caller]
    pub(crate) fn assert_done(&self, ranks: impl IntoIterator<Item = u32>) {
        self.assert_ended(0, ranks);
    }

    /// The job ended with `code`, and exactly `ranks` came to their end.
    #[track_caller]
    pub(crate) fn assert_ended(&self, code: i32, ranks: impl IntoIterator<Item = u32>) {
        let said = self.said.join("\n  ");
        assert_eq!(self.code, code, "the exit code of a job that said\n  {said}\n");
        let ends = self.said.iter().filter_map(|line| line.split_once(DONE));
        let done: BTreeSet<u32> = ends.map(|(_, rank)| rank.parse().unwrap()).collect();
        let expected: BTreeSet<u32> = ranks.into_iter().collect();
        assert_eq!(done, expected, "the job said\n  {said}\n");
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).unwrap()
}

fn forward(stream: impl Read + Send + 'static, lines: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
}

/// Waits for a condition that nothing announces.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
