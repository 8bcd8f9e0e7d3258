//! The machines of everfold in a deterministic world of virtual time.
//!
//! [`World`] drives one [`Master`](everfold_master::Master) and one
//! [`Worker`](everfold_worker::machine::Worker) per rank with a single heap of events, ordered by due time
//! and then by the order in which they were made. One seed decides every delay; nothing depends on clocks,
//! threads or hash order, so that a seed is a complete description of a run.
//!
//! Bodies are evidence: each rank contributes its own number, a fold concatenates, and the result shows which
//! contribution was counted, how often, in which order, and, where the order is fixed, what met what. After
//! every event the invariants are checked.
//!
//! | module | holds |
//! |---|---|
//! | `world` | the master, the workers, and what happens to them |
//! | `settings` | what a world is made of |
//! | `events` | what happens |
//! | `work` | what processes take time for |
//! | `faults` | what goes wrong, as data |
//! | `agenda` | virtual time, and what is to happen |
//! | `heap` | events by due time |
//! | `courier` | brings messages and work to where they go, as late as `timing` says |
//! | `timing` | how long things take: drawn delays, or those of a modelled cluster |
//! | `outages` | where the network does not carry what it is to carry |
//! | `driver` | the master in its process: when it is woken up, and how long it takes |
//! | `detector` | detectors as a programmer may add them, whose choices are drawn |
//! | `inbox` | what waits for a master that takes messages in batches |
//! | `board` | what ranks of one host share |
//! | `agent` | one host's agent, which holds the memory of its ranks |
//! | `process` | one process: its machine and the data behind it, and what it lends of that |
//! | `segments` | recovery segments as programs of ranks, and what processes keep |
//! | [`evidence`] | what bodies are made of |
//! | `facts` | what happened to processes, when, and for how long they could not be heard |
//! | `copies` | facts about replicas |
//! | `thrift` | copies, and which of them nobody needed |
//! | `trace` | what happened, as steps and as a hash |
//! | `told` | what happens, in words |
//! | [`check`] | random worlds by seed: what is drawn, what has to hold, smaller schedules that fail |
//! | [`model`] | a cluster: network, nodes, interference |
//! | [`collective`] | static algorithms in the same cluster |
//! | [`experiment`] | reductions in a modelled cluster, timed |
//! | [`costs`] | what a message costs the master, alone |
//! | [`rollbacks`] | jobs whose ranks save together and go back together |
//! | [`recoveries`] | a long job under faults, with each choice of recoveries |
//! | [`recomputing`] | a recovery segment on many ranks, and what a death in it costs |
//!
//! No module but `check` and [`experiment`] knows the world.

mod agenda;
mod agent;
mod board;
pub mod check;
pub mod collective;
mod copies;
pub mod costs;
mod courier;
mod detector;
mod driver;
mod events;
pub mod evidence;
pub mod experiment;
mod facts;
mod faults;
mod heap;
mod inbox;
pub mod model;
mod outages;
mod process;
pub mod recomputing;
pub mod recoveries;
pub mod rollbacks;
mod segments;
mod settings;
mod thrift;
mod timing;
mod told;
mod trace;
mod work;
mod world;

pub use copies::{Counted, Lost, Ordered, Protected};
pub use events::Call;
pub use everfold_master::Policy;
pub use faults::{Cut, Damage, Gap};
pub use process::Ended;
pub use segments::Segment;
pub use settings::{Settings, Stage, Wakes};
pub use timing::Load;
pub use told::Line;
pub use trace::Step;
pub use world::World;
