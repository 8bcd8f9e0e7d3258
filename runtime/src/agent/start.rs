//! How a rank finds the agent of its host, and starts one where there is none.
//!
//! A rank whose launcher is everfold's is told where its agent listens. Others look at a name in the abstract
//! namespace of Unix sockets that only this job has: it is made of the job and its secret. The first rank
//! that finds no agent there starts one for all ranks of its host, which outlives that rank.
//!
//! Such an agent is this program once more. It becomes the agent before `main` begins, so that nothing of the
//! program runs: neither does it read the program's arguments, nor does it call MPI once more under the
//! rank's name.

use std::{
    ffi::{CStr, OsStr},
    io::{self, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixListener},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::unistd::{ForkResult, fork, setsid};
use tokio::{net::UnixStream, time::Instant};

use super::host::{AgentConfig, AgentThread};
use crate::{
    components::Components,
    launch::{Environment, environment},
    locating,
    transport::{
        control::{Address, Stranger, connect_own},
        handshake::Key,
        shm,
    },
};

/// Set in a process that is to become an agent: the name of its socket.
const BECOME_AGENT: &CStr = c"EVERFOLD_BECOME_AGENT";

fn become_agent() -> &'static str {
    BECOME_AGENT.to_str().expect("it is ASCII")
}

/// How long a rank waits before it looks again for an agent that another one is starting.
const PAUSE: Duration = Duration::from_millis(2);

/// The name at which the ranks of a host find an agent that one of them has started.
fn common_name(environment: &Environment) -> String {
    let Environment { job, secret, rendezvous, .. } = environment;
    // Ranks that cannot open each other's memory, such as those of other containers, have other agents.
    let host = shm::host_id().unwrap_or_default();
    let place = format!("{rendezvous} {} {host:x}", job.0);
    format!("everfold-agent-{}", &blake3::keyed_hash(secret.bytes(), place.as_bytes()).to_hex()[..32])
}

