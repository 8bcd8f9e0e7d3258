//! Processes die, in every way and at any moment; the others hear who it was and go on.

use std::collections::BTreeSet;

use everfold::{Group, Outcome, Path, ReduceError, ReducerBody, Refusal, Session, Sum};
use futures::{FutureExt, TryFutureExt};
use nix::sys::signal::{Signal, raise};
use serde::{Deserialize, Serialize};

use crate::{
    process::{Process, job, wait_until},
    suite::Suite,
};

pub(crate) fn add_to(suite: &mut Suite) {
    // Each way to die, and the exit code that the job has from it.
    let ways: [(&str, fn(Session) -> _, i32); 5] = [
        ("death::by_a_signal", |session| rank_2_dies(session, Way::Signal), 137),
        ("death::by_aborting", |session| rank_2_dies(session, Way::Abort), 134),
        ("death::by_exiting", |session| rank_2_dies(session, Way::Exit), 7),
        ("death::by_panicking", |session| rank_2_dies(session, Way::Panic), 101),
        ("death::by_an_error", |session| rank_2_dies(session, Way::Error), 1),
    ];
    for (name, program, code) in ways {
        ends(suite, name, 4, program, code, &[0, 1, 3]);
    }
    ends(suite, "death::by_panicking_alone", 3, by_panicking_alone, 101, &[0, 1]);
    ends(suite, "death::of_two", 6, two_die, 137, &[0, 1, 2, 5]);
    ends(suite, "death::at_work", 5, |session| dying_at_work(session, &[(3, 50)]), 137, &[0, 1, 2, 4]);
    ends(suite, "death::at_work_at_once", 4, |session| dying_at_work(session, &[(1, 0)]), 137, &[0, 2, 3]);
    let two = |session| dying_at_work(session, &[(1, 10), (4, 60)]);
    ends(suite, "death::of_two_at_work", 6, two, 137, &[0, 2, 3, 5]);
    ends(suite, "death::while_closing", 4, while_closing, 137, &[0, 1, 3]);
    ends(suite, "death::the_first_failure_gives_the_code", 4, the_first_failure_gives_the_code, 7, &[0, 3]);
    ends(suite, "death::of_rank_0", 4, of_rank_0, 137, &[1, 2, 3]);
    ends(suite, "death::of_rank_0_by_an_error", 4, of_rank_0_by_an_error, 1, &[1, 2, 3]);
}

/// The test that a job of `program` ends with `code`, and the `survivors` come to their end.
fn ends<F>(
    suite: &mut Suite,
    name: &'static str,
    ranks: u32,
    program: fn(Session) -> F,
    code: i32,
    survivors: &'static [u32],
) where
    F: Future<Output = everfold::Result<()>> + 'static,
{
    suite.program(name, program);
    for transport in crate::suite::TRANSPORTS {
        suite.test(format!("{name}::{transport}"), move || {
            Process::spawn(job(name, ranks, transport)).end().assert_ended(code, survivors.iter().copied());
        });
    }
}

enum Way {
    Signal,
    Abort,
    Exit,
    Panic,
    Error,
}

fn die(way: &Way) -> everfold::Result<()> {
    match way {
        Way::Signal => raise(Signal::SIGKILL).map_err(std::io::Error::from)?,
        Way::Abort => std::process::abort(),
        Way::Exit => std::process::exit(7),
        Way::Panic => panic!("this rank panics"),
        Way::Error => return Err(everfold::Error::application("this rank gives up")),
    }
    unreachable!("it is dead")
}

fn path(ranks: impl IntoIterator<Item = u32>) -> Path {
    Group::of(ranks).iter().collect()
}

#[track_caller]
fn assert_failed<T>(ended: Result<T, ReduceError>, ranks: impl IntoIterator<Item = u32>) {
    let ranks = path(ranks);
    match ended {
        Err(ReduceError::Refused(Refusal::ProcessFailed { ranks: failed })) => assert_eq!(failed, ranks),
        Err(other) => panic!("not the failure of {ranks}: {other}"),
        Ok(_) => panic!("it ended well"),
    }
}

