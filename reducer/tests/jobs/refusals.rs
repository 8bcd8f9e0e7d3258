//! Calls that cannot end well end in an error that says why, and the session goes on.

use std::{
    sync::{Condvar, Mutex},
    time::Duration,
};

use everfold::{Config, ElementWise, Group, Path, ReduceError, ReducerBody, Refusal, Session, Sum};
use serde::{Deserialize, Serialize};

use crate::suite::Suite;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.job("refusals::arguments", 4, arguments);
    suite.job("refusals::one_rank_alone", 4, one_rank_alone);
    suite.job("refusals::a_rank_that_never_calls", 4, a_rank_that_never_calls);
    suite.job("refusals::a_deadline_in_a_crowd", 4, a_deadline_in_a_crowd);
    suite.job("refusals::a_fold_that_takes_too_long", 3, a_fold_that_takes_too_long);
    suite.job("refusals::the_next_in_line", 2, the_next_in_line);
    suite.job("refusals::a_rank_that_leaves", 4, a_rank_that_leaves);
    let config = || Config::default().body_bytes_max(LIMIT);
    suite.job_with(config(), "refusals::a_body_over_the_limit", 4, a_body_over_the_limit);
    suite.job_with(config(), "refusals::an_object_over_the_limit", 4, an_object_over_the_limit);
}

