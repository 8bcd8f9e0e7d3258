//! A connection between a worker and the master once both know each other. Any thread may use it: nothing
//! here waits, and a runtime is woken up for it only where it is [registered](register).
//!
//! Long bodies go from the message that they are in to the socket, and from the memory that they came in into
//! the message, without a copy (see [`parcel`](everfold_protocol::parcel)).
//!
//! | module | holds |
//! |---|---|
//! | `inlet` | hearing the other side |
//! | `outlet` | telling it something |
//! | `outgoing` | bytes and bodies that the connection has yet to take |

mod inlet;
mod outgoing;
mod outlet;

use std::{io, os::fd::OwnedFd, sync::Arc};

use tokio::io::{Interest, unix::AsyncFd};

pub use self::{inlet::Inlet, outlet::Outlet};

/// Memory that is kept for what is sent, or comes, next.
const BYTES_KEPT: usize = 1 << 20;

/// Lets the current runtime see when `file` is ready.
///
/// # Errors
/// What the system says.
pub fn register(file: &Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: what is shared stays open, and remains the same descriptor, as long as the registration has a
    // part in it.
    let registered = unsafe { AsyncFd::register_with_interest(file.clone(), interest) };
    registered.map_err(io::Error::from)
}
