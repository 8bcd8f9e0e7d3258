//! The machines of everfold in a deterministic world of virtual time.
//!
//! [`World`] drives one [`Master`](everfold_master::Master) and one [`Worker`](everfold_worker::machine::Worker) per rank with a single heap of events, ordered by due time and
//! then by the order in which they were made. One seed decides every delay; nothing depends on clocks, threads or hash
//! order, so that a seed is a complete description of a run.
//!
//! Bodies are evidence: each rank contributes its own number, a fold concatenates, and the result shows which
//! contribution was counted, how often, in which order, and, where the order is fixed, what met what. After every event the
//! invariants are checked.
//!
//! | module | holds |
//! |---|---|
//! | `world` | the master, the workers, and what happens to them |
//! | `settings` | what a world is made of |
//! | `events` | the heap of what is going to happen |
//! | `board` | what ranks of one host share |
//! | `timing` | how long things take: drawn delays, or those of a modelled cluster |
//! | [`model`] | a cluster: network, nodes, interference |
//! | [`collective`] | static algorithms in the same cluster |
//! | [`experiment`] | reductions in a modelled cluster, timed |
//! | [`costs`] | what a message costs the master, alone |
//! | `process` | one process: its machine and the data behind it |
//! | [`evidence`] | what bodies are made of |
//! | `folding` | what workers do with data |
//! | `copies` | how replicas are made and damaged, and what is noted about them |
//! | `inbox` | what waits for a master that takes messages in batches |
//! | `collecting` | how a rank copies a result |
//! | `faults` | what goes wrong |
//! | `facts` | what happened to processes, and when |
//! | `oracle` | what has to hold |
//! | `thrift` | copies, and which of them nobody needed |
//! | `trace` | what happened, as steps and as a hash |
//! | `told` | what happens, in words |
//! | `deputies` | deputies of the master, and what comes of attempts in teams |
//! | [`check`] | random worlds by seed: what is drawn, what has to hold, smaller schedules that fail |

mod board;
pub mod check;
mod collecting;
pub mod collective;
mod copies;
pub mod costs;
mod deputies;
mod events;
pub mod evidence;
pub mod experiment;
mod facts;
mod faults;
mod folding;
mod inbox;
mod leases;
pub mod model;
mod oracle;
mod process;
mod settings;
mod thrift;
mod timing;
mod told;
mod trace;
mod world;

pub use copies::{Counted, Lost, Ordered, Protected};
pub use everfold_master::Policy;
pub use faults::{Cut, Gap};
pub use oracle::Ended;
pub use settings::{Settings, Wakes};
pub use timing::Load;
pub use told::Line;
pub use trace::Step;
pub use world::{Call, World};
