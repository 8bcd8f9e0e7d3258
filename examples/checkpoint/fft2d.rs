//! FFT2D: a field of complex numbers, transformed in two dimensions there and back again.
//!
//! Four kernels per transform: rows, transpose, rows, transpose. Each writes another array than it reads, so
//! one of the two is live at every point.

use std::f64::consts::PI;

use everfold_examples::{
    checkpoints::{self, Place, Program, Size},
    device::{Buffer, Device, Launch, Speeds, rows},
    npb::random::Generator,
};
use serde::{Deserialize, Serialize};

/// Real and imaginary part.
type Complex = [f32; 2];

/// Frequencies that are compared in the end: a sample.
const SAMPLES: usize = 16;
const KERNELS: [&str; 4] = ["before rows", "before transpose", "before rows again", "before transpose again"];

fn main() -> everfold::Result<()> {
    checkpoints::main::<Fft2d>()
}

struct Fft2d {
    size: usize,
    /// Transforms, forth and back in turns; the last one goes forth.
    transforms: u64,
    from: Buffer<Complex>,
    to: Buffer<Complex>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct State {
    kernel: u64,
}

impl Program for Fft2d {
    type State = State;
    const NAME: &'static str = "fft2d";
    const SPEEDS: Speeds = Speeds { memory_bytes_per_s: 2e8, bus_bytes_per_s: 4e8 };
    const SOURCE: &'static str = include_str!("cuda/fft2d.cu");

    fn begin(device: &Device, size: Size) -> (Self, State) {
        let transforms = size.steps.unwrap_or(35) | 1;
        let size = size.size.unwrap_or(512).next_power_of_two();
        let from = device.upload(field(size));
        (Self { size, transforms, from, to: device.zeros(size * size) }, State { kernel: 0 })
    }

    fn place(&self, state: &State) -> Option<Place> {
        let point = KERNELS[(state.kernel % 4) as usize];
        (state.kernel < 4 * self.transforms).then(|| Place::new(point, [self.from.id()]))
    }

    fn launch(&self, state: &State, device: &Device) {
        let &Self { size, from, to, .. } = self;
        let (transposes, is_back) = (state.kernel % 2 == 1, state.kernel / 4 % 2 == 1);
        let launch = match transposes {
            true => Launch::of("transpose", size * size).with(size),
            // A row is transformed by the threads of a block.
            false => {
                let threads = (size / 2).clamp(1, 512);
                Launch::of("transform", size * threads).in_blocks_of(threads).with(size).with(is_back)
            }
        };
        device.launch(launch.moving(16 * size * size).with_all([from, to]), move |memory| {
            memory.write([to], |memory, [to]| {
                let from = memory.of(from);
                rows(to, size, |index, row| match transposes {
                    true => row.iter_mut().enumerate().for_each(|(j, it)| *it = from[j * size + index]),
                    false => {
                        row.copy_from_slice(&from[index * size..(index + 1) * size]);
                        transform(row, is_back);
                    }
                });
            });
        });
        device.swap(from, to);
    }

    fn advance(&self, state: &mut State, _: &Device) {
        state.kernel += 1;
    }

    fn check(&self, _: &State, device: &Device) -> Result<String, String> {
        let (size, found, input) = (self.size, device.read(self.from), field(self.size));
        let mut random = Generator::new(271_828_183);
        let off_by = |_: usize| {
            let [k, l] = [(); 2].map(|()| (random.draw() * size as f64) as usize);
            let [re, im] = directly(&input, size, k, l);
            let [found_re, found_im] = found[k * size + l].map(f64::from);
            ((re - found_re).hypot(im - found_im) / size as f64).abs()
        };
        // In this order NaN is the greatest.
        let off = (0..SAMPLES).map(off_by).max_by(f64::total_cmp).unwrap_or(f64::NAN);
        match off < 1e-4 {
            true => Ok(format!("{SAMPLES} frequencies within {off:.1e} of sums over all points")),
            false => Err(format!("frequencies are off by {off:e} from sums over all points")),
        }
    }
}

/// Numbers around zero, drawn from a seed.
fn field(size: usize) -> Vec<Complex> {
    let mut random = Generator::new(314_159_265);
    (0..size * size).map(|_| [(); 2].map(|()| (random.draw() - 0.5) as f32)).collect()
}

/// Cooley and Tukey's transform of a row in place; on the way back divided by its length.
fn transform(row: &mut [Complex], is_back: bool) {
    let bits = row.len().trailing_zeros();
    for i in 0..row.len() {
        let j = i.reverse_bits() >> (usize::BITS - bits);
        if i < j {
            row.swap(i, j);
        }
    }
    let sign = if is_back { 2.0 * PI } else { -2.0 * PI };
    for half in (0..bits).map(|bit| 1usize << bit) {
        let turns: Vec<Complex> = (0..half)
            .map(|k| (sign * k as f64 / (2 * half) as f64).sin_cos())
            .map(|(sin, cos)| [cos as f32, sin as f32])
            .collect();
        for block in row.chunks_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for ((a, b), [cos, sin]) in low.iter_mut().zip(high).zip(&turns) {
                let turned = [b[0] * cos - b[1] * sin, b[0] * sin + b[1] * cos];
                *b = [a[0] - turned[0], a[1] - turned[1]];
                *a = [a[0] + turned[0], a[1] + turned[1]];
            }
        }
    }
    if is_back {
        let length = row.len() as f32;
        row.iter_mut().for_each(|it| *it = it.map(|part| part / length));
    }
}

/// One frequency, by its definition.
fn directly(input: &[Complex], size: usize, k: usize, l: usize) -> [f64; 2] {
    let mut sum = [0.0; 2];
    for (index, [re, im]) in input.iter().map(|it| it.map(f64::from)).enumerate() {
        let turn = (index / size * k + index % size * l) % size;
        let (sin, cos) = (-2.0 * PI * turn as f64 / size as f64).sin_cos();
        sum = [sum[0] + re * cos - im * sin, sum[1] + re * sin + im * cos];
    }
    sum
}