/// Connects to the agent of this host, if need be after starting it.
///
/// # Errors
/// It cannot be started, or does not answer until `deadline`.
pub(super) async fn find(environment: &Environment, deadline: Instant) -> io::Result<UnixStream> {
    let told = environment.agent.as_deref();
    let name = told.map_or_else(|| common_name(environment), str::to_owned);
    let starting = SocketAddr::from_abstract_name(format!("{name}-start"))?;
    let mut has_looked = false;
    loop {
        let error = match connect_own(&name) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) if told.is_some() || Stranger::behind(&error).is_some() => return Err(error),
            Err(error) => error,
        };
        // Only one rank of a host starts it. No connection is let in at this name: connecting only shows its
        // user.
        match UnixListener::bind_addr(&starting) {
            Ok(_starting) => {
                if connect_own(&name).is_err() {
                    let (environment, name) = (environment.clone(), name.clone());
                    let started = tokio::task::spawn_blocking(move || start(&environment, &name));
                    started.await.map_err(io::Error::other)??;
                }
            }
            Err(_) if Instant::now() >= deadline => return Err(error),
            Err(_) => {
                // Once: each look takes a place in the queue of connections there.
                if !std::mem::replace(&mut has_looked, true) {
                    is_started_by_own(&starting)?;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Whether a rank of this user has taken the name `starting`. Where that cannot be told, it is believed.
fn is_started_by_own(starting: &SocketAddr) -> io::Result<()> {
    let name = starting.as_abstract_name().and_then(|name| std::str::from_utf8(name).ok());
    match name.map(connect_own) {
        Some(Err(error)) if Stranger::behind(&error).is_some() => Err(error),
        _ => Ok(()),
    }
}

/// What starts an agent of the job that its environment is yet to describe. It writes one byte to its stdout
/// when it listens at that name, and nothing after it.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(own_program());
    command
        .arg0("everfold-agent")
        .env(become_agent(), name)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// This program, also where there is no `/proc`.
fn own_program() -> PathBuf {
    let program = Path::new("/proc/self/exe");
    // SAFETY: this call takes an integer and looks up what the system has left for this process.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
    // SAFETY: if it is not null, it is a name that ends with a zero and stays where it is.
    let called = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
    match (program.exists(), called) {
        (false, Some(called)) => PathBuf::from(OsStr::from_bytes(called.to_bytes())),
        _ => program.to_owned(),
    }
}

/// Waits until an agent that was started with [`command`] listens.
///
/// # Errors
/// It has ended, and why.
pub fn wait_until_ready(agent: &mut Child) -> io::Result<()> {
    if has_said_ready(agent)? {
        return Ok(());
    }
    Err(io::Error::other(format!("the agent has ended at once ({})", agent.wait()?)))
}

fn has_said_ready(agent: &mut Child) -> io::Result<bool> {
    agent.stdout.take().map_or(Ok(false), |mut stdout| Ok(stdout.read(&mut [0])? > 0))
}

/// Starts an agent that is no child of this process, and waits until it listens.
fn start(environment: &Environment, name: &str) -> io::Result<()> {
    let mut command = command(name);
    command.envs(environment.variables());
    // SAFETY: between fork and exec this makes system calls alone, and allocates nothing.
    unsafe { command.pre_exec(leave_family) };
    let mut between = command.spawn()?;
    let is_ready = has_said_ready(&mut between)?;
    // A program that waits for any of its children, or ignores how they end, may have been faster.
    let _ = between.wait();
    if is_ready { Ok(()) } else { Err(io::Error::other("the agent has ended at once")) }
}

/// Goes on as no rank's child, in a session of its own. The rank's program may wait for any of its children,
/// and signals to the ranks' group, as from a terminal, are not meant for the agent.
fn leave_family() -> io::Result<()> {
    setsid()?;
    // SAFETY: both processes make system calls alone from here on.
    match unsafe { fork() }? {
        // SAFETY: this ends the process at once, and runs nothing of the program.
        ForkResult::Parent { .. } => unsafe { libc::_exit(0) },
        ForkResult::Child => Ok(()),
    }
}

/// Looks whether this process is to be an agent. The system calls it before `main`.
extern "C" fn before_main() {
    // Not through `std`, which is not set up yet in the other processes, where nothing is to be done.
    // SAFETY: the name ends with a zero, and no other thread runs yet.
    let is_meant = !unsafe { libc::getenv(BECOME_AGENT.as_ptr()) }.is_null();
    if is_meant {
        let code = match run() {
            Ok(()) => 0,
            Err(error) => {
                let _ = writeln!(io::stderr(), "everfold: the agent of this host cannot run: {error}");
                1
            }
        };
        std::process::exit(code);
    }
}

// SAFETY: the system calls what is listed here once, without arguments that matter, when all that it needs of
// the C library is set up.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// Is the agent, until it is not needed any more.
fn run() -> io::Result<()> {
    // What `std` does before `main`: writing to a peer that is gone is an error, and no signal.
    // SAFETY: no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let name = std::env::var(become_agent()).map_err(io::Error::other)?;
    let found = environment::detect(|variable| std::env::var(variable).ok()).map_err(io::Error::other)?;
    let environment = found.ok_or_else(|| io::Error::other("its environment describes no job"))?;
    let rendezvous: Address = environment.rendezvous.parse().map_err(io::Error::other)?;
    let key = Key(*environment.secret.bytes());
    crate::logs::show();
    crate::descriptors::raise_limit();
    super::host::be_hard_to_kill();
    let config = AgentConfig {
        name,
        job: environment.job,
        key,
        size: environment.size,
        rendezvous,
        parent: None,
        has_others: false,
        is_first: false,
        is_spare: false,
        domain: None,
        rules: locating::rules(None, false)?,
        symptoms: locating::symptoms(None, false),
        // Nothing of the program runs here.
        components: Components::new(),
    };
    let agent = AgentThread::start(config)?;
    say_ready()?;
    agent.run();
    Ok(())
}

/// Tells the rank that has started this agent, and closes the output, for whose end a launcher may wait.
fn say_ready() -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(b"!")?;
    stdout.flush()?;
    let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(&nowhere)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{Incarnation, JobId, Rank};
    use nix::unistd::geteuid;

    use super::*;
    use crate::{
        launch::{Secret, Transport},
        transport::control::{Address, connect_until},
    };

    const STRANGER: u32 = 65_534;

    fn environment() -> Environment {
        Environment {
            rank: Rank(0),
            incarnation: Incarnation(0),
            size: 2,
            job: JobId(7),
            secret: Secret::generate().unwrap(),
            rendezvous: "unix:@everfold-test-nowhere".to_owned(),
            transport: Transport::Auto,
            agent: None,
        }
    }

    /// Listens at `name` as another user does, if this process may become one; as this user if not.
    fn squat(name: String) -> UnixListener {
        let listen = move || {
            // SAFETY: this system call takes integers, and changes this thread alone, which ends soon.
            let result = unsafe { libc::syscall(libc::SYS_setresuid, STRANGER, STRANGER, STRANGER) };
            assert_eq!(result == 0, geteuid().as_raw() == STRANGER);
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
        };
        std::thread::spawn(listen).join().unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[tokio::test]
    async fn a_stranger_at_the_name_of_the_agent_is_told_at_once() {
        let environment = environment();
        let squatter = squat(common_name(&environment));
        let found = find(&environment, soon()).await;
        if !geteuid().is_root() {
            return drop(found.expect("it belongs to this user"));
        }
        let error = found.expect_err("it belongs to another user");
        assert_eq!(Stranger::behind(&error), Some(Stranger { user: STRANGER }), "{error}");
        assert!(error.to_string().contains("another EVERFOLD_SECRET"), "{error}");
        drop(squatter);
    }

    #[tokio::test]
    async fn a_stranger_who_seems_to_start_the_agent_is_told_at_once() {
        if !geteuid().is_root() {
            return;
        }
        let environment = environment();
        let _squatter = squat(format!("{}-start", common_name(&environment)));
        let error = find(&environment, soon()).await.expect_err("nobody starts it");
        assert_eq!(Stranger::behind(&error), Some(Stranger { user: STRANGER }), "{error}");
    }

    #[tokio::test]
    async fn a_stranger_at_the_rendezvous_is_told_at_once() {
        let name = common_name(&environment());
        let _squatter = squat(name.clone());
        let deadline = soon();
        let connected = connect_until(&Address::Unix(name), deadline).await;
        assert!(Instant::now() < deadline);
        if geteuid().is_root() {
            let error = connected.err().expect("it belongs to another user");
            assert_eq!(Stranger::behind(&error), Some(Stranger { user: STRANGER }), "{error}");
        } else {
            assert!(connected.is_ok());
        }
    }
}
