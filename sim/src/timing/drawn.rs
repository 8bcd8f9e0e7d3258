//! Delays drawn from the seed.

use std::{collections::BTreeMap, time::Duration};

use everfold_protocol::{
    ProcessId, Rank, ReductionId, Timestamp,
    message::{KeepAs, Task, Writing},
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::{
    events::Place,
    faults::Limp,
    settings::Settings,
    work::{Spent, Work, folds, is_at_hand},
};

/// Every message takes a time between two bounds, every task of a rank the same time.
#[derive(Debug)]
pub(crate) struct Drawn {
    latency: (Duration, Duration),
    task_time: BTreeMap<Rank, Duration>,
    /// By the names of reductions, as their ids have them.
    fold_time: BTreeMap<u64, Duration>,
    collect_time: Duration,
    /// When the last message on a connection arrives: connections keep their order.
    arrivals: BTreeMap<(Place, Place), Timestamp>,
    limps: BTreeMap<Rank, Limp>,
}

impl Drawn {
    pub fn new(settings: &Settings) -> Self {
        let Settings { latency, task_time, fold_time, collect_time, .. } = settings;
        let fold_time = fold_time.iter().map(|(name, time)| (ReductionId::new(name, 0).name, *time));
        Self {
            latency: *latency,
            task_time: task_time.clone(),
            fold_time: fold_time.collect(),
            collect_time: *collect_time,
            arrivals: BTreeMap::new(),
            limps: BTreeMap::new(),
        }
    }

    /// Slows a rank down, or lets it be as fast as it was.
    pub fn limp(&mut self, rank: Rank, limp: Limp) {
        self.limps.insert(rank, limp);
    }

    pub fn message(&mut self, now: Timestamp, random: &mut ChaCha8Rng, from: Place, to: Place) -> Timestamp {
        let late = |place: &Place| match place {
            Place::Rank(rank) => self.limps.get(rank).and_then(|limp| limp.message_time),
            Place::Agent(_) | Place::Master => None,
        };
        let late = [from, to].iter().find_map(late);
        let late = late.map_or(Duration::ZERO, |time| random.random_range(Duration::ZERO..=time));
        let at = now + self.latency(random) + late;
        let last = self.arrivals.entry((from, to)).or_default();
        *last = at.max(*last);
        *last
    }

    pub fn bell(&mut self, now: Timestamp, random: &mut ChaCha8Rng) -> Timestamp {
        now + self.latency(random)
    }

    pub fn work(&mut self, random: &mut ChaCha8Rng, process: ProcessId, work: &Work) -> Spent {
        let all = match work {
            Work::Execute(task) => self.task_time(process.rank) + self.fold_time(task),
            Work::Keep(keep) => self.latency(random) + self.write_time(process.rank, keep.how),
            Work::Prefetch(..) => self.latency(random),
            Work::Collect(..) if self.collect_time.is_zero() => self.latency(random),
            Work::Collect(_, pieces, _) if pieces.iter().all(|piece| is_at_hand(piece, process)) => {
                self.latency(random)
            }
            Work::Collect(..) => {
                self.latency(random) + random.random_range(Duration::ZERO..self.collect_time)
            }
        };
        // A rank that is slow at tasks is slow to be read from, too.
        let reads = match work {
            Work::Execute(task) => task.sources.iter().map(|source| source.process.rank).collect(),
            Work::Keep(_) | Work::Prefetch(..) | Work::Collect(..) => Vec::new(),
        };
        let mut reads: Vec<_> = reads.into_iter().map(|rank| (self.task_time(rank), rank)).collect();
        reads.sort_unstable();
        let (fetching, last) = reads.pop().unzip();
        let others = reads.pop().map_or(Duration::ZERO, |(time, _)| time);
        Spent { all, fetching: fetching.unwrap_or_default(), last, others, ..Spent::default() }
    }

    fn latency(&self, random: &mut ChaCha8Rng) -> Duration {
        let (shortest, longest) = self.latency;
        let range = shortest.as_nanos() as u64..=longest.as_nanos() as u64;
        Duration::from_nanos(random.random_range(range))
    }

    fn task_time(&self, rank: Rank) -> Duration {
        let limp = self.limps.get(&rank).and_then(|limp| limp.task_time);
        limp.unwrap_or_else(|| self.usual_task_time(rank))
    }

    /// What the operation takes, at any rank.
    fn fold_time(&self, task: &Task) -> Duration {
        let each = self.fold_time.get(&task.segment.reduction.name).copied().unwrap_or_default();
        each * folds(task)
    }

    /// What a slow disk adds to a copy that is acknowledged once it is written.
    fn write_time(&self, rank: Rank, how: KeepAs) -> Duration {
        let limp = self.limps.get(&rank).and_then(|limp| limp.write_time);
        limp.filter(|_| how.writing == Writing::Through).unwrap_or_default()
    }

    fn usual_task_time(&self, rank: Rank) -> Duration {
        self.task_time.get(&rank).copied().unwrap_or(Duration::from_micros(100))
    }
}
