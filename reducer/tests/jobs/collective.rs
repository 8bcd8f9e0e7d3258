//! Pieces reach whom they are for, of every length and kind, in groups, whoever dies, and wrong arguments are
//! told.

use std::time::Duration;

use everfold::{
    Aspect, Config, Even, Group, Object, Outcome, Path, Protection, Rank, ReduceError, Refusal, Session, Sum,
};
use futures::StreamExt;
use nix::sys::signal::{Signal, raise};
use serde::{Deserialize, Serialize};

use crate::{
    come_back::{Fate, config},
    process::{Process, job},
    suite::Suite,
};

pub(crate) fn add_to(suite: &mut Suite) {
    suite.job("collective::allgather", 5, allgather);
    suite.job("collective::gather", 5, gather);
    suite.job("collective::broadcast", 5, broadcast);
    suite.job("collective::scatter", 5, scatter);
    suite.job("collective::exchange", 5, exchange);
    suite.job("collective::barrier", 5, barrier);
    suite.job("collective::what_came_is_reduced", 3, what_came_is_reduced);
    suite.job("collective::alone", 1, everything);
    suite.job("collective::some_pieces_are_too_long_for_the_board", 4, of_all_lengths);
    suite.job("collective::many_at_once", 4, many_at_once);
    suite.job_with(Config::default().inline_bytes_max(0), "collective::nothing_inlined", 4, everything);
    suite.job_with(Config::default().inline_bytes_max(1 << 20), "collective::much_inlined", 4, everything);
    suite.job("collective::wrong_arguments", 4, wrong_arguments);
    suite.job("collective::disagreements", 4, disagreements);
    suite.job("collective::a_deadline", 3, a_deadline);
    ends_without_2(suite, "collective::who_dies_after_it_has_called_counts", dies_after);
    suite.job_with(config(), "collective::ranks_come_back", 3, come_back);
    ends_without_2(suite, "collective::who_dies_before_it_has_called_is_named", dies_before);
}

/// The test that a job ends by a signal to rank 2, and the other three ranks come to their end.
fn ends_without_2<F>(suite: &mut Suite, name: &'static str, program: fn(Session) -> F)
where
    F: Future<Output = everfold::Result<()>> + 'static,
{
    suite.program(name, program);
    for transport in crate::suite::TRANSPORTS {
        suite.test(format!("{name}::{transport}"), move || {
            Process::spawn(job(name, 4, transport)).end().assert_ended(137, [0, 1, 3]);
        });
    }
}

/// Lengths below and above those at which pieces travel in messages, and are cut.
const LENGTHS: [usize; 6] = [0, 1, 500, 5_000, 100_000, 400_001];

/// The elements that `from` has for `to`, of about this length, which differs from rank to rank.
fn piece(from: Rank, to: Rank, length: usize) -> Vec<u64> {
    let length = length + (length.min(7) * (from.index() + 2 * to.index())) % 13;
    (0..length as u64).map(|at| at << 16 | u64::from(from.0) << 8 | u64::from(to.0)).collect()
}

fn groups(session: &Session) -> Vec<Group> {
    let all = [session.world(), session.world().filter(|rank| rank.0 % 2 == 0), Group::of([0])];
    all.into_iter().filter(|group| group.contains(session.rank())).collect()
}

async fn everything(session: Session) -> everfold::Result<()> {
    allgather(session.clone()).await?;
    gather(session.clone()).await?;
    broadcast(session.clone()).await?;
    scatter(session.clone()).await?;
    exchange(session.clone()).await?;
    barrier(session).await
}

/// A value that is no plain old data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Label {
    name: String,
    parts: Vec<Option<u32>>,
}

fn label(rank: Rank, parts: usize) -> Label {
    Label { name: format!("rank {rank}"), parts: vec![Some(rank.0); parts] }
}

