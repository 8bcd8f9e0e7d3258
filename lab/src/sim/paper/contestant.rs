//! Who is compared.

use std::{collections::BTreeMap, fmt, time::Duration};

use everfold::Protection;
use everfold_sim::{
    collective::{Algorithm, best_segment},
    experiment::Experiment,
    model::Cluster,
};

use crate::sim::parallel;

/// A way to reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// everfold as it is by default, with replicas.
    Everfold,
    /// everfold without replicas.
    Unprotected,
    /// The paper's algorithm as it is printed: whole bodies, pairwise, the root in every level (DR-6).
    WholeBodies,
    Binomial,
    Rabenseifner,
    Chain,
    BinaryTree,
}

impl Contestant {
    pub const ALL: [Self; 7] = [
        Self::Everfold,
        Self::WholeBodies,
        Self::Binomial,
        Self::Rabenseifner,
        Self::Chain,
        Self::BinaryTree,
        Self::Unprotected,
    ];
    /// Those that are compared where other programs run.
    pub const DISTURBED: [Self; 6] = [
        Self::Everfold,
        Self::WholeBodies,
        Self::Binomial,
        Self::Rabenseifner,
        Self::Chain,
        Self::BinaryTree,
    ];
    /// The static algorithms.
    pub const STATIC: [Self; 4] = [Self::Binomial, Self::Rabenseifner, Self::Chain, Self::BinaryTree];

    /// How long the reductions of an experiment take until the last result is there.
    pub fn time(self, experiment: &Experiment, best: &BestSegments) -> Duration {
        let dynamic = |experiment: &Experiment| experiment.run().time().expect("nobody dies");
        match self.with(experiment) {
            Some(experiment) => dynamic(&experiment),
            None => {
                let times = experiment.run_static(self.algorithm(experiment.bytes, best));
                times.into_iter().max().expect("there is a reduction")
            }
        }
    }

    /// The experiment with everfold's settings for this contestant, unless it is a static algorithm.
    pub fn with(self, experiment: &Experiment) -> Option<Experiment> {
        let mut experiment = experiment.clone();
        match self {
            Self::Everfold => {}
            Self::Unprotected => experiment.protection = Protection::None,
            Self::WholeBodies => {
                experiment.protection = Protection::None;
                experiment.policy.segment_bytes = u64::MAX;
                experiment.policy.segments = 1;
                experiment.policy.limits.teams_from = 0;
            }
            Self::Binomial | Self::Rabenseifner | Self::Chain | Self::BinaryTree => return None,
        }
        Some(experiment)
    }

    fn algorithm(self, bytes: u64, best: &BestSegments) -> Algorithm {
        match self {
            Self::Rabenseifner => Algorithm::Rabenseifner,
            Self::Chain => best.0[&bytes].0,
            Self::BinaryTree => best.0[&bytes].1,
            _ => Algorithm::Binomial,
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Everfold => "everfold",
            Self::Unprotected => "everfold without copies",
            Self::WholeBodies => "the paper's algorithm",
            Self::Binomial => "binomial tree",
            Self::Rabenseifner => "Rabenseifner",
            Self::Chain => "pipelined chain",
            Self::BinaryTree => "pipelined binary tree",
        })
    }
}

/// Chain and binary tree with their best segments in an undisturbed cluster, by size of the body.
pub struct BestSegments(BTreeMap<u64, (Algorithm, Algorithm)>);

impl BestSegments {
    pub fn find(cluster: &Cluster, ranks: u32, bytes: &[u64]) -> Self {
        let best = |&bytes: &u64| {
            let chain = |segment_bytes| Algorithm::Chain { segment_bytes, ahead: true };
            let tree = |segment_bytes| Algorithm::BinaryTree { segment_bytes };
            (best_segment(cluster, ranks, bytes, chain).0, best_segment(cluster, ranks, bytes, tree).0)
        };
        let found = parallel::map("best segments", bytes, best);
        Self(bytes.iter().copied().zip(found).collect())
    }
}
