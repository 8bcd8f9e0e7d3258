//! One run: `everfold run` on each host, the faults of its schedule, and what came of it.
//!
//! - What is started dies with this process. A host is a process group that `everfold run` leads, and is lost as a
//!   whole.
//! - A process of a rank is killed only while it is a child of the `everfold run` that has started it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use everfold::{
    Rank,
    launch::{JobEvent, Secret, Transport, hosts::HostCount},
    recovery::RecoveryFile,
};
use nix::unistd::Pid;
use serde::Serialize;

use super::{
    course::Course,
    rates::{Fault, What},
};
use crate::{
    EventLine, Failure,
    chaos::{
        job::{Event, Process},
        schedule::Layout,
    },
    children::{die_with_us, kill_child_of},
    cluster::{Cluster, Host},
};

/// Where the hosts meet, on host 0.
const PORT: u16 = 7077;
/// How often to look whether all ranks have joined.
const BEGIN_POLL: Duration = Duration::from_millis(5);
/// Variables of a job around this one, which are not meant.
const FOREIGN: [&str; 8] = [
    "EVERFOLD_HOSTS",
    "EVERFOLD_HOST_INDEX",
    "EVERFOLD_RENDEZVOUS",
    "EVERFOLD_RECOVERY",
    "EVERFOLD_CHECKPOINTS",
    "EVERFOLD_RESUME",
    "EVERFOLD_RECORD",
    "EVERFOLD_SECRET_FILE",
];

/// What each run runs, and where.
#[derive(Debug)]
pub struct Stage {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Processes, on each host that has some.
    pub ranks: u32,
    /// The hosts with ranks, and the spare ones; nothing if the job runs on this machine.
    pub hosts: Option<HostCount>,
    /// The same hosts.
    pub cluster: Option<Cluster>,
    /// Which of them is in which domain.
    pub layout: Layout,
    /// How the processes read each other's memory.
    pub transport: Transport,
    /// A run that takes longer is killed.
    pub time_limit: Duration,
    /// For the files of a run.
    pub scratch: PathBuf,
    /// What happens.
    pub events: Receiver<Event>,
    /// For those who see it happen.
    pub sender: Sender<Event>,
}

/// How a run has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All that was not killed ended with 0.
    Well,
    /// A host ended with another exit code.
    Failed {
        /// Which code, and the last that it has said.
        why: String,
    },
    /// It took too long, and was killed.
    TimeLimit,
}

/// A fault, and what has become of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Injected {
    /// The fault.
    pub fault: Fault,
    /// The rank that it has hit, or whose process was killed; nothing if nobody was there, or the run was over.
    pub hit: Option<String>,
}

/// What was seen of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    /// How it has ended.
    pub end: End,
    /// From its start to its end, in seconds.
    pub time_s: f64,
    /// From its start until all ranks had joined, from when on faults count.
    pub begun_s: Option<f64>,
    /// The faults until then.
    pub faults: Vec<Injected>,
    /// How it has met them.
    pub course: Course,
    /// What its ranks have printed, as lines that are there once.
    #[serde(skip)]
    pub lines: BTreeSet<String>,
    /// All that its hosts have said, if it is to be looked into.
    #[serde(skip)]
    pub output: Option<String>,
}

/// The hosts of a run. They are killed when it is dropped.
struct Running<'a> {
    stage: &'a Stage,
    folder: &'a Path,
    hosts: Vec<Process>,
    lost: BTreeSet<Host>,
}

