//! Where to put checkpoints: from a profile of a program to a plan.
//!
//! A *profile* says at which points a program may take a checkpoint, how many bytes are live there on the
//! host and on the device, and when it reaches them. A *machine* says how fast bytes are written, and how
//! often failures come. A *plan* says at which points checkpoints are taken, what they cost, and when the
//! program ends on average.
//!
//! | to | see |
//! |---|---|
//! | describe a program and what it runs on | [`profile`], [`machine`] |
//! | make a plan | [`plan`] |
//! | find the checkpoints that take least time, by shortest path or as the paper does | [`mod@shortest`], [`enumeration`] |
//! | move them to where fewer bytes are live | [`offset`] |
//! | let the program end soonest on average | [`law`], [`mod@soonest`]; [`interval`] has the rules of Young and Daly |
//! | use several levels at once | [`levels`], [`leveled`] |
//! | make a profile of a run, and write it down | [`trace`], [`text`] |
//! | follow a plan in a running program | [`follow`] |
//! | let all ranks save together, and go on together | [`together`] |
//!
//! Deliberately absent: files, drawing, and taking checkpoints.

// The compiler proves it pure. Tests may use more.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod candidates;
mod course;
pub mod enumeration;
pub mod follow;
pub mod gap;
pub mod interval;
pub mod law;
pub mod leveled;
pub mod levels;
mod lines;
pub mod machine;
pub mod offset;
pub mod plan;
pub mod profile;
pub mod shortest;
pub mod soonest;
pub mod text;
pub mod together;
pub mod trace;
