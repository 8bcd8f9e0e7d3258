//! Large groups work in teams, and do without them where something comes in between.

use std::time::Duration;

use everfold::{Config, Protection, ReduceError, Refusal, Session, Sum};
use futures::future::try_join_all;
use nix::sys::signal::{Signal, raise};

use crate::{
    process::{End, Process, job},
    suite::Suite,
};

const RANKS: u32 = 7;
const PING: Duration = Duration::from_millis(100);

pub(crate) fn add_to(suite: &mut Suite) {
    let config = || Config::default().teams_from(3);
    suite.program_with(config(), "teams::reduce", all);
    suite.test_each("teams::reduce", |transport| {
        let end = followed("teams::reduce", transport);
        end.assert_done(0..RANKS);
        // On one host there is nothing to gain.
        assert_eq!(count(&end, "Finished") > 0, transport == "tcp", "{:?}", end.said);
    });
    suite.program_with(config().ping_interval(PING), "teams::a_rank_is_late", late);
    suite.test("teams::a_rank_is_late::tcp", || {
        let end = followed("teams::a_rank_is_late", "tcp");
        end.assert_done(0..RANKS);
        assert!(count(&end, "dissolved") > 0, "{:?}", end.said);
    });
    suite.program_with(config(), "teams::a_deputy_dies", |session| dies(session, 1));
    suite.program_with(config(), "teams::a_member_dies", |session| dies(session, 5));
    for (name, dead) in [("teams::a_deputy_dies", 1), ("teams::a_member_dies", 5)] {
        suite.test(format!("{name}::tcp"), move || {
            let end = followed(name, "tcp");
            end.assert_ended(137, (0..RANKS).filter(|rank| *rank != dead));
            assert!(count(&end, "Finished") > 0, "{:?}", end.said);
        });
    }
}

/// Runs a job that says what its master decides.
fn followed(program: &str, transport: &str) -> End {
    let mut command = job(program, RANKS, transport);
    command.env("RUST_LOG", "everfold_runtime::master=debug");
    Process::spawn(command).end()
}

/// How often something is said of an attempt in teams.
fn count(end: &End, what: &str) -> usize {
    end.said.iter().filter(|line| line.contains(what) && line.contains("in teams")).count()
}

/// Sums `length` numbers to `root` over all that live.
async fn sum(session: &Session, name: &str, root: u32, length: usize) -> everfold::Result<()> {
    let me = u64::from(session.rank().0);
    // Somebody may die before this ends.
    let group = session.survivors();
    let expected: u64 = group.iter().map(|rank| u64::from(rank.0)).sum();
    let reduction = session.reduce(name, Sum(vec![me; length])).root(root).group(group);
    let outcome = reduction.protection(Protection::None).await?;
    assert_eq!(outcome.value, (session.rank() == root).then(|| Sum(vec![expected; length])));
    Ok(())
}

async fn all(session: Session) -> everfold::Result<()> {
    for root in [0, 3, RANKS - 1] {
        for length in [10, 3000, 200_000] {
            sum(&session, &format!("{root} {length}"), root, length).await?;
            sum(&session, "again and again", root, length).await?;
        }
    }
    let names: Vec<String> = (0..5).map(|number| format!("at once {number}")).collect();
    try_join_all(names.iter().map(|name| sum(&session, name, 2, 50_000))).await?;
    Ok(())
}

/// Rank 6 comes so late that nobody waits for it in teams. Its next call of that name comes in time.
async fn late(session: Session) -> everfold::Result<()> {
    for length in [10, 200_000] {
        if session.rank() == RANKS - 1 {
            // This deadline passes.
            let _ = session.allreduce(format!("wait {length}"), Sum(vec![1u8])).deadline(PING * 10).await;
        }
        sum(&session, "late", 0, length).await?;
        sum(&session, "late", 0, length).await?;
    }
    Ok(())
}

/// One rank dies after a reduction in teams, and before the next.
async fn dies(session: Session, dead: u32) -> everfold::Result<()> {
    sum(&session, "all", 0, 50_000).await?;
    if session.rank() == dead {
        raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
    }
    let world = session.world();
    for length in [10, 50_000] {
        let reduction = session.reduce(format!("in vain {length}"), Sum(vec![1u64; length])).root(0);
        let refused = reduction.group(&world).protection(Protection::None).await;
        let Err(ReduceError::Refused(Refusal::ProcessFailed { ranks })) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(ranks, [dead.into()].into_iter().collect());
    }
    sum(&session, "survivors", 0, 10).await?;
    sum(&session, "survivors", 2, 50_000).await
}
