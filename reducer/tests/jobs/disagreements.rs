//! Ranks that call one reduction with different arguments: all of them hear on what they disagree, and who
//! with whom.

use std::{any::type_name, collections::BTreeSet, time::Duration};

use everfold::{
    Aspect, Body, ElementWise, Group, Max, Order, Receivers, ReduceError, ReducerBody, Reduction, Refusal,
    Session, Sum,
};
use futures::{FutureExt, future::BoxFuture};
use serde::{Deserialize, Serialize};

use crate::suite::Suite;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.job("disagreements::every_aspect", 4, every_aspect);
    suite.job("disagreements::counted_differently", 4, counted_differently);
    suite.job("disagreements::counted_differently_and_first", 4, counted_differently_and_first);
}

/// The rank that calls it another way.
const ODD: u32 = 2;

type Waiting = BoxFuture<'static, Result<(), ReduceError>>;

fn start<B: Body, D: Receivers>(call: Reduction<B, D>) -> Result<Waiting, ReduceError> {
    let future = call.start()?;
    Ok(async move { future.await.map(drop) }.boxed())
}

/// How ranks disagree.
struct Case {
    aspect: Aspect,
    /// What the others say.
    usual: String,
    /// What the odd one says.
    odd: String,
    call: fn(&Session, &str, bool) -> Result<Waiting, ReduceError>,
}

fn case(
    aspect: Aspect,
    usual: impl Into<String>,
    odd: impl Into<String>,
    call: fn(&Session, &str, bool) -> Result<Waiting, ReduceError>,
) -> Case {
    Case { aspect, usual: usual.into(), odd: odd.into(), call }
}

#[derive(Debug, Serialize, Deserialize)]
struct One(u64);

