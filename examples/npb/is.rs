//! IS of the NAS Parallel Benchmarks: the ranks of many small keys, ten times, with two keys changed each
//! time.
//!
//! ```text
//! cargo run --release --example npb_is -- --class A --ranks 8 --kill 3@0.5,5@0.9
//! ```
//!
//! Each iteration is a recovery segment over the keys, which counts them by value. A key follows from its
//! index: the survivors of `--kill` draw the keys of the dead again. In each iteration the counts have to be
//! those of all keys, so a key that is lost or counted twice shows at once.

use clap::Parser;
use everfold::prelude::*;
use everfold_examples::npb::{
    is::{Class, Counter, Histogram, TEST_KEYS, keys},
    kill::Deaths,
};
use everfold_examples::progress::Progress;
use std::time::{Duration, Instant};

/// Ranks keys and compares some of the ranks with those that NASA published.
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
}

fn main() -> everfold::Result<()> {
    let arguments = Arguments::parse();
    // The first rank that lives judges the answer.
    let launch = Launch::from_env_or_local(arguments.ranks).survive_deaths();
    everfold::launch(launch, move |session| run(session, arguments))
}

async fn run(session: Session, Arguments { class, deaths, .. }: Arguments) -> everfold::Result<()> {
    let death = deaths.of(&session)?;
    let mut team = session.world();
    let mut progress = match session.rank() == 0 {
        true => Progress::on_stderr(Class::ITERATIONS),
        false => Progress::Silent,
    };
    let started = Instant::now();
    let (mut passed, mut again, mut last) = (0, 0, None);
    let mut counter = Counter::new(class);
    for iteration in 1..=Class::ITERATIONS {
        let mut grains = 0;
        // A grain costs a histogram: a few of them for each rank.
        let grain = class.keys() / (4 * u64::from(session.size())).next_power_of_two();
        let segment = session.segment("keys", 0..class.keys()).grain(grain.max(1)).among(&mut team);
        let Folded { value, report } = segment
            .fold(|indices| {
                grains += 1;
                if grains > 1 {
                    death.iter().for_each(|death| death.strike(iteration - 1, Class::ITERATIONS));
                }
                counter.count(iteration, indices)
            })
            .await?;
        if report.again > 0 && session.rank() == 0 {
            println!("iteration {iteration}: {report}");
        }
        again += report.again;
        passed += verify(class, iteration, &value);
        last = Some(value);
        progress.advance();
    }
    progress.finish();
    let time = started.elapsed();
    if team.iter().next() != Some(session.rank()) {
        return Ok(());
    }
    let keys = keys(class, Class::ITERATIONS, 0..class.keys());
    let is_sorted = last.is_some_and(|counts| counts.sorts(keys));
    print_results(class, session.size(), passed, is_sorted, time, again)
}

/// How many of the test keys have the published rank: none, unless as many keys were counted as there are.
fn verify(class: Class, iteration: u64, counts: &Histogram) -> usize {
    if counts.keys() != class.keys() {
        return 0;
    }
    let ranks = counts.ranks();
    class.published(iteration).into_iter().filter(|(key, rank)| ranks[*key as usize] == *rank).count()
}

/// Prints what NPB prints, and fails if the answer is not the published one.
fn print_results(
    class: Class,
    ranks: u32,
    passed: usize,
    is_sorted: bool,
    time: Duration,
    again: u64,
) -> everfold::Result<()> {
    let tests = TEST_KEYS * Class::ITERATIONS as usize;
    let seconds = time.as_secs_f64();
    let mops = (Class::ITERATIONS * class.keys()) as f64 / seconds / 1e6;
    println!("NAS Parallel Benchmarks: IS\n");
    println!("Class                = {class:>16}");
    println!("Size                 = {:>16}", class.keys());
    println!("Iterations           = {:>16}", Class::ITERATIONS);
    println!("Ranks                = {ranks:>16}");
    println!("Time in seconds      = {seconds:>16.3}");
    println!("Mop/s total          = {mops:>16.2}");
    println!("Keys counted again   = {again:>16}");
    println!("Ranks as published   = {passed:>13}/{tests}");
    println!("Keys are sorted      = {:>16}\n", if is_sorted { "yes" } else { "NO" });
    if passed == tests && is_sorted {
        println!("VERIFICATION SUCCESSFUL");
        Ok(())
    } else {
        println!("VERIFICATION UNSUCCESSFUL");
        Err(everfold::Error::application("the answer of IS is not the published one"))
    }
}
