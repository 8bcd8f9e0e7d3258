//! Ranks that any launcher could have started: all they need is in their environment.

use std::{
    net::SocketAddr,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddress, UnixStream},
    },
    process::{Command, ExitCode},
    time::Duration,
};

use everfold::{Config, Launch, Session, Sum, launch::environment::detect};
use everfold_protocol::{
    Epoch, JobId, ProcessId,
    message::{Header, Peer, ToMaster, ToWorker},
};
use everfold_runtime::transport::{
    control::{self, Address, BoxStream},
    handshake::{self, Key, Purpose, Seals},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    process::{Mark, Process, job, wait_until},
    strangers::Target,
    suite::Suite,
};

pub(crate) fn add_to(suite: &mut Suite) {
    suite.program("environment::sums", sums);
    // A rank may be late by less than that, but none is in these tests.
    let config = Config::default().join_timeout(Duration::from_secs(1));
    suite.program_with(config, "environment::impatient", sums);
    for kibibytes in ["0", "100", "100000"] {
        suite.test(format!("environment::files_of_at_most_{kibibytes}_kib"), || short_files(kibibytes));
    }
    suite.program("environment::childless", childless);
    suite.test("environment::the_agent_is_no_rank's_child", || {
        let job = Job::new("unix", "environment::childless");
        job.assert_done((0..RANKS).map(|rank| (rank, job.start(rank))).collect());
    });
    suite.test("environment::by_hand::tcp", || by_hand("tcp"));
    suite.test("environment::by_hand::unix", || by_hand("unix"));
    suite.test("environment::the_first_rank_comes_last::tcp", || the_first_rank_comes_last("tcp"));
    suite.test("environment::the_first_rank_comes_last::unix", || the_first_rank_comes_last("unix"));
    suite.test("environment::variables_of_other_launchers", variables_of_other_launchers);
    suite.test("environment::a_file_with_the_secret", a_file_with_the_secret);
    suite.test("environment::a_rank_with_another_secret", a_rank_with_another_secret);
    suite.test("environment::a_rank_of_another_job", a_rank_of_another_job);
    suite.test("environment::one_rank_twice", one_rank_twice);
    suite.test("environment::different_sizes::tcp", || different_sizes("tcp"));
    suite.test("environment::different_sizes::unix", || different_sizes("unix"));
    suite.program("environment::until_told", until_told);
    suite.test("environment::who_was_refused_goes_later", who_was_refused_goes_later);
    suite.test("environment::launch_inside_a_runtime", launch_inside_a_runtime);
    for masked in ["mount -t tmpfs none /proc", "mount --bind /dev/null /proc/sys/kernel/random/boot_id"] {
        suite.test(format!("environment::a_host_that_cannot_be_told::{masked}"), move || {
            a_host_that_cannot_be_told(masked)
        });
    }
    suite.program("environment::nested", nested);
    suite.program("environment::nested_once", nested_once);
    suite.program("environment::two", two);
    suite.test("environment::nested::local", nested_locally);
    suite.test("environment::nested::by_hand", nested_by_hand);
    suite.test("environment::a_rendezvous_in_use::tcp", || a_rendezvous_in_use("tcp"));
    suite.test("environment::a_rendezvous_in_use::unix", || a_rendezvous_in_use("unix"));
    suite.test("environment::strangers_come_first", strangers_come_first);
    suite.test("environment::a_rank_dies_before_the_others_come", a_rank_dies_before_the_others_come);
    for scheme in ["tcp", "unix"] {
        suite.test(format!("environment::a_rank_that_never_comes::{scheme}"), || {
            a_rank_that_never_comes(scheme)
        });
        suite.test(format!("environment::the_first_rank_never_comes::{scheme}"), || {
            the_first_rank_never_comes(scheme)
        });
    }
}

/// A limit on files, as batch systems set it, costs shared memory at most.
fn short_files(kibibytes: &str) {
    let job = job("environment::sums", RANKS, "auto");
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"ulimit -f "$0" && exec "$@""#, kibibytes])
        .arg(job.get_program())
        .args(job.get_args());
    Process::spawn(command).end().assert_done(0..RANKS);
}

/// The value of one of our variables.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(format!("EVERFOLD_{name}")).unwrap()
}

async fn sums(session: Session) -> everfold::Result<()> {
    let ranks = session.size();
    for length in [1, 1000, 300_001] {
        let mine = vec![u64::from(session.rank()) + 1; length];
        let expected = u64::from(ranks * (ranks + 1) / 2);
        let value = session.allreduce("sum", Sum(mine)).await?.value;
        assert!(value == Some(Sum(vec![expected; length])), "the sum of {length} elements");
    }
    Ok(())
}

