//! Bytes and bodies that a connection has yet to take.

use std::{collections::VecDeque, io, io::IoSlice, os::fd::OwnedFd};

use bytes::Bytes;
use everfold_protocol::{
    frame::{self, FrameError},
    message::Header,
    parcel::Carry,
    seal::Seal,
};
use serde::Serialize;
use socket2::SockRef;

use super::BYTES_KEPT;

/// Most bytes of messages that are put into one frame, as far as single messages allow.
const BATCH_BYTES: u64 = 1 << 20;

/// Most parts that are handed to the system at once.
const PARTS_MAX: usize = 16;

/// Frames, in order. Their bodies lie where they were.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// Bodies, and how many of the bytes go before each.
    bodies: VecDeque<(usize, Bytes)>,
    /// How many of the bytes, and how much of the first body, the connection has taken.
    sent: usize,
    sent_of_body: usize,
}

impl Outgoing {
    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len() && self.bodies.is_empty()
    }

    /// Adds `messages`, all behind the same header, in as few frames as are reasonable.
    ///
    /// # Errors
    /// A single message is over `limit`.
    pub fn add<M: Serialize + Carry>(
        &mut self,
        header: &Header,
        messages: &mut [M],
        limit: u64,
        seal: &mut Seal,
    ) -> Result<(), FrameError> {
        let batch = frame::encode_parcel(header, messages, limit.min(BATCH_BYTES), seal, &mut self.bytes);
        let bodies = match batch {
            Err(FrameError::TooLong { .. }) if messages.len() > 1 => {
                let (first, second) = messages.split_at_mut(messages.len() / 2);
                self.add(header, first, limit, seal)?;
                return self.add(header, second, limit, seal);
            }
            Err(FrameError::TooLong { .. }) => {
                frame::encode_parcel(header, messages, limit, seal, &mut self.bytes)?
            }
            batch => batch?,
        };
        let before = self.bytes.len();
        self.bodies.extend(bodies.into_iter().map(|body| (before, body)));
        Ok(())
    }

    /// Hands to `socket` what that takes now. Returns whether it has taken all.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        let socket = SockRef::from(socket);
        while !self.is_empty() {
            // A peer that is gone must not take this process with it.
            let sent = match self.bodies.is_empty() {
                true => socket.send_with_flags(&self.bytes[self.sent..], libc::MSG_NOSIGNAL),
                false => socket.send_vectored_with_flags(&self.parts(), libc::MSG_NOSIGNAL),
            };
            match sent {
                Ok(sent) => self.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.clear();
        Ok(true)
    }

    /// Forgets all that has not been sent.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_KEPT);
        self.bodies.clear();
        (self.sent, self.sent_of_body) = (0, 0);
    }

    /// What comes next.
    fn parts(&self) -> Vec<IoSlice<'_>> {
        let (mut parts, mut at, mut skip) = (Vec::with_capacity(PARTS_MAX + 1), self.sent, self.sent_of_body);
        for (before, body) in self.bodies.iter().take(PARTS_MAX / 2) {
            if at < *before {
                parts.push(IoSlice::new(&self.bytes[at..*before]));
            }
            parts.push(IoSlice::new(&body[skip..]));
            (at, skip) = (*before, 0);
        }
        if self.bodies.len() < PARTS_MAX / 2 && at < self.bytes.len() {
            parts.push(IoSlice::new(&self.bytes[at..]));
        }
        parts
    }

    /// Takes in that the connection has taken this many.
    fn advance(&mut self, mut sent: usize) {
        while sent > 0 {
            let before = self.bodies.front().map_or(self.bytes.len(), |(before, _)| *before);
            if self.sent < before {
                let step = sent.min(before - self.sent);
                self.sent += step;
                sent -= step;
                continue;
            }
            let Some((_, body)) = self.bodies.front() else { return };
            let step = sent.min(body.len() - self.sent_of_body);
            self.sent_of_body += step;
            sent -= step;
            if self.sent_of_body == body.len() {
                self.bodies.pop_front();
                self.sent_of_body = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{
        ProcessId,
        frame::{PRELUDE_BYTES, Prelude},
        parcel::LONG_BYTES,
    };

    use super::*;

    fn header() -> Header {
        Header { job: 1.into(), epoch: 0.into(), sender: ProcessId::first(0) }
    }

    fn message(len: usize) -> Bytes {
        (0..len).map(|at| (at * 5 + len) as u8).collect()
    }

    /// All that comes next, taken `step` bytes at a time.
    fn taken(mut outgoing: Outgoing, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !outgoing.is_empty() {
            let parts = outgoing.parts();
            let next: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).take(step).collect();
            drop(parts);
            outgoing.advance(next.len());
            all.extend(next);
        }
        all
    }

    fn messages_in(mut bytes: &[u8]) -> (usize, Vec<Bytes>) {
        let (mut seal, mut frames, mut found) = (Seal::of_strangers(), 0, Vec::new());
        while let Some((prelude, rest)) = bytes.split_first_chunk::<PRELUDE_BYTES>() {
            let prelude = Prelude::parse(prelude, u64::MAX).unwrap();
            let (payload, rest) = rest.split_at(prelude.payload_bytes as usize);
            let lend = |range| Bytes::copy_from_slice(&payload[range]);
            let (sender, batch) = prelude.decode_parcel::<Header, Bytes>(payload, &mut seal, lend).unwrap();
            assert_eq!(sender, header());
            found.extend(batch);
            (bytes, frames) = (rest, frames + 1);
        }
        (frames, found)
    }

    #[test]
    fn whatever_the_connection_takes_at_a_time_comes_in_order() {
        let lengths = [5, LONG_BYTES, 7, LONG_BYTES + 1, 3 * LONG_BYTES, 0];
        let messages: Vec<Bytes> = lengths.into_iter().map(message).collect();
        for step in [1000, LONG_BYTES - 1, LONG_BYTES, usize::MAX] {
            let (mut outgoing, mut seal) = (Outgoing::default(), Seal::of_strangers());
            for batch in [&messages[..2], &messages[2..3], &messages[3..]] {
                outgoing.add(&header(), &mut batch.to_vec(), 1 << 20, &mut seal).unwrap();
            }
            assert_eq!(messages_in(&taken(outgoing, step)), (3, messages.clone()));
        }
        // More bodies than parts.
        let many = vec![message(LONG_BYTES); 3 * PARTS_MAX];
        let mut outgoing = Outgoing::default();
        outgoing.add(&header(), &mut many.clone(), 1 << 20, &mut Seal::of_strangers()).unwrap();
        assert_eq!(messages_in(&taken(outgoing, usize::MAX)), (1, many));
    }

    #[test]
    fn long_batches_become_several_frames() {
        let messages = vec![message(400_000); 8];
        let (mut outgoing, mut seal) = (Outgoing::default(), Seal::of_strangers());
        outgoing.add(&header(), &mut messages.clone(), 64 << 20, &mut seal).unwrap();
        let (frames, found) = messages_in(&taken(outgoing, usize::MAX));
        assert!(found == messages && frames == 4, "{frames} frames");
        let mut unsent = messages.clone();
        assert!(Outgoing::default().add(&header(), &mut unsent, 1000, &mut seal).is_err());
        assert!(unsent == messages, "what cannot be sent is as it was");
    }
}
