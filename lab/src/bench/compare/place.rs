//! Where is measured: this host, or several that are namespaces; and what disturbs them.

use std::{
    fmt, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use clap::ValueEnum;
use everfold::launch::Transport;
use everfold_sim::model::Link;
use nix::unistd::geteuid;
use serde::Serialize;

use super::{
    case::Disturbance,
    link,
    peers::{Algorithm, Peer},
    quota::Quota,
    sockets::Way,
    team::{Team, TeamError},
};
use crate::{
    Failure,
    clock::now_ns,
    cluster::{Cluster, Host, Rate},
    interrupts::Interrupts,
    meeting::Meeting,
};

/// How much slower a disturbed link is.
pub const SLOWER: u64 = 10;
/// What a disturbed rank may use of a core, in per cent.
pub const QUOTA_PERCENT: u32 = 25;
/// Where `/proc` of this process is found by commands that have one of their own.
const PROC: &str = "proc";
/// How long the moving load stays.
const STAY: Duration = Duration::from_secs(1);
const GOLDEN_RATIO: f64 = 1.618_033_988_749_895;

/// Where is measured, in words for people and programs.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PlaceName {
    /// All ranks on this host.
    OneHost {
        /// Number of ranks.
        ranks: u32,
    },
    /// One rank on each of several hosts.
    Network {
        /// Number of hosts.
        hosts: u32,
        /// What each link carries each way.
        bits_per_s: u64,
    },
}

/// Where is measured.
#[derive(Debug)]
pub struct Place {
    /// Number of ranks.
    pub ranks: u32,
    /// The hosts, if there are several.
    network: Option<Network>,
    /// One for each rank; none if the system has none for us.
    quotas: Vec<Quota>,
}

#[derive(Debug)]
struct Network {
    cluster: Cluster,
    rate: Rate,
    names: Vec<String>,
    /// Starts commands on the hosts.
    agent: PathBuf,
    message_s: f64,
    /// For the simulator, if it is asked.
    link: Option<Link>,
}

/// The moving load: from when on it was with whom.
#[derive(Debug, Default)]
pub struct Moves(Mutex<Vec<(u64, u32)>>);

impl Moves {
    /// Since when it has been where, in order.
    pub fn all(&self) -> Vec<(u64, u32)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How long it is until a moment in the load's way past `ranks` ranks that is the same in each of a
    /// number's rounds, and another for each number. If nothing moves, it is now.
    pub fn until_its_moment(&self, round: u64, ranks: u32) -> Duration {
        let Some((since_ns, rank)) = self.all().last().copied() else { return Duration::ZERO };
        let way = STAY * ranks;
        let passed = STAY * rank + Duration::from_nanos(now_ns().saturating_sub(since_ns)).min(STAY);
        // Multiples of the golden ratio lie evenly, however many there are.
        let moment = way.mul_f64((round as f64 * GOLDEN_RATIO).fract());
        if moment < passed { moment + way - passed } else { moment - passed }
    }
}

impl Place {
    /// This host.
    pub fn one_host(ranks: u32) -> Self {
        Self { ranks, network: None, quotas: Quota::for_ranks(ranks) }
    }

    /// Makes hosts. What is needed to start commands on them goes into `folder`. If they are to be simulated,
    /// too, their links are measured.
    ///
    /// # Errors
    /// The system refuses them.
    pub fn network(hosts: u32, rate: Rate, folder: &Path, is_simulated: bool) -> Result<Self, Failure> {
        let cluster = Cluster::start(hosts, Some(rate))?;
        let mut names = Vec::new();
        for host in (0..hosts).map(Host) {
            names.push(host_name(host));
            cluster.link_namespaces(host, &folder.join(host_name(host)), &folder.join(PROC))?;
        }
        let agent = folder.join("agent");
        fs::write(&agent, AGENT)?;
        fs::set_permissions(&agent, PermissionsExt::from_mode(0o700))?;
        let message_s = link::message_s(&cluster)?;
        let link = is_simulated.then(|| link::model(&cluster, message_s)).transpose()?;
        let network = Network { cluster, rate, names, agent, message_s, link };
        Ok(Self { ranks: hosts, network: Some(network), quotas: Quota::for_ranks(hosts) })
    }

    /// What it is called.
    pub fn name(&self) -> PlaceName {
        match &self.network {
            None => PlaceName::OneHost { ranks: self.ranks },
            Some(network) => PlaceName::Network { hosts: self.ranks, bits_per_s: network.rate.0 },
        }
    }