/// A program that waits for any of its children is not told of the agent that its rank has started.
async fn childless(session: Session) -> everfold::Result<()> {
    sums(session).await?;
    let child = nix::sys::wait::waitpid(None, Some(nix::sys::wait::WaitPidFlag::WNOHANG));
    assert_eq!(child, Err(nix::errno::Errno::ECHILD));
    Ok(())
}

const RANKS: u32 = 3;
const SECRET: [u8; 32] = [0xa5; 32];

/// A job whose ranks are started one by one.
struct Job {
    mark: Mark,
    number: JobId,
    rendezvous: String,
    program: &'static str,
    /// Keeps the port for rank 0, without listening.
    _port: Option<tokio::net::TcpSocket>,
}

impl Job {
    fn new(scheme: &str, program: &'static str) -> Self {
        let mark = Mark::new();
        let number = JobId(crate::values::scramble(u64::from(std::process::id())) ^ mark.number());
        let (rendezvous, port) = match scheme {
            "unix" => (format!("unix:@everfold-test-{:x}", number.0), None),
            _ => {
                let socket = tokio::net::TcpSocket::new_v4().unwrap();
                socket.set_reuseport(true).unwrap();
                socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
                (format!("tcp:{}", socket.local_addr().unwrap()), Some(socket))
            }
        };
        Self { mark, number, rendezvous, program, _port: port }
    }

    /// The command of a rank without its variables for the secret.
    fn command(&self, rank: u32) -> Command {
        let mut command = job(self.program, RANKS, "auto");
        command.envs(self.variables(rank, RANKS));
        command
    }

