//! Hearing the other side.

use std::{
    io::{self, Read},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use everfold_protocol::{
    frame::{FrameError, PRELUDE_BYTES, Prelude},
    message::Header,
    parcel::Carry,
    seal::Seal,
};
use serde::de::DeserializeOwned;
use socket2::SockRef;
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    super::{
        handshake::HandshakeError,
        staging::{Pool, Staging},
    },
    BYTES_KEPT, register,
};

/// What is read at once, unless more is known to come: short frames, or the beginning of a long one, which is
/// copied from here.
const READ_BYTES: usize = 8 << 10;

/// What a long frame takes before much of it has come.
const BEGINNING_BYTES: usize = 64 << 10;

/// Hears the other side.
pub struct Inlet {
    socket: Arc<OwnedFd>,
    incoming: Mutex<Incoming>,
}

impl Inlet {
    /// Reads from `socket` what `seal` checks.
    pub fn new(socket: Arc<OwnedFd>, seal: Seal) -> Self {
        let incoming =
            Incoming { bytes: vec![0; READ_BYTES], filled: 0, long: None, pool: Pool::new(BYTES_KEPT), seal };
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
    pub fn hear<M: DeserializeOwned + Carry>(
        &self,
        frame_bytes_max: u64,
        each: impl FnMut(Header, Vec<M>),
    ) -> Result<bool, HandshakeError> {
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        let into = incoming.room();
        let room = into.len();
        let read = match (&*SockRef::from(&self.socket)).read(into) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        incoming.take_frames(read, frame_bytes_max, each)?;
        Ok(read == room)
    }
}

/// Bytes that are not yet a frame.
struct Incoming {
    /// Where short frames come in.
    bytes: Vec<u8>,
    filled: usize,
    /// A long frame of which a part is here. Then no other bytes are.
    long: Option<Long>,
    pool: Pool,
    seal: Seal,
}

/// A frame that comes into memory of its own, which its bodies share.
struct Long {
    prelude: Prelude,
    payload: Staging,
    filled: usize,
}

impl Incoming {
    /// Where the next bytes go.
    fn room(&mut self) -> &mut [u8] {
        match &mut self.long {
            Some(long) => &mut long.payload[long.filled..],
            None => &mut self.bytes[self.filled..],
        }
    }

    /// Takes in that `read` bytes more have come.
    fn take_frames<M: DeserializeOwned + Carry>(
        &mut self,
        read: usize,
        frame_bytes_max: u64,
        mut each: impl FnMut(Header, Vec<M>),
    ) -> Result<(), FrameError> {
        if let Some(mut long) = self.long.take() {
            long.filled += read;
            match long.is_whole() {
                true => each_of(long, &mut self.seal, each)?,
                false => self.long = Some(long),
            }
            return Ok(());
        }
        self.filled += read;
        let mut taken = 0;
        while let Some((prelude, rest)) = self.bytes[taken..self.filled].split_first_chunk() {
            let prelude = Prelude::parse(prelude, frame_bytes_max)?;
            let payload_bytes = prelude.payload_bytes as usize;
            let Some(payload) = rest.get(..payload_bytes) else {
                if payload_bytes > READ_BYTES - PRELUDE_BYTES {
                    self.long = Some(Long::begin(prelude, rest, &self.pool));
                    taken = self.filled;
                }
                break;
            };
            let lend = |range| Bytes::copy_from_slice(&payload[range]);
            let (header, messages) = prelude.decode_parcel(payload, &mut self.seal, lend)?;
            each(header, messages);
            taken += PRELUDE_BYTES + payload_bytes;
        }
        self.bytes.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        Ok(())
    }
}

/// Tells `each` what a long frame holds.
fn each_of<M: DeserializeOwned + Carry>(
    Long { prelude, payload, .. }: Long,
    seal: &mut Seal,
    mut each: impl FnMut(Header, Vec<M>),
) -> Result<(), FrameError> {
    let payload = Bytes::from_owner(payload);
    let (header, messages) = prelude.decode_parcel(&payload, seal, |range| payload.slice(range))?;
    drop(payload);
    each(header, messages);
    Ok(())
}

impl Long {
    fn begin(prelude: Prelude, beginning: &[u8], pool: &Pool) -> Self {
        let announced = prelude.payload_bytes as usize;
        let mut payload = pool.take_kept(announced, BEGINNING_BYTES);
        payload[..beginning.len()].copy_from_slice(beginning);
        Self { prelude, payload, filled: beginning.len() }
    }

