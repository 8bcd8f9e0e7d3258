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
/// Longer values are reduced in parts, one after the other: the time grows with the bytes.
const PART_BYTES: u64 = 1 << 30;
/// What a round's body has for each rank beside the value.
const BYTES_PER_RANK: u64 = 10;
/// The value of EP: two sums and ten counts.
const EP_BYTES: u64 = 96;
/// Numbers of FT's field in class D along x, y and z. A grain is a slab at y, or a plane in z.
const FIELD: [u64; 3] = [2048, 1024, 1024];
/// Steps in time of FT in class D.
const STEPS: u32 = 25;
/// A complex number, and so the value of FT's other segment, a checksum.
const COMPLEX_BYTES: u64 = 16;

/// Simulate recovery segments on many ranks, of which one dies.
///
/// The kernels EP, CG and FT of the NAS Parallel Benchmarks, class D, one rank on each node: the time without
/// a death, and the increase if a process dies in the middle of its share, in the middle of the run. PR: the
/// survivors compute its share again. PRC: it had left its progress after each grain, as EP does. In CG and
/// FT, which have many segments, the survivors go on alone.
///
/// The code of real jobs divides the indices. Allreduces take as long as those of arrays in the simulated
/// cluster. FT is simulated as if each node had room for its field of 34 GB, which is reduced in parts of
/// 1 GiB.
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
    #[arg(long, value_name = "NS", default_value_t = 14.0)]
    ep_ns: f64,
    /// Time of a core for an entry of CG's matrix in a product, in nanoseconds: `npb_cg --ranks 1` prints
    /// Mop/s, two for an entry.
    #[arg(long, value_name = "NS", default_value_t = 1.65)]
    cg_ns: f64,
    /// Time of a core for a number of FT's field in a step, in nanoseconds: the time that
    /// `npb_ft --ranks 1` prints, over its steps and one more for the spectrum, and the numbers of its field.
    /// It grows with the field's size, which is left out here.
    #[arg(long, value_name = "NS", default_value_t = 87.0)]
    ft_ns: f64,
}

/// A kernel: the same segments again and again.
struct Kernel {
    name: &'static str,
    steps: u32,
    /// Of each step.
    segments: Vec<Segment>,
    /// Whether ranks leave their progress.
    leaves_progress: bool,
}

struct Segment {
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
        for (flag, ns) in [("--ep-ns", self.ep_ns), ("--cg-ns", self.cg_ns), ("--ft-ns", self.ft_ns)] {
            if !(1e-3..=1e6).contains(&ns) {
                return Err(Failure::new(format!("{flag} is {ns}; it has to be 0.001 to 1000000")));
            }
        }
        if self.ranks.iter().any(|ranks| *ranks < 3) {
            return Err(Failure::new("--ranks: one rank dies, and two at least go on: take 3 or more"));
        }
        for kernel in [self.ep(), self.cg(), self.ft()] {
            say!("{}, {}", kernel.name, self.network)?;
            say!("{}", self.table(&kernel)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn ep(&self) -> Kernel {
        let batches = Segment {
            grains: |_| BATCHES,
            serial_s: BATCHES as f64 * PAIRS * self.ep_ns * 1e-9,
            bytes: EP_BYTES,
        };
        Kernel { name: "EP class D, one segment", steps: 1, segments: vec![batches], leaves_progress: true }
    }

    fn cg(&self) -> Kernel {
        let product = Segment {
            grains: |ranks| u64::from(ranks) * GRAINS,
            serial_s: (ORDER * ENTRIES) as f64 * self.cg_ns * 1e-9,
            bytes: ORDER * 8,
        };
        Kernel {
            name: "CG class D, a segment for each product",
            steps: PRODUCTS,
            segments: vec![product],
            leaves_progress: false,
        }
    }

    /// The steps in time; the spectrum, which comes before, takes about as long as one of them.
    fn ft(&self) -> Kernel {
        let numbers = FIELD.iter().product::<u64>();
        let half_s = numbers as f64 * self.ft_ns * 1e-9 / 2.0;
        let slabs = Segment { grains: |_| FIELD[1], serial_s: half_s, bytes: numbers * COMPLEX_BYTES };
        let planes = Segment { grains: |_| FIELD[2], serial_s: half_s, bytes: COMPLEX_BYTES };
        Kernel {
            name: "FT class D, two segments for each step",
            steps: STEPS,
            segments: vec![slabs, planes],
            leaves_progress: false,
        }
    }

    fn table(&self, kernel: &Kernel) -> Result<Table, Failure> {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header(["ranks", "no death", "of that allreduces", "a death: PR", "PRC"]);
        for &ranks in &self.ranks {
            let (all, fewer) = (self.loops(kernel, ranks)?, self.loops(kernel, ranks - 1)?);
            let step_s = seconds(&all, ranks);
            let alone_s = f64::from(kernel.steps) * step_s;
            // A process dies in the middle of its share of the first segment in the step in the middle.
            let after = (kernel.steps - 1) / 2;
            let before = kernel.steps - 1 - after;
            let longer = |progress| {
                let time_s = f64::from(before) * step_s
                    + all[0].seconds(ranks, Some(Death { folded: 0.5, progress }))
                    + seconds(&fewer[1..], ranks - 1)
                    + f64::from(after) * seconds(&fewer, ranks - 1);
                format!("{:+.3} %", 100.0 * (time_s / alone_s - 1.0))
            };
            let reduces_s = all.iter().map(|each| each.reduce_s).sum::<f64>();
            table.add_row([
                ranks.to_string(),
                show_seconds(alone_s),
                format!("{:.1} %", 100.0 * reduces_s / step_s),
                longer(None),
                if kernel.leaves_progress { longer(Some(1)) } else { String::new() },
            ]);
        }
        table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        Ok(table)
    }

    /// The segments of a step as loops of `ranks` ranks.
    fn loops(&self, kernel: &Kernel, ranks: u32) -> Result<Vec<Loop>, Failure> {
        kernel.segments.iter().map(|segment| self.loop_of(segment, ranks)).collect()
    }

    fn loop_of(&self, segment: &Segment, ranks: u32) -> Result<Loop, Failure> {
        let grains = (segment.grains)(ranks);
        let bytes = segment.bytes + u64::from(ranks) * BYTES_PER_RANK;
        let parts = bytes.div_ceil(PART_BYTES);
        let mut experiment = Experiment::new(ranks, bytes.div_ceil(parts), Cluster::new(self.network.link()));
        experiment.receivers = Receivers::All;
        let reduced = experiment.run().time();
        let reduced = reduced.ok_or_else(|| Failure::new("an allreduce ended in an error"))?;
        let (grain_s, reduce_s) = (segment.serial_s / grains as f64, parts as f64 * reduced.as_secs_f64());
        Ok(Loop { grains, grain_s, reduce_s })
    }
}

/// What `ranks` ranks take for `loops`, one after the other.
fn seconds(loops: &[Loop], ranks: u32) -> f64 {
    loops.iter().map(|each| each.seconds(ranks, None)).sum()
}