    fn variables(&self, rank: u32, size: u32) -> [(&'static str, String); 4] {
        [
            ("EVERFOLD_RENDEZVOUS", self.rendezvous.clone()),
            ("EVERFOLD_RANK", rank.to_string()),
            ("EVERFOLD_SIZE", size.to_string()),
            ("EVERFOLD_JOB", format!("{:x}", self.number.0)),
        ]
    }

    fn secret() -> String {
        "a5".repeat(32)
    }

    fn start(&self, rank: u32) -> Process {
        self.spawn(self.command(rank).env("EVERFOLD_SECRET", Self::secret()))
    }

    fn spawn(&self, command: &mut Command) -> Process {
        Process::spawn_marked(command, self.mark.clone())
    }

    fn target(&self) -> Target {
        Target { address: self.address(), job: self.number, key: Key(SECRET) }
    }

    fn address(&self) -> SocketAddr {
        self.rendezvous.strip_prefix("tcp:").unwrap().parse().unwrap()
    }

    /// Waits until rank 0 listens.
    fn wait_for_master(&self) {
        wait_until("rank 0 listens", || match self.rendezvous.strip_prefix("unix:@") {
            Some(name) => UnixStream::connect_addr(&UnixAddress::from_abstract_name(name).unwrap()).is_ok(),
            None => std::net::TcpStream::connect(self.address()).is_ok(),
        });
    }

    /// All of `processes` come to their end, rank by rank, and nothing is left.
    #[track_caller]
    fn assert_done(&self, processes: Vec<(u32, Process)>) {
        for (rank, mut process) in processes {
            process.ended().assert_done([rank]);
        }
        assert_eq!(self.mark.living(), []);
    }

    /// None of `processes` gets into the job, and each says why.
    #[track_caller]
    fn assert_refused(&self, processes: Vec<Process>, why: &str) {
        for mut process in processes {
            let end = process.ended();
            assert_eq!(end.code, 1, "{end:?}");
            assert!(end.said.iter().any(|line| line.contains(why)), "{end:?}");
        }
        assert_eq!(self.mark.living(), []);
    }
}

fn by_hand(scheme: &str) {
    let job = Job::new(scheme, "environment::sums");
    job.assert_done((0..RANKS).map(|rank| (rank, job.start(rank))).collect());
}

/// Ranks may be started in any order: they wait for each other.
fn the_first_rank_comes_last(scheme: &str) {
    let job = Job::new(scheme, "environment::sums");
    let mut processes: Vec<_> = (1..RANKS).map(|rank| (rank, job.start(rank))).collect();
    wait_until("the others and their agent run", || job.mark.living().len() >= 3);
    processes.push((0, job.start(0)));
    job.assert_done(processes);
}

/// What `mpirun` and `srun` set is enough for the place in the job.
fn variables_of_other_launchers() {
    for (rank_variable, size_variable) in [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ] {
        let job = Job::new("tcp", "environment::sums");
        let start = |rank: u32| {
            let mut command = job.command(rank);
            command.env_remove("EVERFOLD_RANK").env_remove("EVERFOLD_SIZE").env_remove("EVERFOLD_JOB");
            command.env(rank_variable, rank.to_string()).env(size_variable, RANKS.to_string());
            (rank, job.spawn(command.env("EVERFOLD_SECRET", Job::secret())))
        };
        job.assert_done((0..RANKS).map(start).collect());
    }
}

fn a_file_with_the_secret() {
    let job = Job::new("tcp", "environment::sums");
    let file = std::env::temp_dir().join(format!("everfold-secret-{}", std::process::id()));
    std::fs::write(&file, Job::secret() + "\n").unwrap();
    let start = |rank| (rank, job.spawn(job.command(rank).env("EVERFOLD_SECRET_FILE", &file)));
    job.assert_done((0..RANKS).map(start).collect());
    std::fs::remove_file(file).unwrap();
}

/// A rank that is refused says why at once, and its place is still free for the right one.
fn refused_and_then_done(variable: &str, wrong: &str) {
    let job = Job::new("tcp", "environment::sums");
    let first = job.start(0);
    job.wait_for_master();
    let end = job.spawn(job.command(1).env("EVERFOLD_SECRET", Job::secret()).env(variable, wrong)).ended();
    assert_eq!(end.code, 1, "{end:?}");
    assert!(end.said.iter().any(|line| line.contains(variable)), "{end:?}");
    job.assert_done(vec![(0, first), (1, job.start(1)), (2, job.start(2))]);
}

fn a_rank_with_another_secret() {
    refused_and_then_done("EVERFOLD_SECRET", &"00".repeat(32));
}

fn a_rank_of_another_job() {
    refused_and_then_done("EVERFOLD_JOB", "1");
}

/// The second process of one rank ends with an error, and the first one's job goes on.
fn one_rank_twice() {
    let job = Job::new("tcp", "environment::sums");
    let first = job.start(0);
    job.wait_for_master();
    let mut twins = [job.start(1), job.start(1)];
    // Which of them came first is open; the job is complete only with rank 2.
    let mut ended = None;
    wait_until("one of the twins ends", || {
        ended = twins.iter_mut().position(Process::has_ended);
        ended.is_some()
    });
    let [mut one, mut other] = twins;
    if ended == Some(1) {
        std::mem::swap(&mut one, &mut other);
    }
    let end = one.ended();
    assert_eq!(end.code, 1, "{end:?}");
    assert!(end.said.iter().any(|line| line.contains("rank")), "it says what is wrong: {end:?}");
    job.assert_done(vec![(0, first), (1, other), (2, job.start(2))]);
}

/// Without a sign of which host it is on, a process says so and goes over TCP.
fn a_host_that_cannot_be_told(mask: &str) {
    let is_allowed = Command::new("unshare").args(["--mount", "sh", "-c", mask]).output();
    if !is_allowed.is_ok_and(|output| output.status.success()) {
        return println!("skipped: mounts cannot be made");
    }
    let job = Job::new("tcp", "environment::sums");
    let script = format!("{mask} && exec \"$@\"");
    let start = |rank: u32| {
        let inner = job.command(rank);
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]).arg(inner.get_program()).args(inner.get_args());
        command
            .envs(job.variables(rank, RANKS))
            .env("EVERFOLD_SECRET", Job::secret())
            .env("RUST_LOG", "warn");
        job.spawn(&mut command)
    };
    // One that can be told is among them.
    let processes = [start(0), start(1), job.start(2)];
    for (rank, mut process) in (0..).zip(processes) {
        let end = process.ended();
        end.assert_done([rank]);
        let says_so = end.said.iter().any(|line| line.contains("no shared memory: all goes over TCP"));
        assert_eq!(says_so, rank < 2, "{end:?}");
    }
    assert_eq!(job.mark.living(), []);
}

