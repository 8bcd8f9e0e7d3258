//! What a worker has to tell its master.

use std::io;

use everfold_protocol::{
    frame::FrameError,
    message::{Header, ToMaster},
};

use crate::transport::control::{Direct, encode_batch};

/// Messages on their way to the master.
///
/// Any thread sends what is in here at once, as far as the connection takes it. What it does not take waits, together with
/// all that comes later, for the I/O thread, which can wait.
pub(crate) struct Outbox {
    messages: Vec<ToMaster>,
    bytes: Vec<u8>,
    direct: Direct,
    /// Whether the I/O thread waits until the connection takes more.
    blocked: bool,
}

impl Outbox {
    /// Sends through `direct`.
    pub(crate) fn new(direct: Direct) -> Self {
        Self { messages: Vec::new(), bytes: Vec::new(), direct, blocked: false }
    }

    pub(crate) fn push(&mut self, message: ToMaster) {
        self.messages.push(message);
    }

    pub(crate) fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Sends all messages behind one header. Returns whether the I/O thread has to help.
    ///
    /// # Errors
    /// A message is over the limit of a frame.
    pub(crate) fn send(&mut self, header: &Header, frame_bytes_max: u64) -> Result<bool, FrameError> {
        encode_batch(header, &self.messages, frame_bytes_max, &mut self.bytes)?;
        self.messages.clear();
        if self.blocked {
            return Ok(false);
        }
        let mut sent = 0;
        while sent < self.bytes.len() {
            match self.direct.write(&self.bytes[sent..]) {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                Err(error) => {
                    // The reading side sees the same and ends everything.
                    tracing::debug!(%error, "cannot reach the master");
                    sent = self.bytes.len();
                }
            }
        }
        self.bytes.drain(..sent);
        Ok(self.blocked)
    }

    /// What the I/O thread is to send before anybody sends more.
    pub(crate) fn take_blocked(&mut self) -> Option<Vec<u8>> {
        self.blocked &= !self.bytes.is_empty();
        self.blocked.then(|| std::mem::take(&mut self.bytes))
    }
}
