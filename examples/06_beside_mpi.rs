//! Beside MPI: a program that `mpirun` has started reduces with both.
//!
//! ```text
//! cargo build --release -p everfold-examples --features mpi --example 06_beside_mpi
//! mpirun -n 4 --oversubscribe target/release/examples/06_beside_mpi
//! ```
//!
//! A program that uses MPI can go over to everfold one reduction after the other. Its ranks tell each other
//! over MPI what everfold has to know, once, and keep their numbers. This one sums an array with `MPI_Reduce`
//! and with everfold, and sees that both agree. It takes an MPI library with its `mpicc` to build.

use std::time::Instant;

use everfold::prelude::*;
use mpi::{collective::SystemOperation, traits::*};

/// Numbers in the array of each rank.
const ELEMENTS: usize = 1 << 22;

fn main() -> everfold::Result<()> {
    let universe = mpi::initialize().expect("MPI is initialized once");
    let world = universe.world();
    let mine: Vec<f64> = (0..ELEMENTS).map(|i| f64::from(world.rank() + 1) * (i % 1000) as f64).collect();

    // As it was: everybody waits until its part of the sum is done.
    let started = Instant::now();
    let root = world.process_at_rank(0);
    let mut by_mpi = vec![0.0; if world.rank() == 0 { ELEMENTS } else { 0 }];
    match world.rank() {
        0 => root.reduce_into_root(&mine[..], &mut by_mpi[..], SystemOperation::sum()),
        _ => root.reduce_into(&mine[..], SystemOperation::sum()),
    }
    let mpi_took = started.elapsed();

    // This rank gets an answer even if other ranks die.
    everfold::launch(Launch::from_mpi(&world).map_err(everfold::Error::from)?, |session| async move {
        let started = Instant::now();
        let outcome = session.reduce("sum", Sum(mine)).root(0).await?;
        let everfold_took = started.elapsed();
        if let Some(Sum(sum)) = outcome.value {
            println!("{ELEMENTS} numbers of each of {} ranks", session.size());
            println!("MPI took {mpi_took:.1?}, everfold {everfold_took:.1?}");
            // Whole numbers: their sums are exact in whichever order.
            assert!(sum == by_mpi, "both sums are the same");
        }
        Ok(())
    })
}