/// Who counts otherwise than rank 0 is told both numbers, and the job goes on without it.
fn different_sizes(scheme: &str) {
    let job = Job::new(scheme, "environment::sums");
    let first = job.start(0);
    job.wait_for_master();
    // Rank 5 of 6 does not exist here, rank 1 of 2 does.
    for (rank, size) in [(1, 2), (2, 4), (5, 6)] {
        let mut command = job.command(rank);
        command.env("EVERFOLD_SECRET", Job::secret()).env("EVERFOLD_SIZE", size.to_string());
        let end = job.spawn(&mut command).ended();
        assert_eq!(end.code, 1, "{end:?}");
        let told = [format!("job of {size}"), format!("of {RANKS}"), "EVERFOLD_SIZE".to_owned()];
        let says_all = |line: &String| told.iter().all(|word| line.contains(word.as_str()));
        assert!(end.said.iter().any(says_all), "{end:?}");
    }
    job.assert_done(vec![(0, first), (1, job.start(1)), (2, job.start(2))]);
}

/// Exists once the ranks may end.
const TOLD: &str = "EVERFOLD_TEST_TOLD";

/// Reduces until all ranks are told to end, and a little longer.
async fn until_told(session: Session) -> everfold::Result<()> {
    let told = std::env::var_os(TOLD).unwrap();
    for number in 0u64.. {
        let is_told = std::path::Path::new(&told).exists();
        let seen = session.allreduce("told", Sum(vec![u8::from(is_told)])).await?.value;
        if number == 0 {
            println!("it runs");
        }
        if seen == Some(Sum(vec![RANKS as u8])) {
            break;
        }
    }
    sums(session).await
}

/// A process that was refused and stays connected says nothing for the one that took its place, and its end
/// is not that one's.
fn who_was_refused_goes_later() {
    let job = Job::new("tcp", "environment::until_told");
    let told = std::env::temp_dir().join(format!("everfold-told-{}", std::process::id()));
    let start = |rank| job.spawn(job.command(rank).env("EVERFOLD_SECRET", Job::secret()).env(TOLD, &told));
    let first = start(0);
    job.wait_for_master();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(async {
        let (mut stream, mut seals) = join(&job.target(), ProcessId::first(1), 2).await;
        let told = control::read_frame::<(Header, Vec<ToWorker>)>(&mut stream, 1 << 10, &mut seals.inward);
        let (_, messages) = told.await.unwrap();
        assert!(matches!(messages[..], [ToWorker::Unwelcome { .. }]), "{messages:?}");
        stream
    });
    let mut processes = [first, start(1), start(2)];
    processes.iter_mut().for_each(|process| process.wait_for(1, "it runs"));
    drop(refused);
    std::fs::write(&told, "").unwrap();
    job.assert_done((0..).zip(processes).collect());
    std::fs::remove_file(told).unwrap();
}

/// Calls `launch` where it would block a runtime, and `Session::join` where there is a job.
pub(crate) fn inside_a_runtime() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let launched: everfold::Result<()> = everfold::launch(Launch::from_env_or_local(1), async |_| {
            unreachable!("it does not come to that")
        });
        println!("Error: {}", launched.unwrap_err());
        if let Some(environment) = detect(|name| std::env::var(name).ok()).unwrap() {
            let session = Session::join(&environment, &Config::default()).unwrap();
            sums(session.clone()).await.unwrap();
            session.close().await;
            println!("{}{}", crate::process::DONE, session.rank());
        }
    });
    ExitCode::SUCCESS
}

/// The same typed error, alone and in a job.
fn launch_inside_a_runtime() {
    let command = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("inside-a-runtime");
        command
    };
    let is_told = |line: &String| line.contains("Error: launch blocks") && line.contains("Session::join");
    let end = Process::spawn(command()).end();
    assert!(end.code == 0 && end.said.iter().any(is_told), "{end:?}");

    let job = Job::new("unix", "");
    let mut in_a_job = command();
    in_a_job.envs(job.variables(0, 1)).env("EVERFOLD_SECRET", Job::secret());
    let end = Process::spawn(in_a_job).end();
    end.assert_done([0]);
    assert!(end.said.iter().any(is_told), "{end:?}");
}

/// A rank that starts other everfold programs, in every way.
async fn nested(session: Session) -> everfold::Result<()> {
    let program = std::env::current_exe()?;
    let program = program.to_str().unwrap();
    // Only a job of its own has two ranks.
    let job = [program, "run", "environment::two", "2", "auto"];
    let in_a_shell = format!("{}; exit $?", job.join(" "));
    let within_another = format!("{program} run environment::nested_once 1 tcp; exit $?");
    let ways: [&[&str]; 5] = [
        &job,
        &["sh", "-c", &in_a_shell],
        &["env", "SOME=thing", "nice", "sh", "-c", &in_a_shell],
        &["setsid", "--wait", "sh", "-c", &in_a_shell],
        &["sh", "-c", &within_another],
    ];
    for way in ways {
        let output = Command::new(way[0]).args(&way[1..]).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let all = format!("{way:?} says {said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{all}");
        let ends = said.lines().filter(|line| line.contains(crate::process::DONE)).count();
        assert_eq!(ends, if way.last() == Some(&&*within_another) { 1 } else { 2 }, "{all}");
    }
    // This rank is what it was.
    sums(session).await
}

