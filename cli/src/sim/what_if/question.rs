//! What can be asked. Whatever is wrong with a file is told with its line and key.

use std::{fmt::Display, str::FromStr, time::Duration};

use everfold::Protection;
use everfold_lab::size;
use everfold_sim::model::{Cluster, Failures, Interference, Preset, Topology};
use serde::{Deserialize, Deserializer, de::Error};

/// Shortest and longest time that can be asked for, in whatever unit.
const TIME_LEAST: f64 = 1e-3;
const TIME_MOST: f64 = 1e9;
/// Least part of a processor or a link that others leave.
const PART_LEAST: f64 = 1e-6;

/// A question, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Number of ranks, one per node.
    #[serde(deserialize_with = "ranks")]
    pub ranks: u32,
    /// Sizes of bodies in bytes.
    #[serde(deserialize_with = "sizes")]
    pub sizes: Vec<u64>,
    /// The network.
    #[serde(default = "ten_gbe", deserialize_with = "named")]
    link: Preset,
    /// Time of a message however short it is, if not the network's usual.
    #[serde(default, deserialize_with = "positive")]
    alpha_us: Option<f64>,
    /// Bandwidth of a node, if not the network's usual.
    #[serde(default, deserialize_with = "rate")]
    gbit_per_s: Option<f64>,
    /// Bandwidth of a node's disk.
    #[serde(default, deserialize_with = "rate")]
    disk_mb_per_s: Option<f64>,
    /// What of a contribution outlives its process.
    #[serde(default, deserialize_with = "named")]
    pub protection: Protection,
    /// A law of failures; without one they come at a constant rate.
    #[serde(default, deserialize_with = "law")]
    failures: Option<Failures>,
    /// Mean time between failures of a node, if not the law's.
    #[serde(default, deserialize_with = "positive")]
    node_mtbf_hours: Option<f64>,
    /// Shape of the Weibull law of the gaps between failures, if not the law's.
    #[serde(default, deserialize_with = "shape")]
    weibull_shape: Option<f64>,
    /// Number of reductions of the job.
    #[serde(default = "one", deserialize_with = "count")]
    pub reductions: u64,
    /// What else runs there.
    interference: Option<Others>,
    /// How the network is built, if it is not flat.
    racks: Option<Racks>,
}

/// Other programs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Others {
    /// On how many nodes.
    nodes: u32,
    /// How long they are there, on average.
    #[serde(deserialize_with = "number")]
    busy_ms: f64,
    /// How long they are away, on average.
    #[serde(deserialize_with = "number")]
    idle_ms: f64,
    /// Part of a processor that they leave.
    #[serde(deserialize_with = "part")]
    cpu_left: f64,
    /// Part of a link that they leave.
    #[serde(deserialize_with = "part")]
    link_left: f64,
}

/// Racks with a common port to the core.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Racks {
    /// Nodes per rack.
    #[serde(deserialize_with = "rack")]
    nodes: u32,
    /// How many times less than its nodes together a rack can send.
    #[serde(deserialize_with = "factor")]
    oversubscription: f64,
    /// What the way through the core adds to the latency.
    #[serde(default, deserialize_with = "latency")]
    core_us: f64,
}

impl Question {
    /// What the reductions run on.
    pub fn cluster(&self) -> Cluster {
        let mut link = self.link.link();
        if let Some(alpha_us) = self.alpha_us {
            // Parts stay in proportion.
            let factor = alpha_us * 1e3 / link.alpha_ns();
            link.latency_ns *= factor;
            link.overhead_ns *= factor;
            link.gap_ns *= factor;
        }
        if let Some(gbit_per_s) = self.gbit_per_s {
            link.ns_per_byte = 8.0 / gbit_per_s;
        }
        let mut cluster = Cluster::new(link);
        if let Some(mb_per_s) = self.disk_mb_per_s {
            cluster.disk_ns_per_byte = 1e3 / mb_per_s;
        }
        let time = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        cluster.interference = self.interference.as_ref().map(|others| Interference {
            nodes: others.nodes,
            busy: time(others.busy_ms),
            idle: time(others.idle_ms),
            cpu_left: others.cpu_left,
            link_left: others.link_left,
        });
        if let Some(&Racks { nodes, oversubscription, core_us }) = self.racks.as_ref() {
            cluster.topology = Topology::Racks { nodes, oversubscription, core_ns: core_us * 1e3 };
        }
        cluster
    }

    /// How its nodes fail.
    pub fn failures(&self) -> Failures {
        let usual = Failures { node_mtbf_hours: 7506.0, shape: 1.0 };
        let law = self.failures.unwrap_or(usual);
        Failures {
            node_mtbf_hours: self.node_mtbf_hours.unwrap_or(law.node_mtbf_hours),
            shape: self.weibull_shape.unwrap_or(law.shape),
        }
    }
}

fn ten_gbe() -> Preset {
    Preset::TenGbe
}

fn one() -> u64 {
    1
}

fn named<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn ranks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let ranks = u32::deserialize(deserializer)?;
    let refuse = || D::Error::custom(format!("ranks is {ranks}; it has to be from 2 to 16384"));
    if (2..=16384).contains(&ranks) { Ok(ranks) } else { Err(refuse()) }
}

fn sizes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let mut sizes: Vec<u64> =
        texts.iter().map(|text| size::parse(text)).collect::<Result<_, _>>().map_err(D::Error::custom)?;
    sizes.sort_unstable();
    sizes.dedup();
    match (sizes.first(), sizes.last()) {
        (Some(_), Some(most)) if *most <= 1 << 30 => Ok(sizes),
        (Some(_), _) => Err(D::Error::custom("sizes has more than 1g, which takes long to simulate")),
        _ => Err(D::Error::custom("sizes is empty")),
    }
}

