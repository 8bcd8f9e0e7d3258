//! The reductions of MPI libraries as static schedules, on the same network as everfold's own.
//!
//! Each rank runs a program of sends, receives and folds that is fixed beforehand. Sends and receives are
//! matched: bytes begin to flow when both ends are there. Receiving blocks; sending does not, unless the
//! algorithm exchanges.

mod algorithm;
mod best;
mod engine;

pub use algorithm::Algorithm;
pub use best::best_segment;
pub use engine::{Arrivals, time};
