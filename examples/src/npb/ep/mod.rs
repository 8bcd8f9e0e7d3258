//! EP, the embarrassingly parallel kernel: pairs of Gaussian deviates, counted by their distance from the
//! origin.
//!
//! The stream of random numbers is cut into batches of 2^16 pairs. A batch depends on nothing but the state
//! in which the generator enters it, so any rank can compute any batch, again if need be, and gets the same
//! tally.

mod batch;
mod published;
mod tally;

pub use batch::{PAIRS_PER_BATCH, batch, batch_start};
pub use published::{Check, Class, Published};
pub use tally::Tally;