impl Stage {
    /// Runs the program once under that recovery file. To be called from the main thread.
    ///
    /// # Errors
    /// It cannot be started, or this process is asked to end.
    pub fn run(&self, recovery: &Path, faults: &[Fault]) -> Result<Seen, Failure> {
        let folder = tempfile::tempdir_in(&self.scratch)?;
        let began_unix_ms = unix_ms();
        let began = Instant::now();
        let mut running = Running::start(self, folder.path(), recovery)?;
        let mut injected = Vec::new();
        let limit = began + self.time_limit;
        let (mut coming, mut begun) = (faults.iter().peekable(), None);
        let in_time = loop {
            if running.have_all_ended() {
                break true;
            }
            if begun.is_none() && running.has_begun() {
                begun = Some(Instant::now());
            }
            let now = Instant::now();
            let next = match begun {
                None => Some(now + BEGIN_POLL),
                Some(begun) => coming.peek().map(|fault| begun + Duration::from_secs_f64(fault.at_s)),
            };
            let until = next.map_or(limit, |next| next.min(limit));
            match self.events.recv_timeout(until.saturating_duration_since(now)) {
                Ok(Event::Signal(signal)) => return Err(Failure::interrupted(signal)),
                Ok(Event::Ended(_) | Event::Said(..)) => {}
                Err(RecvTimeoutError::Timeout) if limit <= Instant::now() => break false,
                Err(RecvTimeoutError::Timeout) if begun.is_some() => {
                    if let Some(fault) = coming.next_if(|_| next.is_some_and(|next| next <= Instant::now())) {
                        injected.push(Injected { fault: *fault, hit: running.inject(fault.what)? });
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break false,
            }
        };
        let time_s = began.elapsed().as_secs_f64();
        let end = running.end(in_time)?;
        let course = Course::of(running.events(), self.all_ranks(), began_unix_ms);
        let lines = running.lines()?;
        let output = (end != End::Well).then(|| running.output());
        let begun_s = begun.map(|begun| (begun - began).as_secs_f64());
        Ok(Seen { end, time_s, begun_s, faults: injected, course, lines, output })
    }

    fn all_ranks(&self) -> u32 {
        self.hosts.map_or(1, |hosts| hosts.count) * self.ranks
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

impl<'a> Running<'a> {
    fn start(stage: &'a Stage, folder: &'a Path, recovery: &Path) -> Result<Self, Failure> {
        let mut running = Self { stage, folder, hosts: Vec::new(), lost: BTreeSet::new() };
        let (job, secret) = (format!("{:016x}", getrandom::u64()?), Secret::generate()?.to_hex());
        let checkpoints =
            RecoveryFile::read(recovery)?.checkpoint_directory().map(|_| folder.join("checkpoints"));
        for host in (0..stage.layout.hosts).map(Host) {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["run", "--no-prefix", "--survive-deaths"]);
            command.arg("-n").arg(stage.ranks.to_string());
            command.arg("--recovery").arg(recovery).arg("--events").arg(running.events_of(host));
            command
                .args(checkpoints.iter().flat_map(|folder| ["--checkpoints".as_ref(), folder.as_os_str()]));
            if let (Some(HostCount { count, spares }), Some(cluster)) = (stage.hosts, &stage.cluster) {
                command.arg("--hosts").arg(format!("{count}:{}", count + spares));
                command.arg("--host-index").arg(host.to_string());
                command.arg("--rendezvous").arg(format!("{}:{PORT}", cluster.address(Host(0))));
                cluster.enter(host, &mut command);
            }
            command.arg("--transport").arg(stage.transport.to_string()).arg("--").args(&stage.program);
            for variable in FOREIGN {
                command.env_remove(variable);
            }
            command.env("EVERFOLD_JOB", &job).env("EVERFOLD_SECRET", &secret);
            if let Some(domain) = stage.layout.domain(host) {
                command.env("EVERFOLD_DOMAIN", format!("domain {domain}"));
            }
            command.env("EVERFOLD_DIR", folder.join("storage"));
            command.stdin(Stdio::null());
            command
                .stdout(File::create(running.stdout_of(host))?)
                .stderr(File::create(running.stderr_of(host))?);
            command.process_group(0);
            die_with_us(&mut command);
            let attended = Process::attend(host.0, command.spawn()?, drop, stage.sender.clone())?;
            running.hosts.push(attended);
        }
        Ok(running)
    }

    fn events_of(&self, host: Host) -> PathBuf {
        self.folder.join(format!("events-{host}"))
    }

    fn stdout_of(&self, host: Host) -> PathBuf {
        self.folder.join(format!("stdout-{host}"))
    }

    fn stderr_of(&self, host: Host) -> PathBuf {
        self.folder.join(format!("stderr-{host}"))
    }

    /// Whether all ranks have joined.
    fn has_begun(&self) -> bool {
        self.events_on(Host(0)).iter().any(|line| line.event == JobEvent::Begun)
    }

    fn have_all_ended(&self) -> bool {
        self.hosts.iter().all(Process::has_ended)
    }

    /// Makes that happen now. Says what it has hit.
    fn inject(&mut self, what: What) -> io::Result<Option<String>> {
        match what {
            What::Process { host, choice } => self.kill_one(host, choice),
            What::Host(host) => Ok(self.lose(&[host])),
            What::Domain(domain) => Ok(self.lose(&self.stage.layout.hosts_in(domain).collect::<Vec<_>>())),
        }
    }

    /// Kills one of the processes that run on a host.
    fn kill_one(&self, host: Host, choice: u64) -> io::Result<Option<String>> {
        let mut latest = BTreeMap::<Rank, u32>::new();
        for EventLine { event, .. } in self.events_on(host) {
            if let JobEvent::Started { process, pid, .. } = event {
                latest.insert(process.rank, pid);
            }
        }
        let parent = self.hosts[host.0 as usize].pid();
        let mut there: Vec<(Rank, u32)> = latest.into_iter().collect();
        // The next one, if the chosen one has ended or has gone on elsewhere.
        if !there.is_empty() {
            let first = (choice % there.len() as u64) as usize;
            there.rotate_left(first);
        }
        for (rank, pid) in there {
            if kill_child_of(parent, Pid::from_raw(pid as i32))? {
                return Ok(Some(format!("rank {rank}")));
            }
        }
        Ok(None)
    }

    /// Kills all that runs on these hosts.
    fn lose(&mut self, hosts: &[Host]) -> Option<String> {
        let living: Vec<Host> =
            hosts.iter().copied().filter(|host| !self.hosts[host.0 as usize].has_ended()).collect();
        living.iter().for_each(|host| self.hosts[host.0 as usize].kill_group());
        self.lost.extend(&living);
        let named: Vec<String> = living.iter().map(ToString::to_string).collect();
        (!named.is_empty()).then(|| format!("host {}", named.join(", ")))
    }

    /// Kills what still runs, and says how those hosts have ended that were not lost.
    fn end(&mut self, in_time: bool) -> io::Result<End> {
        self.hosts.iter().for_each(Process::kill_group);
        let mut end = if in_time { End::Well } else { End::TimeLimit };
        for (host, process) in (0..).map(Host).zip(&mut self.hosts) {
            let status = process.finish()?;
            if end == End::Well && !status.success() && !self.lost.contains(&host) {
                let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
                let said = fs::read(self.folder.join(format!("stderr-{host}"))).unwrap_or_default();
                let said = String::from_utf8_lossy(&said).trim_end().to_owned();
                let last: Vec<&str> = said.lines().rev().take(3).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                end = End::Failed { why: format!("host {host} ended with {code}: {}", last.join("; ")) };
            }
        }
        Ok(end)
    }

    fn events_on(&self, host: Host) -> Vec<EventLine> {
        EventLine::read_all(&fs::read_to_string(self.events_of(host)).unwrap_or_default())
    }

    fn events(&self) -> Vec<(Host, EventLine)> {
        let hosts = (0..self.hosts.len() as u32).map(Host);
        hosts.flat_map(|host| self.events_on(host).into_iter().map(move |line| (host, line))).collect()
    }

    fn output(&self) -> String {
        let mut output = String::new();
        for host in (0..self.hosts.len() as u32).map(Host) {
            let files = [
                ("events", self.events_of(host)),
                ("stderr", self.stderr_of(host)),
                ("stdout", self.stdout_of(host)),
            ];
            for (name, path) in files {
                let text = fs::read(path).unwrap_or_default();
                output += &format!("== host {host}, {name}\n{}", String::from_utf8_lossy(&text));
            }
        }
        output
    }

    fn lines(&self) -> io::Result<BTreeSet<String>> {
        let mut lines = BTreeSet::new();
        for host in (0..self.hosts.len() as u32).map(Host) {
            let text = fs::read(self.stdout_of(host))?;
            lines.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
        }
        Ok(lines)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.hosts.iter().for_each(Process::kill_group);
        for process in &mut self.hosts {
            let _ = process.finish();
        }
    }
}
