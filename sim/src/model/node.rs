//! How fast nodes are at any moment.

use std::collections::VecDeque;

use everfold_protocol::Timestamp;
use rand::{Rng, SeedableRng, seq::index};
use rand_chacha::ChaCha8Rng;

use super::{Cluster, Interference};

/// Turns of interference are at most so many times longer than their mean.
const TAIL: f64 = 100.0;

/// What a node is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Processor,
    Link,
}

/// The nodes' speeds.
#[derive(Debug)]
pub(crate) struct Nodes {
    interference: Option<Interference>,
    /// By rank; nobody's if nothing disturbs any.
    disturbances: Vec<Option<Disturbance>>,
    /// By rank; nobody's if all are equally fast.
    speeds: Vec<f64>,
    folding_until: Vec<Timestamp>,
    writing_until: Vec<Timestamp>,
    fold_ns_per_byte: f64,
    disk_ns_per_byte: f64,
}

/// Turns of other programs on one node, as far as they were drawn.
#[derive(Debug)]
struct Disturbance {
    random: ChaCha8Rng,
    /// Ends of turns, and whether the programs are there until then.
    turns: VecDeque<(Timestamp, bool)>,
}

impl Nodes {
    pub fn new(cluster: &Cluster, ranks: u32, seed: u64) -> Self {
        let mut disturbances = Vec::new();
        if let Some(interference) = &cluster.interference {
            disturbances.resize_with(ranks as usize, || None);
            let mut random = ChaCha8Rng::seed_from_u64(seed ^ 0x1f2e_3d4c);
            let chosen = index::sample(&mut random, ranks as usize, interference.nodes.min(ranks) as usize);
            for node in chosen {
                let mut disturbance =
                    Disturbance { random: ChaCha8Rng::from_rng(&mut random), turns: VecDeque::new() };
                disturbance.begin(interference);
                disturbances[node] = Some(disturbance);
            }
        }
        let mut speeds = Vec::new();
        if !cluster.slow.is_empty() {
            speeds.resize(ranks as usize, 1.0);
            for (rank, speed) in &cluster.slow {
                speeds[rank.index()] = *speed;
            }
        }
        Self {
            interference: cluster.interference,
            disturbances,
            speeds,
            folding_until: vec![Timestamp::ZERO; ranks as usize],
            writing_until: vec![Timestamp::ZERO; ranks as usize],
            fold_ns_per_byte: cluster.fold_ns_per_byte,
            disk_ns_per_byte: cluster.disk_ns_per_byte,
        }
    }

    /// When something that takes an undisturbed node `ns` is done, if it begins at `start`.
    ///
    /// `now` never runs back, and `start` is not before it.
    pub fn stretch(
        &mut self,
        now: Timestamp,
        node: u32,
        resource: Resource,
        start: Timestamp,
        ns: f64,
    ) -> Timestamp {
        let ns = self.speeds.get(node as usize).map_or(ns, |speed| ns / speed);
        let disturbance = self.disturbances.get_mut(node as usize).and_then(Option::as_mut);
        match (disturbance, &self.interference) {
            (Some(disturbance), Some(interference)) => {
                disturbance.stretch(now, interference, resource, start, ns)
            }
            _ => after(start, ns),
        }
    }

    /// When a node has folded `bytes` bytes, after all that it has to fold already.
    pub fn fold(&mut self, now: Timestamp, node: u32, bytes: u64) -> Timestamp {
        let start = self.folding_until[node as usize].max(now);
        let end = self.stretch(now, node, Resource::Processor, start, bytes as f64 * self.fold_ns_per_byte);
        self.folding_until[node as usize] = end;
        end
    }

    /// When a node has written `bytes` bytes to its disk, after all that it has to write already.
    pub fn write(&mut self, now: Timestamp, node: u32, bytes: u64) -> Timestamp {
        let until = &mut self.writing_until[node as usize];
        *until = after((*until).max(now), bytes as f64 * self.disk_ns_per_byte);
        *until
    }
}

