//! Progress inside a share, and shares of slow ranks: what a dead rank had folded counts once, and nothing is
//! folded twice for the sake of balance.

use std::{ops::Range, time::Duration};

use everfold::{Folded, Order, Rank, SegmentReport, Session};

use crate::{
    hosts::{kill_victim, two_hosts},
    process::{Process, job},
    segments::{Seen, die, wait_for_death},
    suite::{Suite, TRANSPORTS},
};

pub(crate) fn add_to(suite: &mut Suite) {
    let salvaged = "progress::what_a_dead_rank_had_folded_counts";
    suite.program(salvaged, dies_in_its_share);
    for transport in TRANSPORTS {
        suite.test(format!("{salvaged}::{transport}"), move || {
            Process::spawn(job(salvaged, 4, transport)).end().assert_ended(137, [0, 1, 3]);
        });
    }
    let host = "progress::it_outlives_all_processes_of_a_host";
    suite.program(host, two_die);
    suite.test(host, move || two_hosts(host, None, &[0, 1]));
    let agent = "progress::it_goes_with_its_host";
    suite.program(agent, a_host_dies);
    suite.test(agent, move || two_hosts(agent, Some(1), &[0, 1]));
    suite.job("progress::a_slow_rank_is_relieved", 4, slow);
    suite.job("progress::without_balance_a_slow_rank_folds_its_share", 4, unrelieved);
    suite.program("progress::one_dies_and_one_is_slow", dead_and_slow);
    for transport in TRANSPORTS {
        suite.test(format!("progress::one_dies_and_one_is_slow::{transport}"), move || {
            let died = Process::spawn(job("progress::one_dies_and_one_is_slow", 4, transport)).end();
            died.assert_ended(137, [0, 2, 3]);
        });
    }
}

const INDICES: Range<u64> = 0..400;

/// What all indices have to be.
fn check(Folded { mut value, report }: Folded<Seen>) -> SegmentReport {
    value.indices.sort_unstable();
    assert_eq!(value.indices, INDICES.collect::<Vec<_>>(), "{report}");
    let computed: u64 = report.computed.iter().map(|(_, indices)| indices).sum();
    assert_eq!(computed, INDICES.end, "{report}");
    report
}

/// Ranks of `dead` die when they have folded this many of their 100 indices, one in each grain.
async fn segment(session: &Session, dead: impl Fn(Rank) -> Option<u64>) -> everfold::Result<SegmentReport> {
    let mut folded = 0;
    let dies_at = dead(session.rank());
    let all = session.segment("all", INDICES).grain(1).progress(10).fold(|indices| {
        if Some(folded) == dies_at {
            die();
        }
        folded += 1;
        Seen::of(0, indices)
    });
    Ok(check(all.await?))
}

async fn dies_in_its_share(session: Session) -> everfold::Result<()> {
    let report = segment(&session, |rank| (rank == 2).then_some(57)).await?;
    assert_eq!((report.salvaged, report.again), (50, 50), "{report}");
    assert!(report.computed.contains(&(Rank(2), 50)), "{report}");
    assert_eq!(report.rounds.len(), 3, "one folds, one reads what was left, one folds the rest");
    Ok(())
}

async fn two_die(session: Session) -> everfold::Result<()> {
    let report = segment(&session, |rank| [None, None, Some(31), Some(99)][rank.index()]).await?;
    assert_eq!((report.salvaged, report.again), (30 + 90, 200 - 120), "{report}");
    Ok(())
}

/// Ranks 2 and 3 die with their agent, in the middle of their shares.
async fn a_host_dies(session: Session) -> everfold::Result<()> {
    let mut folded = 0;
    let me = session.rank();
    let all = session.segment("all", INDICES).grain(1).progress(10).fold(|indices| {
        folded += 1;
        // The round ends when both have died: nobody looks for their progress before.
        if me == 3 && folded == 50 {
            kill_victim().unwrap();
        }
        if me.0 > 1 && folded == 50 {
            die();
        }
        Seen::of(0, indices)
    });
    let all = async { Ok::<_, everfold::Error>(all.await?) };
    let report = check(all.await?);
    assert_eq!((report.salvaged, report.again), (0, 200), "{report}");
    Ok(())
}

/// Rank 2 takes longer for a grain than the others.
fn fold(session: &Session, slow_ms: u64, indices: Range<u64>) -> Seen {
    let pause = if session.rank() == 2 { 1000 * slow_ms } else { 100 };
    std::thread::sleep(Duration::from_micros(pause));
    Seen::of(0, indices)
}

fn of_slow(report: &SegmentReport) -> u64 {
    report.computed.iter().find(|(rank, _)| *rank == 2).map_or(0, |(_, indices)| *indices)
}

async fn slow(session: Session) -> everfold::Result<()> {
    for order in [Order::Arrival, Order::Fixed] {
        let all = session.segment("all", INDICES).grain(1).order(order).balance();
        let report = check(all.fold(|indices| fold(&session, 40, indices)).await?);
        assert!(of_slow(&report) < 50, "{report}");
        assert_eq!((report.again, report.lost.is_empty()), (0, true), "{report}");
    }
    Ok(())
}

async fn unrelieved(session: Session) -> everfold::Result<()> {
    let all = session.segment("all", INDICES).grain(1);
    let report = check(all.fold(|indices| fold(&session, 2, indices)).await?);
    assert_eq!((of_slow(&report), report.relieved, report.rounds.len()), (100, 0, 1), "{report}");
    Ok(())
}

/// Rank 1 dies in a balanced segment of which rank 2 does less than the others.
async fn dead_and_slow(session: Session) -> everfold::Result<()> {
    let mut folded = 0;
    let all = session.segment("all", INDICES).grain(1).balance().progress(1).fold(|indices| {
        folded += 1;
        if session.rank() == 1 && folded == 20 {
            die();
        }
        fold(&session, 40, indices)
    });
    let report = check(all.await?);
    assert_eq!((report.lost.contains(Rank(1)), report.lost.len()), (true, 1), "{report}");
    assert!(report.salvaged > 0 && of_slow(&report) < 50, "{report}");
    wait_for_death(&session, Rank(1)).await;
    Ok(())
}
