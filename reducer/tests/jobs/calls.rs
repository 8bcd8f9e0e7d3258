//! What a call returns at once, and how it can be waited for.

use std::time::{Duration, Instant};

use everfold::{ReduceError, ReduceFuture, Session, Sum};
use futures::FutureExt;

use crate::{process::wait_until, suite::Suite};

pub(crate) fn add_to(suite: &mut Suite) {
    suite.job("calls::a_loop", 4, a_loop);
    suite.job("calls::a_loop_with_pauses", 4, a_loop_with_pauses);
    suite.job("calls::a_loop_started_at_once", 4, a_loop_started_at_once);
    suite.job("calls::two_names_interleaved", 4, two_names_interleaved);
    suite.job("calls::a_dropped_future_counts", 4, a_dropped_future_counts);
    suite.job("calls::a_dropped_call_does_not_count", 3, a_dropped_call_does_not_count);
    suite.job("calls::waiting_without_a_runtime", 3, waiting_without_a_runtime);
    suite.job("calls::one_name_from_many_threads", 3, one_name_from_many_threads);
    suite.job("calls::done_without_being_polled", 3, done_without_being_polled);
    suite.job("calls::after_closing", 3, after_closing);
    suite.job("calls::closing_waits_for_what_was_called", 3, closing_waits_for_what_was_called);
}

/// A number that tells `rank` and `call` apart, and the sum of it over all ranks.
fn share(rank: u32, call: u64) -> Sum<Vec<u64>> {
    Sum(vec![call << 8 | 1 << rank])
}

fn total(session: &Session, call: u64) -> Sum<Vec<u64>> {
    Sum(vec![u64::from(session.size()) * (call << 8) + (1 << session.size()) - 1])
}

/// One name, called again and again.
async fn a_loop(session: Session) -> everfold::Result<()> {
    for call in 0..500 {
        let value = session.allreduce("loop", share(session.rank().0, call)).await?.value;
        assert_eq!(value, total(&session, call));
    }
    Ok(())
}

/// Computes before some of the calls, or waits in another way, so that now this thread and now that one hears
/// the master.
async fn a_loop_with_pauses(session: Session) -> everfold::Result<()> {
    let me = session.rank().0;
    for call in 0..600 {
        let future = session.allreduce("loop", share(me, call)).start()?;
        match (call + 7 * u64::from(me)) % 11 {
            0 => tokio::time::sleep(Duration::from_micros(900)).await,
            pause @ 1..4 => {
                let until = Instant::now() + Duration::from_micros(500 * pause);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
            _ => {}
        }
        let outcome = if call % 5 == 0 { future.get()? } else { future.await? };
        assert_eq!(outcome.value, total(&session, call));
    }
    Ok(())
}

async fn a_loop_started_at_once(session: Session) -> everfold::Result<()> {
    let start = |call| session.reduce("loop", share(session.rank().0, call)).root(3).start();
    let started: Vec<_> = (0..500).map(start).collect::<Result<_, _>>()?;
    for (call, future) in started.into_iter().enumerate().rev() {
        let value = future.await?.value;
        assert_eq!(value, (session.rank() == 3).then(|| total(&session, call as u64)));
    }
    Ok(())
}

/// Calls are counted per name, so ranks may call different names in different orders.
async fn two_names_interleaved(session: Session) -> everfold::Result<()> {
    let names = if session.rank().0.is_multiple_of(2) { ["left", "right"] } else { ["right", "left"] };
    let start = |name: &'static str, call: u64| {
        let call = if name == "left" { call } else { call + 1000 };
        let future = session.allreduce(name, share(session.rank().0, call)).start();
        future.map(|future| (call, future))
    };
    let mut started = Vec::new();
    for call in 0..100 {
        started.push(start(names[0], call)?);
        if call % 5 == 4 {
            for late in call - 4..=call {
                started.push(start(names[1], late)?);
            }
        }
    }
    for (call, future) in started {
        assert_eq!(future.await?.value, total(&session, call));
    }
    Ok(())
}

async fn a_dropped_future_counts(session: Session) -> everfold::Result<()> {
    for call in 0..20 {
        let future = session.reduce("dropped", share(session.rank().0, call)).start()?;
        if session.rank().0 % 2 == 1 {
            drop(future);
        } else {
            let value = future.await?.value;
            assert_eq!(value, (session.rank() == 0).then(|| total(&session, call)));
        }
        // Also where the result would have arrived, and in windows.
        let long = session.allreduce("dropped and long", Sum(vec![1.0; 50_000])).start()?;
        if session.rank() == 1 {
            let Sum(sums) = long.await?.value;
            assert!(sums.iter().all(|&sum| sum == 4.0));
        } else {
            drop(long);
        }
    }
    Ok(())
}

