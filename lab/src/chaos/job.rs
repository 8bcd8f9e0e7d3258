//! The processes of one trial.
//!
//! - They are children of the main thread and die with it, also while they are stopped.
//! - A process that has ended remains a zombie until the job is dropped, so no signal can hit a stranger that
//!   got its number.
//! - Each leads a process group. What else is in that group is killed with the job.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread::{self, JoinHandle},
};

use everfold::launch::{Transport, agent};
use nix::{
    sys::{
        signal::{Signal, kill, killpg},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

use super::{gate::Gate, said::Said, schedule::Layout};
use crate::{
    Failure,
    children::{die_with_us, hurry},
    cluster::{Cluster, Host},
    meeting::Meeting,
};

/// What a job runs, and where.
#[derive(Debug)]
pub struct JobSpec {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Whether it is the built-in one, which says on its stdout how it gets on.
    pub speaks: bool,
    /// How the processes read each other's memory.
    pub transport: Transport,
    /// Which rank runs on which host.
    pub layout: Layout,
    /// The hosts, if they are not this machine.
    pub cluster: Option<Cluster>,
    /// From when faults count.
    pub begin: Begin,
}

/// The moment from which faults count in the built-in program. In another one it is the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The first rank is about to call its reduction.
    FirstCall,
    /// This rank has called it.
    CallOf(u32),
}

impl Begin {
    /// When that is, if it is what `rank` has just `said`.
    fn told_by(self, rank: u32, said: &Said) -> Option<u64> {
        match (self, said) {
            (Self::FirstCall, Said::Go { at_ns }) => Some(*at_ns),
            (Self::CallOf(meant), Said::Called { at_ns }) if meant == rank => Some(*at_ns),
            _ => None,
        }
    }
}

/// What happens to a job, or to us.
#[derive(Debug)]
pub enum Event {
    /// A rank of the built-in program has said something.
    Said(u32, Said),
    /// A process has ended.
    Ended(u32),
    /// We are asked to end.
    Signal(Signal),
}

/// The processes of a job. They are killed when it is dropped.
#[derive(Debug)]
pub struct Job {
    processes: Vec<Process>,
    agents: Vec<Agent>,
}

/// The agent of a host. It is killed when this is dropped.
#[derive(Debug)]
pub struct Agent(Child);

impl Agent {
    /// Starts the agent of `host`, and waits until ranks can hail it.
    fn start(meeting: &Meeting, spec: &JobSpec, host: Host, log: File) -> io::Result<Self> {
        let mut command = agent::command(&meeting.agent(host));
        meeting.join(0, &mut command);
        command.stderr(log);
        if let Some(cluster) = &spec.cluster {
            cluster.enter(host, &mut command);
        }
        die_with_us(&mut command);
        let mut agent = Self(command.spawn()?);
        agent::wait_until_ready(&mut agent.0)?;
        Ok(agent)
    }

    /// Kills it, as a host takes it along that fails.
    pub fn kill(&self) -> io::Result<()> {
        Ok(kill(Pid::from_raw(self.0.id() as i32), Signal::SIGKILL)?)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One process, which leads a process group. What it prints is in a file.
#[derive(Debug)]
pub struct Process {
    child: Child,
    has_ended: Arc<AtomicBool>,
    /// Nothing once the process was waited for.
    attendant: Option<JoinHandle<()>>,
}

/// The folders of a job.
#[derive(Debug)]
pub struct Folders<'a> {
    /// What each rank prints, see [`output`](Self::output).
    pub output: &'a Path,
    /// What the job stores.
    pub storage: &'a Path,
}

impl Folders<'_> {
    /// Where that is which `rank` has printed.
    pub fn output(&self, rank: u32) -> PathBuf {
        self.output.join(format!("rank-{rank}"))
    }
}

impl Job {
    /// Starts all processes. To be called from the main thread.
    ///
    /// `gate` opens as soon as a process says what the job [begins](JobSpec::begin) with.
    pub fn start(
        spec: &JobSpec,
        folders: &Folders,
        gate: &Arc<Gate>,
        events: &Sender<Event>,
    ) -> Result<Self, Failure> {
        let meeting = Meeting::new(spec.layout.ranks, spec.transport, spec.cluster.as_ref())?;
        let mut job = Self { processes: Vec::new(), agents: Vec::new() };
        for host in (0..spec.layout.hosts).map(Host) {
            let log = File::options().create(true).append(true).open(folders.output(0))?;
            job.agents.push(Agent::start(&meeting, spec, host, log)?);
        }
        for rank in 0..spec.layout.ranks {
            let log = File::options().create(true).append(true).open(folders.output(rank))?;
            let mut command = Command::new(&spec.program);
            command
                .args(&spec.arguments)
                .env("EVERFOLD_DIR", folders.storage)
                .stdin(Stdio::null())
                .stdout(if spec.speaks { Stdio::piped() } else { log.try_clone()?.into() })
                .stderr(log.try_clone()?)
                .process_group(0);
            meeting.join(rank, &mut command);
            command.env("EVERFOLD_AGENT", meeting.agent(spec.layout.host(rank)));
            if let Some(domain) = spec.layout.domain(spec.layout.host(rank)) {
                command.env("EVERFOLD_DOMAIN", format!("domain {domain}"));
            }
            if let Some(cluster) = &spec.cluster {
                cluster.enter(spec.layout.host(rank), &mut command);
            }
            die_with_us(&mut command);
            let child = command.spawn().map_err(|error| Failure {
                message: format!("cannot start {}: {error}", spec.program.display()),
                exit_code: 127,
            })?;
            let (begin, to) = ((spec.begin, gate.clone()), events.clone());
            let listen = move |stdout| listen(rank, stdout, log, &begin, &to);
            job.processes.push(Process::attend(rank, child, listen, events.clone())?);
        }
        Ok(job)
    }

    /// The agents, by host.
    pub fn agents(&self) -> &[Agent] {
        &self.agents
    }

    /// The processes, by rank.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Kills what still runs and tells how each process has ended; nothing if it had to be killed now.
    pub fn end(mut self) -> io::Result<Vec<Option<ExitStatus>>> {
        let ended: Vec<bool> = self.processes.iter().map(Process::has_ended).collect();
        self.kill();
        let mut statuses = Vec::new();
        for (process, had_ended) in self.processes.iter_mut().zip(ended) {
            let status = process.finish()?;
            statuses.push(had_ended.then_some(status));
        }
        Ok(statuses)
    }

    fn kill(&self) {
        self.processes.iter().for_each(Process::kill_group);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.kill();
        for process in &mut self.processes {
            let _ = process.finish();
        }
    }
}

impl Process {
    /// Attends to a process that leads its group until it has ended: has its stdout listened to, if that is a pipe, and
    /// tells its end, with that number.
    pub fn attend(
        number: u32,
        mut child: Child,
        listen: impl FnOnce(ChildStdout) + Send + 'static,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let (pid, stdout) = (Pid::from_raw(child.id() as i32), child.stdout.take());
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = has_ended.clone();
        let attend = move || {
            hurry();
            if let Some(stdout) = stdout {
                listen(stdout);
            }
            // It stays a zombie.
            let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            ended.store(true, Ordering::SeqCst);
            let _ = events.send(Event::Ended(number));
        };
        let attendant = thread::Builder::new().name(format!("process {number}")).spawn(attend);
        let attendant = attendant.inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        Ok(Self { child, has_ended, attendant: Some(attendant) })
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Kills all that is in its group, unless it was waited for.
    pub fn kill_group(&self) {
        if self.attendant.is_some() {
            // It leads its group, and neither number is given away before the process is waited for.
            let _ = killpg(self.pid(), Signal::SIGKILL);
        }
    }

    /// Waits until it has ended, and says how.
    pub fn finish(&mut self) -> io::Result<ExitStatus> {
        if let Some(attendant) = self.attendant.take() {
            let _ = attendant.join();
        }
        self.child.wait()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Sends a signal. Without effect if it has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill(self.pid(), signal)?)
    }
}

/// Passes on what a rank says. What is meant for people goes into its log.
fn listen(
    rank: u32,
    stdout: ChildStdout,
    mut log: File,
    (begin, gate): &(Begin, Arc<Gate>),
    events: &Sender<Event>,
) {
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        match serde_json::from_slice::<Said>(&line) {
            Ok(said) => {
                if let Some(at_ns) = begin.told_by(rank, &said) {
                    gate.open(at_ns);
                }
                let _ = events.send(Event::Said(rank, said));
            }
            Err(_) => drop(log.write_all(&[&line[..], b"\n"].concat())),
        }
    }
}