    /// A name for files.
    pub fn file_name(&self) -> String {
        let ranks = self.ranks;
        if self.network.is_some() { format!("{ranks}-hosts") } else { format!("{ranks}-ranks") }
    }

    /// What its links carry in a second, in bytes, if there are links.
    pub fn link_bytes_per_s(&self) -> Option<f64> {
        self.network.as_ref().map(|network| network.rate.0 as f64 / 8.0)
    }

    /// How long a short message takes from host to host, in seconds.
    pub fn message_s(&self) -> f64 {
        self.network.as_ref().map_or(0.0, |network| network.message_s)
    }

    /// What its links are for the simulator, if they were measured for it.
    pub fn link(&self) -> Option<Link> {
        self.network.as_ref().and_then(|network| network.link)
    }

    /// The rank whose link is slow.
    pub fn slow_rank(&self) -> u32 {
        self.ranks / 2
    }

    /// Why it cannot be disturbed in this way, if it cannot.
    pub fn lacks(&self, disturbance: Disturbance) -> Option<&'static str> {
        let quota = "no CPU quota: that needs root and the cpu controller of control groups";
        match disturbance {
            Disturbance::SlowLink if self.network.is_none() => Some("one host has no links"),
            Disturbance::Throttled if self.quotas.is_empty() => Some(quota),
            Disturbance::Moving if self.network.is_none() && self.quotas.is_empty() => Some(quota),
            _ => None,
        }
    }

    /// Starts everfold's ranks. To be called from the main thread.
    ///
    /// # Errors
    /// [`Team::start`]
    pub fn start_everfold(&self, folder: &Path, interrupts: &Interrupts) -> Result<Team, TeamError> {
        // On namespaces, everfold would find the memory that all of them share.
        let transport = if self.network.is_some() { Transport::Tcp } else { Transport::Auto };
        let cluster = self.network.as_ref().map(|network| &network.cluster);
        let meeting = Meeting::new(self.ranks, transport, cluster).map_err(TeamError::Fatal)?;
        let mut commands = Vec::new();
        for rank in 0..self.ranks {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["bench", "compare-rank"]).env("EVERFOLD_DIR", folder.join("storage"));
            meeting.join(rank, &mut command);
            if let Some(cluster) = cluster {
                cluster.enter(Host(rank), &mut command);
            }
            commands.push(command);
        }
        self.start(commands, folder, interrupts)
    }

    /// The ways in which plain sockets are measured here: where there are links.
    pub fn ways(&self) -> &'static [Way] {
        if self.network.is_some() { Way::value_variants() } else { &[] }
    }

    /// Starts the ranks of plain sockets. To be called from the main thread.
    ///
    /// # Errors
    /// [`Team::start`]
    pub fn start_sockets(&self, way: Way, folder: &Path, interrupts: &Interrupts) -> Result<Team, TeamError> {
        let mut commands = Vec::new();
        if let Some(Network { cluster, .. }) = &self.network {
            let hosts: Vec<String> =
                (0..self.ranks).map(|rank| cluster.address(Host(rank)).to_string()).collect();
            for rank in 0..self.ranks {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["bench", "sockets-rank", "--way", way.name(), "--rank", &rank.to_string()]);
                command.args(["--hosts", &hosts.join(",")]);
                cluster.enter(Host(rank), &mut command);
                commands.push(command);
            }
        }
        self.start(commands, folder, interrupts)
    }

    /// Starts the ranks of a peer. To be called from the main thread.
    ///
    /// # Errors
    /// [`Team::start`]
    pub fn start_peer(
        &self,
        peer: &Peer,
        algorithm: &Algorithm,
        folder: &Path,
        interrupts: &Interrupts,
    ) -> Result<Team, TeamError> {
        let hosts = self.network.as_ref().map(|network| (&network.names[..], network.agent.as_path()));
        let line = peer.command_line(algorithm, self.ranks, hosts);
        let proc = self
            .network
            .as_ref()
            .map_or_else(|| folder.join(PROC), |network| network.agent.with_file_name(PROC));
        fs::create_dir_all(&proc)?;
        let mut command = if geteuid().is_root() { enclosed(&line, &proc) } else { plain(&line) };
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("TMPDIR", folder);
        if let Some(network) = &self.network {
            network.cluster.enter(Host(0), &mut command);
        }
        self.start(vec![command], folder, interrupts)
    }

    fn start(
        &self,
        commands: Vec<Command>,
        folder: &Path,
        interrupts: &Interrupts,
    ) -> Result<Team, TeamError> {
        let team = Team::start(commands, self.ranks, folder, interrupts)?;
        for (quota, pid) in self.quotas.iter().zip(team.pids()?) {
            quota.admit(pid)?;
        }
        Ok(team)
    }

    /// Disturbs while `action` runs.
    ///
    /// # Errors
    /// Those of `action`, or the disturbance does not come about.
    pub fn disturbed<T>(
        &self,
        disturbance: Disturbance,
        action: impl FnOnce(&Moves) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let moves = Moves::default();
        match disturbance {
            Disturbance::None => action(&moves),
            Disturbance::SlowLink => {
                self.load_link(self.slow_rank(), true)?;
                let done = action(&moves);
                self.load_link(self.slow_rank(), false)?;
                done
            }
            Disturbance::Throttled => {
                let throttled = || self.quotas.iter().skip(1).step_by(2);
                throttled().try_for_each(|quota| quota.set(Some(QUOTA_PERCENT)))?;
                let done = action(&moves);
                throttled().try_for_each(|quota| quota.set(None))?;
                done
            }
            Disturbance::Moving => {
                let (end, ended) = mpsc::channel::<()>();
                thread::scope(|scope| {
                    let mover = scope.spawn(|| self.move_load(&moves, ended));
                    let done = action(&moves);
                    drop(end);
                    mover.join().expect("the mover does not panic")?;
                    done
                })
            }
        }
    }

    fn move_load(&self, moves: &Moves, ended: mpsc::Receiver<()>) -> Result<(), Failure> {
        for rank in (0..self.ranks).cycle() {
            self.load(rank, true)?;
            moves.0.lock().unwrap_or_else(PoisonError::into_inner).push((now_ns(), rank));
            let is_over = ended.recv_timeout(STAY) == Err(mpsc::RecvTimeoutError::Disconnected);
            self.load(rank, false)?;
            if is_over {
                break;
            }
        }
        Ok(())
    }

    /// Slows one rank down, by its link if it has one.
    fn load(&self, rank: u32, is_loaded: bool) -> Result<(), Failure> {
        match self.network {
            Some(_) => self.load_link(rank, is_loaded),
            None => Ok(self.quotas[rank as usize].set(is_loaded.then_some(QUOTA_PERCENT))?),
        }
    }

    fn load_link(&self, rank: u32, is_loaded: bool) -> Result<(), Failure> {
        if let Some(Network { cluster, rate: Rate(bits), .. }) = &self.network {
            let rate = Rate(if is_loaded { bits / SLOWER } else { *bits });
            cluster.set_rate(Host(rank), Some(rate))?;
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.network {
            None => write!(f, "one host, {} ranks", self.ranks),
            Some(network) => {
                write!(f, "{} hosts, links of {} Mbit/s", self.ranks, network.rate.0 / 1_000_000)
            }
        }
    }
}

