//! A rank whose process dies is started again, goes on from its last checkpoint, and nobody notices in the
//! result.
//!
//! It fits a line between two kinds of points (logistic regression, gradient descent with momentum). Each rank
//! has every n-th of the 400 points in `examples/data/points.csv`; one allreduce per step adds up the
//! gradients. The program says how to kill each of its processes: do so, as often as you like.
//!
//! ```text
//! cargo build --release --example 07_come_back
//!
//! 07_come_back                  4 ranks, 1000 steps, slow enough to be killed by hand
//! 07_come_back --pause-ms 0     as fast as it goes
//! 07_come_back --generate       prints examples/data/points.csv
//!
//! everfold run -n 4 --checkpoints DIR -- 07_come_back    its checkpoints outlive it: kill everything
//! everfold run -n 4 --resume DIR -- 07_come_back         goes on from there, to the same bits
//! ```
//!
//! What a program does for that:
//! - it asks for its last checkpoint before its first reduction ([`Session::resume`]);
//! - it saves one where all its values are in its state ([`Session::checkpoint`]), which does nothing as long
//!   as none is due;
//! - between two checkpoints it does the same again as before: no clock, no random numbers without a seed, and
//!   the fixed order where rounding matters.

use std::time::Duration;

use clap::Parser;
use everfold::{Interval, prelude::*};
use serde::{Deserialize, Serialize};

/// The points: two coordinates and a label, 0 or 1.
const POINTS: &str = include_str!("data/points.csv");
/// Weights of the two coordinates, and what is added to them.
const WEIGHTS: usize = 3;
const RATE: f64 = 0.1;
const MOMENTUM: f64 = 0.9;
/// Steps from one line of progress to the next.
const PROGRESS: u64 = 100;

/// Fits a line between points; its processes may be killed.
#[derive(Parser)]
struct Options {
    /// Processes to start.
    #[arg(long, default_value_t = 4)]
    ranks: u32,
    /// Steps of the descent.
    #[arg(long, default_value_t = 1000)]
    steps: u64,
    /// Pause after each step, so that there is time to kill processes by hand.
    #[arg(long, default_value_t = 20)]
    pause_ms: u64,
    /// Prints the points that this program was built with, computed again from their seed.
    #[arg(long)]
    generate: bool,
}

/// What a process needs to go on, beside the array of its weights.
#[derive(Serialize, Deserialize)]
struct State {
    step: u64,
    velocity: Vec<f64>,
    /// Depends on every bit of every step: a descent would soon forget one that was wrong.
    digest: u64,
}

#[derive(Clone, Copy)]
struct Point {
    x: [f64; 2],
    label: f64,
}

async fn fit(session: Session, options: &Options) -> everfold::Result<()> {
    let (rank, pid) = (session.rank(), std::process::id());
    let points = read(POINTS)?;
    let mine: Vec<Point> =
        points.iter().copied().skip(rank.index()).step_by(session.size() as usize).collect();

    let mut weights = vec![0.0; WEIGHTS];
    let saved: Option<State> = session.resume().array("weights", &mut weights).await?;
    let begins = || State { step: 0, velocity: vec![0.0; WEIGHTS], digest: 0 };
    let mut state = saved.unwrap_or_else(begins);
    println!("rank {rank} is process {pid}, at step {}; to kill it: kill -9 {pid}", state.step);

    while state.step < options.steps {
        let sums = session.allreduce("gradient", Sum(gradient(&mine, &weights))).order(Order::Fixed);
        let Sum(sums) = sums.await?.value;
        let loss = sums[WEIGHTS] / points.len() as f64;
        for ((weight, velocity), slope) in weights.iter_mut().zip(&mut state.velocity).zip(&sums) {
            *velocity = MOMENTUM * *velocity - RATE * slope / points.len() as f64;
            *weight += *velocity;
        }
        state.step += 1;
        state.digest = weights.iter().fold(state.digest, |digest, weight| {
            (digest.rotate_left(7) ^ weight.to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        if rank == 0 && state.step.is_multiple_of(PROGRESS) {
            println!("step {} of {}: loss {loss:.6}", state.step, options.steps);
        }
        session.checkpoint(&state).array("weights", &weights).await?;
        std::thread::sleep(Duration::from_millis(options.pause_ms));
    }
    let Min(least) = session.allreduce("digest", Min(vec![state.digest])).await?.value;
    let same = least == [state.digest];
    println!("rank {rank} ends, with the weights of the others: {same}");
    if rank == 0 {
        println!("weights {weights:.6?}, digest of all steps {:016x}", state.digest);
    }
    Ok(())
}

/// The gradient of the loss over `points`, and the loss itself behind it.
fn gradient(points: &[Point], weights: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; WEIGHTS + 1];
    for Point { x, label } in points {
        let linear = weights[0] * x[0] + weights[1] * x[1] + weights[2];
        let likely = 1.0 / (1.0 + (-linear).exp());
        let error = likely - label;
        sums[0] += error * x[0];
        sums[1] += error * x[1];
        sums[2] += error;
        sums[WEIGHTS] -= label * likely.ln() + (1.0 - label) * (1.0 - likely).ln();
    }
    sums
}

fn read(text: &str) -> everfold::Result<Vec<Point>> {
    let point = |line: &str| {
        let fields: Result<Vec<f64>, _> = line.split(',').map(str::parse).collect();
        match fields.map_err(everfold::Error::application)?[..] {
            [x, y, label] => Ok(Point { x: [x, y], label }),
            _ => Err(everfold::Error::application(format!("{line:?} is no point: it needs x,y,label"))),
        }
    };
    text.lines().map(point).collect()
}

/// The points as text: two clouds that overlap, around (-1, -1) and (1, 1).
fn generate() -> String {
    let mut seed = 20_261_123u64;
    // Xorshift; 53 bits of it are a number from 0 to 1.
    let mut draw = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut lines = String::new();
    for index in 0..400 {
        let label = index % 2;
        let center = f64::from(2 * label - 1);
        // The sum of three draws is a hill around 1.5.
        let mut near = || center + 2.0 * (draw() + draw() + draw() - 1.5);
        let (x, y) = (near(), near());
        lines += &format!("{x:.6},{y:.6},{label}\n");
    }
    lines
}

fn main() -> everfold::Result<()> {
    let options = Options::parse();
    if options.generate {
        print!("{}", generate());
        return Ok(());
    }
    // To save it takes microseconds here: half a second apart is seldom enough.
    let interval = Interval::Fixed(Duration::from_millis(500));
    let config = Config::default().restart_ranks().checkpoint_interval(interval);
    let launch = Launch::from_env_or_local(options.ranks).config(config);
    everfold::launch(launch, |session| fit(session, &options))
}