    /// Whether all of it is here. If not, there is room for more.
    ///
    /// Memory grows with what has come, and not with what is announced.
    fn is_whole(&mut self) -> bool {
        let announced = self.prelude.payload_bytes as usize;
        if self.filled == self.payload.len() && self.filled < announced {
            self.payload.grow(announced.min(2 * self.filled));
        }
        self.filled == announced
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixStream};

    use everfold_protocol::{ProcessId, frame, parcel::LONG_BYTES};

    use super::*;

    const FRAME_BYTES: u64 = 1 << 20;

    fn header() -> Header {
        Header { job: 1.into(), epoch: 0.into(), sender: ProcessId::first(0) }
    }

    fn inlet() -> (UnixStream, Inlet) {
        let (peer, own) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        (peer, Inlet::new(Arc::new(own.into()), Seal::of_strangers()))
    }

    fn framed(batches: &[Vec<Bytes>]) -> Vec<u8> {
        let (mut seal, mut bytes) = (Seal::of_strangers(), Vec::new());
        for batch in batches {
            let mut batch = batch.clone();
            let bodies =
                frame::encode_parcel(&header(), &mut batch, FRAME_BYTES, &mut seal, &mut bytes).unwrap();
            bodies.iter().for_each(|body| bytes.extend_from_slice(body));
        }
        bytes
    }

    #[test]
    fn memory_grows_with_what_has_come() {
        let message = Bytes::from(vec![7u8; FRAME_BYTES as usize / 2]);
        let bytes = framed(&[vec![message.clone()]]);
        let (mut peer, inlet) = inlet();
        let (mut heard, mut told) = (Vec::new(), 0);
        for piece in bytes.chunks(50_000) {
            peer.write_all(piece).unwrap();
            told += piece.len();
            while inlet.hear(FRAME_BYTES, |_, messages: Vec<Bytes>| heard.extend(messages)).unwrap() {}
            let incoming = inlet.incoming.lock().unwrap();
            let kept = incoming.bytes.len() + incoming.long.as_ref().map_or(0, |long| long.payload.len());
            assert!(kept <= 2 * told + BEGINNING_BYTES + READ_BYTES, "{kept} bytes are kept for {told}");
        }
        assert!(heard == [message]);
    }

    #[test]
    fn frames_of_all_lengths_come_as_they_were_however_they_are_cut() {
        let message = |len: usize| -> Bytes { (0..len).map(|at| (at * 3 + len) as u8).collect() };
        let near = [READ_BYTES - PRELUDE_BYTES, READ_BYTES, LONG_BYTES, BEGINNING_BYTES, 2 * BEGINNING_BYTES];
        let lengths = near.into_iter().flat_map(|len| [len - 40, len - 1, len, len + 1]).chain([0, 1]);
        let batches: Vec<Vec<Bytes>> =
            lengths.map(|len| vec![message(len), message(9), message(len / 2)]).collect();
        let bytes = framed(&batches);
        for step in [1, 1000, READ_BYTES, 100_000] {
            let step = if step == 1 { 61 } else { step };
            let (mut peer, inlet) = inlet();
            let mut heard = Vec::new();
            for piece in bytes.chunks(step) {
                peer.write_all(piece).unwrap();
                while inlet
                    .hear(FRAME_BYTES, |sender, messages: Vec<Bytes>| {
                        assert_eq!(sender, header());
                        heard.push(messages);
                    })
                    .unwrap()
                {}
            }
            assert!(heard == batches, "in steps of {step}");
        }
    }
}
