//! `everfold sim paper`: the evaluation of the paper (DR §4), simulated.

mod contestant;
mod environment;
mod panels;
mod summary;
mod tables;

use std::{fs, path::PathBuf, process::ExitCode};

use clap::Args;
use everfold_sim::model::Preset;

use crate::Failure;

/// Draw the figures and tables of the paper's evaluation, simulated.
///
/// Simulates the paper's measurements on 200 nodes with 10 gigabit Ethernet, and writes a CSV file and a
/// picture for each of its figures 6 to 9 and a CSV file for each of its tables. Every number follows from
/// the seed.
///
/// Example: everfold sim paper
#[derive(Args)]
pub struct Paper {
    /// Where the files go.
    #[arg(long, value_name = "FOLDER", default_value = "docs/simulation")]
    out: PathBuf,
    /// Number of nodes.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(4..=4096))]
    ranks: u32,
    /// Repetitions of everything.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// The network: 10gbe, 100gbe, hdr or ndr.
    #[arg(long, default_value = "10gbe")]
    network: Preset,
    /// Seed of everything that is drawn.
    #[arg(long, default_value_t = 0)]
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
    /// Simulates what was asked for, writes the files and prints the summary.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let extent = Extent::new(&self);
        fs::create_dir_all(&self.out)?;
        let figures = panels::simulate(&extent);
        for figure in &figures {
            figure.write(&self.out)?;
        }
        for (name, table) in [("table1", tables::load as fn(&Extent) -> String), ("table2", tables::deaths)] {
            if extent.wants(name) {
                fs::write(self.out.join(format!("{name}.csv")), table(&extent))?;
            }
        }
        let summary = summary::Summary::new(&figures);
        if self.only.is_empty() {
            fs::write(self.out.join("summary.csv"), summary.csv())?;
        }
        say!(
            "{} ranks, {}, {} repetitions\n{}",
            extent.ranks,
            extent.network,
            extent.repeat,
            summary.table()
        )?;
        say!("figures and tables: {}", self.out.display())?;
        Ok(ExitCode::SUCCESS)
    }
}
