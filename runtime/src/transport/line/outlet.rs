//! Telling the other side something.

use std::{io, net::Shutdown, os::fd::OwnedFd, sync::Arc};

use everfold_protocol::{frame::FrameError, message::Header, parcel::Carry, seal::Seal};
use serde::Serialize;
use socket2::SockRef;
use tokio::io::{Interest, unix::AsyncFd};

use super::{outgoing::Outgoing, register};
use crate::descriptors::is_scarcity;

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
    /// What the system was short of when it was to take more, until somebody is told who waits.
    scarcity: Option<io::Error>,
}

impl<M: Serialize + Carry> Outlet<M> {
    /// Writes to `socket` what `seal` seals.
    pub fn new(socket: Arc<OwnedFd>, seal: Seal) -> Self {
        Self {
            socket,
            waiting: None,
            messages: Vec::new(),
            seal,
            outgoing: Outgoing::default(),
            scarcity: None,
        }
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
        let sent = self.outgoing.send(&self.socket);
        self.take_in(sent);
    }

    /// Takes in what has become of sending.
    fn take_in(&mut self, sent: io::Result<bool>) {
        self.scarcity = None;
        match sent {
            Ok(_) => {}
            // Without these frames the other side would not believe the next ones.
            Err(error) if is_scarcity(&error) => {
                tracing::debug!(%error, "trying again");
                self.scarcity = Some(error);
            }
            Err(error) => {
                tracing::debug!(%error, "cannot reach the other side");
                self.outgoing.clear();
                // Who hears the other side hears of this, too.
                self.close(Shutdown::Both);
            }
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
    /// What the system says. [Scarcity](is_scarcity) also if it took nothing for that reason: then the
    /// connection seems ready, and it is time that helps.
    pub fn register(&mut self) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
        if let Some(error) = self.scarcity.take() {
            return Err(error);
        }
        register(self.waiting()?, Interest::WRITABLE)
    }

    fn waiting(&mut self) -> io::Result<&Arc<OwnedFd>> {
        match &mut self.waiting {
            Some(waiting) => Ok(waiting),
            none => Ok(none.insert(Arc::new(self.socket.try_clone()?))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixStream};

    use bytes::Bytes;
    use everfold_protocol::ProcessId;

    use super::{super::Inlet, *};

    const FRAME_BYTES: u64 = 1 << 20;
    const MESSAGES: usize = 64;

    /// An outlet with more than its connection takes at once, and the other side.
    fn blocked() -> (Outlet<Bytes>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut outlet = Outlet::new(Arc::new(ours.into()), Seal::of_strangers());
        (0..MESSAGES).for_each(|_| outlet.push(Bytes::from(vec![7; 10_000])));
        let header = Header { job: 1.into(), epoch: 0.into(), sender: ProcessId::first(0) };
        outlet.send(&header, FRAME_BYTES).unwrap();
        assert!(outlet.is_blocked(), "it is more than the connection takes");
        (outlet, theirs)
    }

    #[tokio::test]
    async fn what_the_system_is_short_of_memory_for_is_sent_later() {
        let (mut outlet, theirs) = blocked();
        outlet.take_in(Err(io::Error::from_raw_os_error(libc::ENOBUFS)));
        assert!(outlet.is_blocked(), "nothing is left out");
        assert!(is_scarcity(&outlet.register().unwrap_err()), "who waits makes a pause");
        drop(outlet.register().unwrap());
        let inlet = Inlet::new(Arc::new(theirs.into()), Seal::of_strangers());
        let mut heard = 0;
        while heard < MESSAGES {
            outlet.go_on();
            inlet.hear(FRAME_BYTES, |_, messages: Vec<Bytes>| heard += messages.len()).unwrap();
        }
        assert!(!outlet.is_blocked());
    }

    #[test]
    fn who_cannot_be_told_is_not_heard_either() {
        let (mut outlet, mut theirs) = blocked();
        outlet.take_in(Err(io::Error::from_raw_os_error(libc::EPERM)));
        assert!(!outlet.is_blocked());
        theirs.read_to_end(&mut Vec::new()).expect("the connection has ended for the other side");
        let inlet = Inlet::new(outlet.socket.clone(), Seal::of_strangers());
        assert!(inlet.hear(FRAME_BYTES, |_, _: Vec<Bytes>| ()).is_err(), "and for this one");
    }
}
