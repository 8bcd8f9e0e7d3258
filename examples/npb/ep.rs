//! EP of the NAS Parallel Benchmarks: all computing, then one small reduction whose answer is published.
//!
//! ```text
//! cargo run --release --example npb_ep -- --class A --ranks 8
//! ```
//!
//! The counts of the result are whole numbers. A contribution that was lost or counted twice on the way shows
//! in them at once, whatever happened to the ranks in between.

use clap::Parser;
use everfold::prelude::*;
use everfold_examples::npb::ep::{Class, Tally, batch, batch_start, share};
use everfold_examples::progress::Progress;
use std::time::{Duration, Instant};

/// Counts pairs of Gaussian random deviates and compares the counts with those that NASA published.
#[derive(Clone, Copy, Parser)]
struct Arguments {
    /// Size of the problem.
    #[arg(long, value_enum, ignore_case = true, default_value_t = Class::S)]
    class: Class,
    /// Copies of this program to start when no launcher has started them.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
}

fn main() -> everfold::Result<()> {
    let arguments = Arguments::parse();
    everfold::launch(Launch::from_env_or_local(arguments.ranks), move |session| run(session, arguments.class))
}

async fn run(session: Session, class: Class) -> everfold::Result<()> {
    let started = Instant::now();
    let mine = share(class.batches(), session.rank().into(), session.size());
    // One rank is as far as the others, for all of them have the same amount of work.
    let mut progress = match session.rank() == 0 {
        true => Progress::on_stderr(mine.end - mine.start),
        false => Progress::Silent,
    };
    let mut tally = Tally::default();
    for index in mine {
        tally.combine(batch(batch_start(index)));
        progress.advance();
    }
    progress.finish();

    let outcome = session.reduce("tally", tally).root(0).await?;
    match outcome.value {
        Some(total) => print_results(class, session.size(), &total, started.elapsed(), &outcome.report),
        None => Ok(()),
    }
}

/// Prints what NPB prints, and fails if the answer is not the published one.
fn print_results(
    class: Class,
    ranks: u32,
    tally: &Tally,
    time: Duration,
    report: &Report,
) -> everfold::Result<()> {
    let seconds = time.as_secs_f64();
    let mops = class.random_numbers() as f64 / seconds / 1e6;
    let checks = class.checks(tally);
    println!("NAS Parallel Benchmarks: EP\n");
    println!("Class                = {class:>16}");
    println!("Size                 = {:>16}", class.random_numbers());
    println!("Ranks                = {ranks:>16}");
    println!("Time in seconds      = {seconds:>16.3}");
    println!("Mop/s total          = {mops:>16.2}");
    println!("Mop/s per rank       = {:>16.2}", mops / f64::from(ranks));
    println!("Gaussian pairs       = {:>16}\n", tally.gaussian_pairs());
    println!("{:<8} {:>22} {:>22}", "", "found", "published");
    for check in &checks {
        println!("{check}");
    }
    println!("\nReduction: {report}\n");
    if checks.iter().all(|check| check.passed()) {
        println!("VERIFICATION SUCCESSFUL");
        Ok(())
    } else {
        println!("VERIFICATION UNSUCCESSFUL");
        Err(everfold::Error::application("the answer of EP is not the published one"))
    }
}
