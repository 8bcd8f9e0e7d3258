//! The supervisor of local processes, with real processes.
//!
//! The test binary is its own supervisor: each test starts it again with `EVERFOLD_TEST_RANKS` and a script
//! of the shell, which every rank runs.
#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use everfold::launch::{
    environment::Transport,
    local::{Local, LocalError},
};
use nix::{
    errno::Errno,
    pty::{OpenptyResult, openpty},
    sys::{
        resource::{Resource, setrlimit},
        signal::{SigHandler, Signal, kill, killpg, signal},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};

/// No condition takes longer, on whatever machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// Printed by the supervisor before anything else, to tell its output from that of the test harness.
const BEGIN: &str = "the supervisor begins";

/// Not a test but the supervisor in the tests below.
#[test]
#[ignore = "does nothing unless another test starts it"]
fn supervisor() {
    let variable = |name: &str| std::env::var(format!("EVERFOLD_TEST_{name}")).ok();
    let Some(ranks) = variable("RANKS") else { return };
    let mut local = Local::new(ranks.parse().unwrap(), "/bin/sh");
    local.arguments = vec!["-c".into(), variable("SCRIPT").unwrap().into()];
    local.transport = if variable("TCP").is_some() { Transport::Tcp } else { Transport::Auto };
    local.prefix = variable("BARE").is_none();
    local.quiet = variable("QUIET").is_some();
    local.survive_deaths = variable("SURVIVE").is_some();
    std::io::stdout().write_all(format!("\n{BEGIN}\n").as_bytes()).unwrap();
    let code = local.run().unwrap_or_else(|error| {
        eprintln!("{error}");
        error.exit_code()
    });
    assert_eq!(
        waitpid(None, Some(WaitPidFlag::WNOHANG)),
        Err(Errno::ECHILD),
        "neither a child nor a zombie is left"
    );
    std::process::exit(code.into());
}

/// A supervisor process. It is killed when a test fails.
struct Supervisor {
    process: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Supervisor {
    fn command(ranks: u32, script: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["supervisor", "--exact", "--ignored", "--nocapture"])
            .env("EVERFOLD_TEST_RANKS", ranks.to_string())
            .env("EVERFOLD_TEST_SCRIPT", script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Whoever runs the tests may ignore these.
        before_exec(&mut command, || {
            dispose(Signal::SIGINT, SigHandler::SigDfl)?;
            dispose(Signal::SIGHUP, SigHandler::SigDfl)
        });
        command
    }

    fn start(ranks: u32, script: &str) -> Self {
        Self::spawn(&mut Self::command(ranks, script))
    }

    fn spawn(command: &mut Command) -> Self {
        let (mut supervisor, stdout) = Self::spawn_unread(command);
        supervisor.stdout = lines(stdout);
        supervisor
    }

    /// Spawns it with a stdout that nobody reads beyond the beginning.
    fn spawn_unread(command: &mut Command) -> (Self, ChildStdout) {
        let mut process = command.spawn().unwrap();
        let mut stdout = process.stdout.take().unwrap();
        let stderr = lines(process.stderr.take().unwrap());
        let mut seen = Vec::new();
        while !seen.ends_with(format!("\n{BEGIN}\n").as_bytes()) {
            let mut byte = [0];
            stdout.read_exact(&mut byte).unwrap();
            seen.extend(byte);
        }
        let unread = mpsc::channel().1;
        let supervisor = Self { process, stdout: unread, stderr };
        (supervisor, stdout)
    }

    fn stdout_line(&self) -> String {
        self.stdout.recv_timeout(DEADLINE).expect("one more line on stdout")
    }

    fn stderr_line(&self) -> String {
        self.stderr.recv_timeout(DEADLINE).expect("one more line on stderr")
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id() as i32), signal).unwrap();
    }

    fn say(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Its exit code, and the sorted lines of stdout and stderr that have not been looked at.
    fn finish(mut self) -> (i32, Vec<String>, Vec<String>) {
        let sorted = |lines: &Receiver<String>| {
            let mut sorted = Vec::new();
            loop {
                match lines.recv_timeout(DEADLINE) {
                    Ok(line) => sorted.push(line),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        panic!("the supervisor ends; so far it said {sorted:?}")
                    }
                }
            }
            sorted.sort();
            sorted
        };
        let (stdout, stderr) = (sorted(&self.stdout), sorted(&self.stderr));
        (self.code(), stdout, stderr)
    }

    fn code(&mut self) -> i32 {
        let mut status = None;
        wait_until("the supervisor ends", || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code()).expect("the supervisor exits and is not killed")
    }
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn before_exec(command: &mut Command, what: impl Fn() -> nix::Result<()> + Send + Sync + 'static) {
    // SAFETY: all that the tests do here is one or two system calls.
    unsafe { command.pre_exec(move || Ok(what()?)) };
}

fn dispose(number: Signal, handler: SigHandler) -> nix::Result<()> {
    // SAFETY: no handler is a function of ours.
    unsafe { signal(number, handler) }.map(drop)
}

/// Whether the process is gone. A zombie is: whoever has inherited it reaps it some time.
fn is_gone(pid: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid).join("status"));
    status.is_ok_and(|status| status.contains("State:\tZ")) || !Path::new("/proc").join(pid).exists()
}