async fn all_have_called(session: &Session) -> everfold::Result<()> {
    session.allreduce("all have called", Sum(vec![1u8])).await.map(drop).map_err(Into::into)
}

#[derive(Serialize, Deserialize)]
struct Bytes(Vec<u8>);

impl ReducerBody for Bytes {
    fn combine(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// Rank 2 has contributed to some reductions and not to others when it dies.
async fn rank_2_dies(session: Session, way: Way) -> everfold::Result<()> {
    let me = session.rank();
    let survivors = session.world().filter(|rank| rank != 2);
    let long = || Sum(vec![1.0; 500_000]);
    // What rank 2 gives is inlined, in a window, and encoded; rank 3 does not come before rank 2 is dead.
    let contribute = || -> Result<_, ReduceError> {
        let small = session.reduce("contributed", Sum(vec![1u8])).start()?;
        let long = session.allreduce("contributed, long", long()).start()?;
        let object = session.reduce("contributed, object", Bytes(vec![1; 100_000])).start()?;
        Ok((small, long, object))
    };
    if me == 2 {
        drop(contribute()?);
        all_have_called(&session).await?;
        return die(&way);
    }
    let to_one = [
        session.reduce("small", Sum(vec![1.0])).start()?,
        session.reduce("to the dead", long()).root(2).start()?,
    ];
    let to_all = [
        session.allreduce("long", long()).start()?,
        session.allreduce(format!("{me} and 2"), long()).group(Group::of([me.0, 2])).start()?,
    ];
    let object = session.reduce("object", Bytes(vec![1; 100_000])).root(3).start()?;
    let early = (me != 3).then(contribute).transpose()?;
    let among_survivors = session.allreduce("survivors", long()).group(&survivors).start()?;
    all_have_called(&session).await?;
    for future in to_one {
        assert_failed(future.await, [2]);
    }
    for future in to_all {
        assert_failed(future.await, [2]);
    }
    assert_failed(object.await, [2]);
    let (small, long_one, object) = match early {
        Some(early) => early,
        None => contribute()?,
    };
    // Where a copy of what rank 2 has given is left, it counts.
    let small =
        counts_or_is_lost(small.await).map(|value| assert_eq!(value, (me == 0).then(|| Sum(vec![4]))));
    assert!(small.is_some(), "the master has a copy of what was inlined");
    let long_one = counts_or_is_lost(long_one.await);
    let is_there = long_one.map(|Sum(sums)| assert!(sums.iter().all(|&sum| sum == 4.0))).is_some();
    let object = counts_or_is_lost(object.await);
    let object =
        object.map(|value| assert_eq!(value.map(|value| value.0.len()), (me == 0).then_some(400_000)));
    let ends = Sum(vec![u8::from(is_there), u8::from(object.is_some())]);
    let Sum(ends) = session.allreduce("ends", ends).group(&survivors).await?.value;
    assert!(ends.iter().all(|&count| count == 0 || count == 3), "they hear the same: {ends:?}");
    assert!(among_survivors.await?.value.0.iter().all(|&sum| sum == 3.0));
    // From now on nobody waits for it.
    assert_failed(session.allreduce("later", Sum(vec![1u8])).await, [2]);
    let pair = session.reduce(format!("later, {me} and 2"), long()).root(me).group(Group::of([me.0, 2]));
    assert_failed(pair.await, [2]);
    for _ in 0..50 {
        let value = session.allreduce("go on", Sum(vec![me.0])).group(&survivors).await?.value;
        assert_eq!(value, Sum(vec![4]));
    }
    let value = session.reduce("go on", long()).group(survivors).root(1).await?.value;
    assert_eq!(value.is_some_and(|value| value.0.iter().all(|&sum| sum == 3.0)), me == 1);
    // Nobody needs its memory any more.
    wait_until("the memory of rank 2 is unmapped", || mapped_regions() <= 3);
    Ok(())
}

/// Regions of shared memory that this process has mapped, its own included.
fn mapped_regions() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let regions = maps.lines().filter(|line| line.contains("/memfd:everfold (deleted)"));
    regions.filter_map(|line| line.split_whitespace().nth(4)).collect::<BTreeSet<_>>().len()
}

/// The value of a reduction to which rank 2 has contributed, or nothing if that was the only copy.
#[track_caller]
fn counts_or_is_lost<T>(ended: Result<Outcome<T>, ReduceError>) -> Option<T> {
    match ended {
        Ok(outcome) => {
            assert_eq!(outcome.report.contributors, path(0..4));
            assert_eq!(outcome.report.survived, path([2]), "{}", outcome.report);
            Some(outcome.value)
        }
        Err(ReduceError::Refused(Refusal::ContributionLost { ranks })) => {
            assert_eq!(ranks, path([2]));
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// A rank that panics has not left in good order, even if nobody waits for it at that moment.
async fn by_panicking_alone(session: Session) -> everfold::Result<()> {
    if session.rank() == 2 {
        return die(&Way::Panic);
    }
    assert_failed(session.allreduce("world", Sum(vec![1u8])).await, [2]);
    Ok(())
}

async fn two_die(session: Session) -> everfold::Result<()> {
    let dead = |rank: u32| rank == 3 || rank == 4;
    let future = session.allreduce("never", Sum(vec![1.0; 100_000]));
    if dead(session.rank().0) {
        all_have_called(&session).await?;
        return die(&Way::Signal);
    }
    let future = future.start()?;
    all_have_called(&session).await?;
    match future.await {
        Err(ReduceError::Refused(Refusal::ProcessFailed { ranks })) => {
            assert!(!ranks.is_empty() && ranks.is_subset(&path([3, 4])), "{ranks}");
        }
        other => panic!("{other:?}"),
    }
    // Sooner or later the error names both.
    wait_until("both deaths are noticed", || {
        let ended = session.allreduce("again", Sum(vec![1u8])).start().and_then(|future| future.get());
        match ended {
            Err(ReduceError::Refused(Refusal::ProcessFailed { ranks })) => ranks == path([3, 4]),
            other => panic!("{other:?}"),
        }
    });
    let survivors = session.world().filter(|rank| !dead(rank.0));
    let value = session.allreduce("survivors", Sum(vec![1u8])).group(survivors).await?.value;
    assert_eq!(value, Sum(vec![4]));
    Ok(())
}

/// Text; which comes first matters.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Text(String);

impl ReducerBody for Text {
    const COMMUTATIVE: bool = false;

    fn combine(&mut self, other: Self) {
        self.0.push_str(&other.0);
    }
}

/// Hundreds of reductions are under way, and some ranks die after some of them: each ends, well or naming
/// them.
async fn dying_at_work(session: Session, deaths: &[(u32, u64)]) -> everfold::Result<()> {
    let (me, ranks) = (session.rank().0, session.size());
    let dead = path(deaths.iter().map(|(rank, _)| *rank));
    let text = |rank: u32, number: u64| format!("{rank}:{number}{} ", ".".repeat(number as usize % 7 * 4000));
    let mut started = Vec::new();
    for number in 0..200u64 {
        let (name, root) = (format!("{number}"), (number % u64::from(ranks)) as u32);
        let numbers = Sum(vec![number; 40_000]);
        let (all, numbers, words) = match number % 3 {
            0 => {
                let future = session.allreduce(name, numbers).start()?.map_ok(Outcome::from);
                (true, Some(future.left_future()), None)
            }
            1 => (false, Some(session.reduce(name, numbers).root(root).start()?.right_future()), None),
            _ => (false, None, Some(session.reduce(name, Text(text(me, number))).root(root).start()?)),
        };
        started.push((number, all || root == me, numbers, words));
    }
    let mut failed = 0;
    for (number, receives, numbers, words) in started {
        if deaths.contains(&(me, number)) {
            return die(&Way::Signal);
        }
        let ended = match (numbers, words) {
            (Some(future), _) => future.await.map(|outcome| {
                let right = |Sum(sums)| sums == vec![u64::from(ranks) * number; 40_000];
                (outcome.report, outcome.value.map(right))
            }),
            (_, Some(future)) => future.await.map(|outcome| {
                let right = |value| value == Text((0..ranks).map(|rank| text(rank, number)).collect());
                (outcome.report, outcome.value.map(right))
            }),
            _ => unreachable!("each has one of the two"),
        };
        match ended {
            Ok((report, value)) => {
                assert_eq!(value, receives.then_some(true), "number {number}: {report}");
                assert_eq!(report.contributors, path(0..ranks));
                assert!(report.survived.is_subset(&dead), "{report}");
            }
            Err(ReduceError::Refused(
                Refusal::ProcessFailed { ranks } | Refusal::ContributionLost { ranks },
            )) => {
                assert!(!ranks.is_empty() && ranks.is_subset(&dead), "{ranks}");
                failed += 1;
            }
            // It was folded in time, but those that died had it.
            Err(ReduceError::ResultLost { reason }) => {
                assert!(dead.len() > 1 && reason.contains("without ranks"), "{reason}");
            }
            Err(other) => panic!("number {number}: {other}"),
        }
    }
    println!("{failed} failed");
    let survivors = session.world().filter(|rank| !dead.contains(rank));
    let count = survivors.len() as f64;
    let Sum(sums) = session.allreduce("survivors", Sum(vec![1.0; 300_000])).group(survivors).await?.value;
    assert!(sums.iter().all(|&sum| sum == count));
    Ok(())
}

/// Leaving in good order does not depend on those that never leave so.
async fn while_closing(session: Session) -> everfold::Result<()> {
    let future = session.allreduce("never", Sum(vec![1u8]));
    if session.rank() == 2 {
        all_have_called(&session).await?;
        return die(&Way::Signal);
    }
    let future = future.start()?;
    all_have_called(&session).await?;
    session.close().await;
    assert!(future.is_done());
    assert!(matches!(future.await, Err(ReduceError::Refused(Refusal::ProcessFailed { .. }))));
    Ok(())
}

async fn the_first_failure_gives_the_code(session: Session) -> everfold::Result<()> {
    let first = session.rank() == 2;
    let process = Sum(vec![if first { std::process::id() } else { 0 }]);
    let process = session.allreduce("the process of rank 2", process).await?.value.0[0];
    let future = session.allreduce("never", Sum(vec![1u8]));
    if first {
        return die(&Way::Exit);
    }
    assert_failed(future.await, [2]);
    if session.rank() == 1 {
        // The others may hear of a death before the supervisor does, which tells the first by whom it finds
        // dead first.
        wait_until("the supervisor knows", || !std::fs::exists(format!("/proc/{process}")).unwrap());
        return die(&Way::Abort);
    }
    Ok(())
}

/// Rank 0 is a rank like any other.
async fn without_rank_0(session: &Session, way: Way) -> everfold::Result<()> {
    let long = || Sum(vec![1.0; 200_000]);
    if session.rank() == 0 {
        all_have_called(session).await?;
        return die(&way);
    }
    let others = session.world().filter(|rank| rank != 0);
    let small = session.reduce("small", Sum(vec![1.0])).root(1).start()?;
    let all = session.allreduce("long", long()).start()?;
    let without = session.allreduce("others", long()).group(&others).start()?;
    all_have_called(session).await?;
    assert_failed(small.await, [0]);
    assert_failed(all.await, [0]);
    assert_eq!(without.await?.value, Sum(vec![3.0; 200_000]));
    let later = session.allreduce("later", Sum(vec![1u8])).group(others).await?;
    assert_eq!(later.value, Sum(vec![3]));
    Ok(())
}

async fn of_rank_0(session: Session) -> everfold::Result<()> {
    without_rank_0(&session, Way::Signal).await
}

async fn of_rank_0_by_an_error(session: Session) -> everfold::Result<()> {
    without_rank_0(&session, Way::Error).await
}
