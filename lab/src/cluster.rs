//! Several hosts on one machine: network namespaces on a bridge, each with a name and an address of its own.
//!
//! - Nothing is left behind. No namespace has a name in the file system: it lives as long as this process
//!   holds it open or a process runs in it, and the bridge, the links and their queues go with it, however
//!   this process ends. Commands that are started in a host should die with it, too: see
//!   [`children`](crate::children).
//! - The bridge is in a namespace of its own, so two clusters, or a cluster and the machine's network, do not
//!   meet.
//! - What passes a link is decided by the queueing discipline at each of its two ends: a token bucket if it
//!   has a rate, a black hole if it is cut. Packets are dropped silently then, as by a switch that has
//!   failed.
//!
//! Deliberately absent: separate file systems, and delay and loss (`netem` is missing in many kernels).
//!
//! ```text
//! let cluster = Cluster::start(4, Some("500mbit".parse()?))?;
//! cluster.enter(Host(2), &mut command);   // command runs in the third host, 10.77.0.3
//! cluster.cut(Host(2), Direction::Both)?;
//! ```

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    net::Ipv4Addr,
    os::{
        fd::AsRawFd,
        unix::{fs::symlink, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use nix::{
    errno::Errno,
    libc,
    sched::{CloneFlags, setns, unshare},
};
use serde::Serialize;

/// Most hosts of a cluster.
pub const HOSTS_MAX: u32 = 250;
/// What a link lets through at once although it has a rate, in bytes.
pub const BURST_BYTES: u64 = 256 << 10;
/// How long a packet may wait for its turn before it is dropped, in milliseconds.
const QUEUE_MS: u32 = 50;

/// A host of a cluster, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Host(pub u32);

/// Which way packets go, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the host.
    In,
    /// From the host.
    Out,
    /// Both ways.
    Both,
}

/// What a link carries at most, in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = String;

    /// Reads `50mbit` and the like, in powers of 1000.
    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is no rate; write 500kbit, 50mbit or 10gbit");
        let lower = text.to_ascii_lowercase();
        let number = lower.strip_suffix("bit").ok_or_else(refuse)?;
        let (digits, unit) = match number.char_indices().last() {
            Some((at, 'k')) => (&number[..at], 1_000),
            Some((at, 'm')) => (&number[..at], 1_000_000),
            Some((at, 'g')) => (&number[..at], 1_000_000_000),
            _ => (number, 1),
        };
        let digits: u64 = digits.parse().map_err(|_| refuse())?;
        digits.checked_mul(unit).filter(|&bits| bits >= 8_000).map(Self).ok_or_else(refuse)
    }
}

/// Why there is no cluster, or why a link is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No such number of hosts.
    #[error("{hosts} hosts were asked for; it has to be 1 to {HOSTS_MAX}")]
    Hosts {
        /// The number.
        hosts: u32,
    },
    /// The system refuses a namespace.
    #[error("hosts on one machine need network namespaces, and those need root (CAP_SYS_ADMIN): {0}")]
    NotPermitted(Errno),
    /// `ip` or `tc` is not installed.
    #[error("`{0}` is missing; install iproute2")]
    NoTool(&'static str),
    /// `ip` or `tc` has failed.
    #[error("`{command}` failed: {message}")]
    Tool {
        /// What was called.
        command: String,
        /// What it said.
        message: String,
    },
    /// Something else went wrong.
    #[error("cannot set up a host: {0}")]
    Io(#[from] io::Error),
}

impl ClusterError {
    /// Whether the machine or the user's rights are in the way, rather than what was asked for.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::NotPermitted(_) | Self::NoTool(_))
    }
}

/// Why hosts cannot be made here for want of rights or of a tool. Nothing if that is not in the way.
pub fn hosts_unavailable() -> Option<String> {
    Cluster::start(1, None).err().filter(ClusterError::is_unavailable).map(|error| error.to_string())
}

