//! State that ranks keep: others read it when its process or its host has died, complete or not at all.

use everfold::{Checkpointed, Group, Path, Rank, ReduceError, Session, StateError, Sum};

use crate::{
    given_up::is_first,
    hosts::{kill_victim, two_hosts},
    migrate::{Case, EACH, Job},
    process::{Process, job},
    segments::{die, wait_for_death},
    suite::{Suite, TRANSPORTS},
};

const ONE_DIES: &str = "kept::the_state_of_a_dead_rank_is_read";
const DIES_WHILE: &str = "kept::a_death_leaves_one_state_or_the_next";

pub(crate) fn add_to(suite: &mut Suite) {
    suite.job("kept::what_cannot_be_read_is_told", 3, told);
    suite.program(ONE_DIES, one_dies);
    suite.program(DIES_WHILE, dies_while_it_keeps);
    for (name, transport) in
        [ONE_DIES, DIES_WHILE].into_iter().flat_map(|name| TRANSPORTS.map(|it| (name, it)))
    {
        suite.test(format!("{name}::{transport}"), move || {
            Process::spawn(job(name, 3, transport)).end().assert_ended(137, [0, 2]);
        });
    }
    let replica = "kept::the_state_of_a_lost_host_has_a_replica";
    suite.program(replica, a_host_dies);
    suite.test(replica, move || two_hosts(replica, Some(1), &[0, 1]));
    let process = "kept::the_state_of_a_dead_rank_is_read_from_another_host";
    suite.program(process, processes_die);
    suite.test(process, move || two_hosts(process, None, &[0, 1]));
    let back = "kept::the_state_of_a_rank_that_comes_back_has_a_replica";
    suite.program(back, an_owner_comes_back);
    suite.test(back, move || {
        let ends = Job::start(back, &Case::default()).end();
        ends[0].assert_done([0, 1]);
        ends[1].assert_done([2, 3]);
    });
    let moved = "kept::a_replica_on_the_host_of_its_owner_does_not_count";
    suite.program(moved, owners_migrate);
    suite.test(moved, move || {
        let mut job = Job::start(moved, &Case::default());
        job.hosts[1].as_mut().unwrap().wait_for(EACH as usize, "may be killed");
        job.lose(1);
        job.end()[0].assert_done(0..2 * EACH);
    });
}

/// The state of a rank.
fn state(rank: Rank, version: u64) -> Vec<f64> {
    (0..40_000).map(|index| f64::from(rank.0 * 100_000 + index) * version as f64).collect()
}

async fn told(session: Session) -> everfold::Result<()> {
    let (me, next) = (session.rank(), Rank((session.rank().0 + 1) % 3));
    let kept = session.keep("state", &state(me, 1)).await?;
    assert_eq!((kept.version, kept.replicated), (1, Path::empty()), "there is one host");
    session.allreduce("kept", Sum(vec![1u8])).await?;
    assert_eq!(session.kept::<f64>(next, "state").await?.array, state(next, 1), "it lives");
    let nothing = session.kept::<f64>(next, "other").await;
    assert!(matches!(nothing, Err(StateError::NotKept { rank, .. }) if rank == next), "{nothing:?}");
    let other = session.kept::<u64>(next, "state").await;
    assert!(matches!(other, Err(StateError::OtherType { .. })), "{other:?}");
    let nobody = session.kept::<f64>(Rank(3), "state").await;
    assert!(matches!(nobody, Err(StateError::NoSuchRank { size: 3, .. })), "{nobody:?}");
    let outside = Group::of([next]);
    let refused = session.keep("state", &[1.0]).among(&outside).await;
    let Err(StateError::NoReplicas { error, .. }) = refused else { panic!("{refused:?}") };
    assert!(matches!(*error, ReduceError::Refused(_)), "{error}");
    session.allreduce("read", Sum(vec![1u8])).await?;
    assert!(session.release("state") && !session.release("state"));
    session.allreduce("released", Sum(vec![1u8])).await?;
    let nothing = session.kept::<f64>(next, "state").await;
    assert!(matches!(nothing, Err(StateError::NotKept { .. })), "{nothing:?}");
    Ok(())
}

/// Rank 1 dies without having called anything that the others wait for, long after it has kept its state.
async fn one_dies(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    for version in 1..=3 {
        assert_eq!(session.keep("state", &state(me, version)).await?.version, version);
    }
    session.keep("empty", &[0u8; 0]).await?;
    session.allreduce("kept", Sum(vec![1u8])).await?;
    if me == 1 {
        die();
    }
    wait_for_death(&session, Rank(1)).await;
    let survivors = Group::of([0, 2]);
    // Nobody needs the other memory of rank 1 any more.
    session.allreduce("all know it", Sum(vec![1u8])).group(&survivors).await?;
    for _ in 0..2 {
        let kept = session.kept::<f64>(Rank(1), "state").await?;
        assert_eq!((kept.array, kept.version, kept.is_replica), (state(Rank(1), 3), 3, false));
        session.allreduce("once more", Sum(vec![1u8])).group(&survivors).await?;
    }
    assert_eq!(session.kept::<u8>(Rank(1), "empty").await?.array, []);
    Ok(())
}

