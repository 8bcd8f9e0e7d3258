//! Processes that come back and cannot go on: they are told why, and ranks that make no progress are given up.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use everfold::{
    CheckpointError, Checkpointed, Group, Max, News, ReduceError, Refusal, Session, Sum,
    recovery::{Recoveries, Restart},
};
use futures::{FutureExt, StreamExt};

use crate::{
    come_back::{Fate, config, die},
    process::{DONE, Process, job},
    suite::Suite,
};

pub(crate) fn add_to(suite: &mut Suite) {
    let restart = Restart { pause: Duration::from_millis(1), ..Restart::USUAL };
    let hasty = || config().recover(Recoveries { restart, ..Recoveries::RESTART });
    let scarce = || hasty().result_log_bytes_max(4 << 10);
    suite.program_with(config(), "given_up::begins_anew", begins_anew);
    suite.test("given_up::who_does_not_resume_is_told", || told("given_up::begins_anew", 2));
    suite.program_with(hasty(), "given_up::is_not_there", is_not_there);
    suite.test("given_up::who_cannot_be_started_again_is_named", not_startable);
    suite.program_with(config(), "given_up::diverges", diverges);
    suite.test("given_up::who_does_something_else_is_told", || told("given_up::diverges", 2));
    suite.program_with(config(), "given_up::diverges_before_the_end", diverges_before_the_end);
    suite.program_with(config(), "given_up::diverges_after_the_end", diverges_after_the_end);
    for name in ["given_up::diverges_before_the_end", "given_up::diverges_after_the_end"] {
        suite.test(format!("{name}::is_told"), move || told(name, 3));
    }
    suite.program_with(config(), "given_up::another_type", another_type);
    suite.test("given_up::who_asks_for_another_state_is_told", || told("given_up::another_type", 2));
    suite.program_with(scarce(), "given_up::lacks_room", lacks_room);
    suite.test("given_up::who_could_not_note_everything_does_not_return", refused);
    suite.program_with(hasty(), "given_up::keeps_dying", keeps_dying);
    suite.test("given_up::who_keeps_dying_is_given_up", || given_up("given_up::keeps_dying", 137));
    suite.program_with(hasty(), "given_up::keeps_failing", keeps_failing);
    suite.test("given_up::who_keeps_failing_is_given_up", || given_up("given_up::keeps_failing", 1));
    suite.job_with(scarce(), "given_up::a_checkpoint_makes_up_for_what_was_not_noted", 2, makes_up);
}

/// Saves a checkpoint and lets rank 1 die behind it, once.
pub(crate) async fn saves_and_dies(session: &Session) -> everfold::Result<()> {
    assert_eq!(session.resume::<u32>().await?, None);
    session.allreduce("sum", Sum(vec![1u32])).await?;
    session.checkpoint(&1u32).now().await?;
    if session.rank() == 1 {
        die();
    }
    Ok(())
}

/// What the others find when rank 1 does not come back.
pub(crate) async fn last(session: Session) -> everfold::Result<()> {
    let ended = session.allreduce("last", Sum(vec![1u32])).allow_missing().await?;
    println!("{} took part", ended.report.contributors);
    Ok(())
}

pub(crate) fn is_first(session: &Session) -> bool {
    Fate::of(session).life == 0
}

/// Its second life has to be told why it cannot go on.
fn told(program: &'static str, ranks: u32) {
    let mut process = Process::spawn(job(program, ranks, "shm"));
    process.wait_for(1, "as it should be told");
    let end = process.end();
    assert!(end.said.iter().any(|line| line.contains(&format!("{DONE}0"))), "{:#?}", end.said);
}

async fn begins_anew(session: Session) -> everfold::Result<()> {
    if !is_first(&session) {
        let refused = session.allreduce("sum", Sum(vec![1u32])).await;
        assert!(matches!(&refused, Err(ReduceError::NotResumed { name }) if name == "sum"), "{refused:?}");
        println!("as it should be told: {}", refused.unwrap_err());
        let late = session.resume::<u32>().await;
        assert!(matches!(late, Err(CheckpointError::ResumedLate)), "{late:?}");
        session.close().await;
        return Ok(());
    }
    saves_and_dies(&session).await?;
    last(session).await
}

