//! Pieces instead of sums: sorting numbers that are spread over all ranks.
//!
//! ```text
//! cargo run --release --example 08_collectives
//! ```
//!
//! Every rank has numbers in no order. In the end all of them are sorted: those of rank 0 are the smallest, and so on.
//! Nothing is folded on the way. Ranks tell each other samples, agree on who sorts which numbers, and bring each
//! number to the rank that sorts it.

use everfold::prelude::*;

/// Numbers of each rank.
const NUMBERS: u64 = 100_000;

/// A number that looks like chance (SplitMix64).
fn chance(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn main() -> everfold::Result<()> {
    everfold::launch(Launch::from_env_or_local(4), |session| async move {
        let (rank, ranks) = (session.rank(), session.size() as usize);

        // A broadcast: rank 0 decides on the seed. The others give `None`.
        let seed = (rank == Rank(0)).then_some(Object(2026u64));
        let seed = session.broadcast("seed", seed).await?.value;
        let first = u64::from(rank.0) * NUMBERS;
        let mut mine: Vec<u64> = (first..first + NUMBERS).map(|at| chance(seed + at)).collect();
        mine.sort_unstable();

        // An allgather: some samples of each rank. All ranks receive the same, one after the other, and so come to
        // the same limits.
        let samples: Vec<u64> = mine.iter().copied().step_by(mine.len() / 64).collect();
        let mut all = session.allgather("samples", samples).await?.value.to_vec();
        all.sort_unstable();
        let limits: Vec<u64> = (1..ranks).map(|at| all[at * all.len() / ranks]).collect();

        // An exchange: a piece for each rank, of any length.
        let mut pieces = Vec::new();
        let mut rest = &mine[..];
        for limit in limits {
            let (piece, more) = rest.split_at(rest.partition_point(|number| *number < limit));
            pieces.push(piece.to_vec());
            rest = more;
        }
        pieces.push(rest.to_vec());
        let outcome = session.exchange("numbers", pieces).await?;
        let mut sorted = outcome.value.to_vec();
        sorted.sort_unstable();

        // A gather: rank 0 hears what each has, as an object, and looks whether it is right.
        let range = (sorted.first().copied(), sorted.last().copied(), sorted.len());
        if let Some(ranges) = session.gather("ranges", Object(range)).await?.value {
            let total: usize = ranges.iter().map(|(_, _, count)| count).sum();
            let ascend = ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
            for (rank, (first, last, count)) in ranges.iter().enumerate() {
                println!("rank {rank} has {count} numbers from {first:?} to {last:?}");
            }
            println!("{total} numbers, {}", if ascend { "sorted" } else { "not sorted" });
            println!("{}", outcome.report);
        }

        // Nobody goes on before all are here.
        session.barrier("the end").await?;
        Ok(())
    })
}
