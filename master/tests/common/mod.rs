//! A master that all ranks have joined, each on a host of its own.

#![allow(dead_code, clippy::unwrap_used)]

use everfold_master::{Action, Event, Master, Policy};
use everfold_protocol::{
    Epoch, Generation, JobId, Path, ProcessId, Rank, ReductionId, ReductionSpec, RegionOffset, Timestamp,
    WindowId,
    message::{
        Contribution, Data, Header, PartialReady, Peer, Place, Task, TaskCounters, ToMaster, ToWorker,
        WindowRef,
    },
    spec::{BodyKind, Delivery, ElementType, Operation, Order, Protection},
};

const JOB: JobId = JobId(1);
/// Longer than what travels in messages, and one segment.
const BYTES: u64 = 20 << 10;

pub struct Job {
    pub master: Master,
    pub now: Timestamp,
}

impl Job {
    pub fn new(ranks: u32, policy: Policy) -> Self {
        let now = Timestamp::ZERO;
        let mut job = Self { master: Master::new(now, JOB, ranks, policy), now };
        for rank in 0..ranks {
            let process = ProcessId::first(Rank(rank));
            let (address, domain) = (String::new(), None);
            let (region, bell, board) = (None, None, None);
            let peer = Peer {
                process,
                host: rank.into(),
                pid: 0,
                region,
                bell,
                board,
                address,
                domain,
                agent: None,
            };
            job.tell(rank, ToMaster::Join { peer, size: ranks });
        }
        job
    }

    /// Lets the master hear of something. Returns what it says to whom.
    pub fn tell(&mut self, rank: u32, message: ToMaster) -> Vec<(u32, ToWorker)> {
        let sender = ProcessId::first(Rank(rank));
        let header = Header { job: JOB, epoch: Epoch(0), sender };
        self.master.handle_event(self.now, Event::Message { header, message });
        self.said()
    }

    /// Lets time pass up to what is due next.
    pub fn wait(&mut self) -> Vec<(u32, ToWorker)> {
        self.now = self.master.poll_timeout().unwrap();
        self.master.handle_timeout(self.now);
        self.said()
    }

    fn said(&mut self) -> Vec<(u32, ToWorker)> {
        let actions: Vec<Action> = std::iter::from_fn(|| self.master.poll_action()).collect();
        self.master.check();
        let said = actions.into_iter().filter_map(|action| match action {
            Action::Send { to, message } => Some((to.rank.0, message)),
            _ => None,
        });
        said.collect()
    }

    pub fn call(&mut self, rank: u32, id: ReductionId, spec: &ReductionSpec) -> Vec<(u32, ToWorker)> {
        let (name, spec, data) = ("x".to_owned(), spec.clone(), window());
        self.tell(rank, ToMaster::Contribute(Box::new(Contribution { reduction: id, name, spec, data })))
    }

    pub fn answer(&mut self, rank: u32, task: &Task) -> Vec<(u32, ToWorker)> {
        let union = |path: Path, other: &Path| path.union(other).unwrap();
        let path = task.sources.iter().fold(task.own.clone(), |path, source| union(path, &source.path));
        let (task, segment, counters) = (task.task, task.segment, TaskCounters::default());
        self.tell(
            rank,
            ToMaster::PartialReady(PartialReady { task, segment, path, data: window(), counters }),
        )
    }
}

fn window() -> Data {
    let (window, generation, place) = (WindowId(0), Generation(1), Place::Region(RegionOffset(0)));
    Data::Window(WindowRef { window, generation, bytes: BYTES, checksum: None, place })
}

pub fn spec(group: &[u32], delivery: Delivery) -> ReductionSpec {
    ReductionSpec {
        group: group.iter().copied().map(Rank).collect(),
        delivery,
        kind: BodyKind::Array { element: ElementType::U8, operation: Operation::Sum, length: BYTES },
        order: Order::Arrival,
        deadline: None,
        protection: Protection::None,
        allow_missing: false,
        trace: false,
    }
}

/// The tasks among what was said.
pub fn tasks(said: &[(u32, ToWorker)]) -> Vec<(u32, Task)> {
    let task = |(rank, message): &(u32, ToWorker)| match message {
        ToWorker::Task(task) => Some((*rank, task.clone())),
        _ => None,
    };
    said.iter().filter_map(task).collect()
}