async fn another_type(session: Session) -> everfold::Result<()> {
    if !is_first(&session) {
        let refused = session.resume::<String>().await;
        assert!(matches!(refused, Err(CheckpointError::OtherType { .. })), "{refused:?}");
        println!("as it should be told: {}", refused.unwrap_err());
        // It may ask again; nothing was lost.
        assert_eq!(session.resume::<u32>().await?, Some(1));
        session.close().await;
        return Ok(());
    }
    saves_and_dies(&session).await?;
    last(session).await
}

async fn diverges(session: Session) -> everfold::Result<()> {
    let is_first = is_first(&session);
    let length = if is_first { 3 } else { 4 };
    assert_eq!(session.resume::<u32>().await?, None);
    let sum = session.allreduce("sum", Sum(vec![1u32; length])).await;
    if !is_first {
        let is_told = matches!(
            &sum,
            Err(ReduceError::Refused(Refusal::Diverged { rank, name, sequence: 0 })) if *rank == 1 && name == "sum"
        );
        assert!(is_told, "{sum:?}");
        println!("as it should be told: {}", sum.unwrap_err());
        session.close().await;
        return Ok(());
    }
    assert_eq!(sum?.value, Sum(vec![2; 3]));
    if session.rank() == 1 {
        die();
    }
    last(session).await
}

/// Rank 1 contributes to a reduction whose result is rank 0's, dies before it hears the end, and calls another
/// one by that name: while the reduction is open, or after its end.
async fn diverges_from_open(session: Session, meets_open: bool) -> everfold::Result<()> {
    let (rank, is_first) = (session.rank().0, is_first(&session));
    let mut events = session.events();
    let with = |other: u32| Group::of([rank, other]);
    let meets = async |other| session.allreduce("meet", Sum(vec![1u32])).group(with(other)).await.map(drop);
    assert_eq!(session.resume::<u32>().await?, None);
    // Before rank 1 dies rank 2 listens.
    session.allreduce("begin", Sum(vec![1u32])).await?;
    if !is_first {
        if !meets_open {
            meets(2).await?;
        }
        let sum = session.allreduce("sum", Max(vec![1u64; 4])).await.unwrap_err();
        assert!(is_rank_1_told(&sum), "{sum}");
        println!("as it should be told: {sum}");
        if meets_open {
            meets(2).await?;
        }
        session.close().await;
        return Ok(());
    }
    if rank == 2 {
        let is_death = |news: &News| matches!(news, News::Failed { rank, .. } if *rank == 1);
        while !is_death(&events.next().await.expect("rank 1 dies")) {}
        if meets_open {
            meets(1).await?;
        }
    }
    let sum = session.reduce("sum", Sum(vec![1u32; 3])).start()?;
    if rank < 2 {
        // Both contributions are there by then, on the board or with the master.
        session.allreduce("both", Sum(vec![1u32])).group(Group::of([0, 1])).await?;
    }
    if rank == 1 {
        die();
    }
    match sum.await {
        // Nobody takes a reduction for done whose result nobody has.
        Err(error) => assert!(meets_open && is_rank_1_told(&error), "{error}"),
        Ok(sum) => {
            assert!(!meets_open);
            assert_eq!(sum.value, (rank == 0).then_some(Sum(vec![3; 3])));
            if rank == 2 {
                meets(1).await?;
            }
        }
    }
    Ok(())
}

fn is_rank_1_told(error: &ReduceError) -> bool {
    let refused = |refusal: &Refusal| matches!(refusal, Refusal::Diverged { rank, name, sequence: 0 } if *rank == 1 && name == "sum");
    matches!(error, ReduceError::Refused(refusal) if refused(refusal))
}

async fn diverges_before_the_end(session: Session) -> everfold::Result<()> {
    diverges_from_open(session, true).await
}

