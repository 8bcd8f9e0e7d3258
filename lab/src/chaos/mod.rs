//! `everfold chaos`: makes things go wrong in jobs of real processes, and counts what comes of it.
//!
//! | to know | see |
//! |---|---|
//! | what can be asked for | [`options`], [`setting`], [`table2`] |
//! | which faults a trial gets: pure | [`schedule`] |
//! | what a trial shows: pure | [`verdict`] |
//! | how a trial is run | [`experiment`], [`trial`], [`job`] |
//! | from when faults count, and how they come about | [`gate`], [`inject`], [`failing`], [`storage`] |
//! | what the built-in program does and tells | [`program`], [`pattern`], [`survivors`], [`said`] |
//! | what is told to people | [`summary`], [`replay`] |
//! | one program under several recovery files | [`compare`] |
//!
//! Whatever the kernel can clean up it is left to: processes die with their parent, networks and mounts with
//! the last process that holds them. What remains is one locked folder, which the next run removes if this
//! one is killed ([`scratch`](crate::scratch)).

mod compare;
mod experiment;
mod failing;
mod gate;
mod inject;
mod job;
mod options;
mod pattern;
mod program;
mod replay;
mod said;
mod schedule;
mod setting;
mod storage;
mod summary;
mod survivors;
mod table2;
mod trial;
mod verdict;

pub use options::Chaos;
