//! A process is killed in the middle of a reduction, and the reduction ends with its contribution all the
//! same.
//!
//! ```text
//! cargo run --release --example 05_survive_failure -- --timeline death.svg
//! ```
//!
//! Eight ranks contribute 32 MiB each; one of them is late. Before it comes, rank 3 is killed. The agent of
//! its host holds its memory, and lends what rank 3 has contributed and folded so far. What it was folding is
//! put together again. Rank 1 receives the sum, checks every element of it, and draws what has happened. Then
//! the survivors go on without rank 3.
//!
//! With `--victim 1`, rank 0 receives the sum in its place. On several hosts, a whole one may be lost, with
//! its agent: then a replica takes the place of what rank 3 has contributed. If there is none, because of
//! `--protection none` or because the host was lost too soon, everyone hears whose contribution is lost, and
//! goes on as well.

use clap::Parser;
use everfold::{Array, News, launch::Transport, prelude::*};
use everfold_timeline::Timeline;
use futures::{FutureExt, StreamExt};
use nix::sys::signal::{Signal, raise};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Kills a rank in the middle of a reduction, checks the result, and goes on with the survivors.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Copies of this program to start when no launcher has started them: up to 8, for each has a byte of the
    /// sum.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=8))]
    ranks: u32,
    /// The rank that dies.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..8))]
    victim: u32,
    /// When it dies, in milliseconds after it has contributed; if not given, after as long as a reduction
    /// takes.
    #[arg(long, value_name = "MS")]
    after: Option<u64>,
    /// Numbers in the array of each rank, 8 bytes each.
    #[arg(long, default_value_t = 1 << 22)]
    elements: usize,
    /// What of a contribution outlives its host: none, memory, disk or commit-first.
    #[arg(long, value_name = "LEVEL", default_value = "memory")]
    protection: Protection,
    /// Draws what has happened.
    #[arg(long, value_name = "FILE.svg")]
    timeline: Option<PathBuf>,
}

/// The first of them that lives when the sum is there receives it. With `root(1)` the death of rank 1 would
/// end the reduction in an error.
const ROOTS: [u32; 2] = [1, 0];

/// Each rank contributes a number from 1 to this one to each element.
const DIGITS: usize = 100;

fn main() -> everfold::Result<()> {
    let arguments = Arguments::parse();
    // A killed process would give the whole job its exit code. Here it is the survivors that count.
    // Over TCP ranks of one host read each other as those of several hosts do.
    let launch = Launch::from_env_or_local(arguments.ranks).transport(Transport::Tcp).survive_deaths();
    everfold::launch(launch, move |session| run(session, arguments))
}

async fn run(session: Session, arguments: Arguments) -> everfold::Result<()> {
    let Arguments { victim, elements, protection, .. } = arguments;
    if session.size() > 8 || victim >= session.size() {
        let message = format!("there is no rank {victim} to kill, or more than 8 ranks");
        return Err(everfold::Error::application(message));
    }
    let mut events = session.events();

    // How long it takes when nobody dies. Once would not do: the first reduction also touches fresh memory.
    let mut taken = Duration::ZERO;
    for _ in 0..3 {
        let mine = contribution(&session, elements);
        slowest(&session, taken).await?;
        let started = Instant::now();
        session.reduce("warm-up", mine).roots(ROOTS).protection(protection).await?;
        taken = started.elapsed();
    }

    let mine = contribution(&session, elements);
    let taken = slowest(&session, taken).await?;
    // One rank is late. The others do not wait for it to fold what is there, and the death comes before it
    // does.
    if session.world().iter().filter(|rank| *rank != victim).last() == Some(session.rank()) {
        thread::sleep(2 * taken);
    }
    let future = session.reduce("sum", mine).roots(ROOTS).protection(protection).trace().start()?;
    if session.rank() == victim {
        let after = arguments.after.map_or(taken, Duration::from_millis);
        println!("rank {victim} dies {after:.1?} after it has contributed");
        thread::sleep(after);
        raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
    }

    let ended = future.await;
    // The death is news that may still be on its way, if the reduction was faster.
    while session.survivors().contains(victim.into()) {
        let Some(news) = events.next().await else { break };
        print(&session, &news);
    }
    match ended {
        Ok(Outcome { value: Some(sum), report }) => {
            check(&sum, &session.world(), elements)?;
            println!("{report}");
            if let Some(file) = &arguments.timeline {
                let title = format!("A sum of {} MiB on {} ranks", elements >> 17, session.size());
                Timeline::new(title, session.size(), &report).write(file)?;
                println!("timeline: {}", file.display());
            }
        }
        Ok(Outcome { report, .. }) => {
            if session.rank() == 0 && victim == ROOTS[0] && report.survived.is_empty() {
                println!("rank {victim} had received the sum when it died");
            }
        }
        // It had not called yet, or its host is lost and there is no replica: everyone hears whose
        // contribution it is.
        Err(error @ ReduceError::Refused(_)) if session.rank() == 0 => println!("no sum: {error}"),
        Err(ReduceError::Refused(_)) => {}
        Err(error) => return Err(error.into()),
    }

    // Life goes on. A group that names a dead rank would be refused; this one names the living, and one of
    // them is the root.
    let survivors = session.survivors();
    let root = survivors.iter().next().expect("this rank lives");
    let next =
        session.reduce("next sum", contribution(&session, elements)).group(&survivors).root(root).await?;
    if let Some(sum) = next.value {
        check(&sum, &survivors, elements)?;
    }
    while let Some(Some(news)) = events.next().now_or_never() {
        print(&session, &news);
    }
    Ok(())
}

/// Rank r writes byte r of each number, so that the sum tells for each rank whether it counts, and how often.
///
/// The array lies in memory that the agent holds, too, so it outlives its process.
fn contribution(session: &Session, elements: usize) -> Sum<Array<u64>> {
    let mut array = session.array(elements);
    let unit = 1 << (8 * session.rank().index());
    array.iter_mut().enumerate().for_each(|(i, element)| *element = unit * digit(i));
    Sum(array)
}

/// What each rank contributes to element `i`: small enough to show that it counts twice, and never 0.
fn digit(i: usize) -> u64 {
    (i % DIGITS) as u64 + 1
}

/// The longest time of all ranks. It also keeps everyone from beginning before the last one has filled its
/// array.
async fn slowest(session: &Session, mine: Duration) -> everfold::Result<Duration> {
    let Max(longest) = session.allreduce("slowest", Max(vec![mine.as_secs_f64()])).await?.value;
    Ok(Duration::from_secs_f64(longest[0]))
}

/// One rank is enough to tell.
fn print(session: &Session, news: &News) {
    if session.rank() == 0 {
        println!("news: {news}");
    }
}

fn check(Sum(sum): &Sum<Array<u64>>, group: &Group, elements: usize) -> everfold::Result<()> {
    let units: u64 = group.iter().map(|rank| 1 << (8 * rank.index())).sum();
    match (0..elements).find(|i| sum.get(*i) != Some(&(units * digit(*i)))) {
        None => {
            println!("{elements} numbers are right: each of {} ranks counts once", group.len());
            Ok(())
        }
        Some(i) => {
            Err(everfold::Error::application(format!("number {i} of the sum is wrong: {:#018x}", sum[i])))
        }
    }
}