#[test]
fn every_rank_finds_its_place_in_the_job() {
    let script = r#"
        count=$(grep -c "$EVERFOLD_SECRET" /proc/$$/cmdline)
        echo $EVERFOLD_RANK/$EVERFOLD_SIZE $EVERFOLD_INCARNATION $EVERFOLD_TRANSPORT ${#EVERFOLD_SECRET} $count
        echo $EVERFOLD_RENDEZVOUS unix:@everfold-$EVERFOLD_JOB $EVERFOLD_SECRET_FILE $EVERFOLD_TERMINAL >&2
    "#;
    let mut command = Supervisor::command(3, script);
    command.env("EVERFOLD_SECRET_FILE", "/of/another/job").env("EVERFOLD_TERMINAL", "12345");
    let (code, stdout, stderr) = Supervisor::spawn(&mut command).finish();
    assert_eq!(code, 0, "{stderr:?}");
    assert_eq!(stdout, ["[0] 0/3 0 auto 64 0", "[1] 1/3 0 auto 64 0", "[2] 2/3 0 auto 64 0"]);
    let job = stderr[0].split_whitespace().next_back().unwrap();
    assert_eq!(job.len(), "unix:@everfold-".len() + 16);
    assert_eq!(stderr, [format!("[0] {job} {job}"), format!("[1] {job} {job}"), format!("[2] {job} {job}")]);
}

#[test]
fn a_progress_display_reaches_a_terminal_and_the_next_line_erases_it() {
    let script = r#"
        test "$EVERFOLD_TERMINAL" = "$(stat -Lc %i /proc/$$/fd/2)" || exit 1
        printf '50 %%\r' >&2
        kill -KILL $$
    "#;
    let OpenptyResult { master, slave } = openpty(None, None).unwrap();
    let mut command = Supervisor::command(1, script);
    command.env("TERM", "xterm").env("NO_COLOR", "1").stdout(Stdio::null()).stderr(slave);
    let mut process = command.spawn().unwrap();
    // Our end of what it writes to: a terminal that nobody has open any more ends in an error.
    drop(command);
    let mut seen = Vec::new();
    let _ = File::from(master).read_to_end(&mut seen);
    let notice = "everfold: rank 0 was killed by SIGKILL\r\n";
    assert_eq!(String::from_utf8(seen).unwrap(), format!("\x1b[K[0] 50 %\r\x1b[K{notice}"));
    assert_eq!(process.wait().unwrap().code(), Some(137));
}

#[test]
fn the_port_of_the_rendezvous_is_kept_for_rank_0() {
    let mut command =
        Supervisor::command(1, "echo $EVERFOLD_TRANSPORT $EVERFOLD_RENDEZVOUS; exec sleep 1000");
    let supervisor = Supervisor::spawn(command.env("EVERFOLD_TEST_TCP", "1").env("EVERFOLD_TEST_BARE", "1"));
    let line = supervisor.stdout_line();
    let address: std::net::SocketAddr = line.strip_prefix("tcp tcp:").expect(&line).parse().unwrap();
    assert!(TcpListener::bind(address).is_err(), "nobody else gets it");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseport(true).unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(8).unwrap();
        let (accepted, connected) = tokio::join!(listener.accept(), tokio::net::TcpStream::connect(address));
        assert!(accepted.is_ok() && connected.is_ok());
    });
    supervisor.signal(Signal::SIGTERM);
    assert_eq!(supervisor.finish().0, 143);
}

#[test]
fn the_first_failure_gives_the_code_and_nobody_is_killed_for_it() {
    let script = "case $EVERFOLD_RANK in 0) read line; echo $line; exit 9;; 2) exit 7;; esac";
    let mut supervisor = Supervisor::start(4, script);
    assert_eq!(supervisor.stderr_line(), "everfold: rank 2 exited with code 7");
    supervisor.say("still here");
    let rest = (7, vec!["[0] still here".to_owned()], vec!["everfold: rank 0 exited with code 9".to_owned()]);
    assert_eq!(supervisor.finish(), rest);
}