/// Rank 1 replaces its state again and again until it dies; the others read meanwhile, and afterwards.
async fn dies_while_it_keeps(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    session.keep("state", &[0u64; 20_000]).await?;
    session.allreduce("begun", Sum(vec![1u8])).await?;
    if me == 1 {
        std::thread::spawn(|| {
            // Whatever it writes then.
            std::thread::sleep(std::time::Duration::from_millis(100));
            die();
        });
        for number in 1u64.. {
            session.keep("state", &vec![number; 20_000]).await?;
        }
    }
    let read = async || {
        let kept = session.kept::<u64>(Rank(1), "state").await?;
        let whole = kept.array.len() == 20_000 && kept.array.iter().all(|word| *word == kept.array[0]);
        assert!(whole && kept.version == kept.array[0] + 1, "version {}", kept.version);
        everfold::Result::Ok(kept.version)
    };
    while session.survivors().contains(Rank(1)) {
        // It may be replaced faster than it is read.
        match read().await {
            Ok(_) | Err(everfold::Error::State(StateError::Unsteady { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    assert!(read().await? > 1);
    assert_eq!(read().await?, read().await?, "the dead write nothing");
    Ok(())
}

/// Ranks 2 and 3 are lost with their host. What they have kept lies on the other.
async fn a_host_dies(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    for version in 1..=2 {
        let kept = session.keep("state", &state(me, version)).await?;
        assert_eq!((kept.version, kept.replicated), (version, Path::range(0, 4)));
    }
    if me == 3 {
        kill_victim()?;
    }
    if me.0 > 1 {
        let gone = session.allreduce("never", Sum(vec![1u8])).await;
        return Err(everfold::Error::application(format!("the host is lost: {:?}", gone.is_err())));
    }
    wait_for_death(&session, Rank(2)).await;
    wait_for_death(&session, Rank(3)).await;
    for rank in [2, 3].map(Rank) {
        let kept = session.kept::<f64>(rank, "state").await?;
        assert_eq!((kept.array, kept.version, kept.is_replica), (state(rank, 2), 2, true));
    }
    // The survivors go on by themselves, and what others have kept stays.
    let survivors = session.survivors();
    let kept = session.keep("later", &state(me, 1)).among(&survivors).await?;
    assert_eq!((kept.version, kept.replicated), (1, Path::empty()));
    assert!(session.kept::<f64>(Rank(3), "state").await?.is_replica);
    Ok(())
}

/// Ranks 2 and 3 die, and their agent shows what they have kept.
async fn processes_die(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    session.keep("state", &state(me, 1)).await?;
    if me.0 > 1 {
        die();
    }
    wait_for_death(&session, Rank(2)).await;
    wait_for_death(&session, Rank(3)).await;
    for rank in [2, 3].map(Rank) {
        let kept = session.kept::<f64>(rank, "state").await?;
        assert_eq!((kept.array, kept.is_replica), (state(rank, 1), false));
    }
    Ok(())
}

/// Rank 3 dies and comes back. What its first process has kept lies on the other host.
async fn an_owner_comes_back(session: Session) -> everfold::Result<()> {
    let (me, owner) = (session.rank(), Rank(3));
    let saved: Option<u32> = session.resume().await?;
    if saved.is_none() {
        let kept = session.keep("state", &state(me, 1)).await?;
        assert_eq!(kept.replicated, Path::range(0, 4));
        let saved = session.checkpoint(&1u32).now().await?;
        assert!(matches!(saved, Checkpointed::Saved { .. }), "{saved:?}");
    }
    session.allreduce("kept", Sum(vec![1u8])).await?;
    if me == owner && is_first(&session) {
        die();
    }
    // When it has ended, rank 3 is back.
    session.allreduce("back", Sum(vec![1u8])).await?;
    if me != owner {
        let kept = session.kept::<f64>(owner, "state").await?;
        assert_eq!((kept.array, kept.version, kept.is_replica), (state(owner, 1), 1, true));
        let nothing = session.kept::<f64>(owner, "other").await;
        assert!(matches!(nothing, Err(StateError::NotKept { rank, .. }) if rank == owner), "{nothing:?}");
    }
    session.allreduce("read", Sum(vec![1u8])).await?;
    assert_eq!(session.keep("state", &state(me, 2)).await?.replicated, Path::range(0, 4));
    if me != owner {
        let kept = session.kept::<f64>(owner, "state").await?;
        assert_eq!((kept.array, kept.version, kept.is_replica), (state(owner, 2), 1, false));
    }
    session.allreduce("read", Sum(vec![1u8])).await?;
    Ok(())
}

/// Ranks 2 and 3 lose their host, and go on beside their keeper.
async fn owners_migrate(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let saved: Option<u32> = session.resume().await?;
    assert_eq!(saved, None);
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    if me.0 >= EACH && is_first(&session) {
        println!("may be killed");
        std::future::pending::<()>().await;
    }
    let kept = session.keep("state", &state(me, 1)).await?;
    assert_eq!((kept.version, kept.replicated), (1, Path::empty()), "there is one host by now");
    for rank in (0..session.size()).map(Rank).filter(|rank| *rank != me) {
        assert_eq!(session.kept::<f64>(rank, "state").await?.array, state(rank, 1));
    }
    session.allreduce("read", Sum(vec![1u8])).await?;
    Ok(())
}