async fn two(session: Session) -> everfold::Result<()> {
    assert_eq!(session.size(), 2);
    sums(session).await
}

/// A job within a job that starts one more.
async fn nested_once(session: Session) -> everfold::Result<()> {
    let output =
        Command::new(std::env::current_exe()?).args(["run", "environment::two", "2", "shm"]).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sums(session).await
}

fn nested_locally() {
    for transport in ["auto", "tcp"] {
        Process::spawn(crate::process::job("environment::nested", 2, transport)).end().assert_done(0..2);
    }
}

fn nested_by_hand() {
    let job = Job::new("tcp", "environment::nested");
    let ranks = (0..RANKS).map(|rank| (rank, job.start(rank)));
    job.assert_done(ranks.collect());
}

/// Two jobs cannot meet at one place: the second says so at once.
fn a_rendezvous_in_use(scheme: &str) {
    let job = Job::new(scheme, "environment::sums");
    let first = job.start(0);
    job.wait_for_master();
    // The same place in another job.
    let end = job.spawn(job.command(0).env("EVERFOLD_SECRET", "00".repeat(32))).ended();
    assert_eq!(end.code, 1, "{end:?}");
    assert!(end.said.iter().any(|line| line.contains(&job.rendezvous) && line.contains("in use")), "{end:?}");
    job.assert_done(vec![(0, first), (1, job.start(1)), (2, job.start(2))]);
}

/// Strangers knock before the job has come together, and some of them stay.
fn strangers_come_first() {
    let job = Job::new("tcp", "environment::sums");
    let first = job.start(0);
    job.wait_for_master();
    let silent: Vec<_> = (0..50).map(|_| std::net::TcpStream::connect(job.address()).unwrap()).collect();
    job.target().attack_without_the_secret();
    job.assert_done(vec![(0, first), (1, job.start(1)), (2, job.start(2))]);
    drop(silent);
}

/// The first rank has failed, and the last one does not come: everyone hears of it.
fn a_rank_dies_before_the_others_come() {
    let job = Job::new("tcp", "environment::impatient");
    let first = job.start(0);
    job.wait_for_master();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(join_and_die(&job.target(), ProcessId::first(1)));
    job.assert_refused(vec![first, job.start(2)], "{1}");
}

/// Everyone who has come hears who has not.
fn a_rank_that_never_comes(scheme: &str) {
    let job = Job::new(scheme, "environment::impatient");
    job.assert_refused(vec![job.start(0), job.start(2)], "ranks {1} did not join within 1s");
    let job = Job::new(scheme, "environment::impatient");
    job.assert_refused(vec![job.start(0)], "ranks {1-2} did not join within 1s");
}

/// Without rank 0 nobody knows who else is there.
fn the_first_rank_never_comes(scheme: &str) {
    let job = Job::new(scheme, "environment::impatient");
    let why = format!("no master at {} within 1s", job.rendezvous);
    job.assert_refused(vec![job.start(1), job.start(2)], &why);
}

/// Joins as a rank would, and hangs up; returns when the master has noticed.
async fn join_and_die(target: &Target, process: ProcessId) {
    let (mut stream, _) = join(target, process, RANKS).await;
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "the master says nothing before all are there");
}

/// Joins as a rank of a job of `size` would.
async fn join(target: &Target, process: ProcessId, size: u32) -> (BoxStream, Seals) {
    let mut stream = control::connect(&Address::Tcp(target.address.to_string())).await.unwrap();
    let mut seals =
        handshake::connect(&mut stream, &target.key, target.job, process, Purpose::Control).await.unwrap();
    let header = Header { job: target.job, epoch: Epoch(0), sender: process };
    let peer = Peer {
        process,
        host: 0,
        pid: 1,
        region: None,
        bell: None,
        board: None,
        address: "127.0.0.1:1".to_owned(),
        domain: None,
        agent: None,
    };
    let mut bytes = Vec::new();
    let join = ToMaster::Join { peer, size };
    control::encode_batch(&header, &[join], 1 << 20, &mut seals.outward, &mut bytes).unwrap();
    stream.write_all(&bytes).await.unwrap();
    (stream, seals)
}