#[test]
fn a_killed_rank_counts_as_128_and_the_signal() {
    let (code, _, stderr) = Supervisor::start(3, "[ $EVERFOLD_RANK != 1 ] || kill -KILL $$").finish();
    assert_eq!((code, stderr), (137, vec!["everfold: rank 1 was killed by SIGKILL".to_owned()]));

    let mut quiet = Supervisor::command(1, "kill -34 $$");
    assert_eq!(Supervisor::spawn(quiet.env("EVERFOLD_TEST_QUIET", "1")).finish(), (162, vec![], vec![]));
}

#[test]
fn a_job_that_survives_deaths_ends_as_the_others_do() {
    let ended = |script: &str| {
        let mut command = Supervisor::command(4, script);
        let (code, _, stderr) = Supervisor::spawn(command.env("EVERFOLD_TEST_SURVIVE", "1")).finish();
        (code, stderr)
    };
    let killed = |rank: u32| format!("everfold: rank {rank} was killed by SIGKILL");
    let two_die = "case $EVERFOLD_RANK in 1|3) kill -KILL $$;; esac";
    assert_eq!(ended(two_die), (0, vec![killed(1), killed(3)]), "they are named all the same");
    assert_eq!(ended("[ $EVERFOLD_RANK != 0 ] || kill -KILL $$"), (0, vec![killed(0)]), "rank 0 is no other");
    let (code, mut named) = ended("kill -KILL $$");
    named.sort();
    assert_eq!((code, named), (137, [0, 1, 2, 3].map(killed).to_vec()), "nobody survives");
    let one_fails = "case $EVERFOLD_RANK in 1) kill -KILL $$;; 2) exit 7;; esac";
    let failed = "everfold: rank 2 exited with code 7".to_owned();
    assert_eq!(ended(one_fails), (7, vec![killed(1), failed]), "who says that it has failed is heard");
    assert_eq!(
        ended("[ $EVERFOLD_RANK != 1 ] || exit 137"),
        (137, vec!["everfold: rank 1 exited with code 137".to_owned()])
    );
}

#[test]
fn a_failure_is_seen_though_children_are_ignored() {
    let mut command = Supervisor::command(2, "exit 7");
    before_exec(&mut command, || dispose(Signal::SIGCHLD, SigHandler::SigIgn));
    assert_eq!(Supervisor::spawn(&mut command).finish().0, 7);
}

#[test]
fn lines_of_different_ranks_do_not_mix() {
    let script = r#"
        number=0
        while [ $number -lt 300 ]; do
            printf "$EVERFOLD_RANK line "
            printf "$number of $EVERFOLD_RANK\n"
            number=$((number + 1))
        done
        printf "$EVERFOLD_RANK has no end"
        echo "$EVERFOLD_RANK warns" >&2
    "#;
    let supervisor = Supervisor::start(4, script);
    let mut next = [0; 4];
    for _ in 0..4 * 301 {
        let line = supervisor.stdout_line();
        let rank = line[1..2].parse::<usize>().unwrap();
        match next[rank] {
            300 => assert_eq!(line, format!("[{rank}] {rank} has no end")),
            number => assert_eq!(line, format!("[{rank}] {rank} line {number} of {rank}")),
        }
        next[rank] += 1;
    }
    let warnings = (0..4).map(|rank| format!("[{rank}] {rank} warns")).collect();
    assert_eq!(supervisor.finish(), (0, vec![], warnings));
}

#[test]
fn a_killed_supervisor_leaves_no_process() {
    let mut supervisor = Supervisor::start(8, "trap '' TERM INT HUP; echo $$; exec sleep 1000");
    let pids: Vec<_> = (0..8).map(|_| supervisor.stdout_line()[4..].to_owned()).collect();
    assert!(pids.iter().all(|pid| !is_gone(pid)));
    supervisor.signal(Signal::SIGKILL);
    assert_eq!(supervisor.process.wait().unwrap().signal(), Some(9));
    wait_until("all ranks die", || pids.iter().all(|pid| is_gone(pid)));
}

#[test]
fn signals_are_passed_on_as_a_request_to_end() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
        let supervisor = Supervisor::start(2, script);
        assert!((0..2).all(|_| supervisor.stdout_line().ends_with("ready")));
        supervisor.signal(signal);
        let notice = format!("everfold: {signal}: the processes are asked to end");
        let asked = vec!["[0] asked".to_owned(), "[1] asked".to_owned()];
        assert_eq!(supervisor.finish(), (128 + signal as i32, asked, vec![notice]));
    }
}

#[test]
fn an_interrupt_from_the_terminal_is_no_failure_of_a_rank() {
    for _ in 0..5 {
        let mut command = Supervisor::command(4, "echo ready; exec sleep 1000");
        let supervisor = Supervisor::spawn(command.process_group(0));
        assert!((0..4).all(|_| supervisor.stdout_line().ends_with("ready")));
        killpg(Pid::from_raw(supervisor.process.id() as i32), Signal::SIGINT).unwrap();
        let notice = "everfold: SIGINT: the processes are asked to end".to_owned();
        assert_eq!(supervisor.finish(), (130, vec![], vec![notice]));
    }
}

