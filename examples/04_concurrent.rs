//! Dozens of reductions at once, from one process.
//!
//! ```text
//! cargo run --release --example 04_concurrent -- --reductions 48
//! ```
//!
//! Each reduction has a name, and that is all that keeps it apart from the others: there is no order in which
//! they must be started, awaited or finished. Here they differ in everything else too, in type, operation,
//! size and root. Every root checks what it received, and the table of all checks is itself the last
//! reduction.

use clap::Parser;
use everfold::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Instant;

/// Runs many reductions of mixed types and sizes at the same time and checks every value.
#[derive(Clone, Copy, Parser)]
struct Arguments {
    /// How many reductions to run.
    #[arg(long, default_value_t = 48)]
    reductions: usize,
    /// Copies of this program to start when no launcher has started them.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
}

/// Sizes take turns. Their number has no factor in common with that of the types, so all combinations occur.
const ELEMENTS: [usize; 5] = [1, 64, 4096, 65_536, 262_144];

/// Sums stay small enough to be exact in an `f32`.
const MODULUS: usize = 100;

/// A body of our own among the arrays: how many ranks have named each key.
#[derive(Serialize, Deserialize)]
struct Keys(BTreeMap<u64, u32>);

impl ReducerBody for Keys {
    fn combine(&mut self, other: Self) {
        for (key, count) in other.0 {
            *self.0.entry(key).or_default() += count;
        }
    }
}

/// What the root of a reduction found out about it.
#[derive(Serialize, Deserialize)]
struct Row {
    index: usize,
    body: String,
    elements: usize,
    root: u32,
    milliseconds: f64,
    correct: bool,
}

#[derive(Serialize, Deserialize)]
struct Table(Vec<Row>);

