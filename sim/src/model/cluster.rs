//! What a cluster is made of. Times are in nanoseconds, rates in nanoseconds per byte.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use everfold_protocol::Rank;

/// A network link by LogGP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// L: how long a message is on the wire.
    pub latency_ns: f64,
    /// o: what sending or receiving one message costs a processor.
    pub overhead_ns: f64,
    /// g: least time between two messages at one port.
    pub gap_ns: f64,
    /// G: time per byte, one over the bandwidth.
    pub ns_per_byte: f64,
}

impl Link {
    /// α = L + 2o, what a message costs however short it is, in nanoseconds.
    pub fn alpha_ns(&self) -> f64 {
        self.latency_ns + 2.0 * self.overhead_ns
    }
}

/// Networks as they are sold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// 10 gigabit Ethernet and TCP, as in the paper: α 20 µs, 0.84 ns per byte.
    TenGbe,
    /// 100 gigabit Ethernet with RoCE: α 2 µs, 0.0825 ns per byte.
    HundredGbe,
    /// InfiniBand HDR, 200 gigabit: α 1.2 µs, 0.0417 ns per byte.
    Hdr,
    /// InfiniBand NDR, 400 gigabit: α 2 µs at most, 0.02 ns per byte.
    Ndr,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::TenGbe, Self::HundredGbe, Self::Hdr, Self::Ndr];

    /// Its parameters. o is an assumption, and so is g, which is taken to be o.
    pub fn link(self) -> Link {
        let (alpha_ns, ns_per_byte, overhead_ns) = match self {
            Self::TenGbe => (20_000.0, 0.84, 5_000.0),
            Self::HundredGbe => (2_000.0, 0.0825, 500.0),
            Self::Hdr => (1_200.0, 0.0417, 300.0),
            Self::Ndr => (2_000.0, 0.02, 300.0),
        };
        let latency_ns = alpha_ns - 2.0 * overhead_ns;
        Link { latency_ns, overhead_ns, gap_ns: overhead_ns, ns_per_byte }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TenGbe => "10gbe",
            Self::HundredGbe => "100gbe",
            Self::Hdr => "hdr",
            Self::Ndr => "ndr",
        })
    }
}

/// The text names no network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetError(String);

impl fmt::Display for PresetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no network; there are 10gbe, 100gbe, hdr and ndr", self.0)
    }
}

impl std::error::Error for PresetError {}

impl FromStr for Preset {
    type Err = PresetError;

    fn from_str(text: &str) -> Result<Self, PresetError> {
        let named = Self::ALL.into_iter().find(|preset| preset.to_string() == text);
        named.ok_or_else(|| PresetError(text.to_owned()))
    }
}

/// How nodes hang together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Topology {
    /// Every node reaches every other at full speed.
    Flat,
    /// Racks with a common port to and from the core.
    Racks {
        /// Nodes per rack.
        nodes: u32,
        /// How many times less than its nodes together a rack can send: 1 is no limit worth speaking of.
        oversubscription: f64,
        /// What the way through the core adds to the latency.
        core_ns: f64,
    },
}

/// Other programs that come and go on a node, and what they leave it while they are there.
///
/// They are there and away in turns. The length of each turn is heavy-tailed: a Pareto law of shape 4/3, cut
/// off at a hundred times its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interference {
    /// On how many nodes, chosen by the seed.
    pub nodes: u32,
    /// How long they are there, on average.
    pub busy: Duration,
    /// How long they are away, on average.
    pub idle: Duration,
    /// Part of the processor that is left while they are there.
    pub cpu_left: f64,
    /// Part of the link that is left while they are there.
    pub link_left: f64,
}

/// A cluster of nodes with one rank each.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// How nodes are connected.
    pub link: Link,
    /// How the network is built.
    pub topology: Topology,
    /// γ: time to fold one byte that was read, in nanoseconds.
    pub fold_ns_per_byte: f64,
    /// Time to write one byte to the local disk, in nanoseconds.
    pub disk_ns_per_byte: f64,
    /// What handling one message and answering it costs the master, in nanoseconds: `everfold sim scale`
    /// measures it.
    pub master_ns: f64,
    /// What receiving or sending a frame costs it, in nanoseconds.
    pub master_frame_ns: f64,
    /// What else runs on the nodes.
    pub interference: Option<Interference>,
    /// Nodes that are slower than others at everything, and the part of the speed that they have.
    pub slow: BTreeMap<Rank, f64>,
    /// Bytes of the portions in which transfers share ports. Shorter ones are closer to the truth and take
    /// longer.
    pub chunk_bytes: u64,
}

impl Cluster {
    /// Nodes that fold 10 GB/s and write 120 MB/s to disk, on a flat network with nothing else on it.
    pub fn new(link: Link) -> Self {
        Self {
            link,
            topology: Topology::Flat,
            fold_ns_per_byte: 0.1,
            disk_ns_per_byte: 1e9 / 120e6,
            master_ns: 2500.0,
            master_frame_ns: link.overhead_ns.max(link.gap_ns),
            interference: None,
            slow: BTreeMap::new(),
            chunk_bytes: 64 << 10,
        }
    }
}