#[test]
fn who_does_not_end_is_killed() {
    let script = "trap '' TERM; echo ready; exec sleep 1000";
    let supervisor = Supervisor::start(1, script);
    supervisor.stdout_line();
    supervisor.signal(Signal::SIGTERM);
    assert_eq!(supervisor.stderr_line(), "everfold: SIGTERM: the processes are asked to end");
    let notice = "everfold: not ended in time: the processes are killed".to_owned();
    assert_eq!(supervisor.finish(), (143, vec![], vec![notice]));

    let supervisor = Supervisor::start(1, script);
    supervisor.stdout_line();
    supervisor.signal(Signal::SIGINT);
    assert_eq!(supervisor.stderr_line(), "everfold: SIGINT: the processes are asked to end");
    supervisor.signal(Signal::SIGINT);
    let notice = "everfold: SIGINT again: the processes are killed".to_owned();
    assert_eq!(supervisor.finish(), (130, vec![], vec![notice]));
}

#[test]
fn an_ignored_hangup_stays_ignored() {
    let mut command = Supervisor::command(1, "echo ready; read line; echo $line");
    before_exec(&mut command, || dispose(Signal::SIGHUP, SigHandler::SigIgn));
    let mut supervisor = Supervisor::spawn(&mut command);
    supervisor.stdout_line();
    supervisor.signal(Signal::SIGHUP);
    supervisor.say("alive");
    assert_eq!(supervisor.finish(), (0, vec!["[0] alive".to_owned()], vec![]));
}

#[test]
fn nobody_has_to_read_the_output() {
    let script = "yes | head -c 1000000; exit 5";
    let (supervisor, stdout) = Supervisor::spawn_unread(&mut Supervisor::command(2, script));
    drop(stdout);
    assert_eq!(supervisor.finish().0, 5);

    let script = "trap '' TERM; echo ready >&2; exec yes";
    let (supervisor, _stdout) = Supervisor::spawn_unread(&mut Supervisor::command(1, script));
    supervisor.stderr_line();
    supervisor.signal(Signal::SIGINT);
    while !supervisor.stderr_line().ends_with("asked to end") {}
    supervisor.signal(Signal::SIGINT);
    assert_eq!(supervisor.finish().0, 130);
}

#[test]
fn nothing_is_lost_at_the_end() {
    // It fits into the rank's own pipe, so that the rank can end; with prefixes it is more than our stdout
    // takes unread.
    let script = "yes | head -c 60000; exit 3";
    let (supervisor, mut stdout) = Supervisor::spawn_unread(&mut Supervisor::command(1, script));
    assert_eq!(supervisor.stderr_line(), "everfold: rank 0 exited with code 3");
    let mut output = String::new();
    stdout.read_to_string(&mut output).unwrap();
    assert_eq!(output, "[0] y\n".repeat(30_000));
    assert_eq!(supervisor.finish().0, 3);
}

#[test]
fn processes_that_ranks_leave_behind_are_not_waited_for() {
    let (code, stdout, _) = Supervisor::start(1, "sleep 1000 & echo $!").finish();
    kill(Pid::from_raw(stdout[0][4..].parse().unwrap()), Signal::SIGKILL).unwrap();
    assert_eq!(code, 0);
}

#[test]
fn many_ranks_need_no_setting() {
    let mut command = Supervisor::command(100, "exit 0");
    before_exec(&mut command, || setrlimit(Resource::RLIMIT_NOFILE, 64, 1024));
    assert_eq!(Supervisor::spawn(&mut command).finish(), (0, vec![], vec![]));
}

#[test]
fn if_one_rank_cannot_be_started_none_runs() {
    let mut command = Supervisor::command(100, "exec sleep 1000");
    before_exec(&mut command, || setrlimit(Resource::RLIMIT_NOFILE, 64, 64));
    let (code, _, stderr) = Supervisor::spawn(&mut command).finish();
    assert_eq!(
        (code, stderr),
        (127, vec!["cannot start /bin/sh: Too many open files (os error 24)".to_owned()])
    );
}

#[test]
fn what_cannot_run_is_refused() {
    let error = Local::new(2, "/there/is/no/such/program").run().unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot start /there/is/no/such/program: No such file or directory (os error 2)"
    );
    assert_eq!(error.exit_code(), 127);

    for ranks in [0, 4097] {
        let error = Local::new(ranks, "/bin/sh").run().unwrap_err();
        assert_eq!(error.to_string(), format!("{ranks} processes were asked for; it has to be 1 to 4096"));
    }

    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(async { Local::new(1, "/bin/sh").run().unwrap_err() });
    assert!(matches!(error, LocalError::InsideRuntime));
}
