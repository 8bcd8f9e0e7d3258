//! Calls that come long after their reduction was refused.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{Job, spec};
use everfold_master::Policy;
use everfold_protocol::{
    ReductionId,
    message::ToWorker,
    report::Refusal,
    spec::{Delivery, Limits},
};

#[test]
fn a_late_rank_hears_that_its_calls_are_over_however_many_there_were() {
    // Ranks that do not answer pings would be given up.
    let limits = Limits { ping_interval: Duration::ZERO, ..Limits::default() };
    let mut job = Job::new(3, Policy { limits, ..Policy::default() });
    let spec = everfold_protocol::ReductionSpec {
        deadline: Some(Duration::from_millis(1)),
        ..spec(&[0, 1, 2], Delivery::All)
    };
    let id = |sequence| ReductionId { name: 1, sequence };
    for sequence in 0..5000 {
        for rank in [0, 1] {
            job.call(rank, id(sequence), &spec);
        }
        while job.master.reductions().next().is_some() {
            job.wait();
        }
    }
    for sequence in 0..5000 {
        let said = job.call(2, id(sequence), &spec);
        assert!(matches!(said.as_slice(), [(2, ToWorker::Refused { .. })]), "call {sequence}: {said:?}");
        let is_over = matches!(said[0].1, ToWorker::Refused { refusal: Refusal::Over, .. });
        assert_eq!(is_over, sequence < 5000 - 4096, "call {sequence}");
        assert_eq!(job.master.reductions().count(), 0);
    }
    job.call(2, id(5000), &spec);
    assert_eq!(job.master.reductions().count(), 1, "the next one begins");
}
