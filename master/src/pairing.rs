//! Which of the partners executes a task.

use everfold_protocol::Rank;

use crate::{lane::Lane, queue::Ready};

/// Index of the partial whose owner folds the others into it (DR-6 step 4); `None` if no owner can.
///
/// The root, if its partial is among them: the result has to arrive there. Otherwise whoever is expected to be done
/// first by its smoothed rate and by what it has to do already; the paper's rule, the shorter most recent task,
/// is this rule for workers without a backlog. Of equals the one that arrived last, whose data is the warmest.
pub fn executor(
    partials: &[Ready],
    root: Option<Rank>,
    bytes: u64,
    lanes: &[Lane],
    can_execute: impl Fn(&Ready) -> bool,
) -> Option<usize> {
    // Nobody but the root holds the root's contribution.
    if let Some(at_root) =
        partials.iter().position(|ready| root.is_some_and(|root| ready.path.contains(root)))
    {
        return Some(at_root);
    }
    let expected = |ready: &Ready| lanes[ready.process.rank.index()].expected_ns(bytes);
    let able = partials.iter().enumerate().rev().filter(|(_, ready)| can_execute(ready));
    able.min_by_key(|(_, ready)| expected(ready)).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{
        Path, ProcessId,
        message::{Data, TaskCounters},
    };

    use super::*;

    fn partials(ranks: &[u32]) -> Vec<Ready> {
        let ready = |&rank| Ready {
            process: ProcessId::first(rank),
            path: Path::single(Rank(rank)),
            data: Data::Private,
        };
        ranks.iter().map(ready).collect()
    }

    fn lanes(task_ns: &[u64]) -> Vec<Lane> {
        let lane = |&task_ns: &u64| {
            let mut lane = Lane::default();
            if task_ns > 0 {
                lane.observe(1 << 20, &TaskCounters { task_ns, ..TaskCounters::default() });
            }
            lane
        };
        task_ns.iter().map(lane).collect()
    }

    #[test]
    fn the_dead_execute_nothing() {
        let alive = |rank| move |ready: &Ready| ready.process.rank == rank;
        let partials = partials(&[0, 1, 2]);
        let lanes = lanes(&[1000; 4]);
        assert_eq!(executor(&partials, None, 1, &lanes, alive(1)), Some(1));
        assert_eq!(executor(&partials, None, 1, &lanes, alive(3)), None);
    }

    #[test]
    fn table() {
        let even = [1000; 4];
        let mut busy = lanes(&even);
        busy[3].grant(1 << 20);
        type Case<'a> = (&'a str, &'a [u32], Option<u32>, Vec<Lane>, u32);
        let cases: [Case<'_>; 6] = [
            ("the root takes it, however slow", &[0, 1], Some(1), lanes(&[1000, 9000, 0, 0]), 1),
            ("the faster takes it", &[0, 3], Some(1), lanes(&[9000, 0, 0, 1000]), 3),
            ("whichever place it has", &[3, 0], Some(1), lanes(&[9000, 0, 0, 1000]), 3),
            ("of equals the later", &[0, 3], Some(1), lanes(&even), 3),
            ("a backlog counts", &[0, 3], None, busy, 0),
            ("three may meet", &[0, 2, 3], None, lanes(&[900, 100, 500, 900]), 2),
        ];
        for (what, ranks, root, lanes, expected) in cases {
            let partials = partials(ranks);
            let index = executor(&partials, root.map(Rank), 1 << 20, &lanes, |_| true).unwrap();
            assert_eq!(partials[index].process.rank, expected, "{what}");
        }
    }
}
