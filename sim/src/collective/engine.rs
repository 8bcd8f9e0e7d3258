//! Runs static programs in a modelled cluster.

use std::{collections::VecDeque, time::Duration};

use everfold_protocol::Timestamp;

use super::algorithm::{Algorithm, Step};
use crate::{
    heap::Heap,
    model::{Cluster, Network, Nodes, Pumped},
};

/// When ranks call, and how many reductions at once.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// By rank; those not listed call at once.
    pub after: Vec<Duration>,
    /// Reductions that are called together.
    pub reductions: u32,
}

impl Default for Arrivals {
    /// One reduction that all call at once.
    fn default() -> Self {
        Self { after: Vec::new(), reductions: 1 }
    }
}

/// When the root has each of the results, from the first call on.
pub fn time(
    cluster: &Cluster,
    algorithm: Algorithm,
    ranks: u32,
    bytes: u64,
    arrivals: &Arrivals,
    seed: u64,
) -> Vec<Duration> {
    let mut run = Run {
        network: Network::new(cluster, ranks),
        nodes: Nodes::new(cluster, ranks, seed),
        heap: Heap::new(),
        programs: (0..ranks).map(|rank| algorithm.program(rank, ranks, bytes)).collect(),
        threads: Vec::new(),
        now: Timestamp::ZERO,
    };
    for _ in 0..arrivals.reductions {
        for rank in 0..ranks {
            let thread = run.threads.len() as u32;
            run.threads.push(Thread::default());
            let after = arrivals.after.get(rank as usize).copied().unwrap_or_default();
            run.heap.push(Timestamp::ZERO + after, Event::Go(thread));
        }
    }
    run.run();
    let roots = run.threads.iter().step_by(ranks as usize);
    roots.map(|root| root.ended.expect("static schedules end").since(Timestamp::ZERO)).collect()
}

/// One rank's part in one reduction.
#[derive(Debug, Default)]
struct Thread {
    /// Its next step in its rank's program.
    next: usize,
    /// Sends that have not arrived.
    sending: u32,
    /// What it waits for.
    waits: Option<Wait>,
    ended: Option<Timestamp>,
    /// What comes from other threads, which are few.
    pairs: Vec<(u32, Pair)>,
}

impl Thread {
    fn pair(&mut self, from: u32) -> &mut Pair {
        let known = self.pairs.iter().position(|(other, _)| *other == from);
        let index = known.unwrap_or_else(|| {
            self.pairs.push((from, Pair::default()));
            self.pairs.len() - 1
        });
        &mut self.pairs[index].1
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Arrival { from: u32 },
    Drained,
    Folded,
}

/// What is between two threads, in one direction.
#[derive(Debug, Default)]
struct Pair {
    /// Bytes of sends that wait for a receiver.
    offered: VecDeque<u64>,
    /// Receives that wait for a sender.
    posted: u32,
    /// What has arrived and was not waited for yet.
    arrived: u32,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A thread begins, or has folded.
    Go(u32),
    Pump(u32),
    Arrived((u32, u32)),
}

struct Run {
    network: Network<(u32, u32)>,
    nodes: Nodes,
    heap: Heap<Event>,
    /// By rank.
    programs: Vec<Vec<Step>>,
    /// By reduction, then by rank.
    threads: Vec<Thread>,
    now: Timestamp,
}

impl Run {
    fn ranks(&self) -> u32 {
        self.programs.len() as u32
    }

    fn run(&mut self) {
        while let Some((now, event)) = self.heap.pop() {
            self.now = now;
            match event {
                Event::Go(thread) => {
                    self.threads[thread as usize].waits = None;
                    self.go_on(thread);
                }
                Event::Pump(node) => {
                    let Pumped { next, arrives } = self.network.pump(now, node, &mut self.nodes);
                    if let Some(due) = next {
                        self.heap.push(due, Event::Pump(node));
                    }
                    if let Some((at, pair)) = arrives {
                        self.heap.push(at, Event::Arrived(pair));
                    }
                }
                Event::Arrived((from, to)) => {
                    self.threads[to as usize].pair(from).arrived += 1;
                    self.threads[from as usize].sending -= 1;
                    let is_drained = self.threads[from as usize].sending == 0;
                    self.wake(to, Wait::Arrival { from });
                    if is_drained {
                        self.wake(from, Wait::Drained);
                    }
                }
            }
        }
    }

    fn wake(&mut self, thread: u32, by: Wait) {
        if self.threads[thread as usize].waits == Some(by) {
            self.threads[thread as usize].waits = None;
            self.go_on(thread);
        }
    }

    /// Takes a thread's steps up to the next one that takes time.
    fn go_on(&mut self, thread: u32) {
        let rank = thread % self.ranks();
        let first = thread - rank;
        while let Some(&step) = self.programs[rank as usize].get(self.threads[thread as usize].next) {
            let waits = match step {
                Step::Send { to, bytes } => {
                    self.threads[thread as usize].sending += 1;
                    let pair = (thread, first + to);
                    self.threads[pair.1 as usize].pair(thread).offered.push_back(bytes);
                    self.match_up(pair);
                    None
                }
                Step::Post { from } => {
                    let pair = (first + from, thread);
                    self.threads[thread as usize].pair(pair.0).posted += 1;
                    self.match_up(pair);
                    None
                }
                Step::Wait { from } => {
                    let pair = self.threads[thread as usize].pair(first + from);
                    match pair.arrived.checked_sub(1) {
                        Some(left) => {
                            pair.arrived = left;
                            None
                        }
                        None => Some(Wait::Arrival { from: first + from }),
                    }
                }
                Step::Drain => (self.threads[thread as usize].sending > 0).then_some(Wait::Drained),
                Step::Fold { bytes } => {
                    let done = self.nodes.fold(self.now, rank, bytes);
                    self.heap.push(done, Event::Go(thread));
                    self.threads[thread as usize].next += 1;
                    Some(Wait::Folded)
                }
            };
            if waits.is_some() {
                self.threads[thread as usize].waits = waits;
                return;
            }
            self.threads[thread as usize].next += 1;
        }
        self.threads[thread as usize].ended = Some(self.now);
    }

    /// Lets bytes flow for which both ends are ready.
    fn match_up(&mut self, pair: (u32, u32)) {
        let (from, to) = (pair.0 % self.ranks(), pair.1 % self.ranks());
        let between = self.threads[pair.1 as usize].pair(pair.0);
        if between.posted == 0 {
            return;
        }
        if let Some(bytes) = between.offered.pop_front() {
            between.posted -= 1;
            if let Some(due) = self.network.send(self.now, from, to, bytes, pair) {
                self.heap.push(due, Event::Pump(from));
            }
        }
    }
}
