//! Gaussian: elimination without pivots, a column at a time (Rodinia gaussian).
//!
//! Two kernels per column: its multipliers, and what they change in the rows below. The host substitutes back
//! in the end. Between the kernels of a column its multipliers are live, too.

use everfold_examples::{
    checkpoints::{self, Place, Program, Size},
    device::{Buffer, Device, Launch, Speeds, each},
};
use serde::{Deserialize, Serialize};

/// How fast the matrix falls off from its diagonal.
const DECAY: f64 = 0.01;

fn main() -> everfold::Result<()> {
    checkpoints::main::<Gaussian>()
}

struct Gaussian {
    size: usize,
    /// Each row with its right-hand side behind it.
    rows: Buffer<f32>,
    multipliers: Buffer<f32>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct State {
    column: usize,
    has_multipliers: bool,
}

impl Program for Gaussian {
    type State = State;
    const NAME: &'static str = "gaussian";
    const SPEEDS: Speeds = Speeds { memory_bytes_per_s: 5e8, bus_bytes_per_s: 4e8 };
    const SOURCE: &'static str = include_str!("cuda/gaussian.cu");

    fn begin(device: &Device, size: Size) -> (Self, State) {
        let size = size.size.unwrap_or(768);
        let row = |i: usize| {
            let value =
                move |j: usize| if j < size { 10.0 * (-DECAY * i.abs_diff(j) as f64).exp() } else { 1.0 };
            (0..=size).map(move |j| value(j) as f32)
        };
        let rows = device.upload((0..size).flat_map(row).collect());
        let program = Self { size, rows, multipliers: device.zeros(size) };
        (program, State { column: 0, has_multipliers: false })
    }

    fn place(&self, state: &State) -> Option<Place> {
        let (rows, multipliers) = (self.rows.id(), self.multipliers.id());
        (state.column + 1 < self.size).then(|| match state.has_multipliers {
            false => Place::new("before multipliers", [rows]),
            true => Place::new("before rows", [rows, multipliers]),
        })
    }

    fn launch(&self, state: &State, device: &Device) {
        let &Self { size, rows, multipliers } = self;
        let (column, width) = (state.column, size + 1);
        let below = size - 1 - column;
        if state.has_multipliers {
            let launch = Launch::of("eliminate", below * (width - column)).moving(12 * below * (below + 2));
            let launch = launch.with_all([column, width]).with_all([multipliers, rows]);
            device.launch(launch, move |memory| {
                memory.write([rows], |memory, [rows]| {
                    let (above, below) = rows.split_at_mut((column + 1) * width);
                    let pivot = &above[column * width..];
                    let multipliers = &memory.of(multipliers)[column + 1..];
                    let mut below: Vec<&mut [f32]> = below.chunks_mut(width).collect();
                    each(&mut below, |index, row| {
                        let changed = row[column..].iter_mut().zip(&pivot[column..]);
                        changed.for_each(|(value, pivot)| *value -= multipliers[index] * pivot);
                    });
                });
            });
        } else {
            let launch = Launch::of("multipliers", below).moving(8 * below);
            let launch = launch.with_all([column, width]).with_all([rows, multipliers]);
            device.launch(launch, move |memory| {
                memory.write([multipliers], |memory, [multipliers]| {
                    let rows = memory.of(rows);
                    for row in column + 1..size {
                        multipliers[row] = rows[row * width + column] / rows[column * width + column];
                    }
                });
            });
        }
    }

    fn advance(&self, state: &mut State, _: &Device) {
        *state = match state.has_multipliers {
            false => State { has_multipliers: true, ..*state },
            true => State { column: state.column + 1, has_multipliers: false },
        };
    }

    /// The inverse of this matrix is known (Kac, Murdock, Szego).
    fn check(&self, _: &State, device: &Device) -> Result<String, String> {
        let (size, width) = (self.size, self.size + 1);
        let rows = device.read(self.rows);
        let mut solution = vec![0.0f64; size];
        for i in (0..size).rev() {
            let row = &rows[i * width..(i + 1) * width];
            let known: f64 = (i + 1..size).map(|j| f64::from(row[j]) * solution[j]).sum();
            solution[i] = (f64::from(row[size]) - known) / f64::from(row[i]);
        }
        let rho = (-DECAY).exp();
        let exact = |i: usize| match i == 0 || i == size - 1 {
            true => 0.1 / (1.0 + rho),
            false => 0.1 * (1.0 - rho) / (1.0 + rho),
        };
        // In this order NaN is the greatest.
        let off = (0..size).map(|i| (solution[i] - exact(i)).abs()).max_by(f64::total_cmp);
        let off = off.unwrap_or(f64::NAN);
        match off < 1e-3 * exact(0) {
            true => Ok(format!("within {off:.1e} of the exact solution")),
            false => Err(format!("off by {off:e} from the exact solution")),
        }
    }
}
