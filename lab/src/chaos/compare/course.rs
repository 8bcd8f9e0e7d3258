//! What the events of a run say of its course: pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use everfold::{News, Rank, launch::JobEvent};
use serde::Serialize;

use crate::{EventLine, cluster::Host};

/// How a run has met its faults.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Course {
    /// Processes that were started again where an earlier one of their rank was.
    pub restarts: usize,
    /// Processes that were started on another host than the earlier one of their rank.
    pub migrations: usize,
    /// Standbys that took the places of their ranks' processes.
    pub promotions: usize,
    /// How often all ranks went back to a checkpoint.
    pub rollbacks: usize,
    /// Ranks that had failed and were not back in the end.
    pub lost: usize,
    /// For how long ranks did again what was done before, in seconds, added up over ranks. Of a rank that dies once more
    /// before it is where it was, only the last time counts. At a rollback it is the time since its checkpoint, for
    /// each rank.
    pub again_s: f64,
    /// For how long ranks took replicas over from other hosts, in seconds, added up over ranks.
    pub transfer_s: f64,
    /// For how long ranks read checkpoints, in seconds, added up over ranks.
    pub load_s: f64,
}

impl Course {
    /// Reads what each host of a job of `ranks` ranks has told. The job began at that moment, in milliseconds since 1970.
    pub fn of(lines: Vec<(Host, EventLine)>, ranks: u32, began_unix_ms: u64) -> Self {
        let mut lines = lines;
        lines.sort_by_key(|(_, line)| line.at_unix_ms);
        let mut course = Self::default();
        let (mut places, mut away) = (BTreeMap::<Rank, Host>::new(), BTreeSet::<Rank>::new());
        let mut standbys = BTreeMap::<Rank, Host>::new();
        for (host, EventLine { at_unix_ms, event, .. }) in lines {
            match event {
                JobEvent::Started { process, stands_by: true, .. } => {
                    standbys.insert(process.rank, host);
                }
                JobEvent::News(News::Promoted { rank, .. }) => {
                    course.promotions += 1;
                    if let Some(host) = standbys.remove(&rank) {
                        places.insert(rank, host);
                    }
                }
                JobEvent::Started { process, .. } => {
                    let before = places.insert(process.rank, host);
                    match before.filter(|_| process.incarnation.0 > 0) {
                        Some(before) if before == host => course.restarts += 1,
                        Some(_) => course.migrations += 1,
                        None => {}
                    }
                }
                // Each host tells that of its own ranks.
                JobEvent::RolledBack { to } if host == Host(0) => {
                    course.rollbacks += 1;
                    away.clear();
                    let since_ms = to.map_or(began_unix_ms, |to| to.saved_unix_ms);
                    let again = Duration::from_millis(at_unix_ms.saturating_sub(since_ms));
                    course.again_s += again.as_secs_f64() * f64::from(ranks);
                }
                JobEvent::News(News::Failed { rank, .. }) => drop(away.insert(rank)),
                JobEvent::News(News::Returned { rank, .. }) => drop(away.remove(&rank)),
                JobEvent::News(News::CaughtUp { comeback, .. }) => {
                    course.again_s += comeback.again.as_secs_f64();
                    course.transfer_s += comeback.transfer.as_secs_f64();
                    course.load_s += comeback.load.as_secs_f64();
                }
                _ => {}
            }
        }
        course.lost = away.len();
        course
    }
}

#[cfg(test)]
mod tests {
    use everfold::{Evidence, launch::Complete};
    use everfold_protocol::{Incarnation, ProcessId, message::Comeback};

    use super::*;

    fn started(rank: u32, incarnation: u32) -> JobEvent {
        let process = ProcessId { rank: Rank(rank), incarnation: Incarnation(incarnation) };
        JobEvent::Started { process, pid: 1, stands_by: false }
    }

    fn failed(rank: u32) -> JobEvent {
        JobEvent::News(News::Failed { rank: Rank(rank), evidence: Evidence::Disconnected })
    }

    fn returned(rank: u32) -> JobEvent {
        JobEvent::News(News::Returned { rank: Rank(rank), incarnation: Incarnation(1) })
    }

    fn caught_up(rank: u32, again_ms: u64) -> JobEvent {
        let ms = Duration::from_millis;
        let comeback = Comeback { transfer: ms(20), load: ms(10), again: ms(again_ms) };
        JobEvent::News(News::CaughtUp { rank: Rank(rank), lost: ms(500), comeback })
    }

    fn course(events: Vec<(u64, u32, JobEvent)>) -> Course {
        let line =
            |(at_unix_ms, host, event)| (Host(host), EventLine { at_unix_ms, text: String::new(), event });
        Course::of(events.into_iter().map(line).collect(), 2, 10_000)
    }

    #[test]
    fn restarts_migrations_and_lost_ranks_are_told_apart() {
        let course = course(vec![
            (1, 0, started(0, 0)),
            (3, 0, failed(1)),
            (5, 0, returned(1)),
            (6, 0, caught_up(1, 250)),
            (7, 0, failed(1)),
            (9, 0, returned(1)),
            (10, 0, failed(0)),
            (11, 0, caught_up(1, 50)),
            // Of the other host, which has a file of its own.
            (2, 1, started(1, 0)),
            (4, 1, started(1, 1)),
            (8, 0, started(1, 2)),
        ]);
        assert_eq!((course.restarts, course.migrations, course.rollbacks, course.lost), (1, 1, 0, 1));
        assert!((course.again_s - 0.3).abs() < 1e-9 && (course.transfer_s - 0.04).abs() < 1e-9, "{course:?}");
    }

    #[test]
    fn a_standby_counts_once_it_has_taken_its_place() {
        let stands_by = |rank| JobEvent::Started {
            process: ProcessId { rank: Rank(rank), incarnation: Incarnation(1) },
            pid: 1,
            stands_by: true,
        };
        let promoted = JobEvent::News(News::Promoted { rank: Rank(1), at: String::new() });
        let course = course(vec![
            (1, 0, started(0, 0)),
            (1, 0, started(1, 0)),
            (2, 1, stands_by(1)),
            (2, 1, stands_by(0)),
            (3, 0, failed(1)),
            (4, 0, promoted),
            (5, 0, returned(1)),
            (6, 0, failed(1)),
            // On the host of the standby.
            (7, 1, started(1, 2)),
            (8, 0, returned(1)),
        ]);
        assert_eq!((course.restarts, course.migrations, course.promotions, course.lost), (1, 0, 1, 0));
    }

    #[test]
    fn at_a_rollback_all_ranks_do_again_what_was_not_saved() {
        let back = |saved_unix_ms: Option<u64>| {
            let to = saved_unix_ms.map(|saved_unix_ms| Complete { generation: 1, saved_unix_ms });
            JobEvent::RolledBack { to }
        };
        let course = course(vec![
            (10_100, 0, started(0, 0)),
            (10_100, 1, started(1, 0)),
            (13_000, 0, failed(1)),
            (13_000, 0, back(None)),
            (13_000, 1, back(None)),
            (13_100, 0, started(0, 0)),
            (13_100, 1, started(1, 0)),
            (20_000, 0, back(Some(15_000))),
        ]);
        assert_eq!((course.restarts, course.migrations, course.rollbacks, course.lost), (0, 0, 2, 0));
        assert!((course.again_s - 2.0 * (3.0 + 5.0)).abs() < 1e-9, "{course:?}");
    }
}