impl Disturbance {
    /// Begins somewhere in a turn.
    fn begin(&mut self, interference: &Interference) {
        let (busy, idle) = (interference.busy.as_secs_f64(), interference.idle.as_secs_f64());
        let there = self.random.random_bool(busy / (busy + idle));
        let length = self.length(interference, there) * self.random.random::<f64>();
        self.turns.push_back((after(Timestamp::ZERO, length), there));
    }

    /// Length of a turn in nanoseconds: x₀ U^(-3/4) has shape 4/3, and mean 4 x₀.
    fn length(&mut self, interference: &Interference, there: bool) -> f64 {
        let mean = if there { interference.busy } else { interference.idle }.as_nanos() as f64;
        let root = (1.0 - self.random.random::<f64>()).sqrt();
        (mean / 4.0 / (root * root.sqrt())).min(TAIL * mean)
    }

    fn stretch(
        &mut self,
        now: Timestamp,
        interference: &Interference,
        resource: Resource,
        start: Timestamp,
        ns: f64,
    ) -> Timestamp {
        while self.turns.len() > 1 && self.turns[0].0 <= now {
            self.turns.pop_front();
        }
        let left = match resource {
            Resource::Processor => interference.cpu_left,
            Resource::Link => interference.link_left,
        };
        let (mut at, mut ns, mut turn) = (start, ns, 0);
        loop {
            if turn == self.turns.len() {
                let (end, there) = self.turns[turn - 1];
                let length = self.length(interference, !there);
                self.turns.push_back((after(end, length), !there));
            }
            let (end, there) = self.turns[turn];
            turn += 1;
            if end <= at {
                continue;
            }
            let speed = if there { left } else { 1.0 };
            let possible = end.since(at).as_nanos() as f64 * speed;
            if ns <= possible {
                return after(at, ns / speed);
            }
            ns -= possible;
            at = end;
        }
    }
}

/// `ns` nanoseconds after `at`, rounded up.
pub(crate) fn after(at: Timestamp, ns: f64) -> Timestamp {
    // `f64::ceil` is a call wherever SSE4.1 is not taken for granted, and this is asked several times per
    // event.
    let whole = ns as u64;
    let up = u64::from((whole as f64) < ns);
    Timestamp::from_nanos(at.as_nanos().saturating_add(whole).saturating_add(up))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::Preset;

    /// Over many turns a node gets what is left of it on average: here (3 · 1/4 + 1) / 4 of its link.
    #[test]
    fn other_programs_take_their_share_on_average() {
        let interference = Interference {
            nodes: 50,
            busy: Duration::from_micros(300),
            idle: Duration::from_micros(100),
            cpu_left: 1.0,
            link_left: 0.25,
        };
        let link = Preset::Hdr.link();
        let cluster = Cluster { interference: Some(interference), ..Cluster::new(link) };
        let mut nodes = Nodes::new(&cluster, 100, 3);
        let work_ns = 1e10;
        let took = (0..100).map(|node| {
            let end = nodes.stretch(Timestamp::ZERO, node, Resource::Link, Timestamp::ZERO, work_ns);
            let calm = nodes.stretch(Timestamp::ZERO, node, Resource::Processor, Timestamp::ZERO, work_ns);
            assert_eq!(calm, after(Timestamp::ZERO, work_ns), "nothing is taken of the processor");
            end.as_nanos() as f64
        });
        let (disturbed, calm): (Vec<f64>, Vec<f64>) = took.partition(|took| *took > work_ns);
        assert_eq!((disturbed.len(), calm.len()), (50, 50));
        let mean = disturbed.iter().sum::<f64>() / 50.0;
        let speed = work_ns / mean;
        assert!((speed - 1.75 / 4.0).abs() < 0.03, "{speed}");
    }
}
