//! Ports, and what passes through them.

use std::collections::VecDeque;

use everfold_protocol::Timestamp;

use super::{
    Cluster, Link, Nodes, Topology,
    node::{Resource, after},
};

/// Bytes on their way from one node to another.
#[derive(Clone, Copy, Debug)]
struct Transfer<T> {
    to: u32,
    left: u64,
    /// Comes back when it has arrived.
    token: T,
}

/// One node's connection to the network.
#[derive(Debug)]
struct Port<T> {
    /// Transfers that leave the node, in turns.
    leaving: VecDeque<Transfer<T>>,
    /// Whether a chunk is on its way out; `pump` is then due at its end.
    is_sending: bool,
    out_until: Timestamp,
    in_until: Timestamp,
}

/// What became of a chunk.
#[derive(Debug)]
pub(crate) struct Pumped<T> {
    /// When the node's next chunk can go.
    pub next: Option<Timestamp>,
    /// The transfer that ends with this chunk, and when.
    pub arrives: Option<(Timestamp, T)>,
}

/// The network.
#[derive(Debug)]
pub(crate) struct Network<T> {
    link: Link,
    topology: Topology,
    chunk_bytes: u64,
    ports: Vec<Port<T>>,
    /// Until when each rack's ports to and from the core are taken.
    up_until: Vec<Timestamp>,
    down_until: Vec<Timestamp>,
}

impl<T: Copy> Network<T> {
    pub fn new(cluster: &Cluster, ranks: u32) -> Self {
        let port = || Port {
            leaving: VecDeque::new(),
            is_sending: false,
            out_until: Timestamp::ZERO,
            in_until: Timestamp::ZERO,
        };
        let racks = match cluster.topology {
            Topology::Flat => 0,
            Topology::Racks { nodes, .. } => ranks.div_ceil(nodes),
        };
        Self {
            link: cluster.link,
            topology: cluster.topology,
            chunk_bytes: cluster.chunk_bytes,
            ports: (0..ranks).map(|_| port()).collect(),
            up_until: vec![Timestamp::ZERO; racks as usize],
            down_until: vec![Timestamp::ZERO; racks as usize],
        }
    }

    /// What a message costs on this way however short it is, in nanoseconds.
    pub fn alpha_ns(&self, from: u32, to: u32) -> f64 {
        self.link.alpha_ns() + self.core_ns(from, to)
    }

    fn core_ns(&self, from: u32, to: u32) -> f64 {
        match self.topology {
            Topology::Racks { nodes, core_ns, .. } if from / nodes != to / nodes => core_ns,
            _ => 0.0,
        }
    }

    /// Lets a short message pass at once; returns when its last byte is there. Bulk data waits for it.
    pub fn control(&mut self, now: Timestamp, from: u32, to: u32, bytes: u64) -> Timestamp {
        let ns = bytes as f64 * self.link.ns_per_byte;
        let out = &mut self.ports[from as usize].out_until;
        *out = after((*out).max(now), ns);
        let there = after(now, self.link.latency_ns + self.core_ns(from, to) + ns);
        let arriving = &mut self.ports[to as usize].in_until;
        *arriving = after((*arriving).max(now), ns);
        there
    }

    /// Begins to send; returns when [`pump`](Self::pump) is due for `from`, unless it was due already.
    pub fn send(&mut self, now: Timestamp, from: u32, to: u32, bytes: u64, token: T) -> Option<Timestamp> {
        let port = &mut self.ports[from as usize];
        port.leaving.push_back(Transfer { to, left: bytes, token });
        let was_sending = std::mem::replace(&mut port.is_sending, true);
        (!was_sending).then(|| port.out_until.max(now))
    }

    /// Sends the next chunk of what leaves `from`.
    pub fn pump(&mut self, now: Timestamp, from: u32, nodes: &mut Nodes) -> Pumped<T> {
        let port = &mut self.ports[from as usize];
        let Some(mut transfer) = port.leaving.pop_front() else {
            unreachable!("pump is due only while something leaves");
        };
        let bytes = transfer.left.min(self.chunk_bytes);
        transfer.left -= bytes;
        let to = transfer.to;
        let ns = (bytes as f64 * self.link.ns_per_byte).max(self.link.gap_ns);
        let start = port.out_until.max(now);
        let sent = nodes.stretch(now, from, Resource::Link, start, ns);
        let port = &mut self.ports[from as usize];
        port.out_until = sent;
        if transfer.left > 0 {
            port.leaving.push_back(transfer);
        }
        port.is_sending = !port.leaving.is_empty();
        let next = port.is_sending.then_some(sent);

        // The first byte travels on while the last one is still to leave; no port gives bytes faster than it
        // gets them.
        let alpha_ns = self.alpha_ns(from, to);
        let (first, last) = self.through_core(from, to, ns, (start, sent));
        let (first, last) = (after(first, alpha_ns), after(last, alpha_ns));
        let begin = self.ports[to as usize].in_until.max(first);
        let received = nodes.stretch(now, to, Resource::Link, begin, ns).max(last);
        self.ports[to as usize].in_until = received;
        Pumped { next, arrives: (transfer.left == 0).then_some((received, transfer.token)) }
    }

    /// When the first and the last byte of a chunk leave the core, if it has to pass it.
    fn through_core(
        &mut self,
        from: u32,
        to: u32,
        ns: f64,
        (mut first, mut last): (Timestamp, Timestamp),
    ) -> (Timestamp, Timestamp) {
        let Topology::Racks { nodes, oversubscription, .. } = self.topology else { return (first, last) };
        let (from, to) = ((from / nodes) as usize, (to / nodes) as usize);
        if from != to {
            let ns = ns * oversubscription / f64::from(nodes);
            for until in [&mut self.up_until[from], &mut self.down_until[to]] {
                first = first.max(*until);
                last = after(first, ns).max(last);
                // The rack's port is many links wide: others pass while this chunk trickles in.
                *until = after(first, ns);
            }
        }
        (first, last)
    }
}
