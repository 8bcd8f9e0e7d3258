//! The deciding part of everfold: which partials meet where (DR §2).
//!
//! [`Master`] is a pure machine. It takes [`Event`]s and time and gives back [`Action`]s. Its driver has the
//! sockets, clocks and processes: `everfold_runtime::master` in a real job, `everfold-sim` in a simulated
//! one.
//!
//! | module | holds |
//! |---|---|
//! | [`event`] | events that go in, actions that come out, and notices for watchers |
//! | [`machine`] | which event means what, and what follows for the job |
//! | [`deputy`] | the master of a team |
//! | `agents` | which agents are here, and whose memory they hold |
//! | [`coordinator`] | the master and the clerk of the board, in the order in which the master hears of both |
//! | [`intake`] | how much is taken in before a look at the timers |
//! | `desk` | the data that all rules of a job use |
//! | `timers` | due times |
//! | `outbox` | actions, in order |
//! | [`membership`] | the ranks in the job, and which messages are stale |
//! | `liveness` | which ranks and agents are heard, and which are silent |
//! | `refusals` | refusals for ranks that call a reduction after it was refused |
//! | `remains` | how long the memory of the dead stays mapped |
//! | `replicas` | which agents have replicas of which ranks' vaults |
//! | `standbys` | which processes follow others of their ranks |
//! | `by_rank` | an entry for each rank, found in the same time however many there are |
//! | `dissolved` | attempts in teams that were dissolved, and the ranks that were told |
//! | `scheduler` | which worker is given which task, and when |
//! | [`condense`] | folds inlined bodies, where each receiver would have to otherwise |
//! | `lengths` | how long segments are, and which long bodies come inlined, learnt from earlier reductions |
//! | [`located`] | which components are known to be faulty, and between which hosts reads are slow for it |
//! | [`lane`] | the tasks of one worker, and its smoothed perf counters |
//! | `pace` | how long the application's own operations take |
//! | `listing` | which segments wait for which workers, and how they are found |
//! | `crowd` | which segments wait for whom while many reductions are open |
//! | [`reduction`] | the state of one reduction and its exactly-once bookkeeping (I1) |
//! | [`task`] | a task, from its grant to its answer |
//! | [`queue`] | partials of one segment that wait for a partner, in order of arrival or in the fixed order |
//! | [`recovery`] | which recovery meets which death, where ranks come back |
//! | `handout` | the ranks that copy a result, have it, or lend it |
//! | `pipeline` | which rank reads which part of a long piece from which host, and when |
//! | `outcomes` | how reductions have ended, until all ranks have noted that, where ranks come back |
//! | `apart` | which readers do not reach which owners |
//! | `tries` | how long a step was tried in vain, and when it is tried again |
//! | `keepers` | which process keeps which copy, and which one does if that fails |
//! | [`placement`] | the processes on which copies are placed |
//! | [`policy`] | sizes and depths of the scheduler |
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