/// A call that is neither awaited nor started has not been made.
async fn a_dropped_call_does_not_count(session: Session) -> everfold::Result<()> {
    if session.rank() == 1 {
        drop(session.allreduce("name", share(1, 99)));
    }
    let value = session.allreduce("name", share(session.rank().0, 1)).await?.value;
    assert_eq!(value, total(&session, 1));
    Ok(())
}

/// Futures of reductions need no particular runtime, nor the thread that made them.
async fn waiting_without_a_runtime(session: Session) -> everfold::Result<()> {
    let me = session.rank().0;
    let get = session.allreduce("get", share(me, 1)).start()?;
    assert_eq!(get.get()?.value, total(&session, 1));
    let elsewhere = session.clone();
    let thread = std::thread::spawn(move || {
        let future = elsewhere.allreduce("thread", share(me, 2)).start()?;
        futures::executor::block_on(future)
    });
    let moved = session.allreduce("moved", share(me, 3)).start()?;
    let moved = std::thread::spawn(move || moved.get());
    assert_eq!(thread.join().unwrap()?.value, total(&session, 2));
    assert_eq!(moved.join().unwrap()?.value, total(&session, 3));
    let spawned = tokio::spawn(session.allreduce("spawned", share(me, 4)).start()?);
    assert_eq!(spawned.await.unwrap()?.value, total(&session, 4));
    Ok(())
}

/// Threads may call one name at once. Nobody can say which call is which then, so they all say the same.
async fn one_name_from_many_threads(session: Session) -> everfold::Result<()> {
    let calls = |session: Session| {
        for _ in 0..300 {
            let value = session.allreduce("name", Sum(vec![1u8])).start()?.get()?.value;
            assert_eq!(value, Sum(vec![3]));
        }
        Ok::<(), ReduceError>(())
    };
    let threads = [(); 4].map(|()| {
        std::thread::spawn({
            let session = session.clone();
            move || calls(session)
        })
    });
    threads.into_iter().try_for_each(|thread| thread.join().unwrap())?;
    Ok(())
}

/// `is_done` tells the truth although nobody polls: not before all have contributed, and in the end.
async fn done_without_being_polled(session: Session) -> everfold::Result<()> {
    for long in [false, true] {
        let body = || Sum(vec![1u32; if long { 1_000_000 } else { 1 }]);
        let start = || session.allreduce("watched", body()).start();
        let early = if session.rank() == 1 { None } else { Some(start()?) };
        if let Some(future) = &early {
            assert!(!future.is_done(), "rank 1 has not even been called");
        }
        session.allreduce("go", Sum(vec![1u8])).await?;
        let future = match early {
            Some(future) => future,
            None => start()?,
        };
        wait_until("the reduction is done", || future.is_done());
        let Sum(sums) = future.now_or_never().expect("what is done can be taken")?.value;
        assert!(sums.iter().all(|&sum| sum == 3));
    }
    Ok(())
}

/// Waits for the end of a call that cannot be made any more, in each way.
async fn refused(start: impl Fn() -> Result<ReduceFuture<Sum<Vec<u8>>>, ReduceError>) {
    let closed = |ended| matches!(ended, Err(ReduceError::SessionClosed));
    match start() {
        Err(error) => assert!(closed(Err(error))),
        Ok(future) => {
            assert!(closed(future.await.map(drop)));
            assert!(closed(start().unwrap().get().map(drop)));
            let future = start().unwrap();
            wait_until("a call that is over is done", || future.is_done());
            assert!(closed(future.await.map(drop)));
        }
    }
}

async fn after_closing(session: Session) -> everfold::Result<()> {
    session.allreduce("before", share(session.rank().0, 0)).await?;
    session.close().await;
    refused(|| session.allreduce("after", Sum(vec![1])).start()).await;
    session.close().await;
    Ok(())
}

async fn closing_waits_for_what_was_called(session: Session) -> everfold::Result<()> {
    let future = session.allreduce("late", Sum(vec![1.5; 100_000])).deadline(Duration::from_secs(3600));
    if session.rank() == 2 {
        session.allreduce("the others are about to close", Sum(vec![1u8])).await?;
        assert!(future.await?.value.0.iter().all(|&sum| sum == 4.5));
    } else {
        let future = future.start()?;
        let others = session.allreduce("the others are about to close", Sum(vec![1u8])).start()?;
        session.close().await;
        assert!(future.is_done() && others.is_done());
        assert!(future.await?.value.0.iter().all(|&sum| sum == 4.5));
    }
    Ok(())
}