fn host_name(host: Host) -> String {
    format!("host-{host}")
}

/// Stands in for ssh: starts a command in a host of the cluster.
const AGENT: &str = r#"#!/bin/sh
while [ "${1#-}" != "$1" ]; do case "$1" in -[lpoi]) shift 2 ;; *) shift ;; esac; done
host=$(dirname "$0")/$1; shift
exec nsenter --net="$host/net" --uts="$host/uts" unshare --mount sh -c 'mount -t sysfs sysfs /sys; exec sh -c "$0"' "$*"
"#;

/// A command whose processes all end with it, and whose shared memory is gone then, however it ends. It sees
/// its own processes in `/proc`, the network interfaces of the host in which it is started in `/sys`, and
/// what `/proc` was before in the folder `proc`.
fn enclosed(line: &[String], proc: &Path) -> Command {
    const INSIDE: &str =
        "mount --bind /proc \"$0\" && mount -t proc proc /proc && mount -t tmpfs tmpfs /dev/shm || exit
                          # It refuses if it is the same as before.
                          mount -t sysfs sysfs /sys 2>/dev/null; exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--ipc", "--pid", "--fork", "--kill-child", "sh", "-c", INSIDE])
        .arg(proc)
        .args(line);
    command
}

fn plain(line: &[String]) -> Command {
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]);
    command
}

/// Folder of a side.
pub fn side_folder(parent: &Path, name: &str) -> io::Result<PathBuf> {
    let folder = parent.join(name);
    fs::create_dir(&folder)?;
    Ok(folder)
}