async fn diverges_after_the_end(session: Session) -> everfold::Result<()> {
    diverges_from_open(session, false).await
}

/// Calls until its outcomes have no room any more.
async fn fill(session: &Session) -> everfold::Result<()> {
    let mut news = session.events();
    for _ in 0..8 {
        session.allreduce("sum", Sum(vec![1u64; 200])).await?;
    }
    let rank = session.rank();
    let is_told = |news: &News| matches!(news, News::CannotReturn { rank: of, .. } if *of == rank);
    let mut told = 0;
    while let Some(Some(news)) = news.next().now_or_never() {
        told += u32::from(is_told(&news));
    }
    assert_eq!(told, 1, "it is told once");
    Ok(())
}

async fn lacks_room(session: Session) -> everfold::Result<()> {
    assert_eq!(session.resume::<u32>().await?, None);
    assert!(is_first(&session), "it must not join");
    fill(&session).await?;
    if session.rank() == 1 {
        die();
    }
    last(session).await
}

/// Rank 1 dies, and its program is gone.
async fn is_not_there(session: Session) -> everfold::Result<()> {
    session.allreduce("sum", Sum(vec![1u32])).await?;
    if session.rank() == 1 {
        let copy = PathBuf::from(std::env::args_os().next().unwrap());
        assert!(copy.starts_with(std::env::temp_dir()), "only a copy of this program is removed");
        fs::remove_file(copy).unwrap();
        die();
    }
    last(session).await
}

fn not_startable() {
    let copy = std::env::temp_dir().join(format!("everfold-come-back-{}", std::process::id()));
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.args(["run", "given_up::is_not_there", "2", "shm"]);
    let end = Process::spawn(command).end();
    assert!(
        end.said.iter().any(|line| line.contains("rank 1 cannot be started again: No such file")),
        "{end:?}"
    );
    end.assert_ended(137, [0]);
}

fn refused() {
    let mut process = Process::spawn(job("given_up::lacks_room", 2, "shm"));
    process.wait_for(1, "lacks an outcome");
    let end = process.end();
    assert!(end.said.iter().any(|line| line.contains("{0} took part")), "{:#?}", end.said);
}

/// What the others do when rank 1 is given up.
async fn outlives(session: Session) -> everfold::Result<()> {
    let ended = session.allreduce("last", Sum(vec![1u32])).allow_missing().await?;
    assert_eq!(ended.value, Sum(vec![1]), "rank 1 has not taken part");
    Ok(())
}

/// Dies in each of its lives.
async fn keeps_dying(session: Session) -> everfold::Result<()> {
    session.allreduce("sum", Sum(vec![1u32])).await?;
    if session.rank() == 1 {
        die();
    }
    outlives(session).await
}

/// Dies once, and ends in an error in each later life.
async fn keeps_failing(session: Session) -> everfold::Result<()> {
    session.allreduce("sum", Sum(vec![1u32])).await?;
    match session.rank().0 {
        1 if is_first(&session) => die(),
        1 => Err(everfold::Error::application("the input is wrong")),
        _ => outlives(session).await,
    }
}

fn given_up(program: &'static str, code: i32) {
    Process::spawn(job(program, 2, "shm")).end().assert_ended(code, [0]);
}

async fn makes_up(session: Session) -> everfold::Result<()> {
    let saved = session.resume::<u32>().await?;
    assert_eq!(saved, (!is_first(&session)).then_some(8));
    if saved.is_none() {
        fill(&session).await?;
        assert!(session.checkpoint_due(), "the room for outcomes is full");
        let saved = session.checkpoint(&8u32).await?;
        assert!(matches!(saved, Checkpointed::Saved { .. }), "{saved:?}");
        session.allreduce("sum", Sum(vec![1u64; 2])).await?;
        if session.rank() == 1 {
            die();
        }
    } else {
        session.allreduce("sum", Sum(vec![1u64; 2])).await?;
    }
    let sum = session.allreduce("last", Sum(vec![1u64; 2])).await?;
    assert_eq!(sum.value, Sum(vec![2; 2]));
    Ok(())
}
