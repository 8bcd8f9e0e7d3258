//! The deciding part of everfold: which partials meet where (DR §2).
//!
//! [`Master`] is a pure machine. It takes [`Event`]s and time and gives back [`Action`]s; sockets, clocks and
//! processes stand behind whoever drives it: `everfold::host` in a real job, `everfold-sim` in a simulated one.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`] | which event means what |
//! | [`reduction`] | the state of one reduction and its exactly-once bookkeeping (I1) |
//! | [`recovery`] | what a death does to a reduction |
//! | [`queue`] | partials of one segment that wait for a partner, in order of arrival or by neighbourhood |
//! | [`pairing`] | which of the partners executes: a pure function |
//! | [`lane`] | what one worker is busy with, and its smoothed perf counters |
//! | [`membership`] | who is in the job, and which messages are stale |
//! | [`policy`] | sizes and depths the scheduler works with |
//!
//! Deliberately absent: payloads. Only inlined bodies pass through, unread.

pub mod event;
pub mod lane;
pub mod machine;
pub mod membership;
pub mod pairing;
pub mod policy;
pub mod queue;
pub mod recovery;
pub mod reduction;

pub use event::{Action, Event, Notice};
pub use machine::Master;
pub use policy::Policy;
