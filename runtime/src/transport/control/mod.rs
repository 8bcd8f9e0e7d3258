//! Connections for control messages: ordered, reliable streams of frames.
//!
//! Processes on one host meet at a Unix socket in the abstract namespace, which leaves no file behind; across
//! hosts they use TCP. On either socket, both ends have passed the [handshake](super::handshake) before a
//! frame counts.
//!
//! | module | holds |
//! |---|---|
//! | `address` | where a listener can be found |
//! | `connection` | what a connection can do, over TCP and Unix sockets |
//! | `listener` | who accepts connections, and where they come from |
//! | `connect` | how one is made |
//! | `frames` | frames over a connection |

mod address;
mod connect;
mod connection;
mod frames;
mod listener;

pub(crate) use self::connect::{connect_own, is_own};
pub use self::{
    address::{Address, AddressError, LoopbackName},
    connect::{Stranger, connect, connect_until},
    connection::{BoxStream, Connection, Stream, bound_silence},
    frames::{encode_batch, read_frame, write_frame},
    listener::{Listener, Origin},
};
