//! Telling the other side something.

use std::{io, net::Shutdown, os::fd::OwnedFd, sync::Arc};

use everfold_protocol::{frame::FrameError, message::Header, parcel::Carry, seal::Seal};
use serde::Serialize;
use socket2::SockRef;
use tokio::io::{Interest, unix::AsyncFd};

use super::{outgoing::Outgoing, register};

/// Messages on their way to the other side.
///
/// Any thread sends what is in here, as far as the connection takes it. What it does not take waits, together
/// with all that comes later, for somebody who can wait.
pub struct Outlet<M> {
    socket: Arc<OwnedFd>,
    /// The same once more, from the first time on that somebody waits, or is prepared to: a runtime registers
    /// a descriptor once only.
    waiting: Option<Arc<OwnedFd>>,
    messages: Vec<M>,
    seal: Seal,
    outgoing: Outgoing,
}

impl<M: Serialize + Carry> Outlet<M> {
    /// Writes to `socket` what `seal` seals.
    pub fn new(socket: Arc<OwnedFd>, seal: Seal) -> Self {
        Self { socket, waiting: None, messages: Vec::new(), seal, outgoing: Outgoing::default() }
    }

    /// Adds a message to those that are sent together.
    pub fn push(&mut self, message: M) {
        self.messages.push(message);
    }

    /// Whether there are messages to be sent.
    pub fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Whether the connection took less than there was.
    pub fn is_blocked(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends all messages behind one header.
    ///
    /// # Errors
    /// A message is over the limit of a frame.
    pub fn send(&mut self, header: &Header, frame_bytes_max: u64) -> Result<(), FrameError> {
        let blocked = self.is_blocked();
        self.outgoing.add(header, &mut self.messages, frame_bytes_max, &mut self.seal)?;
        self.messages.clear();
        if !blocked {
            self.go_on();
        }
        Ok(())
    }

    /// Sends what the connection did not take before.
    pub fn go_on(&mut self) {
        if let Err(error) = self.outgoing.send(&self.socket) {
            // Who hears the other side hears of this, too.
            tracing::debug!(%error, "cannot reach the other side");
            self.outgoing.clear();
        }
    }

    /// Ends the connection in this direction or in both, whichever thread holds it.
    pub fn close(&self, how: Shutdown) {
        if let Err(error) = SockRef::from(&self.socket).shutdown(how) {
            tracing::debug!(%error, "the connection broke before");
        }
    }

    /// Opens what [`register`](Self::register) needs, which then takes no descriptor any more.
    ///
    /// # Errors
    /// What the system says.
    pub fn prepare(&mut self) -> io::Result<()> {
        self.waiting().map(drop)
    }

    /// Lets the current runtime see when the connection takes more.
    ///
    /// # Errors
    /// What the system says.
    pub fn register(&mut self) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
        register(self.waiting()?, Interest::WRITABLE)
    }

    fn waiting(&mut self) -> io::Result<&Arc<OwnedFd>> {
        match &mut self.waiting {
            Some(waiting) => Ok(waiting),
            none => Ok(none.insert(Arc::new(self.socket.try_clone()?))),
        }
    }
}
