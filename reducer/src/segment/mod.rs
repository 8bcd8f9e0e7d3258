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
//! | `call.rs` | the call and its rounds |
//! | `value.rs` | bodies of applications in what is folded |
//! | `progress.rs` | what a rank leaves of a share for the case that it dies |
//! | `serial.rs` | computing that several ranks do, and compare |
//! | `error.rs` | what is told of errors |
//!
//! Who computes what, and what is left to compute, decides [`everfold_segment`], which is pure.

mod call;
mod error;
mod progress;
mod serial;
mod value;

pub use call::{Folded, RecoverySegment};
pub use error::SegmentError;
pub use everfold_segment::{indices::Indices, report::SegmentReport};
pub use serial::{Agreed, SerialSegment};
