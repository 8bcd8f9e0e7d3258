//! Mgrid: Poisson's equation on a periodic cube, by cycles through coarser and coarser grids (NAS MG, from
//! which SPEC 172.mgrid is derived).
//!
//! The kernels of a cycle are a list, and each says which grids it reads and which it writes anew. What is
//! live between two of them follows from the list: the cheapest point is not the beginning of a cycle.

use std::collections::BTreeSet;

use everfold_examples::{
    checkpoints::{self, Place, Program, Size},
    device::{Buffer, Device, Id, Launch, Speeds, rows},
    npb::random::Generator,
};
use serde::{Deserialize, Serialize};

/// Weights by distance: of a point itself, its faces, edges and corners.
type Weights = [f64; 4];
const RESIDUAL: Weights = [-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0];
const SMOOTHER: Weights = [-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0, 0.0];
const RESTRICTION: Weights = [1.0 / 2.0, 1.0 / 4.0, 1.0 / 8.0, 1.0 / 16.0];
/// Points with a charge of either sign.
const CHARGES: usize = 10;

fn main() -> everfold::Result<()> {
    checkpoints::main::<Mgrid>()
}

struct Mgrid {
    cycles: u64,
    /// By level: 2^(index + 1) points in each dimension.
    solution: Vec<Buffer<f64>>,
    residual: Vec<Buffer<f64>>,
    charges: Buffer<f64>,
    kernels: Vec<Kernel>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct State {
    cycle: u64,
    kernel: usize,
}

/// A kernel, and on which level.
#[derive(Clone, Copy, PartialEq)]
enum Kernel {
    /// The residual one level below, from that of this level.
    Restrict(usize),
    /// The solution of the lowest level.
    Bottom,
    /// The solution of this level, from that of the level below.
    Prolong(usize),
    /// The residual of this level.
    Residual(usize),
    /// A better solution of this level.
    Smooth(usize),
}

impl Program for Mgrid {
    type State = State;
    const NAME: &'static str = "mgrid";
    const SPEEDS: Speeds = Speeds { memory_bytes_per_s: 3e8, bus_bytes_per_s: 4e8 };
    const SOURCE: &'static str = include_str!("cuda/mgrid.cu");

    fn begin(device: &Device, size: Size) -> (Self, State) {
        let (size, cycles) = (size.size.unwrap_or(64).next_power_of_two().max(4), size.steps.unwrap_or(24));
        let top = size.trailing_zeros() as usize - 1;
        let grids = || (0..=top).map(|level| device.zeros(cells(level))).collect::<Vec<_>>();
        let charges = charges(size);
        let (solution, residual) = (grids(), grids());
        // Nothing is known of the solution yet, so all charges are left.
        device.write(residual[top], &charges);
        let charges = device.upload(charges);
        (Self { cycles, solution, residual, charges, kernels: cycle(top) }, State { cycle: 0, kernel: 0 })
    }

    fn place(&self, state: &State) -> Option<Place> {
        let point = match self.kernels[state.kernel] {
            Kernel::Restrict(level) => format!("before restriction {level}"),
            Kernel::Bottom => "before the bottom".to_owned(),
            Kernel::Prolong(level) => format!("before prolongation {level}"),
            Kernel::Residual(level) => format!("before residual {level}"),
            Kernel::Smooth(level) => format!("before smoothing {level}"),
        };
        (state.cycle < self.cycles).then(|| Place::new(point, self.live(state.kernel)))
    }

    fn launch(&self, state: &State, device: &Device) {
        let (top, charges) = (self.top(), self.charges);
        let grids = |level: usize| (self.solution[level], self.residual[level]);
        let cells_of =
            |name, level, moved: usize| Launch::of(name, cells(level)).moving(moved * cells(level));
        // Adds weighted sums to what was there, or to something else.
        let sums = |level, weights: Weights, sign: f64| {
            cells_of("apply", level, 24).with(points(level)).with_all(weights).with(sign)
        };
        match self.kernels[state.kernel] {
            Kernel::Restrict(level) => {
                let ((_, fine), (_, coarse)) = (grids(level), grids(level - 1));
                let launch = Launch::of("restriction", cells(level - 1)).moving(9 * cells(level));
                let launch = launch.with(points(level - 1)).with_all(RESTRICTION).with_all([fine, coarse]);
                device.launch(launch, move |memory| {
                    memory.write([coarse], |memory, [coarse]| restrict(memory.of(fine), coarse, level));
                });
            }
            Kernel::Bottom => {
                let (solution, residual) = grids(0);
                let launch = sums(0, SMOOTHER, 1.0).with(true).with_all([solution, residual, solution]);
                device.launch(launch, move |memory| {
                    memory.write([solution], |memory, [solution]| {
                        solution.fill(0.0);
                        apply(SMOOTHER, memory.of(residual), 0, solution, |old, sum| old + sum);
                    });
                });
            }
            Kernel::Prolong(level) => {
                let ((coarse, _), (fine, _)) = (grids(level - 1), grids(level));
                let is_anew = level < top;
                let launch = cells_of("prolongation", level, 17).with(points(level)).with(is_anew);
                device.launch(launch.with_all([coarse, fine]), move |memory| {
                    memory.write([fine], |memory, [fine]| {
                        if is_anew {
                            fine.fill(0.0);
                        }
                        prolong(memory.of(coarse), fine, level);
                    });
                });
            }
            Kernel::Residual(level) => {
                let (solution, residual) = grids(level);
                let begin = if level == top { charges } else { residual };
                let launch = sums(level, RESIDUAL, -1.0).with(false).with_all([begin, solution, residual]);
                device.launch(launch, move |memory| {
                    memory.write([residual], |memory, [residual]| {
                        if level == top {
                            residual.copy_from_slice(memory.of(charges));
                        }
                        apply(RESIDUAL, memory.of(solution), level, residual, |old, sum| old - sum);
                    });
                });
            }
            Kernel::Smooth(level) => {
                let (solution, residual) = grids(level);
                let launch = sums(level, SMOOTHER, 1.0).with(false).with_all([solution, residual, solution]);
                device.launch(launch, move |memory| {
                    memory.write([solution], |memory, [solution]| {
                        apply(SMOOTHER, memory.of(residual), level, solution, |old, sum| old + sum);
                    });
                });
            }
        }
    }

