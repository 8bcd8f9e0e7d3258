//! Many reductions at once share workers, links and the master, and none takes what belongs to another.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
};

use everfold::{
    Body, Config, ElementWise, Max, Min, Outcome, ReduceError, ReducerBody, Refusal, Session, Sum,
};
use futures::{
    FutureExt, TryFutureExt,
    future::{Either, LocalBoxFuture},
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::{
    suite::Suite,
    values::{chance, scramble},
};

pub(crate) fn add_to(suite: &mut Suite) {
    suite.job("concurrent::a_thousand", 16, a_thousand);
    suite.job_with(
        Config::default().board_bytes_max(0),
        "concurrent::a_thousand_in_messages",
        16,
        a_thousand,
    );
    suite.job("concurrent::many_ranks", 32, many_ranks);
    suite.job("concurrent::few_open_files", 6, few_open_files);
    suite.job("concurrent::one_too_many", 2, one_too_many);
}

/// Bytes of a body. The longer ones are rarer; there is one for each seed.
fn length_bytes(seed: u64) -> usize {
    match scramble(seed) % 100 {
        0..50 => [8, 16, 64, 256][seed as usize % 4],
        50..75 => 1 << 10,
        75..85 => 16 << 10,
        85..95 => 40_000,
        95..98 => 256 << 10,
        _ => 1 << 20,
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Counts(BTreeMap<u64, u64>);

impl ReducerBody for Counts {
    fn combine(&mut self, other: Self) {
        for (key, count) in other.0 {
            *self.0.entry(key).or_default() += count;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Text(String);

impl ReducerBody for Text {
    const COMMUTATIVE: bool = false;

    fn combine(&mut self, other: Self) {
        self.0.push_str(&other.0);
    }
}

type Ended = LocalBoxFuture<'static, everfold::Result<()>>;

/// Starts reduction `number`, and gives a future that checks its end.
fn start(session: &Session, number: u64) -> Ended {
    let elements = length_bytes(number) / 8;
    let share = move |rank: u32| (0..elements).map(move |index| chance(rank, index) ^ number);
    match scramble(number + 7) % 6 {
        0 => started(
            session,
            number,
            move |rank| Sum(share(rank).map(|v| (v % 1000) as f64).collect::<Vec<_>>()),
            |a, b| {
                a.0.iter_mut().zip(b.0).for_each(|(a, b)| *a += b);
            },
        ),
        1 => started(
            session,
            number,
            move |rank| Max(share(rank).map(|v| v as i32).collect::<Vec<_>>()),
            |a, b| {
                a.0.iter_mut().zip(b.0).for_each(|(a, b)| *a = b.max(*a));
            },
        ),
        2 => started(
            session,
            number,
            move |rank| Min(share(rank).flat_map(u64::to_le_bytes).collect::<Vec<u8>>()),
            |a, b| {
                a.0.iter_mut().zip(b.0).for_each(|(a, b)| *a = b.min(*a));
            },
        ),
        3 => started(
            session,
            number,
            move |rank| Counts(share(rank).take(4000).map(|v| (v % 512, v >> 8)).collect()),
            |a, b| {
                a.combine(b);
            },
        ),
        4 => started(
            session,
            number,
            move |rank| Text(format!("{rank}{}", "-".repeat(elements))),
            |a, b| a.combine(b),
        ),
        _ => {
            let body = ElementWise::new("weave", share(session.rank().0).collect::<Vec<_>>(), weave)
                .non_commutative();
            let expected = move |ranks: u32| -> Vec<u64> {
                let element =
                    |index| (0..ranks).map(|rank| chance(rank, index) ^ number).reduce(weave).unwrap();
                (0..elements).map(element).collect()
            };
            checked(session, number, body, expected)
        }
    }
}

/// Associative, but not commutative: composition of `x → a·x + b` in two halves of a word.
fn weave(first: u64, then: u64) -> u64 {
    let [a, b, c, d] = [first as u32, (first >> 32) as u32, then as u32, (then >> 32) as u32];
    u64::from(a.wrapping_mul(c)) | u64::from(b.wrapping_mul(c).wrapping_add(d)) << 32
}

fn started<B: Body<Value = B> + PartialEq + Debug>(
    session: &Session,
    number: u64,
    share: impl Fn(u32) -> B + 'static,
    combine: fn(&mut B, B),
) -> Ended {
    let mine = share(session.rank().0);
    checked(session, number, mine, move |ranks| {
        let mut expected = share(0);
        (1..ranks).for_each(|rank| combine(&mut expected, share(rank)));
        expected
    })
}

fn checked<B: Body>(
    session: &Session,
    number: u64,
    body: B,
    expected: impl FnOnce(u32) -> B::Value + 'static,
) -> Ended
where
    B::Value: PartialEq,
{
    let (rank, ranks) = (session.rank(), session.size());
    let name = format!("number {number}");
    // One in eight goes to all, the others to each rank in turn.
    let root = (!number.is_multiple_of(8)).then_some((number % u64::from(ranks)) as u32);
    let future = match root {
        Some(root) => session.reduce(name, body).root(root).start().map(Either::Left),
        None => session.allreduce(name, body).start().map(|all| Either::Right(all.map_ok(Outcome::from))),
    };
    async move {
        let outcome = future?.await?;
        assert_eq!(outcome.value.is_some(), root.is_none_or(|root| rank == root), "number {number}");
        if let Some(value) = outcome.value {
            assert!(value == expected(ranks), "the value of number {number}");
        }
        Ok(())
    }
    .boxed_local()
}

/// Starts them all, in the rank's own order if it has one, and then awaits them in yet another one.
async fn all_at_once(session: &Session, count: u64) -> everfold::Result<()> {
    let mine = u64::from(session.rank().0);
    let mut numbers: Vec<u64> = (0..count).collect();
    numbers.sort_by_key(|number| scramble(number ^ mine << 20));
    let mut started: Vec<_> = numbers.into_iter().map(|number| (number, start(session, number))).collect();
    started.sort_by_key(|(number, _)| scramble(number ^ mine << 40));
    for (_, ended) in started {
        ended.await?;
    }
    Ok(())
}

async fn a_thousand(session: Session) -> everfold::Result<()> {
    all_at_once(&session, 1000).await
}

async fn many_ranks(session: Session) -> everfold::Result<()> {
    all_at_once(&session, 24).await
}

/// Many reductions need no more open files than the supervisor sees to that a rank may have.
async fn few_open_files(session: Session) -> everfold::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(std::io::Error::from)?;
    let few = 64 + 4 * u64::from(session.size());
    setrlimit(Resource::RLIMIT_NOFILE, few, hard).map_err(std::io::Error::from)?;
    let ranks = session.size();
    let elements = 4000;
    let started: Vec<_> = (0..600u64)
        .map(|number| {
            let share = vec![number + u64::from(session.rank()); elements];
            session.reduce(format!("{number}"), Sum(share)).root((number % u64::from(ranks)) as u32).start()
        })
        .collect::<Result<_, _>>()?;
    for (number, future) in (0..).zip(started) {
        if let Some(Sum(value)) = future.await?.value {
            let sum: u64 = (0..u64::from(ranks)).map(|rank| number + rank).sum();
            assert_eq!(value, vec![sum; elements], "number {number}");
        }
    }
    Ok(())
}

/// A rank may have as many reductions in flight as the limit says; one more is refused, and the others end.
async fn one_too_many(session: Session) -> everfold::Result<()> {
    let limit = everfold::Limits::default().reductions_max;
    let start = |number: u64| session.reduce(format!("{number}"), Sum(vec![1u64])).start();
    // Rank 0 contributes once rank 1 has tried. A reduction could not tell it: that would be one more.
    let address =
        SocketAddr::from_abstract_name(format!("everfold-test-{}", std::env::var("EVERFOLD_JOB").unwrap()))?;
    let listener = (session.rank() == 0).then(|| UnixListener::bind_addr(&address)).transpose()?;
    session.allreduce("the listener is there", Sum(vec![1u8])).await?;
    match listener {
        Some(listener) => {
            listener.accept()?;
            for future in (0..limit).map(start).collect::<Result<Vec<_>, _>>()? {
                assert_eq!(future.await?.value, Some(Sum(vec![2])));
            }
        }
        None => {
            let started = (0..limit).map(start).collect::<Result<Vec<_>, _>>()?;
            match start(limit) {
                Err(ReduceError::Refused(Refusal::TooManyReductions { rank, limit: told })) => {
                    assert_eq!((rank.0, told), (1, limit));
                }
                other => panic!("{other:?}"),
            }
            UnixStream::connect_addr(&address)?;
            for future in started {
                future.await?;
            }
        }
    }
    // What was refused has no number: the next call of that name is the first everywhere.
    let first = start(limit)?.await?;
    assert_eq!(first.value, (session.rank() == 0).then(|| Sum(vec![2])));
    assert_eq!(session.allreduce("afterwards", Sum(vec![1u64])).await?.value, Sum(vec![2]));
    Ok(())
}
