//! Measures reductions, breaks them, and draws what the simulator says of clusters that are not at hand.
//!
//! | to | see |
//! |---|---|
//! | measure reductions on this machine, and beside MPI | [`mod@bench`] |
//! | make processes, networks and disks fail, and see what comes of it | [`Chaos`] |
//! | tell where a program should take checkpoints | [`Plan`] |
//! | draw the paper's figures, and simulate more ranks than there are machines | [`sim`] |
//!
//! The `everfold` command offers all of it. What both need is here, too: output ([`mod@say`]), failures
//! ([`Failure`]), sizes ([`size`]) and interrupts ([`interrupts`]).
//!
//! Deliberately absent: rules. What has to hold in random worlds is in `everfold_sim`.

#[macro_use]
pub mod say;

pub mod bench;
mod chaos;
mod children;
mod clock;
mod cluster;
mod events;
mod failure;
mod files;
pub mod interrupts;
mod machine;
mod meeting;
pub mod plan;
mod progress;
mod scratch;
pub mod sim;
pub mod size;
mod transport;

pub use self::{
    chaos::Chaos, cluster::hosts_unavailable, events::EventLine, failure::Failure, plan::Plan,
    transport::Transport,
};

/// Leaves the rest of a test out, as the machine or the user's rights do not allow it. With
/// EVERFOLD_TESTS_SKIP_NOTHING=1 the test fails instead.
#[cfg(test)]
fn leave_out(why: impl std::fmt::Display) {
    let must_run = std::env::var_os("EVERFOLD_TESTS_SKIP_NOTHING").is_some_and(|value| value == "1");
    assert!(!must_run, "this test cannot run here: {why}");
    println!("skipped: {why}");
}
