//! BackProp: training steps of a neural network with one hidden layer of 16 units (Rodinia backprop,
//! repeated).
//!
//! Two kernels per step: weighted sums of the inputs, and new weights. The host computes between them.
//! Weights move: at the beginning of a step the host has them, before the second kernel the device.

use everfold_examples::{
    checkpoints::{self, Place, Program, Size},
    device::{Buffer, Device, Launch, Speeds, rows},
    npb::random::Generator,
};
use serde::{Deserialize, Serialize};

const HIDDEN: usize = 16;
/// Inputs whose products one block of the first kernel adds up.
const BLOCK: usize = 16;
const RATE: f32 = 0.3;
const MOMENTUM: f32 = 0.3;
const TARGET: f32 = 0.1;

fn main() -> everfold::Result<()> {
    checkpoints::main::<BackProp>()
}

struct BackProp {
    inputs: usize,
    steps: u64,
    input: Buffer<f32>,
    weights: Buffer<f32>,
    changes: Buffer<f32>,
    sums: Buffer<f32>,
    deltas: Buffer<f32>,
}

#[derive(Clone, Serialize, Deserialize)]
struct State {
    step: u64,
    kernel: Kernel,
    /// Between inputs and hidden units, a row for each input; and by what the last step changed them. Empty
    /// while the device has them.
    weights: Vec<f32>,
    changes: Vec<f32>,
    /// Between hidden units and the output, that of the bias first.
    output: Output,
    /// Of the hidden units, in this step.
    deltas: Vec<f32>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum Kernel {
    Sums,
    Output,
    Adjust,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Output {
    weights: Vec<f32>,
    changes: Vec<f32>,
    value: f32,
}

impl Program for BackProp {
    type State = State;
    const NAME: &'static str = "backprop";
    const SPEEDS: Speeds = Speeds { memory_bytes_per_s: 5e8, bus_bytes_per_s: 4e8 };
    const SOURCE: &'static str = include_str!("cuda/backprop.cu");

    fn begin(device: &Device, size: Size) -> (Self, State) {
        let inputs = size.size.unwrap_or(1 << 15).next_multiple_of(BLOCK);
        let steps = size.steps.unwrap_or(60);
        let (input, state) = begin(inputs);
        let many = inputs * HIDDEN;
        let program = Self {
            inputs,
            steps,
            input: device.upload(input),
            weights: device.zeros(many),
            changes: device.zeros(many),
            sums: device.zeros(many / BLOCK),
            deltas: device.zeros(HIDDEN),
        };
        (program, state)
    }

    fn place(&self, state: &State) -> Option<Place> {
        (state.step < self.steps).then(|| match state.kernel {
            Kernel::Sums => Place::new("before sums", []),
            Kernel::Output => Place::new("before the output layer", [self.sums.id()]),
            Kernel::Adjust => {
                Place::new("before new weights", [self.weights.id(), self.changes.id(), self.deltas.id()])
            }
        })
    }

    fn launch(&self, state: &State, device: &Device) {
        let &Self { inputs, input, weights, changes, sums, deltas, .. } = self;
        match state.kernel {
            Kernel::Sums => {
                device.write(weights, &state.weights);
                let launch = Launch::of("sums", inputs / BLOCK * HIDDEN).moving(inputs * HIDDEN * 4);
                let launch = launch.with_all([HIDDEN, BLOCK]).with_all([input, weights, sums]);
                device.launch(launch, move |memory| {
                    memory.write([sums], |memory, [sums]| {
                        let (input, weights) = (memory.of(input), memory.of(weights));
                        rows(sums, HIDDEN, |block, sums| {
                            let inputs = block * BLOCK..(block + 1) * BLOCK;
                            sums.copy_from_slice(&weighted(inputs, input, weights));
                        });
                    });
                });
            }
            Kernel::Output => {}
            Kernel::Adjust => {
                let launch = Launch::of("adjust", inputs * HIDDEN).moving(inputs * HIDDEN * 16);
                let launch = launch.with(HIDDEN).with_all([RATE, MOMENTUM]);
                device.launch(launch.with_all([input, deltas, weights, changes]), move |memory| {
                    memory.write([weights, changes], |memory, [weights, changes]| {
                        let (input, deltas) = (memory.of(input), memory.of(deltas));
                        let each =
                            input.iter().zip(weights.chunks_mut(HIDDEN)).zip(changes.chunks_mut(HIDDEN));
                        each.for_each(|((input, weights), changes)| adjust(*input, deltas, weights, changes));
                    });
                });
            }
        }
    }

    fn advance(&self, state: &mut State, device: &Device) {
        match state.kernel {
            Kernel::Sums => state.kernel = Kernel::Output,
            Kernel::Output => {
                let blocks = device.read(self.sums);
                state.deltas = state.output.learn(&hidden(&blocks));
                device.write(self.deltas, &state.deltas);
                device.write(self.weights, &std::mem::take(&mut state.weights));
                device.write(self.changes, &std::mem::take(&mut state.changes));
                state.kernel = Kernel::Adjust;
            }
            Kernel::Adjust => {
                state.weights = device.read(self.weights);
                state.changes = device.read(self.changes);
                state.deltas.clear();
                state.kernel = Kernel::Sums;
                state.step += 1;
            }
        }
    }

    fn check(&self, state: &State, _: &Device) -> Result<String, String> {
        let (input, mut expected) = begin(self.inputs);
        for _ in 0..self.steps {
            let blocks: Vec<f32> = (0..self.inputs / BLOCK)
                .flat_map(|block| weighted(block * BLOCK..(block + 1) * BLOCK, &input, &expected.weights))
                .collect();
            let deltas = expected.output.learn(&hidden(&blocks));
            let State { weights, changes, .. } = &mut expected;
            let each = input.iter().zip(weights.chunks_mut(HIDDEN)).zip(changes.chunks_mut(HIDDEN));
            each.for_each(|((input, weights), changes)| adjust(*input, &deltas, weights, changes));
        }
        match (&state.weights, &state.output) == (&expected.weights, &expected.output) {
            true => Ok(format!("weights as computed on the host, output {:.4}", state.output.value)),
            false => Err("weights differ from those computed on the host".to_owned()),
        }
    }
}

/// Inputs and small weights, drawn from a seed.
fn begin(inputs: usize) -> (Vec<f32>, State) {
    let mut random = Generator::new(314_159_265);
    let mut draw =
        |count: usize, most: f64| -> Vec<f32> { (0..count).map(|_| (random.draw() * most) as f32).collect() };
    let input = draw(inputs, 1.0);
    let weights = draw(inputs * HIDDEN, 2.0 / inputs as f64);
    let output = Output { weights: draw(HIDDEN + 1, 0.5), changes: vec![0.0; HIDDEN + 1], value: 0.0 };
    let changes = vec![0.0; weights.len()];
    (input, State { step: 0, kernel: Kernel::Sums, weights, changes, output, deltas: vec![] })
}

/// What some inputs add to the sum of each hidden unit.
fn weighted(inputs: std::ops::Range<usize>, input: &[f32], weights: &[f32]) -> [f32; HIDDEN] {
    let mut sums = [0.0; HIDDEN];
    for i in inputs {
        let of_input = &weights[i * HIDDEN..(i + 1) * HIDDEN];
        sums.iter_mut().zip(of_input).for_each(|(sum, weight)| *sum += input[i] * weight);
    }
    sums
}

/// Values of the hidden units, from the sums of all blocks.
fn hidden(blocks: &[f32]) -> Vec<f32> {
    let mut sums = [0.0; HIDDEN];
    for block in blocks.chunks(HIDDEN) {
        sums.iter_mut().zip(block).for_each(|(sum, part)| *sum += part);
    }
    sums.map(sigmoid).to_vec()
}

/// New weights from one input, or hidden unit, to the units behind it.
fn adjust(input: f32, deltas: &[f32], weights: &mut [f32], changes: &mut [f32]) {
    for ((weight, change), delta) in weights.iter_mut().zip(changes).zip(deltas) {
        *change = RATE * delta * input + MOMENTUM * *change;
        *weight += *change;
    }
}

fn sigmoid(sum: f32) -> f32 {
    1.0 / (1.0 + (-sum).exp())
}

impl Output {
    /// Computes the output and changes the weights before it. Gives the deltas of the hidden units.
    fn learn(&mut self, hidden: &[f32]) -> Vec<f32> {
        let with_bias: Vec<f32> = std::iter::once(1.0).chain(hidden.iter().copied()).collect();
        self.value = sigmoid(with_bias.iter().zip(&self.weights).map(|(unit, weight)| unit * weight).sum());
        let delta = self.value * (1.0 - self.value) * (TARGET - self.value);
        let of_unit = |(unit, weight): (&f32, &f32)| unit * (1.0 - unit) * delta * weight;
        let deltas = hidden.iter().zip(&self.weights[1..]).map(of_unit).collect();
        for ((unit, weight), change) in with_bias.iter().zip(&mut self.weights).zip(&mut self.changes) {
            *change = RATE * delta * unit + MOMENTUM * *change;
            *weight += *change;
        }
        deltas
    }
}
