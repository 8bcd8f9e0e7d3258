//! Swim: waves in shallow water on a periodic plane (SPEC 171.swim; R. Sadourny, 1975).
//!
//! Three kernels per step: fluxes, vorticity and heads from velocities and pressure; new values a time step
//! later; a filter that mixes three points in time. Between them 6, 10 or 9 of the 13 arrays are live.

use std::f64::consts::PI;

use everfold_examples::{
    checkpoints::{self, Place, Program, Size},
    device::{Buffer, Device, Launch, Speeds, each},
};
use serde::{Deserialize, Serialize};

/// Distance of neighbouring points in metres, and time step in seconds.
const DX: f64 = 1e5;
const DT: f64 = 90.0;
/// Amplitude of the stream function, and weight of the filter.
const AMPLITUDE: f64 = 1e6;
const ALPHA: f64 = 0.001;

fn main() -> everfold::Result<()> {
    checkpoints::main::<Swim>()
}

/// Velocities and pressure at one point in time.
type Fields = [Buffer<f64>; 3];

struct Swim {
    size: usize,
    steps: u64,
    now: Fields,
    new: Fields,
    old: Fields,
    /// Mass fluxes in both directions, potential vorticity, and head.
    fluxes: [Buffer<f64>; 4],
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct State {
    step: u64,
    kernel: Kernel,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum Kernel {
    Fluxes,
    Step,
    Filter,
}

impl Program for Swim {
    type State = State;
    const NAME: &'static str = "swim";
    const SPEEDS: Speeds = Speeds { memory_bytes_per_s: 3e8, bus_bytes_per_s: 4e8 };
    const SOURCE: &'static str = include_str!("cuda/swim.cu");

    fn begin(device: &Device, size: Size) -> (Self, State) {
        let (size, steps) = (size.size.unwrap_or(256), size.steps.unwrap_or(60));
        let begin = begin(size);
        let upload = || begin.clone().map(|field| device.upload(field));
        let zeros = || device.zeros(size * size);
        let fluxes = [zeros(), zeros(), zeros(), zeros()];
        let program =
            Self { size, steps, now: upload(), old: upload(), new: [zeros(), zeros(), zeros()], fluxes };
        (program, State { step: 0, kernel: Kernel::Fluxes })
    }

    fn place(&self, state: &State) -> Option<Place> {
        let (now, old) = (self.now.map(Buffer::id), self.old.map(Buffer::id));
        let (new, fluxes) = (self.new.map(Buffer::id), self.fluxes.map(Buffer::id));
        (state.step < self.steps).then(|| match state.kernel {
            Kernel::Fluxes => Place::new("before fluxes", [now, old].concat()),
            Kernel::Step => Place::new("before step", [&now[..], &old, &fluxes].concat()),
            Kernel::Filter => Place::new("before filter", [now, old, new].concat()),
        })
    }

    fn launch(&self, state: &State, device: &Device) {
        let &Self { size, now, new, old, fluxes, .. } = self;
        let is_first = state.step == 0;
        let points_of = |name, arrays: usize| Launch::of(name, size * size).moving(arrays * size * size * 8);
        match state.kernel {
            Kernel::Fluxes => {
                let launch = points_of("fluxes", 7).with(size).with(DX).with_all(now).with_all(fluxes);
                device.launch(launch, move |memory| {
                    memory.write(fluxes, |memory, fluxes| {
                        let now = now.map(|field| memory.of(field));
                        points(size, fluxes, |at, _| flux(now, at));
                    });
                });
            }
            Kernel::Step => {
                let dt = time_step(is_first);
                let launch = points_of("step", 10).with(size).with_all([DX, dt]).with_all(old);
                device.launch(launch.with_all(fluxes).with_all(new), move |memory| {
                    memory.write(new, |memory, new| {
                        let (old, fluxes) =
                            (old.map(|field| memory.of(field)), fluxes.map(|field| memory.of(field)));
                        points(size, new, |at, _| step(old, fluxes, dt, at));
                    });
                });
            }
            Kernel::Filter => {
                let launch = points_of("filter", 15).with(ALPHA).with(is_first).with_all(now);
                device.launch(launch.with_all(new).with_all(old), move |memory| {
                    // In place: each point depends on itself alone.
                    memory.write(old, |memory, old| {
                        let (now, new) =
                            (now.map(|field| memory.of(field)), new.map(|field| memory.of(field)));
                        points(size, old, |at, old| filter(is_first, at, now, new, old));
                    });
                });
                now.into_iter().zip(new).for_each(|(now, new)| device.swap(now, new));
            }
        }
    }

    fn advance(&self, state: &mut State, _: &Device) {
        *state = match *state {
            State { step, kernel: Kernel::Fluxes } => State { step, kernel: Kernel::Step },
            State { step, kernel: Kernel::Step } => State { step, kernel: Kernel::Filter },
            State { step, kernel: Kernel::Filter } => State { step: step + 1, kernel: Kernel::Fluxes },
        };
    }

    fn check(&self, _: &State, device: &Device) -> Result<String, String> {
        let found = self.now.map(|field| device.read(field));
        let expected = directly(self.size, self.steps);
        if found != expected {
            return Err("velocities or pressure differ from those of a direct computation".to_owned());
        }
        let mut words = "the same bits as computed directly".to_owned();
        if (self.size, self.steps) == (64, 4000) {
            published(&found)?;
            words += ", and NCAR's published values";
        }
        Ok(words)
    }
}

/// A point of the grid and its neighbours, by their indices in an array.
#[derive(Clone, Copy)]
struct At {
    here: usize,
    /// One less or more in the first direction, the same in the second; and so on.
    less: usize,
    more: usize,
    below: usize,
    above: usize,
    less_below: usize,
    less_above: usize,
    more_below: usize,
}

impl At {
    fn new(size: usize, i: usize, j: usize) -> Self {
        let index = |i: usize, j: usize| i % size * size + j % size;
        Self {
            here: index(i, j),
            less: index(i + size - 1, j),
            more: index(i + 1, j),
            below: index(i, j + size - 1),
            above: index(i, j + 1),
            less_below: index(i + size - 1, j + size - 1),
            less_above: index(i + size - 1, j + 1),
            more_below: index(i + 1, j + size - 1),
        }
    }
}

/// Mass fluxes, potential vorticity and head at a point.
fn flux([u, v, p]: [&[f64]; 3], at: At) -> [f64; 4] {
    let square = |value: f64| value * value;
    let around = p[at.less_below] + p[at.below] + p[at.here] + p[at.less];
    [
        0.5 * (p[at.here] + p[at.less]) * u[at.here],
        0.5 * (p[at.here] + p[at.below]) * v[at.here],
        4.0 / DX * (v[at.here] - v[at.less] - u[at.here] + u[at.below]) / around,
        p[at.here]
            + 0.25 * (square(u[at.more]) + square(u[at.here]) + square(v[at.above]) + square(v[at.here])),
    ]
}

/// New velocities and pressure at a point, a time `dt` later.
fn step([u, v, p]: [&[f64]; 3], [cu, cv, z, h]: [&[f64]; 4], dt: f64, at: At) -> [f64; 3] {
    let (eighth, per_dx) = (dt / 8.0, dt / DX);
    let cv_around = cv[at.above] + cv[at.less_above] + cv[at.less] + cv[at.here];
    let cu_around = cu[at.more] + cu[at.here] + cu[at.below] + cu[at.more_below];
    [
        u[at.here] + eighth * (z[at.above] + z[at.here]) * cv_around - per_dx * (h[at.here] - h[at.less]),
        v[at.here] - eighth * (z[at.more] + z[at.here]) * cu_around - per_dx * (h[at.here] - h[at.below]),
        p[at.here] - per_dx * (cu[at.more] - cu[at.here] + cv[at.above] - cv[at.here]),
    ]
}

/// Values of a step, mixed with those before and after. At first there is nothing before.
fn filter(is_first: bool, at: At, now: [&[f64]; 3], new: [&[f64]; 3], old: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|field| {
        let (now, new) = (now[field][at.here], new[field][at.here]);
        if is_first { now } else { now + ALPHA * (new - 2.0 * now + old[field]) }
    })
}

/// The first step goes from a point in time to the next, later ones over two.
fn time_step(is_first: bool) -> f64 {
    if is_first { DT } else { 2.0 * DT }
}

/// Computes some fields point by point, each from what it was and whatever `value` knows of others.
fn points<const N: usize>(
    size: usize,
    fields: &mut [Vec<f64>; N],
    value: impl Fn(At, [f64; N]) -> [f64; N] + Sync,
) {
    let mut columns = fields.each_mut().map(|field| field.chunks_mut(size));
    let mut rows: Vec<[&mut [f64]; N]> =
        (0..size).map(|_| columns.each_mut().map(|rows| rows.next().expect("a row for each"))).collect();
    each(&mut rows, |i, row| {
        for j in 0..size {
            let values = value(At::new(size, i, j), row.each_ref().map(|field| field[j]));
            row.iter_mut().zip(values).for_each(|(field, value)| field[j] = value);
        }
    });
}

/// The fields after some steps, without a device.
fn directly(size: usize, steps: u64) -> [Vec<f64>; 3] {
    let mut now = begin(size);
    let (mut old, mut new) = (now.clone(), now.clone());
    let mut fluxes = std::array::from_fn(|_| vec![0.0; size * size]);
    for is_first in (0..steps).map(|step| step == 0) {
        points(size, &mut fluxes, |at, _| flux(now.each_ref().map(|it| &it[..]), at));
        let fluxes = fluxes.each_ref().map(|it| &it[..]);
        let before = old.each_ref().map(|it| &it[..]);
        points(size, &mut new, |at, _| step(before, fluxes, time_step(is_first), at));
        let (this, next) = (now.each_ref().map(|it| &it[..]), new.each_ref().map(|it| &it[..]));
        points(size, &mut old, |at, old| filter(is_first, at, this, next, old));
        std::mem::swap(&mut now, &mut new);
    }
    now
}

/// The first values along the diagonal that NCAR publishes for 64 x 64 points after 4000 steps.
fn published([u, v, p]: &[Vec<f64>; 3]) -> Result<(), String> {
    const DIAGONAL: [(f64, f64, f64); 4] = [
        (-0.048068, 0.047776, 50000.477461),
        (-0.141370, 0.141086, 50000.463255),
        (-0.228315, 0.228049, 50000.431270),
        (-0.305560, 0.305322, 50000.382714),
    ];
    for (index, (in_u, in_v, in_p)) in DIAGONAL.into_iter().enumerate() {
        let at = index * 64 + index;
        let found = (u[at], v[at], p[at]);
        let is_near =
            [(found.0, in_u), (found.1, in_v), (found.2, in_p)].iter().all(|(a, b)| (a - b).abs() < 2e-6);
        if !is_near {
            return Err(format!("{found:?} instead of {:?} at diagonal {index}", (in_u, in_v, in_p)));
        }
    }
    Ok(())
}

/// Velocities from a stream function, and the pressure that goes with it.
fn begin(size: usize) -> [Vec<f64>; 3] {
    let angle = 2.0 * PI / size as f64;
    let stream =
        |i: usize, j: usize| AMPLITUDE * ((i as f64 + 0.5) * angle).sin() * ((j as f64 + 0.5) * angle).sin();
    let peak = (PI * AMPLITUDE / (size as f64 * DX)).powi(2);
    let field = |value: &dyn Fn(usize, usize) -> f64| {
        (0..size * size).map(|index| value(index / size, index % size)).collect::<Vec<f64>>()
    };
    [
        field(&|i, j| -(stream(i, j + 1) - stream(i, j)) / DX),
        field(&|i, j| (stream(i + 1, j) - stream(i, j)) / DX),
        field(&|i, j| peak * ((2.0 * i as f64 * angle).cos() + (2.0 * j as f64 * angle).cos()) + 50_000.0),
    ]
}
