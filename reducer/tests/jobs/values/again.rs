//! Arrays of the same length again and again: between hosts the master learns how they are to come.

use everfold::{Array, Session, Sum};

use super::{To, chance, reduce};

/// 64 KiB.
const ELEMENTS: usize = 8 << 10;
const ROUNDS: u32 = 60;

/// The values stay right while ways are compared, also where some ranks do not go the way that others do: now
/// and then one has another call under way.
pub(super) async fn and_again(session: Session) -> everfold::Result<()> {
    let session = &session;
    for to in [To::Root(0), To::All, To::Root(session.size() - 1)] {
        for round in 0..ROUNDS {
            let is_busy = session.rank() == round % (2 * session.size());
            let early = if is_busy { Some(beside(session)?) } else { None };
            let value = |rank: u32, index| chance(rank + round * session.size(), index);
            let mut mine: Array<u64> = session.array(ELEMENTS);
            mine.iter_mut().enumerate().for_each(|(index, element)| {
                *element = value(session.rank().0, index);
            });
            if let Some(Sum(found)) = reduce(session, "again", to, Sum(mine)).await? {
                for (index, found) in found.iter().enumerate() {
                    let all = (0..session.size()).map(|rank| value(rank, index));
                    assert_eq!(*found, all.fold(0, u64::wrapping_add), "round {round}, element {index}");
                }
            }
            let late = match early {
                Some(early) => early,
                None => beside(session)?,
            };
            late.await?;
        }
    }
    Ok(())
}

fn beside(session: &Session) -> everfold::Result<everfold::ReduceFuture<Sum<Vec<u8>>>> {
    Ok(session.allreduce("beside", Sum(vec![1u8])).start()?)
}
