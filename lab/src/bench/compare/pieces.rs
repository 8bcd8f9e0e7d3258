//! What a rank does in the cases in which nothing is folded.

use std::{ops::Deref, time::Duration};

use everfold::{Even, Session};

use super::{
    case::Roots,
    rank::{Elements, Times, fill},
    team::Block,
};
use crate::{bench::rank::barrier, clock::now_ns};

/// What a rank receives.
type Came = Box<dyn Deref<Target = [f32]>>;

/// All repetitions of a block, or what is wrong with what came.
pub async fn measure<E>(session: &Session, block: &Block) -> everfold::Result<Result<Vec<Times>, String>>
where
    E: Elements + everfold::Elements<Element = f32>,
{
    let mut times = Vec::new();
    let mut checked = Ok(());
    for round in block.round..block.round + block.repetitions {
        let given = given::<E>(session, block, round);
        barrier(session).await?;
        std::thread::sleep(Duration::from_micros(block.delay_us));
        let started = now_ns();
        let came = bring(session, block, given).await?;
        times.push((started, now_ns()));
        barrier(session).await?;
        checked = checked.and_then(|()| check(session, block, &came, round));
    }
    Ok(checked.map(|()| times))
}

/// Elements of a piece.
fn piece_len(session: &Session, block: &Block) -> usize {
    match block.roots {
        Roots::Broadcast => block.elements(),
        _ => (block.elements() / session.size() as usize).max(1),
    }
}

/// Numbers pieces, by whose they are and for whom: each has values of its own.
fn number(session: &Session, block: &Block, from: u32, to: u32) -> u32 {
    if block.roots == Roots::Exchange { from * session.size() + to } else { from }
}

/// What this rank gives, if anything.
fn given<E: Elements>(session: &Session, block: &Block, round: u64) -> Option<E> {
    let (rank, len) = (session.rank().0, piece_len(session, block));
    let pieces = match block.roots {
        Roots::Broadcast if rank > 0 => return None,
        Roots::Exchange => session.size() as usize,
        _ => 1,
    };
    let mut given = E::zeroed(session, len * pieces);
    for (to, piece) in (0..).zip(given.chunks_mut(len)) {
        fill(piece, number(session, block, rank, to), round);
    }
    Some(given)
}

async fn bring<E>(session: &Session, block: &Block, given: Option<E>) -> everfold::Result<Came>
where
    E: Elements + everfold::Elements<Element = f32>,
{
    let level = block.protection;
    Ok(match (block.roots, given) {
        (Roots::Allgather, Some(given)) => {
            Box::new(session.allgather("allgather", given).protection(level).await?.value)
        }
        (Roots::Exchange, Some(given)) => {
            Box::new(session.exchange("exchange", Even(given)).protection(level).await?.value)
        }
        (_, given) => Box::new(session.broadcast("broadcast", given).protection(level).await?.value),
    })
}

/// Checks what came from each rank that gives something.
fn check(session: &Session, block: &Block, came: &Came, round: u64) -> Result<(), String> {
    let len = piece_len(session, block);
    let mut expected = vec![0.0; len];
    for (from, piece) in (0..).zip(came.chunks(len)) {
        fill(&mut expected, number(session, block, from, session.rank().0), round);
        if piece != expected {
            return Err(format!("what came from rank {from} is wrong"));
        }
    }
    let pieces = if block.roots == Roots::Broadcast { 1 } else { session.size() as usize };
    if came.len() == len * pieces { Ok(()) } else { Err(format!("{} elements came", came.len())) }
}
