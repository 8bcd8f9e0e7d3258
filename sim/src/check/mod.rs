//! Random worlds: safety after every event, and in the end every future.
//!
//! A [`Schedule`] is everything that a run does, as plain data: [`draw`] makes it from a seed, [`run`]
//! executes it and [`shrink`] makes a smaller one that goes wrong in the same way.
//!
//! What has to hold:
//! - after every event the master's invariants (`everfold_master::Master::check`), and in the worlds
//!   themselves that futures end once and nothing is called lost that somebody holds;
//! - in the end, when all faults are over, that every future has ended, for a reason that the schedule gives;
//!   that a value is the fold of exactly those contributions which its report claims, each once, in order
//!   where operands do not commute; that ranks to which nothing happened agree; and that everyone can leave
//!   and nothing is left open;
//! - of ranks that come back, that a call which is made again ends as it has ended before, and that deaths
//!   cost nothing but time where all come back;
//! - where a process ends before it joins, that no job begins, and that nobody waits for it;
//! - of recovery segments, that each index counts once, and that all ranks come to the same;
//! - of replicas, that nothing is called lost that a known copy holds, that reports say the truth about
//!   protection, and that only those copies are ordered that the rules call for.
//!
//! | module | holds |
//! |---|---|
//! | `schedule` | the plain data |
//! | `draw` | schedules from seeds |
//! | `shapes` | worlds of rarer shapes |
//! | `execute` | a run from beginning to end |
//! | `suspects` | who had to do with what went wrong, from when on |
//! | `patience` | how long a call may take |
//! | `judge` | what has to hold in the end |
//! | `needless` | what must not have been done in vain |
//! | `protection` | what has to hold of replicas |
//! | `consistency` | what all calls of one reduction have to agree on, and when deadlines end them |
//! | `early` | what comes of processes that end before they join |
//! | `returning` | what comes of ranks that come back |
//! | `segments` | what comes of recovery segments |
//! | `reach` | what nobody may miss who could have read it |
//! | `violation` | what does not hold |
//! | `tally` | what was drawn, and what became of it |
//! | `shrink` | smaller schedules that fail in the same way |

mod consistency;
mod draw;
mod early;
mod ends;
mod execute;
mod judge;
mod needless;
mod patience;
mod protection;
mod reach;
mod returning;
mod schedule;
mod segments;
mod shapes;
mod shrink;
mod suspects;
mod tally;
mod violation;

pub use draw::draw;
pub use execute::{Ran, run, run_told};
pub use schedule::{
    Body, CallAt, EarlyEnd, Fault, Leave, Pacing, Pieces, Planned, PlannedSegment, Receiver, Returning,
    Schedule, Trouble,
};
pub use shrink::{Shrunk, shrink};
pub use tally::Tally;
pub use violation::Violation;
