//! Where bodies and partials live.
//!
//! | module | holds |
//! |---|---|
//! | [`board`] | the memory where short contributions lie side by side, and the bells of ranks that wait there |
//! | `mapping` | mappings, and how a region is laid out |
//! | [`region`] | one region of shared memory per process, which peers map |
//! | [`peer_region`] | a peer's region, as its readers see it |
//! | [`seqlock`] | how a reader knows that the bytes it has read were valid |
//! | [`lifeline`] | how peers on the same host notice the death of a process at once |
//! | [`buffer`] | the bytes of one body or partial, lent out segment by segment |
//! | [`window`] | which buffers peers may read, and until when |
//! | [`catalogue`] | state that a process keeps for others to read after its death, by name |

pub mod board;
pub mod buffer;
pub mod catalogue;
pub mod lifeline;
pub(crate) mod mapping;
pub mod peer_region;
pub mod region;
pub mod seqlock;
pub mod window;

pub use mapping::ForeignError;