    fn advance(&self, state: &mut State, _: &Device) {
        state.kernel += 1;
        if state.kernel == self.kernels.len() {
            *state = State { cycle: state.cycle + 1, kernel: 0 };
        }
    }

    fn check(&self, _: &State, device: &Device) -> Result<String, String> {
        let (top, found) = (self.top(), device.read(self.residual[self.top()]));
        let norm = (found.iter().map(|it| it * it).sum::<f64>() / cells(top) as f64).sqrt();
        if found != directly(top, self.cycles) {
            return Err(format!("the residual, of norm {norm:e}, differs from that of a direct computation"));
        }
        let words = format!("the same bits as computed directly, norm {norm:.13e}");
        // Class S of the NAS benchmarks.
        match (points(top), self.cycles) == (32, 4) {
            true if (norm / 0.530_770_700_573_4e-4 - 1.0).abs() > 1e-8 => {
                Err(format!("norm {norm:e} instead of the published one"))
            }
            true => Ok(words + " as published"),
            false => Ok(words),
        }
    }
}

impl Mgrid {
    fn top(&self) -> usize {
        self.solution.len() - 1
    }

    /// Which buffers are read behind a point before they are written anew, in this cycle or later.
    fn live(&self, kernel: usize) -> Vec<Id> {
        // Behind the last kernel the next cycle begins; the charges come again with the program.
        let top = self.top();
        let mut live = BTreeSet::from([self.solution[top].id(), self.residual[top].id()]);
        for kernel in self.kernels[kernel..].iter().rev() {
            let (reads, overwrites) = self.uses(*kernel);
            if let Some(overwritten) = overwrites {
                live.remove(&overwritten.id());
            }
            live.extend(reads.iter().map(|buffer| buffer.id()));
        }
        let all = self.solution.iter().chain(&self.residual).map(|buffer| buffer.id());
        all.filter(|id| live.contains(id)).collect()
    }

