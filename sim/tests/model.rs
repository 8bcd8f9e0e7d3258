//! Reductions in modelled clusters.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use everfold_master::Policy;
use everfold_sim::{
    collective::{self, Algorithm, Arrivals},
    experiment::Experiment,
    model::{Cluster, Interference, Link, Preset},
};

#[test]
fn explore() {
    for bytes in [1u64 << 10, 128 << 10, 1 << 20, 8 << 20, 32 << 20, 128 << 20] {
        let t = std::time::Instant::now();
        let e = Experiment::new(200, bytes, Cluster::new(Preset::TenGbe.link()));
        let m = e.run();
        let dr =
            Experiment { policy: Policy { segment_bytes: u64::MAX, ..Policy::default() }, ..e.clone() }.run();
        let i = Experiment {
            cluster: Cluster {
                interference: Some(Interference {
                    nodes: 100,
                    busy: Duration::from_millis(300),
                    idle: Duration::from_millis(100),
                    cpu_left: 0.5,
                    link_left: 0.25,
                }),
                ..e.cluster.clone()
            },
            ..e
        };
        println!(
            "{bytes} {:?} dr {:?}, interference {:?} rab {:?} binom {:?}, took {:?} ev {} {:?}",
            m.times,
            dr.times,
            i.run().times,
            i.run_static(Algorithm::Rabenseifner),
            i.run_static(Algorithm::Binomial),
            t.elapsed(),
            m.events,
            m.load
        );
    }
}

/// α, β, γ of a network and a node, in seconds.
struct Costs {
    alpha: f64,
    beta: f64,
    gamma: f64,
}

fn costs(cluster: &Cluster) -> Costs {
    Costs {
        alpha: cluster.link.alpha_ns() * 1e-9,
        beta: cluster.link.ns_per_byte * 1e-9,
        gamma: cluster.fold_ns_per_byte * 1e-9,
    }
}

fn assert_near(what: &str, simulated: Duration, formula: f64) {
    let error = simulated.as_secs_f64() / formula - 1.0;
    assert!(error.abs() < 0.02, "{what}: {simulated:?} where the formula says {formula:.9} s");
}

/// Thakur, Rabenseifner, Gropp (2005), as printed in MPICH.
#[test]
fn static_algorithms_take_what_their_formulas_say() {
    for preset in Preset::ALL {
        // The formulas know of no gap.
        let cluster = Cluster::new(Link { gap_ns: 0.0, ..preset.link() });
        let Costs { alpha, beta, gamma } = costs(&cluster);
        for ranks in [8, 64, 100, 128, 200] {
            for bytes in [128 << 10, 1 << 20, 16 << 20] {
                let what =
                    |algorithm: Algorithm| format!("{algorithm}, {preset}, {ranks} ranks, {bytes} bytes");
                let simulated = |algorithm| {
                    collective::time(&cluster, algorithm, ranks, bytes, &Arrivals::default(), 0)[0]
                };
                let (p, n) = (f64::from(ranks), bytes as f64);
                let depth = p.log2().ceil();
                let binomial = depth * (alpha + n * beta + n * gamma);
                assert_near(&what(Algorithm::Binomial), simulated(Algorithm::Binomial), binomial);

                let core = f64::from(1 << ranks.ilog2());
                let part = (core - 1.0) / core;
                let mut rabenseifner = 2.0 * core.log2() * alpha + 2.0 * part * n * beta + part * n * gamma;
                if core < p {
                    rabenseifner += alpha + n * beta + n * gamma;
                }
                assert_near(&what(Algorithm::Rabenseifner), simulated(Algorithm::Rabenseifner), rabenseifner);

                for segment_bytes in [1 << 14, 1 << 16] {
                    let chain = Algorithm::Chain { segment_bytes, ahead: false };
                    let (segment, count) = (segment_bytes as f64, (bytes / segment_bytes) as f64);
                    let formula = (p - 1.0 + count - 1.0) * (alpha + segment * (beta + gamma));
                    assert_near(&what(chain), simulated(chain), formula);
                }
            }
        }
    }
}

#[test]
fn best_segments_explore() {
    let cluster = Cluster::new(Preset::TenGbe.link());
    for bytes in [128 << 10, 1 << 20, 8 << 20, 32 << 20, 128 << 20] {
        let t = std::time::Instant::now();
        println!(
            "{:?}",
            collective::best_segment(&cluster, 200, bytes, |segment_bytes| Algorithm::Chain {
                segment_bytes,
                ahead: true
            })
        );
        println!(
            "{:?}",
            collective::best_segment(&cluster, 200, bytes, |segment_bytes| Algorithm::BinaryTree {
                segment_bytes
            })
        );
        println!(
            "{:?}",
            collective::time(&cluster, Algorithm::Binomial, 200, bytes, &Arrivals::default(), 0)
        );
        println!(
            "{:?} {:?}",
            collective::time(&cluster, Algorithm::Rabenseifner, 200, bytes, &Arrivals::default(), 0),
            t.elapsed()
        );
    }
}