impl ReducerBody for One {
    fn combine(&mut self, other: Self) {
        self.0 += other.0;
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Other(u64);

impl ReducerBody for Other {
    fn combine(&mut self, other: Self) {
        self.0 += other.0;
    }
}

fn ones(length: usize) -> Sum<Vec<f64>> {
    Sum(vec![1.0; length])
}

fn pairs(
    name: &str,
) -> ElementWise<Vec<[u32; 2]>, impl Fn([u32; 2], [u32; 2]) -> [u32; 2] + Send + Sync + 'static> {
    ElementWise::new(name, vec![[1, 2]; 20], |a: [u32; 2], b: [u32; 2]| [a[0].max(b[0]), a[1].min(b[1])])
}

fn cases() -> Vec<Case> {
    vec![
        case(Aspect::Length, "1000", "1001", |session, name, odd| {
            start(session.reduce(name, ones(if odd { 1001 } else { 1000 })))
        }),
        case(Aspect::Length, "200000", "5", |session, name, odd| {
            start(session.allreduce(name, ones(if odd { 5 } else { 200_000 })))
        }),
        case(Aspect::Element, "f64", "f32", |session, name, odd| match odd {
            true => start(session.reduce(name, Sum(vec![1f32; 10]))),
            false => start(session.reduce(name, ones(10))),
        }),
        case(
            Aspect::Element,
            format!("{} (8 bytes)", type_name::<[u32; 2]>()),
            format!("{} (8 bytes)", type_name::<[f32; 2]>()),
            |session, name, odd| match odd {
                true => start(session.reduce(name, ElementWise::new("pairs", vec![[1f32; 2]], |a, _| a))),
                false => start(session.reduce(name, pairs("pairs"))),
            },
        ),
        case(Aspect::Operation, "sum", "max", |session, name, odd| match odd {
            true => start(session.allreduce(name, Max(vec![1.0f64; 10]))),
            false => start(session.allreduce(name, ones(10))),
        }),
        case(Aspect::Operation, "pairs", "couples", |session, name, odd| {
            start(session.reduce(name, pairs(if odd { "couples" } else { "pairs" })))
        }),
        case(Aspect::BodyType, "sum of 20000 × f64", type_name::<One>(), |session, name, odd| match odd {
            true => start(session.reduce(name, One(1))),
            false => start(session.reduce(name, ones(20_000))),
        }),
        case(Aspect::BodyType, type_name::<One>(), type_name::<Other>(), |session, name, odd| match odd {
            true => start(session.reduce(name, Other(1))),
            false => start(session.reduce(name, One(1))),
        }),
        case(Aspect::Delivery, "root 0", "all ranks", |session, name, odd| match odd {
            true => start(session.allreduce(name, ones(10))),
            false => start(session.reduce(name, ones(10))),
        }),
        case(Aspect::Delivery, "root 1", "root 2", |session, name, odd| {
            start(session.reduce(name, ones(20_000)).root(if odd { 2 } else { 1 }))
        }),
        case(Aspect::Group, "{0-3}", "{0,2-3}", |session, name, odd| {
            let group = if odd { Group::of([0, 2, 3]) } else { session.world() };
            start(session.reduce(name, ones(10)).group(group))
        }),
        case(Aspect::Order, "arrival", "fixed", |session, name, odd| {
            let body = pairs("pairs");
            start(session.reduce(name, if odd { body.non_commutative() } else { body }))
        }),
        case(Aspect::Order, "fixed", "arrival", |session, name, odd| {
            let call = session.allreduce(name, ones(20_000));
            start(if odd { call } else { call.order(Order::Fixed) })
        }),
        case(Aspect::Deadline, "none", "3600s", |session, name, odd| {
            let call = session.reduce(name, ones(10));
            start(if odd { call.deadline(Duration::from_secs(3600)) } else { call })
        }),
        case(Aspect::Deadline, "3600s", "3601s", |session, name, odd| {
            let deadline = Duration::from_secs(if odd { 3601 } else { 3600 });
            start(session.allreduce(name, ones(20_000)).deadline(deadline))
        }),
    ]
}

/// Who calls before the others have.
#[derive(Clone, Copy, Debug)]
enum Early {
    Everyone,
    Odd,
    Usual,
}

async fn every_aspect(session: Session) -> everfold::Result<()> {
    let odd = session.rank() == ODD;
    for (number, case) in cases().into_iter().enumerate() {
        for early in [Early::Everyone, Early::Odd, Early::Usual] {
            let name = format!("{number} {early:?}");
            let is_early = match early {
                Early::Everyone => true,
                Early::Odd => odd,
                Early::Usual => !odd,
            };
            let waiting = is_early.then(|| (case.call)(&session, &name, odd));
            session.allreduce(format!("{name}: the early ones have called"), Sum(vec![1u8])).await?;
            let waiting = waiting.unwrap_or_else(|| (case.call)(&session, &name, odd))?;
            let heard = refusal(waiting.await);
            verify(&case, &name, &heard);
            all_heard(&session, &name, &heard).await?;
            // The name can be used again.
            let value = session.allreduce(name, Sum(vec![session.rank().0])).await?.value;
            assert_eq!(value, Sum(vec![6]));
        }
    }
    Ok(())
}

#[track_caller]
fn refusal(ended: Result<(), ReduceError>) -> Refusal {
    match ended {
        Err(ReduceError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[track_caller]
fn verify(case: &Case, called: &str, heard: &Refusal) {
    let Refusal::Mismatch { name, sequence, aspect, first, first_says, other, other_says } = heard else {
        panic!("{called}: {heard}");
    };
    assert_eq!((name.as_str(), *sequence, *aspect), (called, 0, case.aspect), "{heard}");
    let said = (first_says.as_str(), other_says.as_str());
    if *first == ODD {
        assert_eq!(said, (case.odd.as_str(), case.usual.as_str()), "{heard}");
        assert!(*other != ODD, "{heard}");
    } else {
        assert_eq!(said, (case.usual.as_str(), case.odd.as_str()), "{heard}");
        assert!(*other == ODD, "{heard}");
    }
    assert!(other.0 < 4 && first.0 < 4, "{heard}");
}

/// What different ranks have heard.
#[derive(Serialize, Deserialize)]
struct Heard(BTreeSet<String>);

impl ReducerBody for Heard {
    fn combine(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// All ranks have heard the same.
async fn all_heard(session: &Session, name: &str, refusal: &Refusal) -> everfold::Result<()> {
    let mine = Heard(BTreeSet::from([refusal.to_string()]));
    let Heard(heard) = session.allreduce(format!("{name}: heard"), mine).await?.value;
    assert_eq!(heard.len(), 1, "{heard:?}");
    Ok(())
}

/// Rank 2 has used the name once on its own, so its first call with the others is its second one of that
/// name.
async fn out_of_step(session: &Session, odd_first: bool) -> everfold::Result<()> {
    let odd = session.rank() == ODD;
    if odd {
        session.allreduce("step", ones(1)).group(Group::of([ODD])).await?;
    }
    session.allreduce("out of step", Sum(vec![1u8])).await?;
    let call = || session.allreduce("step", ones(1)).start();
    let early = (odd == odd_first).then(call).transpose()?;
    session.allreduce("the early ones have called", Sum(vec![1u8])).await?;
    let future = match early {
        Some(future) => future,
        None => call()?,
    };
    if odd {
        // It meets the others' second call.
        assert_eq!(future.await?.value, Sum(vec![4.0]));
    } else {
        match refusal(future.await.map(drop)) {
            Refusal::Mismatch { name, sequence, aspect, first, first_says, other, other_says } => {
                assert_eq!((name.as_str(), sequence, aspect), ("step", 0, Aspect::Group));
                let (odd, usual) =
                    if first == ODD { (first_says, other_says) } else { (other_says, first_says) };
                assert!(first == ODD || other == ODD, "{first} {other}");
                assert_eq!((odd.as_str(), usual.as_str()), ("{0-3} (as its call 1)", "{0-3}"));
            }
            other => panic!("{other}"),
        }
        assert_eq!(call()?.await?.value, Sum(vec![4.0]));
    }
    Ok(())
}

/// Nobody waits for ever for a rank that has passed the call by.
async fn counted_differently(session: Session) -> everfold::Result<()> {
    out_of_step(&session, false).await
}

/// The same, when the one that counts differently is the first to call.
async fn counted_differently_and_first(session: Session) -> everfold::Result<()> {
    out_of_step(&session, true).await
}