/// Hosts on a bridge. They are gone when this is dropped and the last process in them has ended.
#[derive(Debug)]
pub struct Cluster {
    switch: Namespace,
    hosts: Vec<Namespace>,
    links: Vec<Mutex<Link>>,
}

/// How the link of a host is to be.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    rate: Option<Rate>,
    cut_in: bool,
    cut_out: bool,
}

impl Cluster {
    /// Makes `hosts` hosts that reach each other, each over a link that carries `rate` each way.
    ///
    /// # Errors
    /// [`ClusterError`]; nothing is left of the hosts then.
    pub fn start(hosts: u32, rate: Option<Rate>) -> Result<Self, ClusterError> {
        if !(1..=HOSTS_MAX).contains(&hosts) {
            return Err(ClusterError::Hosts { hosts });
        }
        let switch = Namespace::new("switch")?;
        let named = |host: u32| Namespace::new(&format!("host-{host}"));
        let hosts = (0..hosts).map(named).collect::<Result<Vec<_>, _>>()?;
        let links = hosts.iter().map(|_| Mutex::default()).collect();
        let cluster = Self { switch, hosts, links };
        let mut wiring = "link set lo up\nlink add bridge type bridge\nlink set bridge up\n".to_owned();
        for (host, namespace) in cluster.hosts() {
            let (port, path) = (port(host), descriptor(Path::new("/proc"), &namespace.network));
            wiring += &format!("link add {port} type veth peer name {DEVICE} netns {}\n", path.display());
            wiring += &format!("link set {port} master bridge up\n");
        }
        cluster.switch.ip(&wiring)?;
        for (host, namespace) in cluster.hosts() {
            let address = cluster.address(host);
            namespace.ip(&format!(
                "link set lo up\naddress add {address}/24 dev {DEVICE}\nlink set {DEVICE} up\n"
            ))?;
            if rate.is_some() {
                cluster.set_rate(host, rate)?;
            }
        }
        Ok(cluster)
    }

    fn hosts(&self) -> impl Iterator<Item = (Host, &Namespace)> {
        (0..).map(Host).zip(&self.hosts)
    }

    /// Number of hosts.
    pub fn len(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// The host's address.
    pub fn address(&self, host: Host) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, host.0 as u8 + 1)
    }

    /// Makes `command` run in `host`: with its network and its name.
    pub fn enter(&self, host: Host, command: &mut Command) {
        self.hosts[host.0 as usize].enter(command);
    }

    /// Does something in a thread that is in the network of `host`.
    pub fn inside<T: Send>(
        &self,
        host: Host,
        action: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let network = &*self.hosts[host.0 as usize].network;
        let enter = || {
            setns(network, CloneFlags::CLONE_NEWNET)?;
            action()
        };
        thread::scope(|scope| scope.spawn(enter).join()).expect("the thread does not panic")
    }

    /// Makes a folder with links `net` and `uts` to the namespaces of `host`, for tools such as `nsenter`
    /// that find this process in `proc`. They lead somewhere as long as the cluster is there.
    pub fn link_namespaces(&self, host: Host, folder: &Path, proc: &Path) -> io::Result<()> {
        let Namespace { network, name } = &self.hosts[host.0 as usize];
        fs::create_dir(folder)?;
        symlink(descriptor(proc, network), folder.join("net"))?;
        symlink(descriptor(proc, name), folder.join("uts"))
    }

    /// Drops what goes to or from `host` from now on.
    ///
    /// # Errors
    /// [`ClusterError::Tool`]
    pub fn cut(&self, host: Host, direction: Direction) -> Result<(), ClusterError> {
        self.change(host, |link| {
            link.cut_in |= direction != Direction::Out;
            link.cut_out |= direction != Direction::In;
        })
    }

    /// Undoes all cuts of the host's link.
    ///
    /// # Errors
    /// [`ClusterError::Tool`]
    pub fn heal(&self, host: Host) -> Result<(), ClusterError> {
        self.change(host, |link| (link.cut_in, link.cut_out) = (false, false))
    }

    /// Limits what the host's link carries each way.
    ///
    /// # Errors
    /// [`ClusterError::Tool`]
    pub fn set_rate(&self, host: Host, rate: Option<Rate>) -> Result<(), ClusterError> {
        self.change(host, |link| link.rate = rate)
    }

    fn change(&self, host: Host, change: impl FnOnce(&mut Link)) -> Result<(), ClusterError> {
        // Held until the link is so: two changes at once would leave it as neither wanted.
        let mut link = self.links[host.0 as usize].lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut link);
        self.switch.queue(&port(host), discipline(link.cut_in, link.rate))?;
        self.hosts[host.0 as usize].queue(DEVICE, discipline(link.cut_out, link.rate))
    }
}

