//! `everfold sim paper`: the evaluation of the paper (DR §4), simulated.

mod contestant;
mod environment;
mod panels;
mod summary;
mod tables;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use everfold_sim::model::Preset;

use crate::{Failure, files};

/// Nodes in the paper.
const RANKS: u32 = 200;
/// How often the paper has measured everything.
const REPEAT: u32 = 9;
/// The paper's network.
const NETWORK: Preset = Preset::TenGbe;
/// The seed of the figures in `docs/simulation`.
const SEED: u64 = 0;

/// Draw the figures and tables of the paper's evaluation, simulated.
///
/// Simulates the paper's measurements on 200 nodes with 10 gigabit Ethernet, and writes a CSV file and a
/// picture for each of its figures 6 to 9 and a CSV file for each of its tables. Every number follows from
/// the seed.
///
/// Example: everfold sim paper
#[derive(Args)]
pub struct Paper {
    /// Where the files go [default: docs/simulation, or everfold-paper with --quick or with other ranks,
    /// repetitions, network or seed than by default].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Number of nodes.
    #[arg(long, default_value_t = RANKS, value_parser = clap::value_parser!(u32).range(4..=4096))]
    ranks: u32,
    /// Repetitions of everything.
    #[arg(long, default_value_t = REPEAT, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// The network: 10gbe, 100gbe, hdr or ndr.
    #[arg(long, default_value_t = NETWORK)]
    network: Preset,
    /// Seed of everything that is drawn.
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Only these figures and tables, by the beginnings of their names: `--only fig7,table1`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Few nodes, short bodies, few repetitions: a quick try.
    #[arg(long)]
    quick: bool,
}

/// How much is simulated.
struct Extent {
    ranks: u32,
    repeat: u32,
    network: Preset,
    seed: u64,
    only: Vec<String>,
    /// Sizes of single reductions.
    bytes: Vec<u64>,
    /// Numbers of concurrent reductions, and their size.
    concurrent: Vec<u32>,
    concurrent_bytes: u64,
    /// Parts of the nodes on which other programs run.
    disturbed: [f64; 4],
    /// Size of reductions in the production cluster, and how many run at once.
    production_bytes: u64,
    production_concurrent: u32,
    /// Hours at which they are measured.
    hours: Vec<u32>,
    /// Reductions per day in which a process is killed.
    kills: u32,
}

impl Extent {
    fn new(paper: &Paper) -> Self {
        let &Paper { ranks, repeat, network, seed, quick, .. } = paper;
        let only = paper.only.clone();
        let full = Self {
            ranks,
            repeat,
            network,
            seed,
            only,
            bytes: (17..=27).map(|power| 1 << power).collect(),
            concurrent: (4..=28).step_by(4).collect(),
            concurrent_bytes: 8 << 20,
            disturbed: [0.25, 0.5, 0.75, 1.0],
            production_bytes: 32 << 20,
            production_concurrent: 4,
            hours: (0..7 * 24).step_by(6).collect(),
            kills: 100,
        };
        if !quick {
            return full;
        }
        Self {
            ranks: ranks.min(8),
            repeat: repeat.min(2),
            bytes: vec![1 << 17, 1 << 18],
            concurrent: vec![1, 2],
            concurrent_bytes: 1 << 17,
            production_bytes: 1 << 21,
            production_concurrent: 2,
            hours: vec![0, 12],
            kills: 4,
            ..full
        }
    }

    /// Whether a figure or table was asked for.
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|beginning| name.starts_with(beginning))
    }

    /// How many nodes a part of them is.
    fn nodes(&self, part: f64) -> u32 {
        (f64::from(self.ranks) * part).round() as u32
    }
}

impl Paper {
    /// Where the files go. The figures in `docs/simulation` are those of the paper's nodes, and no others
    /// replace them.
    fn out(&self) -> &Path {
        let &Self { ranks, repeat, network, seed, quick, .. } = self;
        let is_default = (ranks, repeat, network, seed, quick) == (RANKS, REPEAT, NETWORK, SEED, false);
        let default = if is_default { "docs/simulation" } else { "everfold-paper" };
        self.out.as_deref().unwrap_or(Path::new(default))
    }

    /// Simulates what was asked for, writes the files and prints the summary.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let extent = Extent::new(&self);
        let out = self.out();
        files::make_folder(out)?;
        let figures = panels::simulate(&extent);
        for figure in &figures {
            figure.write(out)?;
        }
        for (name, table) in [("table1", tables::load as fn(&Extent) -> String), ("table2", tables::deaths)] {
            if extent.wants(name) {
                files::write(&out.join(format!("{name}.csv")), table(&extent))?;
            }
        }
        let summary = summary::Summary::new(&figures);
        if self.only.is_empty() {
            files::write(&out.join("summary.csv"), summary.csv())?;
        }
        say!(
            "{} ranks, {}, {} repetitions\n{}",
            extent.ranks,
            extent.network,
            extent.repeat,
            summary.table()
        )?;
        say!("figures and tables: {}", out.display())?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        paper: Paper,
    }

    #[test]
    fn other_figures_do_not_replace_those_of_the_papers_nodes() {
        for (words, out) in [
            ("", "docs/simulation"),
            ("--only fig7", "docs/simulation"),
            ("--quick", "everfold-paper"),
            ("--ranks 100", "everfold-paper"),
            ("--network hdr", "everfold-paper"),
            ("--quick --out there", "there"),
        ] {
            let line = Line::try_parse_from(["paper"].into_iter().chain(words.split_whitespace()));
            assert_eq!(line.unwrap().paper.out(), Path::new(out), "{words}");
        }
    }
}
