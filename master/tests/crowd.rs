//! Many reductions at once: what waits is done by whoever has room.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Job, spec, tasks};
use everfold_master::Policy;
use everfold_protocol::{Rank, ReductionId, spec::Delivery};

/// Many owners of partials of a segment are busy, and the one that has waited longest has room first.
#[test]
fn the_owner_that_has_room_first_goes_on_however_many_wait() {
    for crowd_from in [0, usize::MAX] {
        let policy = Policy {
            crowd_from,
            lane_bytes: 1,
            lane_reads_min: 1,
            segment_bytes_min: 1 << 20,
            ..Policy::default()
        };
        let mut job = Job::new(40, policy);
        let owners = 1..20;
        // Each works for itself, with a partner of its own.
        let mut busy = Vec::new();
        for owner in owners.clone() {
            let id = ReductionId { name: 1000 + u64::from(owner), sequence: 0 };
            let own = spec(&[owner, owner + 20], Delivery::Root(Rank(owner)));
            job.call(owner + 20, id, &own);
            busy.extend(tasks(&job.call(owner, id, &own)));
        }
        assert_eq!(busy.len(), owners.len());
        let all: Vec<u32> = (0..20).collect();
        let id = ReductionId { name: 1, sequence: 0 };
        for owner in owners {
            let said = job.call(owner, id, &spec(&all, Delivery::All));
            assert!(tasks(&said).is_empty(), "all are busy");
        }
        // Each takes the partial of the one behind it.
        for (owner, task) in busy.into_iter().step_by(2).take(5) {
            let given = tasks(&job.answer(owner, &task));
            let given: Vec<_> = given.iter().map(|(to, task)| (*to, task.segment.reduction)).collect();
            assert_eq!(given, [(owner, id)], "rank {owner} has room, crowds from {crowd_from} on");
        }
    }
}