#[track_caller]
fn refusal<T>(ended: Result<T, ReduceError>) -> Refusal {
    match ended {
        Err(ReduceError::Refused(refusal)) => refusal,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// A reduction called `name` works, and this is the first call of that name that counts.
async fn works(session: &Session, name: &str, group: Group) -> everfold::Result<()> {
    let sum: u32 = group.iter().map(|rank| rank.0 + 1).sum();
    let outcome = session.allreduce(name, Sum(vec![session.rank().0 + 1; 3])).group(group).await?;
    assert_eq!(outcome.value, Sum(vec![sum; 3]), "{name}");
    Ok(())
}

fn path(ranks: impl IntoIterator<Item = u32>) -> Path {
    Group::of(ranks).iter().collect()
}

/// What makes no sense whatever the others say.
async fn arguments(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let body = || Sum(vec![1.0; 10]);

    let root = session.reduce("root", body()).root(3).group(Group::of([0, 1, 2]));
    let root = (me != 3).then(|| refusal(root.start()));
    let expected = Refusal::RootOutsideGroup { root: 3.into(), group: path([0, 1, 2]) };
    assert_eq!(root, (me != 3).then_some(expected));

    let root = refusal(session.reduce("root", body()).root(4).start());
    assert_eq!(root, Refusal::RootOutsideGroup { root: 4.into(), group: path(0..4) });

    let nobody = refusal(session.reduce("nobody", body()).roots([0u32; 0]).start());
    assert_eq!(nobody, Refusal::NoRoots);
    assert!(nobody.to_string().contains("the list of roots is empty"), "{nobody}");

    let empty = refusal(session.allreduce("empty", body()).group(Group::world(0)).start());
    assert_eq!(empty, Refusal::EmptyGroup);

    let unknown = refusal(session.reduce("unknown", body()).group(Group::of([0, 1, 2, 3, 7])).start());
    assert_eq!(unknown, Refusal::UnknownRanks { group: path([0, 1, 2, 3, 7]), size: 4 });

    let nothing = refusal(session.reduce("nothing", Sum(Vec::<f64>::new())).start());
    assert_eq!(nothing, Refusal::EmptyBody { rank: me });
    let nothing = refusal(session.allreduce("nothing", Sum(session.array::<u8>(0))).await);
    assert_eq!(nothing, Refusal::EmptyBody { rank: me });

    for name in ["root", "nobody", "empty", "unknown", "nothing"] {
        works(&session, name, session.world()).await?;
    }
    Ok(())
}

/// Arguments that are wrong on one rank only: the others do not notice, and may wait for it to get them
/// right.
async fn one_rank_alone(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let others = Group::of([0, 2, 3]);
    if me == 1 {
        let outside = refusal(session.allreduce("outside", Sum(vec![1])).group(&others).start());
        assert_eq!(outside, Refusal::CallerOutsideGroup { rank: me, group: path([0, 2, 3]) });
        let nothing = refusal(session.allreduce("nothing", Sum(Vec::<u32>::new())).start());
        assert_eq!(nothing, Refusal::EmptyBody { rank: me });
        let root = refusal(session.reduce("root", Sum(vec![1u32; 3])).root(9).start());
        assert_eq!(root, Refusal::RootOutsideGroup { root: 9.into(), group: path(0..4) });
    } else {
        works(&session, "outside", others).await?;
    }
    for name in ["nothing", "root"] {
        works(&session, name, session.world()).await?;
    }
    Ok(())
}

const LIMIT: u64 = 100_000;

#[derive(Serialize, Deserialize)]
struct Bytes(Vec<u8>);

impl ReducerBody for Bytes {
    fn combine(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// A body that is too long is refused at once; shorter ones can be called instead.
async fn a_body_over_the_limit(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let bytes = LIMIT + 8;
    let array = || Sum(vec![1u64; LIMIT as usize / 8 + 1]);
    let refused = refusal(session.reduce("array", array()).start());
    assert_eq!(refused, Refusal::BodyTooLarge { rank: me, bytes, limit: LIMIT });
    assert_eq!(
        refused.to_string(),
        format!(
            "the body of rank {me} has 100008 bytes; the limit of this job is 100000 (Config::body_bytes_max)"
        )
    );
    if me == 1 {
        assert!(matches!(refusal(session.allreduce("array", array()).start()), Refusal::BodyTooLarge { .. }));
    }
    works(&session, "array", session.world()).await?;
    let Sum(longest) = session.allreduce("longest", Sum(vec![1u64; LIMIT as usize / 8])).await?.value;
    assert!(longest.iter().all(|&sum| sum == 4));
    Ok(())
}

/// The length of an object is known when it is encoded.
async fn an_object_over_the_limit(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    if me == 1 {
        let ended = match session.reduce("object", Bytes(vec![0; LIMIT as usize])).start() {
            Ok(future) => future.await.map(drop),
            Err(error) => Err(error),
        };
        match refusal(ended) {
            Refusal::BodyTooLarge { rank, bytes, limit } => {
                assert!(rank == me && bytes > LIMIT && limit == LIMIT, "{rank} {bytes} {limit}");
            }
            other => panic!("{other}"),
        }
    }
    // Nobody else has heard of it.
    let value = session.reduce("object", Bytes(vec![0; 20])).await?.value;
    assert_eq!(value.map(|value| value.0.len()), (me == 0).then_some(80));
    Ok(())
}

async fn a_rank_that_never_calls(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let deadline = Duration::from_millis(100);
    let expected = Refusal::DeadlineExceeded { deadline, missing: path([1, 3]) };
    let small = || session.reduce("small", Sum(vec![1u8])).deadline(deadline).start();
    let long = || session.allreduce("long", Sum(vec![1.0; 100_000])).deadline(deadline).start();
    let absent = me == 1 || me == 3;
    if !absent {
        let (small, long) = (small()?, long()?);
        assert_eq!(refusal(small.await), expected);
        assert_eq!(refusal(long.await), expected);
        assert!(expected.to_string().contains("{1,3}"), "{expected}");
    }
    session.allreduce("the deadline has passed", Sum(vec![1u8])).await?;
    if absent {
        // Whoever comes late hears the same.
        assert_eq!(refusal(small()?.await), expected);
        assert_eq!(refusal(long()?.await), expected);
    }
    works(&session, "small", session.world()).await?;
    works(&session, "long", session.world()).await?;
    Ok(())
}

/// A deadline passes although the master always has something else to do.
async fn a_deadline_in_a_crowd(session: Session) -> everfold::Result<()> {
    let deadline = Duration::from_millis(1);
    let doomed = session.reduce("doomed", Sum(vec![1u8])).deadline(deadline);
    let doomed = if session.rank() == 0 { Some(doomed.start()?) } else { None };
    let crowd: Vec<_> = (0..8_000)
        .map(|number| session.allreduce(format!("{}", number % 100), Sum(vec![1u8])).start())
        .collect::<Result<_, _>>()?;
    for future in crowd {
        future.await?;
    }
    if let Some(doomed) = doomed {
        assert!(doomed.is_done(), "its deadline has passed long ago");
        let refused = refusal(doomed.await);
        assert_eq!(refused, Refusal::DeadlineExceeded { deadline, missing: path(1..4) });
    }
    Ok(())
}

/// Combining waits until this is set.
static HEARD: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

fn wait_until_heard() {
    let (heard, changed) = &HEARD;
    drop(changed.wait_while(heard.lock().unwrap(), |heard| !*heard).unwrap());
}

fn tell_heard() {
    *HEARD.0.lock().unwrap() = true;
    HEARD.1.notify_all();
}

#[derive(Serialize, Deserialize)]
struct Slow(u32);

impl ReducerBody for Slow {
    fn combine(&mut self, other: Self) {
        wait_until_heard();
        self.0 += other.0;
    }
}

/// The deadline also passes when all are there but cannot be folded in time.
async fn a_fold_that_takes_too_long(session: Session) -> everfold::Result<()> {
    let deadline = Duration::from_millis(200);
    let started = session.allreduce("slow", Slow(1)).deadline(deadline).start()?;
    session.allreduce("all have called", Sum(vec![1u8])).await?;
    let refused = refusal(started.await);
    assert_eq!(refused, Refusal::DeadlineExceeded { deadline, missing: Path::empty() });
    session.allreduce("all have heard", Sum(vec![1u8])).await?;
    tell_heard();
    // What comes of the slow one does not count any more.
    let Slow(count) = session.allreduce("slow", Slow(1)).await?.value;
    assert_eq!(count, 3);
    Ok(())
}

/// What waits behind the tasks of a reduction that is refused has its turn then.
async fn the_next_in_line(session: Session) -> everfold::Result<()> {
    let deadline = Duration::from_millis(300);
    let blocked = ElementWise::new("blocked", vec![1u64; 1 << 20], |a: u64, b: u64| {
        wait_until_heard();
        a + b
    });
    let blocked = session.reduce("blocked", blocked).deadline(deadline).start()?;
    let next = session.reduce("next", Sum(vec![1u64; 1 << 20])).start()?;
    session.reduce("both have called both", Sum(vec![1u8])).root(1).await?;
    assert_eq!(refusal(blocked.await), Refusal::DeadlineExceeded { deadline, missing: Path::empty() });
    tell_heard();
    let value = next.await?.value;
    assert_eq!(value.is_some_and(|Sum(sums)| sums.iter().all(|&sum| sum == 2)), session.rank() == 0);
    Ok(())
}

async fn a_rank_that_leaves(session: Session) -> everfold::Result<()> {
    let expected = Refusal::RanksLeft { ranks: path([3]) };
    let rest = session.world().filter(|rank| rank != 3);
    let body = || Sum(vec![1.0; 100_000]);
    if session.rank() == 3 {
        session.allreduce("the others wait", Sum(vec![1u8])).await?;
        session.close().await;
        return Ok(());
    }
    let waiting = [
        session.reduce("before", body()).start()?,
        session.reduce("to the one that leaves", body()).root(3).start()?,
    ];
    let among_the_rest = session.reduce("among the rest", body()).group(&rest).start()?;
    session.allreduce("the others wait", Sum(vec![1u8])).await?;
    for future in waiting {
        assert_eq!(refusal(future.await), expected);
    }
    assert_eq!(among_the_rest.await?.value.is_some(), session.rank() == 0);
    // Also what is called later.
    assert_eq!(refusal(session.allreduce("after", body()).await), expected);
    let told = expected.to_string();
    assert!(told.starts_with("ranks {3} closed their sessions without contributing"), "{told}");
    works(&session, "the rest", rest).await
}
