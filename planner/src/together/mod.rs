//! Checkpoints of all ranks together: when all save, what has become of the last one, and from which a job
//! goes on.
//!
//! Ranks agree by short reductions in which of each number the least counts. What is decided follows from the
//! outcome alone, which all ranks have alike.
//!
//! | module | says |
//! |---|---|
//! | [`vote`] | what ranks tell each other, and what follows |
//! | [`progress`] | what a rank counts from one checkpoint to the next |
//! | [`resume`] | from which generation all ranks of a job go on |

pub mod progress;
pub mod resume;
pub mod vote;
