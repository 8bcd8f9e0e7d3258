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
//! their share of the work is lost with them, or afterwards, and their contribution counts. The report of the
//! reduction says whose share is missing. The survivors deal the lost batches among themselves and reduce
//! again, until nothing is missing.

use clap::Parser;
use everfold::prelude::*;
use everfold_examples::npb::ep::{Class, Kill, Tally, batch, batch_start, share};
use everfold_examples::progress::Progress;
use nix::sys::signal::{Signal, raise};
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
    /// Kills ranks, each when it has done this part of its share; from 1 on, when it has contributed.
    #[arg(long, value_name = "RANK@FRACTION", value_delimiter = ',')]
    kill: Vec<Kill>,
}

fn main() -> everfold::Result<()> {
    let arguments = Arguments::parse();
    // Rank 0 judges the answer. It lives as long as the job does, and the job ends as it does.
    let launch = Launch::from_env_or_local(arguments.ranks).survive_deaths();
    everfold::launch(launch, move |session| run(session, arguments))
}

async fn run(session: Session, Arguments { class, kill, .. }: Arguments) -> everfold::Result<()> {
    if let Some(kill) = kill.iter().find(|kill| kill.rank >= session.size()) {
        let message = format!("rank {} cannot be killed in a job of {}", kill.rank, session.size());
        return Err(everfold::Error::application(message));
    }
    let kill = kill.into_iter().find(|kill| session.rank() == kill.rank);
    let started = Instant::now();
    let mut total = Tally::default();
    // The batches that do not count yet, and who deals them among themselves.
    let mut batches: Vec<u64> = (0..class.batches()).collect();
    let mut group = session.world();
    let report = loop {
        let shares: Vec<_> = (0..group.len() as u32)
            .map(|place| share(batches.len() as u64, place, group.len() as u32))
            .map(|range| &batches[range.start as usize..range.end as usize])
            .collect();
        let place = group.iter().position(|rank| rank == session.rank());
        let mine = place.map_or(&[][..], |place| shares[place]);
        let tally = compute(&session, mine, kill)?;
        let future = session.reduce("tally", tally).group(group.clone()).allow_missing().start()?;
        if kill.is_some() {
            // Once this one is over, the master has what this rank has said before.
            session.allreduce("said", Sum(vec![1u8])).group(Group::of([session.rank()])).await?;
            raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
        }
        let Outcome { value, report } = future.await?;
        value.into_iter().for_each(|value| total.combine(value));
        // All ranks have the same report, and so come to the same batches and the same group.
        let lost = |rank: Rank| report.missing.contains(rank);
        batches = group
            .iter()
            .zip(shares)
            .filter(|(rank, _)| lost(*rank))
            .flat_map(|(_, share)| share)
            .copied()
            .collect();
        group = group.filter(|rank| !lost(rank) && !report.survived.contains(rank));
        if batches.is_empty() {
            break report;
        }
        if session.rank() == 0 {
            println!("{report}");
            println!(
                "the counts lack the share of {}: the others compute its {} batches",
                report.missing,
                batches.len()
            );
        }
    };
    match session.rank() == 0 {
        true => print_results(class, session.size(), &total, started.elapsed(), &report),
        false => Ok(()),
    }
}

/// Computes these batches, if it lives long enough.
fn compute(session: &Session, batches: &[u64], kill: Option<Kill>) -> everfold::Result<Tally> {
    // One rank is as far as the others, for all of them have the same amount of work.
    let mut progress = match session.rank() == 0 {
        true => Progress::on_stderr(batches.len() as u64),
        false => Progress::Silent,
    };
    let mut tally = Tally::default();
    for (done, index) in batches.iter().enumerate() {
        if kill.is_some_and(|kill| done == (kill.fraction * batches.len() as f64) as usize) {
            raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
        }
        tally.combine(batch(batch_start(*index)));
        progress.advance();
    }
    progress.finish();
    Ok(tally)
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
