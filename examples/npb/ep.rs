//! EP of the NAS Parallel Benchmarks: all computing, then one small reduction whose answer is published.
//!
//! ```text
//! cargo run --release --example npb_ep -- --class A --ranks 8 --kill 3@0.5
//! ```
//!
//! The counts of the result are whole numbers. A contribution that was lost or counted twice on the way shows
//! in them at once, whatever happened to the ranks in between.
//!
//! With `--kill`, one rank or several (`--kill 3@0.5,5@1`) kill themselves: before they have contributed, and
//! the survivors compute their share, or afterwards, and their contribution counts. EP is one recovery
//! segment.

use clap::Parser;
use everfold::{SegmentReport, prelude::*};
use everfold_examples::npb::{
    ep::{Class, Tally, batch, batch_start},
    kill::{Deaths, Mark},
};
use everfold_examples::progress::Progress;
use std::time::{Duration, Instant};

/// Counts pairs of Gaussian random deviates and compares the counts with those that NASA published.
#[derive(Clone, Parser)]
struct Arguments {
    /// Size of the problem.
    #[arg(long, value_enum, ignore_case = true, default_value_t = Class::S)]
    class: Class,
    /// Copies of this program to start when no launcher has started them.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    #[command(flatten)]
    deaths: Deaths,
    /// Leaves what a rank has counted in shared memory, anew after this many batches: it counts if the rank
    /// dies.
    #[arg(long, value_name = "BATCHES", value_parser = clap::value_parser!(u64).range(1..))]
    progress: Option<u64>,
    /// Relieves slow ranks of batches that they have not begun.
    #[arg(long)]
    balance: bool,
    /// Lets a rank pause after each batch, so that it takes this many times as long.
    #[arg(long, value_name = "RANK@FACTOR")]
    slow: Option<Mark>,
}

fn main() -> everfold::Result<()> {
    let arguments = Arguments::parse();
    // The first rank that lives judges the answer.
    let launch = Launch::from_env_or_local(arguments.ranks).survive_deaths();
    everfold::launch(launch, move |session| run(session, arguments))
}

async fn run(
    session: Session,
    Arguments { class, deaths, progress: every, balance, slow, .. }: Arguments,
) -> everfold::Result<()> {
    let death = deaths.of(&session)?;
    let started = Instant::now();
    let share = class.batches() / u64::from(session.size());
    // One rank is as far as the others, for all of them have the same amount of work.
    let mut progress = match session.rank() == 0 {
        true => Progress::on_stderr(share),
        false => Progress::Silent,
    };
    let slow = slow.filter(|slow| slow.rank == session.rank().0);
    let pause = slow.map(|slow| (slow.number - 1.0).max(0.0));
    let mut done = 0;
    let segment = session.segment("tally", 0..class.batches()).grain(1).order(Order::Fixed);
    let segment = every.into_iter().fold(segment, |segment, batches| segment.progress(batches));
    let segment = if balance { segment.balance() } else { segment };
    let mut counting = Box::pin(segment.fold(|batches| {
        death.iter().for_each(|death| death.strike(done, share));
        done += 1;
        progress.advance();
        let begun = Instant::now();
        let tally = batch(batch_start(batches.start));
        pause.into_iter().for_each(|part| std::thread::sleep(begun.elapsed().mul_f64(part)));
        tally
    }));
    if let Some(death) = death.filter(|death| death.fraction >= 1.0) {
        // The first look at the segment computes the share and contributes it.
        let _ = futures::poll!(&mut counting);
        // Once this one is over, the master has what this rank has said before.
        session.allreduce("said", Sum(vec![1u8])).group(Group::of([session.rank()])).await?;
        death.die();
    }
    let Folded { value, report } = counting.await?;
    progress.finish();
    match report.survivors.first() == Some(session.rank()) {
        true => print_results(class, session.size(), &value, started.elapsed(), &report),
        false => Ok(()),
    }
}

/// Prints what NPB prints, and fails if the answer is not the published one.
fn print_results(
    class: Class,
    ranks: u32,
    tally: &Tally,
    time: Duration,
    report: &SegmentReport,
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
    println!("\nSegment: {report}\n");
    if checks.iter().all(|check| check.passed()) {
        println!("VERIFICATION SUCCESSFUL");
        Ok(())
    } else {
        println!("VERIFICATION UNSUCCESSFUL");
        Err(everfold::Error::application("the answer of EP is not the published one"))
    }
}
