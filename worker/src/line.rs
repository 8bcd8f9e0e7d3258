//! The connection to the master, which any thread may use: nothing here waits.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, PoisonError},
};

use everfold_protocol::{
    frame::{FrameError, PRELUDE_BYTES, Prelude},
    message::{Header, ToMaster, ToWorker},
};
use socket2::Socket;
use tokio::io::{Interest, unix::AsyncFd};

use crate::transport::{control::encode_batch, handshake::HandshakeError};

/// What is read at once.
const READ_BYTES: usize = 64 << 10;

/// Hears the master.
pub(crate) struct Inlet {
    socket: Socket,
    incoming: Mutex<Incoming>,
}

/// Bytes that are not yet a frame.
struct Incoming {
    bytes: Vec<u8>,
    filled: usize,
}

impl Inlet {
    /// Reads from `socket`.
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, incoming: Mutex::new(Incoming { bytes: vec![0; READ_BYTES], filled: 0 }) }
    }

    /// Lets the current runtime see when there is something to hear.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn watch(&self) -> io::Result<AsyncFd<OwnedFd>> {
        watch(self.socket.as_fd(), Interest::READABLE)
    }

    /// Tells `each` frame that has come, in order, whichever threads read them.
    ///
    /// # Errors
    /// The connection broke, or what comes is no frame.
    pub(crate) fn hear(
        &self,
        frame_bytes_max: u64,
        mut each: impl FnMut(Header, Vec<ToWorker>),
    ) -> Result<(), HandshakeError> {
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Incoming { bytes, filled } = &mut *incoming;
            let room = bytes.len() - *filled;
            let read = match (&self.socket).read(&mut bytes[*filled..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            *filled += read;
            incoming.take_frames(frame_bytes_max, &mut each)?;
            if read < room {
                return Ok(());
            }
        }
    }
}

impl Incoming {
    fn take_frames(
        &mut self,
        frame_bytes_max: u64,
        each: &mut impl FnMut(Header, Vec<ToWorker>),
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
            let (header, messages) = prelude.decode(payload)?;
            each(header, messages);
            taken += PRELUDE_BYTES + payload_bytes;
        }
        self.bytes.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        self.bytes.resize(needed.max(READ_BYTES), 0);
        Ok(())
    }
}

/// Messages on their way to the master.
///
/// Any thread sends what is in here, as far as the connection takes it. What it does not take waits, together with all
/// that comes later, for the I/O thread, which can wait.
pub(crate) struct Outlet {
    socket: Socket,
    messages: Vec<ToMaster>,
    bytes: Vec<u8>,
}

impl Outlet {
    /// Writes to `socket`.
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, messages: Vec::new(), bytes: Vec::new() }
    }

    pub(crate) fn push(&mut self, message: ToMaster) {
        self.messages.push(message);
    }

    pub(crate) fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Whether the connection took less than there was.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Sends all messages behind one header.
    ///
    /// # Errors
    /// A message is over the limit of a frame.
    pub(crate) fn send(&mut self, header: &Header, frame_bytes_max: u64) -> Result<(), FrameError> {
        let blocked = self.is_blocked();
        encode_batch(header, &self.messages, frame_bytes_max, &mut self.bytes)?;
        self.messages.clear();
        if !blocked {
            self.go_on();
        }
        Ok(())
    }

    /// Sends what the connection did not take before.
    pub(crate) fn go_on(&mut self) {
        while self.is_blocked() {
            match (&self.socket).write(&self.bytes) {
                Ok(sent) => drop(self.bytes.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Who hears the master hears of this, too.
                    tracing::debug!(%error, "cannot reach the master");
                    self.bytes.clear();
                }
            }
        }
    }

    /// Breaks the connection, whoever holds it.
    pub(crate) fn close(&self) {
        if let Err(error) = self.socket.shutdown(Shutdown::Both) {
            tracing::debug!(%error, "the connection broke before");
        }
    }

    /// Lets the current runtime see when the connection takes more.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn watch(&self) -> io::Result<AsyncFd<OwnedFd>> {
        watch(self.socket.as_fd(), Interest::WRITABLE)
    }
}

/// Lets the current runtime see when `file` is ready.
///
/// # Errors
/// What the system says.
pub(crate) fn watch(file: BorrowedFd<'_>, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    let file = file.try_clone_to_owned()?;
    // SAFETY: an `OwnedFd` stays open and remains the same descriptor until it is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(file, interest) };
    registered.map_err(io::Error::from)
}
