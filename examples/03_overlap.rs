//! Computing on while a reduction runs.
//!
//! ```text
//! cargo run --release --example 03_overlap
//! ```
//!
//! A big array takes a while to be folded, and none of the work needs the thread that asked for it. `start`
//! returns a future at once. Until it is done, this program estimates π by throwing random points at a square
//! and counting those that hit the circle in it. Then it checks every element of the array by a formula.

use clap::Parser;
use everfold::prelude::*;
use everfold_examples::npb::ep::{PAIRS_PER_BATCH, batch, batch_start};
use std::time::Instant;

/// Reduces a big array and computes an estimate of π meanwhile.
#[derive(Clone, Copy, Parser)]
struct Arguments {
    /// Numbers in the array of each rank, 8 bytes each.
    #[arg(long, default_value_t = 1 << 22)]
    elements: usize,
    /// Copies of this program to start when no launcher has started them.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
}

/// The elements are whole numbers below this one, so that their sums are exact in floating point.
const MODULUS: usize = 1000;

/// Batches that lie between those of two ranks, so that no two ranks throw the same points.
const BATCHES_APART: u64 = 1 << 18;

fn main() -> everfold::Result<()> {
    let arguments = Arguments::parse();
    everfold::launch(Launch::from_env_or_local(arguments.ranks), move |session| {
        run(session, arguments.elements)
    })
}

async fn run(session: Session, elements: usize) -> everfold::Result<()> {
    // Element i of rank r is (r + 1) · (i mod 1000).
    let factor = f64::from(session.rank()) + 1.0;
    let mine = Sum((0..elements).map(|i| factor * (i % MODULUS) as f64).collect::<Vec<_>>());

    let started = Instant::now();
    let future = session.reduce("array", mine).root(0).start()?;
    let start_took = started.elapsed();

    // Real work, in pieces that are short beside the reduction. Nothing here has to help the reduction along.
    let first = BATCHES_APART * u64::from(u32::from(session.rank()));
    let mut batches = 0;
    let mut hits = 0;
    while !future.is_done() {
        hits += batch(batch_start(first + batches)).gaussian_pairs();
        batches += 1;
    }
    let reduction_took = started.elapsed();
    let outcome = future.await?;

    // What all ranks computed meanwhile is one more reduction, of two numbers.
    let meanwhile = session.reduce("meanwhile", Sum(vec![batches * PAIRS_PER_BATCH, hits])).root(0).await?;
    let (Some(Sum(total)), Some(Sum(meanwhile))) = (outcome.value, meanwhile.value) else {
        return Ok(());
    };

    println!("{elements} numbers of each of {} ranks", session.size());
    println!("asking for their sum took {start_took:.1?}, and the sum was there after {reduction_took:.1?}");
    println!(
        "meanwhile this rank threw {} points, and all ranks {}",
        batches * PAIRS_PER_BATCH,
        meanwhile[0]
    );
    if meanwhile[0] > 0 {
        println!(
            "of which {} hit: π is about {:.4}",
            meanwhile[1],
            4.0 * meanwhile[1] as f64 / meanwhile[0] as f64
        );
    }
    println!("{}", outcome.report);
    check(&total, elements, session.size())
}

/// The factors of p ranks add up to p (p + 1) / 2.
fn check(total: &[f64], elements: usize, ranks: u32) -> everfold::Result<()> {
    let factors = f64::from(ranks) * (f64::from(ranks) + 1.0) / 2.0;
    let wrong = (0..elements).find(|i| total.get(*i) != Some(&(factors * (i % MODULUS) as f64)));
    match wrong {
        _ if total.len() != elements => Err(everfold::Error::application(format!(
            "{} elements came back instead of {elements}",
            total.len()
        ))),
        Some(i) => {
            Err(everfold::Error::application(format!("element {i} of the sum is wrong: {}", total[i])))
        }
        None => {
            println!("all elements of the sum are right");
            Ok(())
        }
    }
}
