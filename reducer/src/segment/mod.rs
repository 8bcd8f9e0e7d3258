//! Recovery segments: computing that survives those who compute it (PR-1 to PR-3).
//!
//! A recovery segment is a loop over indices with a reduction at its end. Each rank folds its share of the
//! indices. The bodies of the reduction carry the grains that are folded in them: the result says by itself
//! what is missing. If a rank has died before it contributed, the survivors divide its share among
//! themselves, fold it, and reduce again, in as many *rounds* as it takes.
//!
//! All ranks decide alike, because they decide from nothing but the results and reports of the rounds, which
//! are the same at all of them. The master knows nothing of it: a round is a reduction like any other, with
//! [`allow_missing`](crate::Reduction::allow_missing). A rank contributes what it has folded of its share: all,
//! or less if the others were promised to be faster. What it leaves of its progress counts if it dies.
//!
//! | file | has |
//! |---|---|
//! | `indices.rs` | sets of indices: holes, division by weights |
//! | `grains.rs` | how indices are cut into grains |
//! | `partials.rs` | values with the grains that are in them; the tree of the fixed order |
//! | `round.rs` | the body of a round; how fast ranks are |
//! | `call.rs` | the call and its rounds |
//! | `ledger.rs` | what all ranks know alike, and who does what in the next round |
//! | `progress.rs` | what a rank leaves of a share for the case that it dies |
//! | `serial.rs` | computing that several ranks do, and compare |
//! | `report.rs`, `error.rs` | what is told |

mod call;
mod error;
mod grains;
mod indices;
mod ledger;
mod partials;
mod progress;
mod report;
mod round;
mod serial;

pub use call::RecoverySegment;
pub use error::SegmentError;
pub use indices::Indices;
pub use report::{Folded, SegmentReport};
pub use serial::{Agreed, SerialSegment};
