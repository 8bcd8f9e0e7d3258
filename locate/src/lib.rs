//! Which component is faulty (MPFL): symptoms go up a tree, rules conclude faults from them, probes confirm these.
//!
//! | to | see |
//! |---|---|
//! | know the symptoms, and their components | [`symptom`], [`place`] |
//! | know the symptoms that the master observes, and those that a host observes of itself | [`observer`], [`load`] |
//! | compare a value with its past, or with peers | [`cusum`], [`peers`] |
//! | know which host analyses the symptoms of another | [`tree`] |
//! | send a symptom there (TFD) | [`tfd`] |
//! | conclude faults and confirm them (TFA) | [`tfa`] |
//! | write rules | [`rules`] |
//! | learn them from records of earlier jobs | [`learn`] |
//! | send symptoms, probes and verdicts to other hosts | [`message`] |
//! | collect located faults, at the root of the tree | [`register`] |
//!
//! Time and events go into the machines, actions come out.
//!
//! Deliberately absent: sockets, clocks, reading a host's counters, executing probes, and acting on a located fault.

// The compiler proves it pure. Tests may use more.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod cusum;
pub mod learn;
pub mod load;
pub mod message;
pub mod observer;
pub mod peers;
pub mod place;
pub mod probe;
pub mod register;
pub mod rules;
pub mod symptom;
pub mod tfa;
pub mod tfd;
pub mod tree;
