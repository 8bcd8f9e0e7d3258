//! Beside MPI: a program that `mpirun` has started reduces with both.
//!
//! ```text
//! cargo build --release -p everfold-examples --no-default-features --features mpi --example 06_beside_mpi
//! mpirun -n 4 --oversubscribe ${CARGO_TARGET_DIR:-target}/release/examples/06_beside_mpi
//! ```
//!
//! A program that uses MPI can go over to everfold one reduction after the other. Its ranks tell each other
//! over MPI what everfold has to know, once, and keep their numbers. This one sums an array with `MPI_Reduce`
//! and with everfold, and sees that both agree. It takes an MPI library with its `mpicc` to build.
//!
//! With `--by-mpi` ranks on different hosts read each other by `MPI_Get`, too, where that is quicker than
//! TCP. With `--tcp` ranks of one host read each other as if they were on different ones.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use everfold::prelude::*;
use mpi::{collective::SystemOperation, environment::Threading, traits::*};

/// Numbers in the array of each rank.
const ELEMENTS: usize = 1 << 20;
/// How often each side sums them.
const REPETITIONS: usize = 20;

fn main() -> everfold::Result<()> {
    let flags: HashSet<String> = std::env::args().skip(1).collect();
    // Only reads by MPI need several threads.
    let (universe, _) = mpi::initialize_with_threading(Threading::Multiple).expect("MPI is initialized once");
    let world = universe.world();
    let mine: Vec<f64> = (0..ELEMENTS).map(|i| f64::from(world.rank() + 1) * (i % 1000) as f64).collect();

    // As it was: everybody waits until its part of the sum is done.
    let root = world.process_at_rank(0);
    let mut by_mpi = vec![0.0; if world.rank() == 0 { ELEMENTS } else { 0 }];
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        world.barrier();
        let started = Instant::now();
        match world.rank() {
            0 => root.reduce_into_root(&mine[..], &mut by_mpi[..], SystemOperation::sum()),
            _ => root.reduce_into(&mine[..], SystemOperation::sum()),
        }
        times.push(started.elapsed());
    }
    let mpi_took = median(times);

    let mut launch = Launch::from_mpi(&world).map_err(everfold::Error::from)?;
    if flags.contains("--tcp") {
        launch = launch.transport(everfold::launch::Transport::Tcp);
    }
    if flags.contains("--by-mpi") {
        launch = launch.read_by_mpi(&world, 1 << 30).map_err(everfold::Error::from)?;
    }
    // This rank gets an answer even if other ranks die.
    everfold::launch(launch, |session| async move {
        let mut times = Vec::new();
        for _ in 0..REPETITIONS {
            let mut body = session.array::<f64>(ELEMENTS);
            body.copy_from_slice(&mine);
            session.barrier("ready").await?;
            let started = Instant::now();
            let outcome = session.reduce("sum", Sum(body)).root(0).await?;
            times.push(started.elapsed());
            if let Some(Sum(sum)) = outcome.value {
                // Sums of whole numbers are exact in any order.
                assert!(sum[..] == by_mpi[..], "both sums are the same");
            }
        }
        if session.rank().0 == 0 {
            println!("{ELEMENTS} numbers of each of {} ranks, {REPETITIONS} times", session.size());
            println!("in the median MPI took {mpi_took:.1?}, everfold {:.1?}", median(times));
        }
        Ok(())
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