async fn allgather(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    for (number, group) in groups(&session).into_iter().enumerate() {
        for length in LENGTHS {
            let name = format!("group {number}, {length}");
            let own = piece(me, me, length);
            let Outcome { value, report } = session.allgather(&name, own).group(&group).await?;
            assert!(value.ranks().eq(group.iter()) && report.contributors == group.iter().collect::<Path>());
            for rank in group.iter() {
                assert!(value.of(rank) == Some(&piece(rank, rank, length)[..]), "{name}, of {rank}");
            }
            let joined: Vec<u64> = group.iter().flat_map(|rank| piece(rank, rank, length)).collect();
            assert!(value[..] == joined[..], "{name}");
            assert_eq!(value.of(99), None);
        }
        let mut array = session.array::<f32>(70_000);
        array.fill(me.0 as f32);
        let name = format!("array {number}");
        let all = session.allgather(name, array).equal().group(&group).await?.value;
        assert!(
            all.iter().all(|(rank, own)| own.len() == 70_000 && own.iter().all(|it| *it == rank.0 as f32))
        );
        for parts in [1, 50_000] {
            let name = format!("labels {number}, {parts}");
            let all = session.allgather(name, Object(label(me, parts))).group(&group).await?.value;
            assert_eq!(all, group.iter().map(|rank| label(rank, parts)).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// Short pieces lie on the board, and the master has to take them from there for the long one of another rank.
async fn of_all_lengths(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    for round in 0..20 {
        let length = |rank: Rank| if rank == round % 5 { 30_000 } else { 10 * rank.index() };
        let all = session.allgather("all", piece(me, me, length(me))).await?;
        assert!(all.report.contributors == session.world().iter().collect::<Path>());
        for (rank, own) in all.value.iter() {
            assert!(own == piece(rank, rank, length(rank)), "round {round}, of {rank}");
        }
        let bytes: Vec<Vec<u8>> = (0..4).map(|to| vec![me.0 as u8; 3 * to + round as usize]).collect();
        let each = session.exchange("each", bytes).await?.value;
        for (rank, own) in each.iter() {
            assert!(own == vec![rank.0 as u8; 3 * me.index() + round as usize], "round {round}, of {rank}");
        }
    }
    Ok(())
}

async fn gather(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    for (number, group) in groups(&session).into_iter().enumerate() {
        for length in LENGTHS {
            for root in group.iter() {
                let name = format!("gather in group {number}, {length} to {root}");
                let call = session.gather(&name, piece(me, me, length)).root(root).group(&group);
                let value = call.await?.value;
                assert_eq!(value.is_some(), me == root, "{name}");
                for (rank, own) in value.iter().flat_map(|all| all.iter()) {
                    assert!(own == piece(rank, rank, length), "{name}, of {rank}");
                }
            }
        }
    }
    let all = session.gather("objects", Object(label(me, 3))).await?.value;
    assert_eq!(all.map(|all| all.len() as u32), (me == 0u32).then(|| session.size()));
    Ok(())
}

async fn broadcast(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    for (number, group) in groups(&session).into_iter().enumerate() {
        for length in LENGTHS {
            for root in group.iter() {
                let name = format!("broadcast in group {number}, {length} from {root}");
                let own = (me == root).then(|| piece(root, root, length));
                let value = session.broadcast(&name, own).root(root).group(&group).await?.value;
                assert!(value[..] == piece(root, root, length), "{name}");
            }
        }
    }
    let label = label(Rank(0), 100_000);
    let own = (me == 0u32).then(|| Object(label.clone()));
    assert_eq!(session.broadcast("label", own).await?.value, label);
    // A type that is wider than any number.
    let wide = (me == 0u32).then(|| vec![[1u128, 2]; 3000]);
    assert_eq!(session.broadcast("wide", wide).await?.value[2999], [1, 2]);
    Ok(())
}

/// Arrays that have come from others are contributions like any other.
async fn what_came_is_reduced(session: Session) -> everfold::Result<()> {
    let (me, size, world) = (session.rank(), u64::from(session.size()), session.world());
    for length in LENGTHS.into_iter().filter(|length| *length > 0) {
        let own = (me == 0u32).then(|| vec![3u64; length]);
        let came = session.broadcast("all have", own).await?.value;
        let Sum(sum) = session.allreduce("sum", Sum(came)).await?.value;
        assert!(sum[..] == vec![3 * size; length], "{length}");
        let gathered = session.allgather("side by side", vec![u64::from(me.0); length]).await?.value;
        let sum = session.reduce("sum of all", Sum(gathered.into_array())).await?.value;
        if let Some(Sum(sum)) = sum {
            let expected = world.iter().flat_map(|rank| vec![size * u64::from(rank.0); length]);
            assert!(sum.iter().copied().eq(expected), "{length}");
        }
    }
    Ok(())
}

async fn scatter(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    for (number, group) in groups(&session).into_iter().enumerate() {
        for length in LENGTHS {
            for root in group.iter() {
                let name = format!("scatter in group {number}, {length} from {root}");
                let given = || group.iter().map(|to| piece(root, to, length)).collect::<Vec<_>>();
                let own = (me == root).then(given);
                let value = session.scatter(&name, own).root(root).group(&group).await?.value;
                assert!(value[..] == piece(root, me, length), "{name}");
                let own = (me == root).then(|| Even(vec![root.0; length * group.len()]));
                let name = format!("{name}, evenly");
                let value = session.scatter(&name, own).root(root).group(&group).await?.value;
                assert!(value[..] == vec![root.0; length], "{name}");
            }
        }
    }
    let all: Vec<_> = session.world().iter().map(|rank| Object(label(rank, 9))).collect();
    let own = session.scatter("objects", (me == 0u32).then_some(all)).await?.value;
    assert_eq!(own, label(me, 9));
    Ok(())
}

async fn exchange(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    for (number, group) in groups(&session).into_iter().enumerate() {
        for length in LENGTHS {
            let name = format!("exchange in group {number}, {length}");
            let given: Vec<_> = group.iter().map(|to| piece(me, to, length)).collect();
            let value = session.exchange(&name, given).group(&group).await?.value;
            for rank in group.iter() {
                assert!(value.of(rank) == Some(&piece(rank, me, length)[..]), "{name}, of {rank}");
            }
            let ranks: Vec<u32> = group.iter().map(|rank| rank.0).collect();
            let given: Vec<u32> = ranks.iter().flat_map(|to| vec![me.0 * 1000 + to; length]).collect();
            let name = format!("{name}, evenly");
            let value = session.exchange(&name, Even(given)).group(&group).await?.value;
            let expected: Vec<u32> = ranks.iter().flat_map(|from| vec![from * 1000 + me.0; length]).collect();
            assert!(value[..] == expected[..], "{name}");
        }
    }
    let given = session.world().iter().map(|to| Object((me.0, to.0))).collect::<Vec<_>>();
    let value = session.exchange("objects", given).await?.value;
    assert_eq!(value, session.world().iter().map(|from| (from.0, me.0)).collect::<Vec<_>>());
    Ok(())
}

async fn barrier(session: Session) -> everfold::Result<()> {
    for group in groups(&session) {
        let name = format!("barrier of {}", group.len());
        let report = session.barrier(name).group(&group).await?.report;
        assert_eq!(report.contributors, group.iter().collect());
    }
    Ok(())
}

/// Operations of all kinds under way at once, awaited in another order.
async fn many_at_once(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let all = |number: usize| session.allgather("all", vec![me.0; 1 + number * 3000]).start();
    let each = |number: usize| session.exchange("each", Even(vec![me.0; 4 * (1 + number * 3000)])).start();
    let gathers: Vec<_> = (0..20).map(all).collect::<Result<_, _>>()?;
    let exchanges: Vec<_> = (0..20).map(each).collect::<Result<_, _>>()?;
    let barrier = session.barrier("all").start()?;
    for (number, exchange) in exchanges.into_iter().enumerate().rev() {
        let value = exchange.await?.value;
        assert!(value.iter().all(|(rank, own)| *own == vec![rank.0; 1 + number * 3000]));
    }
    for (number, gather) in gathers.into_iter().enumerate() {
        assert_eq!(gather.await?.value.len(), 4 * (1 + number * 3000));
    }
    barrier.await?;
    Ok(())
}

/// What makes no sense whatever the others say.
async fn wrong_arguments(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let told = |ended: Option<ReduceError>| match ended {
        Some(ReduceError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let few = session.exchange("few", vec![vec![1u8]; 3]).start().err();
    assert_eq!(told(few), Refusal::WrongPieces { rank: me, pieces: 3, ranks: 4 });
    let odd = session.exchange("odd", Even(vec![1.0; 10])).start().err();
    assert_eq!(told(odd), Refusal::Uneven { rank: me, length: 10, ranks: 4 });
    let own = (me != 1u32).then(|| vec![1u8]);
    let wrong = session.broadcast("root", own).root(1).start().err();
    let expected = match me.0 {
        1 => Refusal::NoPiece { root: Rank(1) },
        _ => Refusal::NotTheRoot { rank: me, root: Rank(1) },
    };
    assert_eq!(told(wrong), expected);
    let group = Group::of([0, 1, 2]);
    if me != 3u32 {
        let outside = session.broadcast::<Vec<u8>>("outside", None).root(3).group(&group).start().err();
        let group = group.iter().collect();
        assert_eq!(told(outside), Refusal::RootOutsideGroup { root: Rank(3), group });
        let outside = session.gather("outside", vec![1u8]).root(3).group(Group::of([0, 1, 2])).start().err();
        assert!(matches!(told(outside), Refusal::RootOutsideGroup { .. }));
    }
    let nobody = session.gather("nobody", vec![1u8]).roots([0u32; 0]).start().err();
    assert_eq!(told(nobody), Refusal::NoRoots);
    // None of these calls counts.
    let all = session.allgather("few", vec![me.0]).await?.value;
    assert_eq!(all[..], [0, 1, 2, 3]);
    let all = session.allgather("outside", vec![me.0]).await?.value;
    assert_eq!(all[..], [0, 1, 2, 3]);
    Ok(())
}

/// What makes sense, but not with what the others say.
async fn disagreements(session: Session) -> everfold::Result<()> {
    let is_odd = session.rank() == Rank(2);
    let of = |ended: ReduceError| match ended {
        ReduceError::Refused(Refusal::Mismatch { aspect, first_says, other_says, first, other, .. }) => {
            assert!(first != other && (first == 2u32 || other == 2u32));
            (aspect, if first == 2u32 { [other_says, first_says] } else { [first_says, other_says] })
        }
        other => panic!("{other}"),
    };
    let say = |aspect, usual: &str, odd: &str| (aspect, [usual.to_owned(), odd.to_owned()]);
    let length = session.allgather("length", vec![1u8; if is_odd { 3 } else { 2 }]).equal().await;
    assert_eq!(of(length.map(drop).unwrap_err()), say(Aspect::Length, "2", "3"));
    let length = session.exchange("even", Even(vec![1u8; if is_odd { 8 } else { 4 }])).await;
    assert_eq!(of(length.map(drop).unwrap_err()), say(Aspect::Length, "4", "8"));
    let element = match is_odd {
        true => session.allgather("element", vec![1.0f32]).await.map(drop),
        false => session.allgather("element", vec![1u64]).await.map(drop),
    };
    assert_eq!(of(element.unwrap_err()), say(Aspect::Element, "u64", "f32"));
    let root = if is_odd { 2 } else { 1 };
    let own = (session.rank() == root).then(|| vec![1u8]);
    let pattern = session.broadcast("root", own).root(root).await;
    let expected = say(Aspect::Pattern, "the piece of rank 1", "the piece of rank 2");
    assert_eq!(of(pattern.map(drop).unwrap_err()), expected);
    let kind = match is_odd {
        true => session.allreduce("kind", Sum(vec![1u8])).await.map(drop),
        false => session.allgather("kind", vec![1u8]).await.map(drop),
    };
    assert_eq!(of(kind.unwrap_err()).0, Aspect::BodyType);
    session.barrier("length").await?;
    Ok(())
}

async fn a_deadline(session: Session) -> everfold::Result<()> {
    let deadline = Duration::from_millis(50);
    if session.rank() != 2u32 {
        let late = session.allgather("late", vec![1u8; 100_000]).deadline(deadline).await;
        let missing = Group::of([2]).iter().collect();
        match late {
            Err(ReduceError::Refused(refusal)) => {
                assert_eq!(refusal, Refusal::DeadlineExceeded { deadline, missing });
            }
            other => panic!("{other:?}"),
        }
    }
    session.barrier("end").await?;
    Ok(())
}

fn die() -> everfold::Result<()> {
    raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
    unreachable!("it is dead")
}

/// Rank 2 dies after it has called, and before rank 3 calls: its pieces reach all, from what it has left.
async fn dies_after(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    const LENGTH: usize = 100_000;
    let pieces = |from: Rank| session.world().iter().map(|to| piece(from, to, LENGTH)).collect::<Vec<_>>();
    if me == 3u32 {
        session.barrier("all but rank 3 have called").await?;
        let mut events = session.events();
        while session.survivors().contains(Rank(2)) {
            events.next().await;
        }
    }
    let mine = piece(me, me, LENGTH);
    let mut array = session.array(mine.len());
    array.copy_from_slice(&mine);
    let all = session.allgather("all", array).protection(Protection::None).start()?;
    let labels = session.allgather("labels", Object(label(me, LENGTH))).start()?;
    let each = session.exchange("each", pieces(me)).start()?;
    let from_it = (me == 2u32).then(|| piece(me, me, LENGTH));
    let from_it = session.broadcast("its", from_it).root(2).start()?;
    let scattered = session.scatter("blocks", (me == 2u32).then(|| pieces(me))).root(2).start()?;
    let to_it = session.gather("for it", piece(me, me, LENGTH)).roots([2, 1]).start()?;
    let short = session.allgather("short", vec![me.0]).start()?;
    if me != 3u32 {
        session.barrier("all but rank 3 have called").await?;
    }
    if me == 2u32 {
        return die();
    }
    for (rank, own) in all.await?.value.iter() {
        assert!(own == piece(rank, rank, LENGTH), "of {rank}");
    }
    let labels = labels.await?;
    assert!(labels.value == session.world().iter().map(|rank| label(rank, LENGTH)).collect::<Vec<_>>());
    for (rank, own) in each.await?.value.iter() {
        assert!(own == piece(rank, me, LENGTH), "of {rank}");
    }
    assert!(from_it.await?.value[..] == piece(Rank(2), Rank(2), LENGTH));
    assert!(scattered.await?.value[..] == piece(Rank(2), me, LENGTH));
    let to_it = to_it.await?.value;
    assert_eq!(to_it.map(|all| all.ranks().count()), (me == 1u32).then_some(4));
    assert_eq!(short.await?.value[..], [0, 1, 2, 3]);
    Ok(())
}

/// Rank 2 dies before it has called: the calls end, or go on without it.
async fn dies_before(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    session.barrier("begin").await?;
    if me == 2u32 {
        return die();
    }
    const LENGTH: usize = 30_000;
    let own = || piece(me, me, LENGTH);
    let dead: Path = Group::of([2]).iter().collect();
    let is_named = |ended: ReduceError| match ended {
        ReduceError::Refused(Refusal::ProcessFailed { ranks }) => assert_eq!(ranks, dead),
        other => panic!("{other}"),
    };
    is_named(session.allgather("all", own()).await.map(drop).unwrap_err());
    is_named(session.gather("gathered", own()).await.map(drop).unwrap_err());
    is_named(session.broadcast("its", None::<Vec<u8>>).root(2).allow_missing().await.map(drop).unwrap_err());
    is_named(session.barrier("wait").await.map(drop).unwrap_err());

    let all = session.allgather("all", own()).allow_missing().await?;
    assert_eq!(all.report.missing, dead);
    assert!(all.value.ranks().eq([0, 1, 3].map(Rank)) && all.value.of(2).is_none());
    assert!(all.value.iter().all(|(rank, own)| own == piece(rank, rank, LENGTH)));
    let labels = session.allgather("labels", Object(label(me, 9))).allow_missing().await?.value;
    assert_eq!(labels, [0, 1, 3].map(|rank| label(Rank(rank), 9)));
    let given = session.world().iter().map(|to| piece(me, to, LENGTH)).collect::<Vec<_>>();
    let each = session.exchange("each", given).allow_missing().await?.value;
    assert!(each.ranks().eq([0, 1, 3].map(Rank)));
    assert!(each.iter().all(|(rank, own)| own == piece(rank, me, LENGTH)));
    let from_0 = (me == 0u32).then(own);
    let from_0 = session.broadcast("from 0", from_0).allow_missing().await?.value;
    assert!(from_0[..] == piece(Rank(0), Rank(0), LENGTH));
    session.barrier("wait").allow_missing().await?;

    let survivors = session.survivors();
    let all = session.allgather("survivors", vec![me.0]).group(survivors).await?.value;
    assert_eq!(all[..], [0, 1, 3]);
    Ok(())
}

/// Two ranks die between and within calls, and are started again from the beginning: their calls end as they did
/// before, and the others lose nothing.
async fn come_back(session: Session) -> everfold::Result<()> {
    let (me, life) = (session.rank(), Fate::of(&session).life);
    for step in 0..20 {
        let all = session.allgather("all", piece(me, me, 2000 * step)).start()?;
        if me == 2u32 && life == 0 && step == 11 {
            return die();
        }
        for (rank, own) in all.await?.value.iter() {
            assert!(own == piece(rank, rank, 2000 * step), "of {rank} in step {step}");
        }
        let given = session.world().iter().map(|to| piece(me, to, 500 * step)).collect::<Vec<_>>();
        let each = session.exchange("each", given).await?.value;
        for (rank, own) in each.iter() {
            assert!(own == piece(rank, me, 500 * step), "of {rank} in step {step}");
        }
        let from = Rank(step as u32 % 3);
        let own = (me == from).then(|| Object(label(me, step)));
        assert_eq!(session.broadcast("label", own).root(from).await?.value, label(from, step));
        if me == 1u32 && life == 0 && step == 7 {
            return die();
        }
        session.barrier("step").await?;
    }
    Ok(())
}
