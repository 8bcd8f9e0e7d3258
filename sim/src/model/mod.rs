//! A cluster: its network, its nodes, and what else runs on them.
//!
//! Modelled are
//! - the network by LogGP: each message takes α = L + 2o, its bytes pass the sender's and the receiver's port
//!   at G, and short messages occupy a port for g at least. Ports are full duplex. The transfers that leave a
//!   node share its port chunk by chunk in turns; what arrives waits in order. Two-level topologies add a
//!   port to and from the core per rack;
//! - control messages, which do not queue behind bulk data but take their share of the ports. The master's
//!   process receives, handles and sends, each one thing after the other and all three at once: o per frame
//!   in and out, and a constant per message. A message joins the frame before it if that still waits to be
//!   received or sent;
//! - nodes with one rank each: folds go through a node's memory one after the other at γ per byte read,
//!   writes go through its disk;
//! - interference: other programs on a node that come and go, and take a part of its processor and of its
//!   ports.
//!
//! Not modelled are packets, routes and congestion inside of a switch, back-pressure (what a busy receiver
//! cannot take waits in the network), the limit of 64 requests of one reader that wait at an owner,
//! checksums, and cores as such.
//!
//! Failures of nodes are far apart beside a reduction: [`Failures`] tells how probably one is met, and when
//! in a job.
//!
//! Times are whole nanoseconds, and what is drawn needs no more than square roots, so that all machines agree
//! on them.

mod cluster;
mod failures;
mod network;
mod node;

pub use cluster::{Cluster, Interference, Link, Preset, Topology};
pub use failures::{Failures, FailuresError};
pub(crate) use network::{Network, Pumped};
pub(crate) use node::{Nodes, Resource, after};