    /// What a kernel reads, and what it writes without having read it.
    fn uses(&self, kernel: Kernel) -> (Vec<Buffer<f64>>, Option<Buffer<f64>>) {
        let (u, r, top) = (&self.solution, &self.residual, self.top());
        match kernel {
            Kernel::Restrict(level) => (vec![r[level]], Some(r[level - 1])),
            Kernel::Bottom => (vec![r[0]], Some(u[0])),
            Kernel::Prolong(level) if level < top => (vec![u[level - 1]], Some(u[level])),
            Kernel::Prolong(level) => (vec![u[level - 1], u[level]], None),
            Kernel::Residual(level) if level < top => (vec![u[level], r[level]], None),
            Kernel::Residual(level) => (vec![u[level]], Some(r[level])),
            Kernel::Smooth(level) => (vec![u[level], r[level]], None),
        }
    }
}

/// The kernels of a cycle: down to the bottom, up again, and what is left then.
fn cycle(top: usize) -> Vec<Kernel> {
    let down = (1..=top).rev().map(Kernel::Restrict);
    let up =
        (1..=top).flat_map(|level| [Kernel::Prolong(level), Kernel::Residual(level), Kernel::Smooth(level)]);
    down.chain([Kernel::Bottom]).chain(up).chain([Kernel::Residual(top)]).collect()
}

/// Points of a level in each dimension.
fn points(level: usize) -> usize {
    2 << level
}

fn cells(level: usize) -> usize {
    points(level).pow(3)
}

/// Changes each point of `to` by the weighted sum of the 27 points around it in `from`.
fn apply(
    weights: Weights,
    from: &[f64],
    level: usize,
    to: &mut [f64],
    change: impl Fn(f64, f64) -> f64 + Sync,
) {
    let n = points(level);
    rows(to, n, |index, row| {
        let around = Around::new(from, n, index / n, index % n);
        row.iter_mut().enumerate().for_each(|(x, value)| *value = change(*value, around.sum(weights, x)));
    });
}

/// Each coarse point from the 27 points around the fine one at its place.
fn restrict(fine: &[f64], coarse: &mut [f64], level: usize) {
    let (n, half) = (points(level), points(level - 1));
    rows(coarse, half, |index, row| {
        let around = Around::new(fine, n, 2 * (index / half) + 1, 2 * (index % half) + 1);
        row.iter_mut().enumerate().for_each(|(x, value)| *value = around.sum(RESTRICTION, 2 * x + 1));
    });
}

/// Adds to each fine point the mean of the coarse points next to it: 1, 2, 4 or 8.
fn prolong(coarse: &[f64], fine: &mut [f64], level: usize) {
    let (n, half) = (points(level), points(level - 1));
    // Coarse points are at odd places of the fine grid.
    let next_to = |at: usize| match at % 2 {
        1 => [at / 2, at / 2],
        _ => [(at / 2 + half - 1) % half, at / 2],
    };
    rows(fine, n, |index, row| {
        let (zs, ys) = (next_to(index / n), next_to(index % n));
        for (x, value) in row.iter_mut().enumerate() {
            let lines = zs.into_iter().flat_map(|z| ys.map(|y| (z * half + y) * half));
            let sum: f64 = lines.flat_map(|line| next_to(x).map(|x| coarse[line + x])).sum();
            *value += sum / 8.0;
        }
    });
}

/// Sums of the lines around one, by the distance of the line.
struct Around([Vec<f64>; 3]);

impl Around {
    fn new(grid: &[f64], n: usize, z: usize, y: usize) -> Self {
        let mut sums = [(); 3].map(|()| vec![0.0; n]);
        for (dz, dy) in
            [(0, 0), (0, 1), (0, n - 1), (1, 0), (n - 1, 0), (1, 1), (1, n - 1), (n - 1, 1), (n - 1, n - 1)]
        {
            let line = ((z + dz) % n * n + (y + dy) % n) * n;
            let sum = &mut sums[usize::from(dz > 0) + usize::from(dy > 0)];
            sum.iter_mut().zip(&grid[line..line + n]).for_each(|(sum, value)| *sum += value);
        }
        Self(sums)
    }

    fn sum(&self, [point, faces, edges, corners]: Weights, x: usize) -> f64 {
        let Self([here, near, far]) = self;
        let n = here.len();
        let beside = |line: &[f64]| line[(x + n - 1) % n] + line[(x + 1) % n];
        point * here[x]
            + faces * (beside(here) + near[x])
            + edges * (beside(near) + far[x])
            + corners * beside(far)
    }
}

/// Charges of +1 where random numbers are largest, and of -1 where they are smallest.
fn charges(n: usize) -> Vec<f64> {
    let mut random = Generator::new(314_159_265);
    let mut numbers: Vec<(f64, usize)> = (0..n * n * n).map(|at| (random.draw(), at)).collect();
    numbers.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut charges = vec![0.0; n * n * n];
    let most = CHARGES.min(numbers.len() / 2);
    numbers[..most].iter().for_each(|(_, at)| charges[*at] = -1.0);
    numbers.iter().rev().take(most).for_each(|(_, at)| charges[*at] = 1.0);
    charges
}

/// The residual after some cycles, by recursion and without a device.
fn directly(top: usize, cycles: u64) -> Vec<f64> {
    let charges = charges(points(top));
    let (mut solution, mut residual) = (vec![0.0; cells(top)], charges.clone());
    for _ in 0..cycles {
        prolong(&below(&residual, top), &mut solution, top);
        residual.copy_from_slice(&charges);
        apply(RESIDUAL, &solution, top, &mut residual, |old, sum| old - sum);
        apply(SMOOTHER, &residual, top, &mut solution, |old, sum| old + sum);
        residual.copy_from_slice(&charges);
        apply(RESIDUAL, &solution, top, &mut residual, |old, sum| old - sum);
    }
    residual
}

/// The solution one level below `level`, whose residual this is.
fn below(residual: &[f64], level: usize) -> Vec<f64> {
    let mut residual_below = vec![0.0; cells(level - 1)];
    restrict(residual, &mut residual_below, level);
    let mut solution = vec![0.0; cells(level - 1)];
    if level > 1 {
        prolong(&below(&residual_below, level - 1), &mut solution, level - 1);
        apply(RESIDUAL, &solution, level - 1, &mut residual_below, |old, sum| old - sum);
    }
    apply(SMOOTHER, &residual_below, level - 1, &mut solution, |old, sum| old + sum);
    solution
}
