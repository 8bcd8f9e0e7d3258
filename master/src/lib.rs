//! The deciding part of everfold: which partials meet where (DR §2).
//!
//! [`Master`] is a pure machine. It takes [`Event`]s and time and gives back [`Action`]s; sockets, clocks and
//! processes stand behind whoever drives it: `everfold_runtime::master` in a real job, `everfold-sim` in a
//! simulated one.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`] | which event means what, and what follows for the job |
//! | [`deputy`] | the master of a team |
//! | `agents` | which agents are here, and whose memory they hold |
//! | [`coordinator`] | the master and the clerk of the board, in the order in which the master hears of both |
//! | [`intake`] | how much is taken in before a look at the timers |
//! | `desk` | what all rules of a job work with |
//! | `timers` | what is due when |
//! | `outbox` | what is to be done, in order |
//! | [`membership`] | who is in the job, and which messages are stale |
//! | `liveness` | who is heard, and who is silent |
//! | `refusals` | what ranks hear that call a reduction after it was refused |
//! | `remains` | how long the memory of the dead stays mapped |
//! | `replicas` | which agents have replicas of which ranks' vaults |
//! | `standbys` | which processes follow others of their ranks |
//! | `by_rank` | something for each rank, found in the same time however many there are |
//! | `dissolved` | attempts in teams that were dissolved, and who was told |
//! | `scheduler` | who is given which task, and when |
//! | [`condense`] | folds what travels inlined, where each receiver would otherwise |
//! | [`located`] | which components are known to be faulty, and between which hosts reads are slow for it |
//! | [`lane`] | what one worker is busy with, and its smoothed perf counters |
//! | `pace` | how long the application's own operations take |
//! | `listing` | which segments wait, for whom, and under what they are found |
//! | `crowd` | which segments wait for whom while many reductions are open |
//! | [`reduction`] | the state of one reduction and its exactly-once bookkeeping (I1) |
//! | [`task`] | a task, from its grant to its answer |
//! | [`queue`] | partials of one segment that wait for a partner, in order of arrival or in the fixed order |
//! | [`recovery`] | what is done about processes that die where ranks come back |
//! | `handout` | who copies a result, who has it, and who lends it |
//! | `apart` | who does not reach whose memory |
//! | `tries` | for how long something was tried in vain, and when it is tried again |
//! | `keepers` | who keeps whose copy, and who does if that fails |
//! | [`placement`] | on whom copies are placed |
//! | [`policy`] | sizes and depths the scheduler works with |
//!
//! Deliberately absent: payloads. Only inlined bodies pass through. The driver may give a function that folds
//! them.

// The compiler proves it pure. Tests may use more.
#![cfg_attr(not(test), no_std)]

#[macro_use]
extern crate alloc;

mod agents;
mod apart;
mod by_rank;
pub mod condense;
pub mod coordinator;
mod crowd;
pub mod deputy;
mod desk;
mod dissolved;
pub mod event;
mod handout;
pub mod intake;
mod keepers;
pub mod lane;
mod lengths;
mod listing;
mod liveness;
pub mod located;
pub mod machine;
pub mod membership;
mod outbox;
mod outcomes;
mod pace;
mod pipeline;
pub mod placement;
pub mod policy;
pub mod queue;
pub mod recovery;
pub mod reduction;
mod refusals;
mod remains;
mod replicas;
mod scheduler;
mod standbys;
pub mod task;
mod timers;
mod tries;

pub use coordinator::Coordinator;
pub use deputy::Deputy;
pub use event::{Action, Event, Notice};
pub use intake::Intake;
pub use machine::Master;
pub use policy::Policy;