/// What the link's end in the host is called.
const DEVICE: &str = "eth0";

/// What the link's end at the bridge is called.
fn port(host: Host) -> String {
    format!("port{}", host.0)
}

fn discipline(is_cut: bool, rate: Option<Rate>) -> String {
    match rate {
        _ if is_cut => "blackhole".to_owned(),
        Some(Rate(bits)) => format!("tbf rate {bits}bit burst {BURST_BYTES} latency {QUEUE_MS}ms"),
        None => "noqueue".to_owned(),
    }
}

/// A path by which other processes can open a file of ours, if they find us in `proc`.
fn descriptor(proc: &Path, file: &File) -> PathBuf {
    proc.join(format!("{}/fd/{}", std::process::id(), file.as_raw_fd()))
}

/// A network and a host name of their own.
#[derive(Debug)]
struct Namespace {
    network: Arc<File>,
    name: Arc<File>,
}

impl Namespace {
    fn new(name: &str) -> Result<Self, ClusterError> {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS)
                .map_err(ClusterError::NotPermitted)?;
            // SAFETY: the call reads as many bytes of `name` as it is told, which are there.
            Errno::result(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })
                .map_err(ClusterError::NotPermitted)?;
            let open = |kind| fs::File::open(format!("/proc/thread-self/ns/{kind}")).map(Arc::new);
            Ok(Self { network: open("net")?, name: open("uts")? })
        };
        // A thread of its own, as ours is to stay where it is.
        thread::scope(|scope| scope.spawn(make).join()).expect("the thread does not panic")
    }

    fn enter(&self, command: &mut Command) {
        let (network, name) = (self.network.clone(), self.name.clone());
        let enter = move || {
            setns(&*network, CloneFlags::CLONE_NEWNET)?;
            setns(&*name, CloneFlags::CLONE_NEWUTS)?;
            Ok(())
        };
        // SAFETY: between fork and exec, the closure makes two system calls and allocates nothing.
        unsafe { command.pre_exec(enter) };
    }

    /// Runs lines of `ip` commands here.
    fn ip(&self, lines: &str) -> Result<(), ClusterError> {
        self.run("ip", &["-batch", "-"], lines)
    }

    fn queue(&self, device: &str, discipline: String) -> Result<(), ClusterError> {
        self.run("tc", &["-batch", "-"], &format!("qdisc replace dev {device} root {discipline}\n"))
    }

    fn run(&self, tool: &'static str, arguments: &[&str], input: &str) -> Result<(), ClusterError> {
        let mut command = Command::new(tool);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        self.enter(&mut command);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ClusterError::NoTool(tool),
            _ => error.into(),
        })?;
        if let Some(mut stdin) = child.stdin.take() {
            // If it has ended before it has read all, its exit code says why.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(ClusterError::Tool { command: format!("{tool} {}", input.trim()), message })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{SocketAddr, TcpListener, TcpStream},
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, bits) in [("8000bit", 8_000), ("50Mbit", 50_000_000), ("10gbit", 10_000_000_000)] {
            assert_eq!(text.parse(), Ok(Rate(bits)));
        }
        for text in ["", "bit", "50", "50m", "-1mbit", "1bit", "99999999999gbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    fn start(hosts: u32) -> Option<Cluster> {
        match Cluster::start(hosts, None) {
            Ok(cluster) => Some(cluster),
            Err(error) if error.is_unavailable() => {
                crate::leave_out(error);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Whether a connection is made: within a time that is short where there is to be none.
    fn reaches_within(time: Duration, cluster: &Cluster, from: Host, to: SocketAddr) -> bool {
        cluster.inside(from, || TcpStream::connect_timeout(&to, time)).is_ok()
    }

    fn reaches(cluster: &Cluster, from: Host, to: SocketAddr) -> bool {
        reaches_within(Duration::from_secs(60), cluster, from, to)
    }

    fn is_cut_off(cluster: &Cluster, from: Host, to: SocketAddr) -> bool {
        !reaches_within(Duration::from_millis(300), cluster, from, to)
    }

    #[test]
    fn hosts_reach_each_other_unless_a_link_is_cut() {
        let Some(cluster) = start(3) else { return };
        let listener = cluster.inside(Host(0), || TcpListener::bind("0.0.0.0:0")).unwrap();
        let at = SocketAddr::from((cluster.address(Host(0)), listener.local_addr().unwrap().port()));
        assert!(reaches(&cluster, Host(0), at) && reaches(&cluster, Host(1), at));
        for direction in [Direction::Both, Direction::In, Direction::Out] {
            cluster.cut(Host(1), direction).unwrap();
            assert!(is_cut_off(&cluster, Host(1), at), "{direction:?}");
            assert!(reaches(&cluster, Host(2), at), "{direction:?}");
            cluster.heal(Host(1)).unwrap();
            assert!(reaches(&cluster, Host(1), at), "{direction:?}");
        }
        cluster.cut(Host(0), Direction::In).unwrap();
        assert!(is_cut_off(&cluster, Host(1), at) && is_cut_off(&cluster, Host(2), at));
        // Setting a rate heals nothing.
        cluster.set_rate(Host(0), Some(Rate(50_000_000))).unwrap();
        assert!(is_cut_off(&cluster, Host(1), at));
        cluster.heal(Host(0)).unwrap();
        assert!(reaches(&cluster, Host(1), at));
    }

    #[test]
    fn a_rate_limits_what_passes() {
        let Some(cluster) = start(2) else { return };
        cluster.set_rate(Host(1), Some(Rate(100_000_000))).unwrap();
        let listener = cluster.inside(Host(0), || TcpListener::bind("0.0.0.0:0")).unwrap();
        let at = SocketAddr::from((cluster.address(Host(0)), listener.local_addr().unwrap().port()));
        let sender = cluster.inside(Host(1), || TcpStream::connect(at)).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let started = Instant::now();
        thread::spawn(move || (&sender).write_all(&vec![7; 2 << 20]));
        assert_eq!(io::copy(&mut receiver, &mut io::sink()).unwrap(), 2 << 20);
        // At that rate it takes 150 ms, less the burst; a link without a limit needs a few.
        assert!(started.elapsed() > Duration::from_millis(100), "{:?}", started.elapsed());
    }

    #[test]
    fn commands_run_inside_under_the_name_of_the_host() {
        let Some(cluster) = start(2) else { return };
        let mut command = Command::new("sh");
        command.args(["-c", "cat /proc/sys/kernel/hostname; ip -4 -oneline address show dev eth0"]);
        cluster.enter(Host(1), &mut command);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(said.starts_with("host-1\n") && said.contains("10.77.0.2/24"), "{said}");
    }

    #[test]
    fn the_number_of_hosts_is_limited() {
        for hosts in [0, HOSTS_MAX + 1] {
            assert!(matches!(Cluster::start(hosts, None), Err(ClusterError::Hosts { .. })));
        }
    }
}
