//! `everfold sim segments`: what a death costs recovery segments on many ranks.

use std::process::ExitCode;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use everfold_protocol::units::show_seconds;
use everfold_sim::{
    experiment::{Experiment, Receivers},
    model::{Cluster, Preset},
    recomputing::{Death, Loop},
};

use super::scale::thousands;
use crate::Failure;

/// Pairs of random numbers in a batch of EP, which is an index of its segment.
const PAIRS: f64 = 65_536.0;
/// Batches of EP in class D.
const BATCHES: u64 = 1 << 20;
/// Rows of CG's matrix in class D.
const ORDER: u64 = 1_500_000;
/// Entries of each row on average, as NPB counts them.
const ENTRIES: u64 = 21 * 22;
/// Products of CG in class D: 25 steps and one more in each of 100 iterations.
const PRODUCTS: u32 = 100 * 26;
/// Grains for each rank, as in `examples/npb/cg.rs`.
const GRAINS: u64 = 16;
/// What a round's body has for each rank beside the value.
const BYTES_PER_RANK: u64 = 10;
/// The value of EP: two sums and ten counts.
const EP_BYTES: u64 = 96;

/// Simulate recovery segments on many ranks, of which one dies.
///
/// The kernels EP and CG of the NAS Parallel Benchmarks, class D, one rank on each node: the time without a
/// death, and the increase if a process dies in the middle of its share, in the middle of the run. PR: the
/// survivors compute its share again. PRC: it had left its progress after each grain. In CG, which has many
/// segments, the survivors go on alone.
///
/// The code of real jobs divides the indices. Allreduces take as long as in the simulated cluster.
///
/// Example: everfold sim segments --ranks 8,64,512 --network 10gbe
#[derive(Args)]
pub struct SimSegments {
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_value = "8,16,32,64,128,256,512", value_parser = thousands)]
    ranks: Vec<u32>,
    /// The network: 10gbe, 100gbe, hdr or ndr.
    #[arg(long, default_value = "hdr")]
    network: Preset,
    /// Time of a core for a pair of random numbers, in nanoseconds: `npb_ep --ranks 1` prints Mop/s, two for
    /// a pair.
    #[arg(long, value_name = "NS", default_value_t = 5.5)]
    ep_ns: f64,
    /// Time of a core for an entry of CG's matrix in a product, in nanoseconds: `npb_cg --ranks 1` prints
    /// Mop/s, two for an entry.
    #[arg(long, value_name = "NS", default_value_t = 0.75)]
    cg_ns: f64,
}

/// A kernel: the same segment again and again.
struct Kernel {
    name: &'static str,
    segments: u32,
    grains: fn(u32) -> u64,
    /// What one core takes for all grains of a segment.
    serial_s: f64,
    /// The value's bytes.
    bytes: u64,
}

impl SimSegments {
    /// Simulates the kernels with each number of ranks, and prints a table for each kernel.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        for (flag, ns) in [("--ep-ns", self.ep_ns), ("--cg-ns", self.cg_ns)] {
            if !(1e-3..=1e6).contains(&ns) {
                return Err(Failure::new(format!("{flag} is {ns}; it has to be 0.001 to 1000000")));
            }
        }
        if self.ranks.iter().any(|ranks| *ranks < 3) {
            return Err(Failure::new("--ranks: one rank dies, and two at least go on: take 3 or more"));
        }
        let entries = (ORDER * ENTRIES) as f64;
        let kernels = [
            Kernel {
                name: "EP class D, one segment",
                segments: 1,
                grains: |_| BATCHES,
                serial_s: BATCHES as f64 * PAIRS * self.ep_ns * 1e-9,
                bytes: EP_BYTES,
            },
            Kernel {
                name: "CG class D, a segment for each product",
                segments: PRODUCTS,
                grains: |ranks| u64::from(ranks) * GRAINS,
                serial_s: entries * self.cg_ns * 1e-9,
                bytes: ORDER * 8,
            },
        ];
        for kernel in kernels {
            say!("{}, {}", kernel.name, self.network)?;
            say!("{}", self.table(&kernel)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn table(&self, kernel: &Kernel) -> Result<Table, Failure> {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header(["ranks", "no death", "of that allreduces", "a death: PR", "PRC"]);
        for &ranks in &self.ranks {
            let (all, fewer) = (self.segment(kernel, ranks)?, self.segment(kernel, ranks - 1)?);
            let alone_s = f64::from(kernel.segments) * all.seconds(ranks, None);
            // A process dies in the middle of its share of the segment in the middle.
            let after = (kernel.segments - 1) / 2;
            let before = kernel.segments - 1 - after;
            let longer = |progress| {
                let time_s = f64::from(before) * all.seconds(ranks, None)
                    + all.seconds(ranks, Some(Death { folded: 0.5, progress }))
                    + f64::from(after) * fewer.seconds(ranks - 1, None);
                format!("{:+.3} %", 100.0 * (time_s / alone_s - 1.0))
            };
            table.add_row([
                ranks.to_string(),
                show_seconds(alone_s),
                format!("{:.1} %", 100.0 * all.reduce_s * f64::from(kernel.segments) / alone_s),
                longer(None),
                longer(Some(1)),
            ]);
        }
        table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        Ok(table)
    }

    fn segment(&self, kernel: &Kernel, ranks: u32) -> Result<Loop, Failure> {
        let grains = (kernel.grains)(ranks);
        let bytes = kernel.bytes + u64::from(ranks) * BYTES_PER_RANK;
        let mut experiment = Experiment::new(ranks, bytes, Cluster::new(self.network.link()));
        experiment.receivers = Receivers::All;
        let reduced = experiment.run().time();
        let reduced = reduced.ok_or_else(|| Failure::new("an allreduce ended in an error"))?;
        Ok(Loop { grains, grain_s: kernel.serial_s / grains as f64, reduce_s: reduced.as_secs_f64() })
    }
}
