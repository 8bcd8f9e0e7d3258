//! Questions to `everfold sim what-if`, as anybody may write them.

use std::time::Duration;

use everfold_protocol::Rank;
use everfold_sim::{
    experiment::{Death, Experiment},
    model::{Cluster, Topology},
};

/// The command is a program and no library: its modules are part of this crate, too.
#[path = "../../../cli/src/sim/what_if/question.rs"]
#[allow(dead_code)]
mod what_if;

use self::what_if::Question;
use crate::memory::bounded;

/// # Panics
/// If a question is accepted that means no cluster.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let question = match bounded((256 << 10) + 256 * data.len(), || toml::from_str::<Question>(text)) {
        Ok(question) => question,
        Err(error) => return drop(error.to_string()),
    };
    let (cluster, failures) = (question.cluster(), question.failures());
    assert!((2..=16384).contains(&question.ranks) && question.reductions > 0);
    assert!(question.sizes.is_sorted_by(|a, b| a < b) && question.sizes.iter().all(|bytes| *bytes > 0));
    let is_time = |ns: f64| ns.is_finite() && ns >= 0.0;
    let link = cluster.link;
    assert!([link.latency_ns, link.overhead_ns, link.gap_ns, link.ns_per_byte].into_iter().all(is_time));
    assert!(is_time(cluster.disk_ns_per_byte) && link.alpha_ns() > 0.0 && link.ns_per_byte > 0.0);
    if let Topology::Racks { nodes, oversubscription, core_ns } = cluster.topology {
        assert!(nodes > 0 && is_time(oversubscription) && is_time(core_ns));
    }
    if let Some(others) = cluster.interference {
        assert!(!others.busy.is_zero() && !others.idle.is_zero());
        assert!((0.0..=1.0).contains(&others.cpu_left) && (0.0..=1.0).contains(&others.link_left));
    }
    // What the simulator makes of times has to be a time, too.
    let longest = *question.sizes.last().expect("there is one") as f64 * link.ns_per_byte;
    for ns in [longest * f64::from(question.ranks), link.alpha_ns() * f64::from(question.ranks)] {
        assert!(Duration::try_from_secs_f64(ns / 1e9).is_ok(), "{ns} ns");
    }
    begin(&question, &cluster);
    let job = Duration::from_secs(3600);
    for part in
        [failures.probability(question.ranks, job), failures.probability_after_failure(question.ranks, job)]
    {
        assert!((0.0..=1.0).contains(&part), "{part}");
    }
}

/// The first events of its simulation, if that is short.
fn begin(question: &Question, cluster: &Cluster) {
    const EVENTS: u32 = 2000;
    let least = Duration::from_millis(1);
    let is_calm = cluster.interference.as_ref().is_none_or(|others| others.busy.min(others.idle) >= least);
    let is_quick = cluster.link.alpha_ns() < 1e9 && cluster.link.ns_per_byte < 1e3;
    if question.ranks <= 4 && is_calm && is_quick {
        let experiment = Experiment {
            protection: question.protection,
            death: Some((Death::Host(Rank(1)), Duration::from_micros(50))),
            ..Experiment::new(question.ranks, question.sizes[0].min(1 << 16), cluster.clone())
        };
        let mut world = experiment.begin();
        for _ in 0..EVENTS {
            if !world.step() {
                break;
            }
        }
    }
}

pub fn samples() -> Vec<Vec<u8>> {
    let least = "ranks = 8\nsizes = [\"1MiB\"]\n";
    let others =
        "[interference]\nnodes = 4\nbusy_ms = 300.0\nidle_ms = 100.0\ncpu_left = 0.5\nlink_left = 0.25\n";
    let racks = "[racks]\nnodes = 2\noversubscription = 4.0\ncore_us = 1.5\n";
    let link = "link = \"hdr\"\nalpha_us = 40.0\ngbit_per_s = 16.0\ndisk_mb_per_s = 1000.0\n";
    let failures = "failures = \"lanl-20\"\nweibull_shape = 0.5\nnode_mtbf_hours = 10.0\nreductions = 5\n";
    let protection = "protection = \"commit-first\"\n";
    [
        least.to_owned(),
        format!("{least}{link}{protection}{failures}"),
        format!("{least}{others}{racks}"),
        "ranks = 200\nsizes = [\"1\", \"64k\", \"1g\"]\n".to_owned(),
        format!("ranks = 3\nsizes = [\"4k\"]\n{link}{protection}{others}{racks}"),
        format!("{least}rnks = 8\n"),
    ]
    .map(String::into_bytes)
    .into()
}
