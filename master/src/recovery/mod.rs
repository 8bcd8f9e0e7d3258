//! Recoveries of processes that die, where ranks come back (FR-2, FR-3).
//!
//! | module | holds |
//! |---|---|
//! | [`choice`] | which recovery a user has chosen for which fault |
//! | [`rollback`] | how often all ranks go back together |
//! | `starts` | processes that are on their way in place of others |
//! | `own` | detectors that a programmer adds, which are asked first |
//! | `detectors` | the built-in ones: which fault a death is a sign of, and what follows from the choice |

pub mod choice;
mod detectors;
mod own;
pub mod rollback;
mod starts;

pub use choice::{Chain, LocatedFaults, Network, Recoveries, Recovery, Repeated, Restart};
pub use detectors::{Detectors, Elsewhere, Judgement, Sign, Verdict};
pub(crate) use own::Own;
pub use own::{Candidate, Death, Detector, Seen};
pub(crate) use starts::{Start, Starts};
