//! Reductions in modelled clusters.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use everfold_protocol::{Rank, spec::Protection};
use everfold_sim::{
    Step,
    collective::{self, Algorithm, Arrivals},
    experiment::{Death, Experiment, Receivers},
    model::{Cluster, Interference, Link, Preset, Topology},
};

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

/// A node receives a segment of both children one after the other, and folds the first while the second
/// arrives; the segments follow each other as fast as its link or its memory lets them.
#[test]
fn a_pipelined_tree_takes_what_its_formula_says() {
    for preset in Preset::ALL {
        let cluster = Cluster::new(Link { gap_ns: 0.0, ..preset.link() });
        let Costs { alpha, beta, gamma } = costs(&cluster);
        for levels in [1, 3, 5, 7] {
            for segment_bytes in [1u64 << 15, 1 << 16] {
                let (ranks, bytes) = ((2 << levels) - 1, 16 << 20);
                let (segment, count) = (segment_bytes as f64, (bytes / segment_bytes) as f64);
                let level = alpha + segment * (beta + gamma + beta.max(gamma));
                let formula = f64::from(levels) * level + (count - 1.0) * 2.0 * segment * beta.max(gamma);
                let tree = Algorithm::BinaryTree { segment_bytes };
                let simulated = collective::time(&cluster, tree, ranks, bytes, &Arrivals::default(), 0)[0];
                assert_near(
                    &format!("{tree}, {preset}, {ranks} ranks, {segment_bytes} bytes"),
                    simulated,
                    formula,
                );
            }
        }
    }
}

/// Whole bodies of two ranks: a contribution, a task, a request and its answer, a fold, a reduction message,
/// the end.
#[test]
fn a_pair_takes_what_its_steps_take() {
    for preset in Preset::ALL {
        let cluster = Cluster::new(preset.link());
        let Costs { alpha, beta, gamma } = costs(&cluster);
        let (overhead, handling) = (cluster.link.overhead_ns * 1e-9, cluster.master_ns * 1e-9);
        let bytes = 16u64 << 20;
        let mut experiment = Experiment { follow: true, ..Experiment::new(2, bytes, cluster) };
        experiment.policy.segments = 1;
        experiment.policy.segment_bytes = u64::MAX;
        experiment.protection = Protection::None;
        let formula = 3.0 * alpha + 3.0 * overhead + 2.0 * handling + bytes as f64 * (beta + gamma);
        assert_near(&preset.to_string(), experiment.run().time().unwrap(), formula);
    }
}

fn disturbed(nodes: u32) -> Cluster {
    let interference = Interference {
        nodes,
        busy: Duration::from_millis(3),
        idle: Duration::from_millis(1),
        cpu_left: 0.5,
        link_left: 0.25,
    };
    Cluster { interference: Some(interference), ..Cluster::new(Preset::TenGbe.link()) }
}

#[test]
fn a_seed_describes_an_experiment_completely() {
    let experiment = Experiment { follow: true, ..Experiment::new(12, 1 << 20, disturbed(8)) };
    let run = |seed| {
        let measured = Experiment { seed, ..experiment.clone() }.run();
        (measured.times, measured.load, measured.events, measured.trace_hash)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).3, run(2).3);
    let calm = Experiment { cluster: Cluster::new(Preset::TenGbe.link()), ..experiment.clone() };
    assert!(run(1).0[0] > calm.run().time(), "other programs take their share");
}

#[test]
fn a_host_that_dies_late_is_survived_and_short_reductions_make_no_copies() {
    let late = Duration::from_millis(400);
    let mut long = Experiment {
        follow: true,
        death: Some((Death::Host(Rank(1)), Duration::from_millis(300))),
        ..Experiment::new(6, 64 << 20, Cluster::new(Preset::TenGbe.link()))
    };
    // It cannot be over when the host dies.
    long.arrivals.after = [Duration::ZERO; 5].into_iter().chain([late]).collect();
    assert!(
        long.run().time().is_some_and(|time| time > late),
        "others had copied or folded its contribution"
    );
    let early = Experiment { death: Some((Death::Host(Rank(1)), Duration::from_micros(10))), ..long.clone() };
    assert_eq!(early.run().time(), None, "nobody had read it");

    let short = Experiment::new(6, 256 << 10, Cluster::new(Preset::TenGbe.link()));
    let unprotected = Experiment { protection: Protection::None, ..short.clone() };
    assert_eq!(short.run().load.sent, unprotected.run().load.sent, "nobody is told to copy");
}

/// Every rank reads one other's contribution and writes it to its disk, whichever calls first: then all count
/// at about the same time, and the reduction itself takes little longer than the link does for a body.
#[test]
fn contributions_that_are_copied_first_take_what_link_and_disk_take() {
    let cluster = Cluster::new(Preset::TenGbe.link());
    let bytes = 32u64 << 20;
    let bound_s = bytes as f64 * (cluster.link.ns_per_byte + cluster.disk_ns_per_byte) * 1e-9;
    for ranks in [20, 200] {
        let mut experiment = Experiment::new(ranks, bytes, cluster.clone());
        experiment.protection = Protection::CommitFirst;
        // At once, and in an order in which most are called long before those that keep their copies.
        let strewn =
            (0..ranks).map(|rank| Duration::from_micros(u64::from(rank * 77 % ranks * 15_000 / ranks)));
        for after in [Vec::new(), strewn.collect()] {
            experiment.arrivals.after = after;
            let time = experiment.run().time().unwrap();
            assert!(time.as_secs_f64() < 1.2 * bound_s, "{ranks} ranks: {time:?}, {bound_s} s at least");
        }
    }
}

