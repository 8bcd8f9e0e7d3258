//! What is done about processes that die where ranks come back (FR-2, FR-3).
//!
//! | module | holds |
//! |---|---|
//! | [`choice`] | which recovery a user has chosen for which fault |
//! | `detectors` | which fault a death is a sign of, and what follows from the choice |

pub mod choice;
mod detectors;

pub use choice::{Recoveries, Recovery, Repeated, Restart};
pub(crate) use detectors::{Detectors, Verdict};
