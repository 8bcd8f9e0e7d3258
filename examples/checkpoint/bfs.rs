//! BFS: how far each node of a graph is from the first one, level by level (Rodinia bfs).
//!
//! Two kernels per level: neighbours of the frontier get their distance; they become the next frontier. The
//! graph never changes, so it is no part of a checkpoint. The host reads one flag per level: whether to go
//! on.

use std::collections::VecDeque;

use everfold_examples::{
    checkpoints::{self, Place, Program, Size},
    device::{Buffer, Device, Launch, Speeds},
    npb::random::Generator,
};
use serde::{Deserialize, Serialize};

/// Edges of each node, and how far they reach, in parts of the graph: the further, the fewer levels.
const DEGREE: usize = 6;
const REACH: f64 = 0.02;
/// The distance of nodes that were not reached.
const FAR: i32 = -1;

fn main() -> everfold::Result<()> {
    checkpoints::main::<Bfs>()
}

struct Bfs {
    nodes: usize,
    /// For each node the nodes to which its edges lead.
    edges: Buffer<u32>,
    frontier: Buffer<u8>,
    next: Buffer<u8>,
    visited: Buffer<u8>,
    distance: Buffer<i32>,
    goes_on: Buffer<u8>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct State {
    has_expanded: bool,
    is_over: bool,
}

impl Program for Bfs {
    type State = State;
    const NAME: &'static str = "bfs";
    const SPEEDS: Speeds = Speeds { memory_bytes_per_s: 2.5e8, bus_bytes_per_s: 4e8 };
    const SOURCE: &'static str = include_str!("cuda/bfs.cu");

    fn begin(device: &Device, size: Size) -> (Self, State) {
        let nodes = size.size.unwrap_or(1 << 19);
        let only_first = |yes, no| {
            let mut values = vec![no; nodes];
            values[0] = yes;
            values
        };
        let mut distance = vec![FAR; nodes];
        distance[0] = 0;
        let program = Self {
            nodes,
            edges: device.upload(edges(nodes)),
            frontier: device.upload(only_first(1, 0)),
            next: device.zeros(nodes),
            visited: device.upload(only_first(1, 0)),
            distance: device.upload(distance),
            goes_on: device.zeros(1),
        };
        (program, State { has_expanded: false, is_over: false })
    }

    fn place(&self, state: &State) -> Option<Place> {
        let (visited, distance) = (self.visited.id(), self.distance.id());
        (!state.is_over).then(|| match state.has_expanded {
            false => Place::new("before expanding", [self.frontier.id(), visited, distance]),
            true => Place::new("before advancing", [self.next.id(), visited, distance]),
        })
    }

    fn launch(&self, state: &State, device: &Device) {
        let &Self { nodes, edges, frontier, next, visited, distance, goes_on } = self;
        if state.has_expanded {
            let launch = Launch::of("advance", nodes).moving(9 * nodes);
            device.launch(launch.with_all([frontier, next, visited, goes_on]), move |memory| {
                memory.of_mut(goes_on)[0] = memory.of(next).contains(&1).into();
                memory.write([frontier, next, visited], |_, [frontier, next, visited]| {
                    frontier.copy_from_slice(next);
                    visited.iter_mut().zip(&*next).for_each(|(visited, next)| *visited |= next);
                    next.fill(0);
                });
            });
        } else {
            let launch = Launch::of("expand", nodes).moving(11 * nodes).with(DEGREE).with(edges);
            let launch = launch.with_all([frontier, visited, next]).with(distance).with(goes_on);
            device.launch(launch, move |memory| {
                memory.write([next], |memory, [next]| {
                    for node in reached(memory.of(frontier), memory.of(edges)).map(|(_, node)| node) {
                        next[node] = 1 - memory.of(visited)[node];
                    }
                });
                memory.write([distance], |memory, [distance]| {
                    for (from, node) in reached(memory.of(frontier), memory.of(edges)) {
                        if memory.of(next)[node] == 1 {
                            distance[node] = distance[from] + 1;
                        }
                    }
                });
            });
        }
    }

    fn advance(&self, state: &mut State, device: &Device) {
        if state.has_expanded {
            state.is_over = device.read(self.goes_on)[0] == 0;
        }
        state.has_expanded = !state.has_expanded;
    }

    fn check(&self, _: &State, device: &Device) -> Result<String, String> {
        let (found, expected) = (device.read(self.distance), directly(&edges(self.nodes)));
        let levels = expected.iter().max().copied().unwrap_or_default();
        match found == expected {
            true => Ok(format!("all distances as found with a queue, {levels} at most")),
            false => Err("distances differ from those found with a queue".to_owned()),
        }
    }
}

/// The edges of nodes whose mark is set: from where, and to where.
fn reached(marks: &[u8], edges: &[u32]) -> impl Iterator<Item = (usize, usize)> {
    let marked = marks.iter().enumerate().filter(|(_, mark)| **mark == 1).map(|(node, _)| node);
    marked
        .flat_map(|from| edges[from * DEGREE..(from + 1) * DEGREE].iter().map(move |to| (from, *to as usize)))
}

/// Edges to nodes at random distances around a ring.
fn edges(nodes: usize) -> Vec<u32> {
    let mut random = Generator::new(314_159_265);
    let reach = (nodes as f64 * REACH).max(1.0);
    let edge = |node: usize, random: &mut Generator| (node + 1 + (random.draw() * reach) as usize) % nodes;
    (0..nodes * DEGREE).map(|index| edge(index / DEGREE, &mut random) as u32).collect()
}

/// Distances with a queue of nodes instead of levels.
fn directly(edges: &[u32]) -> Vec<i32> {
    let mut distance = vec![FAR; edges.len() / DEGREE];
    distance[0] = 0;
    let mut queue = VecDeque::from([0usize]);
    while let Some(node) = queue.pop_front() {
        for next in edges[node * DEGREE..(node + 1) * DEGREE].iter().map(|next| *next as usize) {
            if distance[next] == FAR {
                distance[next] = distance[node] + 1;
                queue.push_back(next);
            }
        }
    }
    distance
}
