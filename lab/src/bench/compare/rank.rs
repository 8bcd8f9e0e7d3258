//! One rank of everfold's side; what `peer.c` is on the other.

use std::{
    hint::black_box,
    io::{BufRead, BufReader, Write},
    ops::DerefMut,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use everfold::{Array, Receivers, Reduction, prelude::*};
use everfold_timeline::Timeline;
use futures::{FutureExt, TryFutureExt};

use super::{
    case::Roots,
    pieces,
    team::{Block, Kind},
};
use crate::{Failure, bench::rank::barrier, clock::now_ns, size};

/// One rank of everfold's side.
#[derive(Args)]
pub struct CompareRank {
    /// Where the driver listens.
    socket: PathBuf,
}

/// When a repetition began and ended, in nanoseconds.
pub type Times = (u64, u64);

impl CompareRank {
    /// Does as a rank what the command that started it asks for.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        everfold::launch(Launch::from_env_or_local(1), async |session| self.obey(&session).await)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Does what the driver writes, a line at a time, until it hangs up. It blocks this thread meanwhile, as
    /// an application would that computes.
    async fn obey(&self, session: &Session) -> everfold::Result<()> {
        let mut driver = UnixStream::connect(&self.socket)?;
        writeln!(driver, "{}", session.rank())?;
        let mut lines = BufReader::new(driver.try_clone()?).lines();
        while let Some(line) = lines.next().transpose()? {
            let Ok(block) = line.parse::<Block>() else { break };
            let has_pieces = matches!(block.roots, Roots::Allgather | Roots::Exchange | Roots::Broadcast);
            let done = match block.kind {
                Kind::Array if has_pieces => pieces::measure::<Array<f32>>(session, &block).await?,
                Kind::Vec if has_pieces => pieces::measure::<Vec<f32>>(session, &block).await?,
                Kind::Array => measure::<Array<f32>>(session, &block).await?,
                Kind::Vec => measure::<Vec<f32>>(session, &block).await?,
            };
            let answer = match done {
                Ok(times) => serde_json::to_string(&times).map_err(everfold::Error::application)?,
                Err(wrong) => format!("!{wrong}"),
            };
            writeln!(driver, "{answer}")?;
        }
        Ok(())
    }
}

/// Elements of a body in some kind of memory.
pub trait Elements: DerefMut<Target = [f32]> + Sized + 'static {
    fn filled(session: &Session, elements: usize, round: u64) -> Self;

    fn zeroed(session: &Session, elements: usize) -> Self;
}

impl Elements for Array<f32> {
    fn filled(session: &Session, elements: usize, round: u64) -> Self {
        let mut array = session.array(elements);
        fill(&mut array, session.rank().0, round);
        array
    }

    fn zeroed(session: &Session, elements: usize) -> Self {
        session.array(elements)
    }
}

impl Elements for Vec<f32> {
    fn filled(session: &Session, elements: usize, round: u64) -> Self {
        let mut vec = vec![0.0; elements];
        fill(&mut vec, session.rank().0, round);
        vec
    }

    fn zeroed(_: &Session, elements: usize) -> Self {
        vec![0.0; elements]
    }
}

/// What a body repeats, times `weight`. Sums of up to 512 ranks are whole numbers below 2²⁴: exact in any
/// order.
fn pattern(weight: u32, round: u64) -> [f32; 256] {
    std::array::from_fn(|index| (weight * ((index as u32 + round as u32) % 127 + 1)) as f32)
}

/// Fills the body of a rank.
pub fn fill(body: &mut [f32], rank: u32, round: u64) {
    let pattern = pattern(rank + 1, round);
    body.chunks_mut(pattern.len()).for_each(|chunk| chunk.copy_from_slice(&pattern[..chunk.len()]));
}

/// Checks the sum of all bodies of `size` ranks.
pub fn check(body: &[f32], size: u32, round: u64) -> Result<(), String> {
    let pattern = pattern(size * (size + 1) / 2, round);
    match body.chunks(pattern.len()).position(|chunk| chunk != &pattern[..chunk.len()]) {
        None => Ok(()),
        Some(chunk) => Err(format!("an element from {} of {} is wrong", chunk * pattern.len(), body.len())),
    }
}

fn compute(until_ns: u64) {
    let mut sum = 0.0;
    while now_ns() < until_ns {
        for term in 0..1000 {
            sum = black_box(sum + f64::from(term));
        }
    }
}

fn configured<B: Body, D: Receivers>(
    reduction: Reduction<B, D>,
    block: &Block,
    draws: bool,
) -> Reduction<B, D> {
    let reduction = reduction.protection(block.protection);
    if draws { reduction.trace() } else { reduction }
}

/// All repetitions of a block, or what is wrong with a result.
async fn measure<E>(session: &Session, block: &Block) -> everfold::Result<Result<Vec<Times>, String>>
where
    E: Elements,
    Sum<E>: Body<Value = Sum<E>>,
{
    let mut times = Vec::new();
    let mut checked = Ok(());
    let last = block.round + block.repetitions - 1;
    let names: Vec<String> = (0..block.count).map(|number| format!("measured {number}")).collect();
    for round in block.round..block.round + block.repetitions {
        let filled = |number| Sum(E::filled(session, block.elements(), round + u64::from(number)));
        let bodies: Vec<Sum<E>> = (0..block.count).map(filled).collect();
        barrier(session).await?;
        std::thread::sleep(Duration::from_micros(block.delay_us));
        let started = now_ns();
        let mut futures = Vec::with_capacity(bodies.len());
        for ((number, body), name) in (0..).zip(bodies).zip(&names) {
            let draws = block.timeline.is_some() && round == last;
            futures.push(if block.roots == Roots::All {
                let future = configured(session.allreduce(name, body), block, draws).start()?;
                future.map_ok(Outcome::from).left_future()
            } else {
                let root = if block.roots == Roots::Rotating { number % session.size() } else { 0 };
                configured(session.reduce(name, body).root(root), block, draws).start()?.right_future()
            });
        }
        compute(started + block.compute_us * 1000);
        let mut outcomes = Vec::with_capacity(futures.len());
        for future in futures {
            outcomes.push(future.await?);
        }
        times.push((started, now_ns()));
        barrier(session).await?;
        for (number, outcome) in (0..).zip(&outcomes) {
            if let Some(Sum(value)) = &outcome.value {
                checked = checked.and_then(|()| check(value, session.size(), round + number));
            }
        }
        if let Some(file) = block.timeline.as_ref().filter(|_| round == last && session.rank() == 0) {
            let title = format!("A sum of {} on {} ranks", size::show(block.bytes), session.size());
            Timeline::new(title, session.size(), &outcomes[0].report).write(file)?;
        }
    }
    Ok(checked.map(|()| times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_as_many_ranks_as_there_may_be_are_exact_in_any_order() {
        let size = 512;
        for ranks in [(0..size).collect::<Vec<u32>>(), (0..size).rev().collect()] {
            let mut sum = vec![0.0f32; 300];
            let mut body = sum.clone();
            for rank in ranks {
                fill(&mut body, rank, 5);
                sum.iter_mut().zip(&body).for_each(|(sum, element)| *sum += element);
            }
            assert_eq!(check(&sum, size, 5), Ok(()));
        }
    }
}