fn law<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Failures>, D::Error> {
    named(deserializer).map(Some)
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    number(deserializer).map(Some)
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    within(deserializer, 0.01, 1e6).map(Some)
}

fn factor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    within(deserializer, 0.01, 1e3)
}

fn latency<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    within(deserializer, 0.0, TIME_MOST)
}

fn part<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    within(deserializer, PART_LEAST, 1.0)
}

fn shape<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let shape = number(deserializer)?;
    let refuse = || D::Error::custom(format!("{shape} is not from 0.3 to 5, where shapes are"));
    if (0.3..=5.0).contains(&shape) { Ok(Some(shape)) } else { Err(refuse()) }
}

fn rack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(D::Error::custom("a rack has one node at least")),
        nodes => Ok(nodes),
    }
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    within(deserializer, TIME_LEAST, TIME_MOST)
}

/// Reads a number that is not less and not more. What the simulator makes of it has to be a number, too.
fn within<'de, D: Deserializer<'de>>(deserializer: D, least: f64, most: f64) -> Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    let refuse = || D::Error::custom(format!("{number} is not from {least} to {most}"));
    if (least..=most).contains(&number) { Ok(number) } else { Err(refuse()) }
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        0 => Err(D::Error::custom("there is to be one at least")),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: &str) -> Result<Question, String> {
        let text = format!("ranks = 8\nsizes = [\"1MiB\"]\n{more}\n");
        toml::from_str(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn all_but_two_lines_may_be_left_out() {
        let question = read("").unwrap();
        assert_eq!((question.ranks, question.sizes.as_slice()), (8, [1 << 20].as_slice()));
        assert_eq!((question.protection, question.reductions), (Protection::Disk, 1));
        assert_eq!(question.cluster(), Cluster::new(Preset::TenGbe.link()));
    }

    #[test]
    fn a_link_can_be_changed() {
        let cluster = read("alpha_us = 40.0\ngbit_per_s = 16.0\ndisk_mb_per_s = 1000.0").unwrap().cluster();
        assert!((cluster.link.alpha_ns() - 40_000.0).abs() < 1e-6);
        assert_eq!((cluster.link.ns_per_byte, cluster.disk_ns_per_byte), (0.5, 1.0));
    }

    #[test]
    fn failures_follow_a_law_or_a_rate() {
        let failures = |more: &str| read(more).unwrap().failures();
        assert_eq!(failures(""), Failures { node_mtbf_hours: 7506.0, shape: 1.0 });
        assert_eq!(failures("node_mtbf_hours = 10.0"), Failures { node_mtbf_hours: 10.0, shape: 1.0 });
        assert_eq!(failures("failures = \"lanl-20\""), "lanl-20".parse().unwrap());
        assert_eq!(failures("failures = \"lanl-20\"\nweibull_shape = 0.5").shape, 0.5);
    }

    #[test]
    fn other_programs_and_racks_are_described_in_tables() {
        let text = "[interference]\nnodes = 4\nbusy_ms = 300.0\nidle_ms = 100.0\ncpu_left = 0.5\nlink_left = 0.25\n\
                    [racks]\nnodes = 2\noversubscription = 4.0\ncore_us = 1.5";
        let cluster = read(text).unwrap().cluster();
        let others = cluster.interference.unwrap();
        assert_eq!((others.nodes, others.busy, others.link_left), (4, Duration::from_millis(300), 0.25));
        let racks = Topology::Racks { nodes: 2, oversubscription: 4.0, core_ns: 1500.0 };
        assert_eq!(cluster.topology, racks);
        let error = read(&text.replace("cpu_left = 0.5", "cpu_left = 1.5")).unwrap_err();
        assert!(
            error.contains("line 7") && error.contains("cpu_left") && error.contains("1.5 is not from"),
            "{error}"
        );
    }

    #[test]
    fn errors_name_line_and_key() {
        for (line, words) in [
            ("rnks = 8", "unknown field `rnks`"),
            ("link = \"11gbe\"", "\"11gbe\" is no network"),
            ("protection = \"much\"", "\"much\" is no level of protection"),
            ("gbit_per_s = -1.0", "-1 is not from 0.01 to 1000000"),
            ("gbit_per_s = nan", "NaN is not from"),
            ("alpha_us = 1e300", " is not from 0.001 to 1000000000"),
            (
                "interference = { nodes = 8, busy_ms = 1e300, idle_ms = 1.0, cpu_left = 1.0, link_left = 1.0 }",
                "is not",
            ),
            ("racks = { nodes = 8, oversubscription = 4.0, core_us = -1.0 }", "-1 is not from 0 to"),
            ("reductions = 0", "one at least"),
            ("node_mtbf_hours = \"long\"", "invalid type"),
            ("failures = \"murphy\"", "\"murphy\" is no law of failures; there are lanl-2, "),
            ("weibull_shape = 9.0", "9 is not from 0.3 to 5"),
            ("racks = { nodes = 0, oversubscription = 4.0 }", "one node at least"),
            ("racks = { nodes = 8, oversubscription = 4.0, core = 1 }", "unknown field `core`"),
            ("interference = { nodes = 8 }", "missing field `busy_ms`"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains("line 3") && error.contains(line) && error.contains(words), "{error}");
        }
        for (text, words) in [
            ("ranks = 1\nsizes = [\"8\"]", "line 1"),
            ("ranks = 2\nsizes = []", "sizes is empty"),
            ("ranks = 2\nsizes = [\"8x\"]", "\"8x\" is no size"),
            ("sizes = [\"8\"]", "missing field `ranks`"),
        ] {
            let error = toml::from_str::<Question>(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
