//! The bookkeeping of one rank: what it has called, holds, reads and lends.
//!
//! [`Worker`](machine::Worker) is a pure machine. It takes [events](machine::Event) and time and gives back
//! [actions](machine::Action); `everfold-runtime` does them in a real job, `everfold-sim` in a simulated one.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`] | which event means what for this rank |
//! | [`participant`] | the machine and the calls on the board, in the order in which the machine hears of both |
//! | [`window_table`] | which windows are open |
//! | [`readers`] | which processes read this one's windows, and when that ends |
//!
//! Deliberately absent: any decision about which rank folds which partials. That is the master's, and the two
//! crates do not know each other.

// The compiler proves it pure. Tests may use more.
#![cfg_attr(not(test), no_std)]

#[macro_use]
extern crate alloc;

pub mod machine;
pub mod participant;
pub mod readers;
pub mod window_table;