#[test]
fn concurrent_reductions_share_the_cluster() {
    let one = Experiment::new(8, 4 << 20, Cluster::new(Preset::HundredGbe.link()));
    let mut four = Experiment { follow: true, ..one.clone() };
    four.arrivals.reductions = 4;
    let (one, four) = (one.run().time().unwrap(), four.run());
    assert_eq!(four.times.len(), 4);
    let all = four.time().unwrap();
    assert!(all > one && all < 4 * one, "{all:?}, one alone takes {one:?}");
}

#[test]
fn reductions_to_different_roots_keep_all_links_busy() {
    let link = Link { latency_ns: 0.0, overhead_ns: 5_000.0, gap_ns: 0.0, ns_per_byte: 16.0 };
    for (reductions, mib, most) in [(4, 8, 1.05), (16, 4, 1.03)] {
        let mut experiment = Experiment::new(4, mib << 20, Cluster::new(link));
        (experiment.arrivals.reductions, experiment.receivers) = (reductions, Receivers::InTurn(4));
        // Of each reduction three bodies go over four links.
        let bodies_per_link = 3 * reductions / 4;
        let bound_s = f64::from(bodies_per_link) * experiment.bytes as f64 * 16e-9;
        let time = experiment.run().time().unwrap().as_secs_f64();
        assert!(time < most * bound_s, "{reductions}: {time} s where links allow {bound_s} s");
    }
}

/// The master's own worker is given its next task at once, the others wait for theirs: were they given no
/// more for that, it would fold the most, and then have the most to send.
#[test]
fn hosts_far_from_the_master_fold_their_share() {
    let link = Link { latency_ns: 4e6, overhead_ns: 5_000.0, gap_ns: 0.0, ns_per_byte: 16.0 };
    let mut experiment = Experiment::new(4, 32 << 20, Cluster::new(link));
    experiment.receivers = Receivers::All;
    let bound_s = 1.5 * experiment.bytes as f64 * 16e-9;
    let time = experiment.run().time().unwrap();
    assert!(time.as_secs_f64() < 1.5 * bound_s, "{time:?} where links allow {bound_s} s");
}

/// The one whose load it is now may not be the next: what hosts have folded for others must not be stuck with
/// them.
#[test]
fn an_idle_root_takes_ahead_what_waits_for_somebody_slow() {
    let link = Link { latency_ns: 5e4, overhead_ns: 5_000.0, gap_ns: 0.0, ns_per_byte: 16.0 };
    let taken_ahead = |slow| {
        let cluster = Cluster { slow, ..Cluster::new(link) };
        let mut experiment = Experiment { follow: true, ..Experiment::new(4, 16 << 20, cluster) };
        experiment.policy.segment_bytes = 64 << 10;
        let mut world = experiment.begin();
        experiment.finish(&mut world);
        let is_ahead = |step: &&Step| match step {
            Step::Task { executor: Rank(0), sources, .. } => {
                sources.iter().map(|(_, path)| path.len()).sum::<usize>() == 2
            }
            _ => false,
        };
        world.steps().iter().filter(is_ahead).count()
    };
    assert_eq!(taken_ahead([].into()), 0, "its link carries finished segments");
    let ahead = taken_ahead([(Rank(2), 0.1)].into());
    assert!(ahead > 100, "{ahead} of 256 segments");
}

#[test]
fn a_narrow_core_slows_down_what_passes_it() {
    let flat = Cluster { fold_ns_per_byte: 0.0, ..Cluster::new(Preset::Hdr.link()) };
    let racks = |oversubscription| {
        let topology = Topology::Racks { nodes: 8, oversubscription, core_ns: 0.0 };
        Cluster { topology, ..flat.clone() }
    };
    let time = |cluster: &Cluster, algorithm| {
        collective::time(cluster, algorithm, 32, 8 << 20, &Arrivals::default(), 0)[0].as_secs_f64()
    };
    // Neighbours in a chain are mostly in one rack. In Rabenseifner's algorithm 3/4 of a body leave each node
    // for the core in its reduce-scatter, eight nodes at once, which then takes (8 · 3/4 + 1/4) of a body's
    // time; its gather does not fill a link.
    let chain = Algorithm::Chain { segment_bytes: 1 << 16, ahead: true };
    for (algorithm, least, most) in [(chain, 0.99, 1.1), (Algorithm::Rabenseifner, 3.5, 3.75)] {
        let ratio = |oversubscription| time(&racks(oversubscription), algorithm) / time(&flat, algorithm);
        let (wide, narrow) = (ratio(1.0), ratio(8.0));
        assert!((0.99..1.05).contains(&wide), "{algorithm}: {wide}");
        assert!((least..most).contains(&narrow), "{algorithm}: {narrow}");
    }
}

#[test]
fn the_best_segment_is_better_than_others() {
    let cluster = Cluster::new(Preset::TenGbe.link());
    let chain = |segment_bytes| Algorithm::Chain { segment_bytes, ahead: true };
    let (best, took) = collective::best_segment(&cluster, 20, 8 << 20, chain);
    for segment_bytes in [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20] {
        let other = collective::time(&cluster, chain(segment_bytes), 20, 8 << 20, &Arrivals::default(), 0)[0];
        assert!(
            chain(segment_bytes) == best || other >= took,
            "{best:?} takes {took:?}, {segment_bytes}: {other:?}"
        );
    }
}
