//! `everfold bench compare`: everfold and MPI in turns, on the same hosts, in the same run.
//!
//! | to know | see |
//! |---|---|
//! | what can be asked for | [`options`] |
//! | what is measured, and what physics allows | [`case`], [`physics`] |
//! | where, over which links, and what disturbs it | [`place`], [`link`], [`quota`] |
//! | the MPI libraries and their algorithms | [`peers`], `peer.c` |
//! | everfold's ranks | [`rank`], [`pieces`] |
//! | what plain sockets take | [`sockets`] |
//! | who is compared, and how both sides are driven | [`field`], [`team`] |
//! | in which order, and how often | [`measure`], [`statistics`] |
//! | what the simulator says | [`simulated`] |
//! | what is told, and drawn | [`report`], [`plot`] |
//!
//! All ranks of all sides are there all the time. Those whose turn it is not sleep in a system call, because
//! MPI would otherwise poll and take the cores from the others.

mod case;
mod field;
mod link;
mod measure;
mod options;
mod peers;
mod physics;
mod pieces;
mod place;
mod plot;
mod quota;
mod rank;
mod report;
mod simulated;
mod sockets;
mod statistics;
mod team;

pub use self::{options::Compare, rank::CompareRank, sockets::SocketsRank};
