//! A connection between a worker and the master once both know each other. Any thread may use it: nothing
//! here waits, and a runtime is woken up for it only where it is [registered](register).

use std::{
    io::{self, Read},
    net::Shutdown,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use everfold_protocol::{
    frame::{FrameError, PRELUDE_BYTES, Prelude},
    message::Header,
    seal::Seal,
};
use serde::{Serialize, de::DeserializeOwned};
use socket2::SockRef;
use tokio::io::{Interest, unix::AsyncFd};

use super::{control::encode_batch, handshake::HandshakeError};

/// What is read at once.
const READ_BYTES: usize = 64 << 10;

/// Memory that is kept for what is sent, or comes, next.
const BYTES_KEPT: usize = 1 << 20;

/// Hears the other side.
pub struct Inlet {
    socket: Arc<OwnedFd>,
    incoming: Mutex<Incoming>,
}

/// Bytes that are not yet a frame.
struct Incoming {
    bytes: Vec<u8>,
    filled: usize,
    seal: Seal,
}

impl Inlet {
    /// Reads from `socket` what `seal` checks.
    pub fn new(socket: Arc<OwnedFd>, seal: Seal) -> Self {
        let incoming = Incoming { bytes: vec![0; READ_BYTES], filled: 0, seal };
        Self { socket, incoming: Mutex::new(incoming) }
    }

    /// Lets the current runtime see when there is something to hear.
    ///
    /// # Errors
    /// What the system says.
    pub fn register(&self) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
        register(&self.socket, Interest::READABLE)
    }

    /// Tells `each` frame that has come, in order, whichever threads read them. Returns false if all has been
    /// told, and true if there may be more.
    ///
    /// # Errors
    /// The connection broke, or what comes is no frame.
    pub fn hear<M: DeserializeOwned>(
        &self,
        frame_bytes_max: u64,
        each: impl FnMut(Header, Vec<M>),
    ) -> Result<bool, HandshakeError> {
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        let Incoming { bytes, filled, .. } = &mut *incoming;
        let room = bytes.len() - *filled;
        let read = match (&*SockRef::from(&self.socket)).read(&mut bytes[*filled..]) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        *filled += read;
        incoming.take_frames(frame_bytes_max, each)?;
        Ok(read == room)
    }
}

impl Incoming {
    fn take_frames<M: DeserializeOwned>(
        &mut self,
        frame_bytes_max: u64,
        mut each: impl FnMut(Header, Vec<M>),
    ) -> Result<(), FrameError> {
        let mut taken = 0;
        let mut needed = PRELUDE_BYTES;
        while let Some((prelude, rest)) = self.bytes[taken..self.filled].split_first_chunk() {
            let prelude = Prelude::parse(prelude, frame_bytes_max)?;
            let payload_bytes = prelude.payload_bytes as usize;
            let Some(payload) = rest.get(..payload_bytes) else {
                needed += payload_bytes;
                break;
            };
            let (header, messages) = prelude.decode(payload, &mut self.seal)?;
            each(header, messages);
            taken += PRELUDE_BYTES + payload_bytes;
        }
        self.bytes.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        // Memory grows with what has come, and not with what is announced. What has grown stays: to fill it anew
        // costs as much as to read into it.
        let len = needed.min(2 * self.filled).max(READ_BYTES);
        if len > self.bytes.len() || self.bytes.len() > BYTES_KEPT {
            self.bytes.resize(len, 0);
            self.bytes.shrink_to(BYTES_KEPT);
        }
        Ok(())
    }
}

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
    bytes: Vec<u8>,
    /// How many of the bytes the connection has taken.
    sent: usize,
}

impl<M: Serialize> Outlet<M> {
    /// Writes to `socket` what `seal` seals.
    pub fn new(socket: Arc<OwnedFd>, seal: Seal) -> Self {
        Self { socket, waiting: None, messages: Vec::new(), seal, bytes: Vec::new(), sent: 0 }
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
        !self.bytes.is_empty()
    }

    /// Sends all messages behind one header.
    ///
    /// # Errors
    /// A message is over the limit of a frame.
    pub fn send(&mut self, header: &Header, frame_bytes_max: u64) -> Result<(), FrameError> {
        let blocked = self.is_blocked();
        encode_batch(header, &self.messages, frame_bytes_max, &mut self.seal, &mut self.bytes)?;
        self.messages.clear();
        if !blocked {
            self.go_on();
        }
        Ok(())
    }

    /// Sends what the connection did not take before.
    pub fn go_on(&mut self) {
        while self.sent < self.bytes.len() {
            // A peer that is gone must not take this process with it.
            match SockRef::from(&self.socket).send_with_flags(&self.bytes[self.sent..], libc::MSG_NOSIGNAL) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Who hears the other side hears of this, too.
                    tracing::debug!(%error, "cannot reach the other side");
                    break;
                }
            }
        }
        self.sent = 0;
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_KEPT);
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

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixStream};

    use everfold_protocol::{ProcessId, frame};

    use super::*;

    #[test]
    fn memory_grows_with_what_has_come() {
        const FRAME_BYTES: u64 = 1 << 20;
        let header = Header { job: 1.into(), epoch: 0.into(), sender: ProcessId::first(0) };
        let message = vec![7u8; FRAME_BYTES as usize / 2];
        let mut bytes = Vec::new();
        frame::encode_into(&(header, vec![&message]), FRAME_BYTES, &mut Seal::of_strangers(), &mut bytes)
            .unwrap();
        let (mut peer, own) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        let inlet = Inlet::new(Arc::new(own.into()), Seal::of_strangers());
        let (mut heard, mut told) = (Vec::new(), 0);
        for piece in bytes.chunks(50_000) {
            peer.write_all(piece).unwrap();
            told += piece.len();
            while inlet.hear(FRAME_BYTES, |_, messages: Vec<Vec<u8>>| heard.extend(messages)).unwrap() {}
            let kept = inlet.incoming.lock().unwrap().bytes.len();
            assert!(kept <= (2 * told).max(READ_BYTES), "{kept} bytes are kept for {told}");
        }
        assert!(heard == [message]);
    }
}