impl ReducerBody for Table {
    fn combine(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// A reduction in flight. It ends in a row on the rank that is its root, and in nothing on the others.
type InFlight = Pin<Box<dyn Future<Output = everfold::Result<Option<Row>>>>>;

fn main() -> everfold::Result<()> {
    let arguments = Arguments::parse();
    everfold::launch(Launch::from_env_or_local(arguments.ranks), move |session| {
        run(session, arguments.reductions)
    })
}

async fn run(session: Session, reductions: usize) -> everfold::Result<()> {
    let started = Instant::now();
    let in_flight =
        (0..reductions).map(|index| start(&session, index)).collect::<everfold::Result<Vec<_>>>()?;
    // Awaiting one does not hold up the others: they have all been under way since they were started.
    let mut rows = Vec::new();
    for reduction in in_flight {
        rows.extend(reduction.await?);
    }
    let milliseconds = 1e3 * started.elapsed().as_secs_f64();

    match session.reduce("table", Table(rows)).root(0).await?.value {
        Some(table) => print(table, reductions, milliseconds),
        None => Ok(()),
    }
}

/// Starts reduction `index` with a body, and with the value that is right for it.
fn start(session: &Session, index: usize) -> everfold::Result<InFlight> {
    let (rank, ranks) = (u32::from(session.rank()), session.size());
    let elements = ELEMENTS[index % ELEMENTS.len()];
    // Rank r contributes r + 1 times a base value to each sum. The factors 1 to p add up to p (p + 1) / 2.
    let (factor, factors) = (rank + 1, ranks * (ranks + 1) / 2);
    let base = |i: usize| (i % MODULUS) as u32;
    let byte = |rank: u32, i: usize| ((rank as usize + i) % 256) as u8;
    match index % 6 {
        0 => {
            let body = Sum((0..elements).map(|i| f64::from(factor * base(i))).collect::<Vec<_>>());
            let right = move |i| f64::from(factors * base(i));
            check_later(session, index, "f64 sum", body, elements, move |Sum(found)| {
                equal(found, elements, right)
            })
        }
        1 => {
            let body = Sum((0..elements).map(|i| (factor * base(i)) as f32).collect::<Vec<_>>());
            let right = move |i| (factors * base(i)) as f32;
            check_later(session, index, "f32 sum", body, elements, move |Sum(found)| {
                equal(found, elements, right)
            })
        }
        2 => {
            let body = Sum((0..elements).map(|i| -i64::from(factor * base(i))).collect::<Vec<_>>());
            let right = move |i| -i64::from(factors * base(i));
            check_later(session, index, "i64 sum", body, elements, move |Sum(found)| {
                equal(found, elements, right)
            })
        }
        3 => {
            let body = Max((0..elements).map(|i| byte(rank, i)).collect::<Vec<_>>());
            let right = move |i| (0..ranks).map(|rank| byte(rank, i)).fold(u8::MIN, u8::max);
            check_later(session, index, "u8 max", body, elements, move |Max(found)| {
                equal(found, elements, right)
            })
        }
        4 => {
            let body = Min((0..elements).map(|i| f64::from(byte(rank, i))).collect::<Vec<_>>());
            let right =
                move |i| (0..ranks).map(|rank| f64::from(byte(rank, i))).fold(f64::INFINITY, f64::min);
            check_later(session, index, "f64 min", body, elements, move |Min(found)| {
                equal(found, elements, right)
            })
        }
        _ => {
            // Rank r names the keys r to r + n - 1. A map costs more than an array, so it has fewer elements.
            let elements = elements.min(4096) as u64;
            let keys = move |rank: u32| u64::from(rank)..u64::from(rank) + elements;
            let body = Keys(keys(rank).map(|key| (key, 1)).collect());
            let named_by = move |key| (0..ranks).filter(|rank| keys(*rank).contains(&key)).count() as u32;
            check_later(session, index, "map", body, elements as usize, move |Keys(found)| {
                found.len() as u64 == elements + u64::from(ranks) - 1
                    && found.iter().all(|(key, count)| *count == named_by(*key))
            })
        }
    }
}

/// Starts the reduction now. The future that is returned awaits it and checks its value on the root.
fn check_later<B: Body<Value = B>>(
    session: &Session,
    index: usize,
    kind: &str,
    body: B,
    elements: usize,
    is_right: impl FnOnce(&B) -> bool + 'static,
) -> everfold::Result<InFlight> {
    let started = Instant::now();
    let root = (index % session.size() as usize) as u32;
    let name = format!("reduction {index}");
    let future = session.reduce(name.as_str(), body).root(root).start()?;
    let body = kind.to_owned();
    Ok(Box::pin(async move {
        let outcome = future.await?;
        let milliseconds = 1e3 * started.elapsed().as_secs_f64();
        Ok(outcome.value.map(|value| {
            let correct = is_right(&value);
            Row { index, body, elements, root, milliseconds, correct }
        }))
    }))
}

fn equal<T: PartialEq>(found: &[T], elements: usize, right: impl Fn(usize) -> T) -> bool {
    found.len() == elements && found.iter().enumerate().all(|(i, value)| *value == right(i))
}

/// Prints the table. Rows arrive in any order, for the reduction that joined them was free to choose one.
fn print(Table(mut rows): Table, reductions: usize, milliseconds: f64) -> everfold::Result<()> {
    rows.sort_by_key(|row| row.index);
    println!("{:>9}  {:<8} {:>9} {:>5} {:>12}", "reduction", "body", "elements", "root", "awaited, ms");
    for Row { index, body, elements, root, milliseconds, correct } in &rows {
        let verdict = if *correct { "" } else { "  WRONG" };
        println!("{index:>9}  {body:<8} {elements:>9} {root:>5} {milliseconds:>12.2}{verdict}");
    }
    let correct = rows.iter().filter(|row| row.correct).count();
    println!("{correct} of {reductions} reductions are right; all of them took {milliseconds:.1} ms");
    if correct == reductions {
        Ok(())
    } else {
        Err(everfold::Error::application(format!("{} reductions are wrong", reductions - correct)))
    }
}
