//! Reductions in a modelled cluster, timed.

use std::time::Duration;

use everfold_master::Policy;
use everfold_protocol::{
    Path, Rank, ReductionSpec, Timestamp,
    spec::{BodyKind, Delivery, ElementType, Operation, Order, Protection},
};
use everfold_worker::machine::End;

use crate::{
    Call, Settings, World,
    collective::{self, Algorithm, Arrivals},
    model::Cluster,
    timing::Load,
};

/// Reductions of `Sum<f32>` that all ranks call at about the same time.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Number of ranks.
    pub ranks: u32,
    /// Size of each body.
    pub bytes: u64,
    /// Reductions at once, and when the ranks call them.
    pub arrivals: Arrivals,
    /// Who receives the results.
    pub receivers: Receivers,
    /// What they run on.
    pub cluster: Cluster,
    /// How the master schedules.
    pub policy: Policy,
    /// How contributions are protected.
    pub protection: Protection,
    /// What dies, and how long after the first call.
    pub death: Option<(Death, Duration)>,
    /// Decides everything that is drawn.
    pub seed: u64,
    /// Whether every event is followed; see [`Settings::follow`].
    pub follow: bool,
    /// See [`Settings::stopwatch`].
    pub stopwatch: Option<fn() -> u64>,
}

/// What dies in an experiment.
#[derive(Clone, Copy, Debug)]
pub enum Death {
    /// The process of this rank. The agent of its host holds what it has left.
    Process(Rank),
    /// The host of this rank, with its agent, and with the master if it is the host of rank 0. Connections
    /// to it break at once.
    Host(Rank),
}

/// Who receives the results of an experiment.
#[derive(Clone, Copy, Debug)]
pub enum Receivers {
    /// The first ranks, in turn, one of them each: their number.
    InTurn(u32),
    /// All ranks all of them.
    All,
}

/// What came of an experiment.
#[derive(Clone, Debug)]
pub struct Measured {
    /// From the first call to each of the results where it is received last; nothing for those that ended in
    /// an error.
    pub times: Vec<Option<Duration>>,
    /// What the master was told and has said meanwhile.
    pub load: Load,
    /// Events that were simulated.
    pub events: u64,
    /// See [`World::trace_hash`].
    pub trace_hash: u64,
}

impl Measured {
    /// When the last result was there; nothing if one is missing.
    pub fn time(&self) -> Option<Duration> {
        self.times.iter().copied().collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

impl Experiment {
    /// One reduction of `bytes` bytes to rank 0 on `ranks` nodes of `cluster`, protected as usual.
    pub fn new(ranks: u32, bytes: u64, cluster: Cluster) -> Self {
        Self {
            ranks,
            bytes,
            arrivals: Arrivals::default(),
            receivers: Receivers::InTurn(1),
            cluster,
            policy: Policy::default(),
            protection: Protection::default(),
            death: None,
            seed: 0,
            follow: false,
            stopwatch: None,
        }
    }

    /// The same with a static algorithm, which no death is in store for.
    pub fn run_static(&self, algorithm: Algorithm) -> Vec<Duration> {
        collective::time(&self.cluster, algorithm, self.ranks, self.bytes, &self.arrivals, self.seed)
    }

    /// A world in which all ranks are about to call.
    pub fn begin(&self) -> World {
        let mut settings = Settings::new(self.ranks, self.seed);
        settings.cluster = Some(self.cluster.clone());
        settings.policy = self.policy.clone();
        settings.follow = self.follow;
        settings.stopwatch = self.stopwatch;
        // As long as nothing dies, they say nothing but that they live.
        settings.agents = self.death.is_some();
        let mut world = World::new(settings);
        while world.met().len() < self.ranks as usize && world.step() {}
        let kind = BodyKind::Array {
            element: ElementType::F32,
            operation: Operation::Sum,
            length: self.bytes.div_ceil(4),
        };
        let spec = ReductionSpec {
            group: Path::range(0, self.ranks),
            delivery: self.delivery(0),
            kind,
            order: Order::Arrival,
            deadline: None,
            protection: self.protection,
            allow_missing: false,
            trace: false,
        };
        let inline = self.bytes <= self.policy.limits.inline_bytes_max;
        for rank in (0..self.ranks).map(Rank) {
            let after = self.arrivals.after.get(rank.index()).copied().unwrap_or_default();
            for number in 0..self.arrivals.reductions {
                let spec = ReductionSpec { delivery: self.delivery(number), ..spec.clone() };
                world.call(after, Call { rank, name: name(number), sequence: 0, spec, inline });
            }
        }
        match self.death {
            None => {}
            Some((Death::Process(rank), after)) => world.kill(after, rank),
            Some((Death::Host(rank), after)) => world.end_host_of(after, rank),
        }
        world
    }

    /// Runs until all calls have ended.
    ///
    /// # Panics
    /// If a value is not the fold of every rank's contribution.
    pub fn run(&self) -> Measured {
        let mut world = self.begin();
        self.finish(&mut world)
    }

    /// Runs a world that this experiment has begun until all calls have ended.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn finish(&self, world: &mut World) -> Measured {
        let calls = u64::from(self.ranks) * u64::from(self.arrivals.reductions);
        let before = world.load();
        while (world.calls_ended() < calls) && world.step() {}
        let times = (0..self.arrivals.reductions).map(|number| self.time(world, number));
        Measured {
            times: times.collect(),
            load: world.load() - before,
            events: world.events(),
            trace_hash: world.trace_hash(),
        }
    }

    fn delivery(&self, number: u32) -> Delivery {
        match self.receivers {
            Receivers::InTurn(roots) => Delivery::Root(Rank(number % roots)),
            Receivers::All => Delivery::All,
        }
    }

    fn time(&self, world: &World, number: u32) -> Option<Duration> {
        match self.delivery(number).root() {
            Some(root) => self.time_of(world, number, root),
            None => {
                let times = (0..self.ranks).map(|rank| self.time_of(world, number, Rank(rank)));
                times.collect::<Option<Vec<_>>>()?.into_iter().max()
            }
        }
    }

    fn time_of(&self, world: &World, number: u32, rank: Rank) -> Option<Duration> {
        let ended = world.ended(rank, &name(number), 0)?;
        if !matches!(ended.end, End::Received(_)) {
            return None;
        }
        let mut counted = vec![0u32; self.ranks as usize];
        for (index, segment) in ended.value.iter().flatten().enumerate() {
            segment.iter().for_each(|rank| counted[rank.index()] += 1);
            let each_once = counted.iter().all(|count| *count as usize == index + 1);
            assert!(each_once, "segment {index} is not the fold of every rank's contribution");
        }
        Some(ended.at.since(Timestamp::ZERO))
    }
}

fn name(number: u32) -> String {
    format!("reduction {number}")
}
