//! Some of the ranks reduce, and the others do not notice.

use everfold::{Group, Session, Sum};
use futures::future::try_join_all;

use super::{To, chance, reduce_in};

fn share(rank: u32, length: usize) -> Vec<u64> {
    (0..length).map(|index| chance(rank, index) >> 8).collect()
}

/// What `group` has to get.
fn sum(group: &Group, length: usize) -> Vec<u64> {
    let mut sum = vec![0; length];
    for rank in group.iter() {
        sum.iter_mut().zip(share(rank.0, length)).for_each(|(sum, share)| *sum += share);
    }
    sum
}

pub(super) async fn groups(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let groups = [
        session.world(),
        Group::of([3, 1, 6, 3]),
        session.world().filter(|rank| rank.0 % 2 == 1),
        Group::world(3),
        Group::of([5]),
        Group::of([0]),
    ];
    for (number, group) in groups.iter().enumerate().filter(|(_, group)| group.contains(me)) {
        for length in [1, 1000, 20_000, 300_001] {
            for to in To::every(group.iter().map(|rank| rank.0)) {
                let name = format!("group {number}, {length} elements to {to:?}");
                let mine = Sum(share(me.0, length));
                if let Some(Sum(value)) = reduce_in(&session, &name, group.clone(), to, mine).await? {
                    assert!(value == sum(group, length), "{name}");
                }
            }
        }
    }
    Ok(())
}

/// All groups of neighbours at once; each rank is in several, and calls them in its own order.
pub(super) async fn at_once(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let mut pairs: Vec<(u32, u32)> =
        (0..7).flat_map(|first| (first + 1..8).map(move |end| (first, end))).collect();
    pairs.rotate_left(me.0 as usize * 4);
    let calls = pairs.into_iter().map(|(first, end)| (first, end, Group::of(first..end)));
    let started = calls.filter(|(.., group)| group.contains(me)).map(|(first, end, group)| {
        let length = 1 + 3000 * (end - first) as usize;
        let call = session.reduce(format!("{first}..{end}"), Sum(share(me.0, length))).root(end - 1);
        let future = call.group(&group).start().unwrap();
        async move {
            let outcome = future.await?;
            assert_eq!(outcome.value.is_some(), me == end - 1);
            assert_eq!(
                outcome.report.contributors.iter().collect::<Vec<_>>(),
                group.iter().collect::<Vec<_>>()
            );
            if let Some(Sum(value)) = outcome.value {
                assert!(value == sum(&group, length), "{first}..{end}");
            }
            everfold::Result::<()>::Ok(())
        }
    });
    let started: Vec<_> = started.collect();
    try_join_all(started).await.map(drop)
}

/// A job of one rank.
pub(super) async fn alone(session: Session) -> everfold::Result<()> {
    for length in [1, 1000, 20_000, 3_000_001] {
        for to in To::every([0]) {
            let body = Sum(share(0, length));
            let value = reduce_in(&session, "alone", session.world(), to, body).await?;
            assert!(value == Some(Sum(share(0, length))), "{length} elements to {to:?}");
        }
    }
    Ok(())
}
