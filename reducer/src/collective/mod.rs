//! Collective operations whose result is pieces side by side instead of a fold.
//!
//! | module | holds |
//! |---|---|
//! | `piece` | what a rank gives and receives |
//! | `blocks` | what a rank gives where each receiver has a piece of its own |
//! | `operation` | gather, allgather, broadcast, scatter, exchange and barrier |
//! | `call` | a call: what it is given, what it promises, what it yields |

mod blocks;
mod call;
mod operation;
mod piece;

pub use self::{
    blocks::{Blocks, Even},
    call::{Collective, CollectiveFuture},
    operation::{Allgather, Barrier, Broadcast, Exchange, Gather, Operation, Scatter},
    piece::{Gathered, Object, Piece},
};
