//! Where bodies and partials live.
//!
//! | module | holds |
//! |---|---|
//! | [`board`] | where short contributions lie side by side, and what wakes those up who wait there |
//! | [`region`] | one region of shared memory per process, which peers map |
//! | [`lifeline`] | how peers on the same host notice the death of a process at once |
//! | [`buffer`] | the bytes of one body or partial, lent out segment by segment |
//! | [`window`] | which buffers peers may read, and until when |

pub mod board;
pub mod buffer;
pub mod lifeline;
pub mod region;
pub mod window;
