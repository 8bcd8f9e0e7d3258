//! What makes the frames of a connection a sequence that nobody on the way can change: each carries a tag
//! that depends on a key, on its number, and on every bit of it.
//!
//! Each direction of a connection has a key of its own and counts its frames, and so does the other side. A
//! frame that was changed, made up, repeated, left out, moved, or sent back to where it came from has the
//! wrong tag. The tag is AEGIS-128X2 used as a MAC, with the number as its nonce: as fast as a copy of the bytes,
//! and twice as fast as AEGIS-128L where long bodies are sealed.

use core::fmt;

use aegis::aegis128x2::Aegis128X2Mac;
use serde::{Deserialize, Serialize};

use crate::codec::VERSION;

/// Length of a key in bytes.
pub const KEY_BYTES: usize = 16;

/// What proves that bytes are those that the other side has sent.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag(pub [u8; 16]);

impl fmt::Debug for Tag {
    /// A tag in a log would vouch for what it was computed of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tag")
    }
}

/// The bytes are not what the other side has sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was damaged, changed, repeated or left out on its way")]
pub struct NotGenuine;

/// One direction of a connection: seals what is sent, or checks what is received.
pub struct Seal {
    key: [u8; KEY_BYTES],
    /// Frames so far.
    number: u64,
}

/// What a tag vouches for.
#[derive(Clone, Copy)]
enum Kind {
    Frame = 0,
    Content = 1,
}

impl Seal {
    /// The seal of a direction whose key only the two sides know.
    pub fn new(key: [u8; KEY_BYTES]) -> Self {
        Self { key, number: 0 }
    }

    /// The seal of frames between strangers, whose key everybody knows: it finds damage, and nothing else.
    pub fn of_strangers() -> Self {
        Self::new([0; KEY_BYTES])
    }

    fn mac(&self, number: u64, kind: Kind, len: u32) -> Aegis128X2Mac<16> {
        let mut nonce = [0; 16];
        nonce[0..8].copy_from_slice(&number.to_le_bytes());
        nonce[8..12].copy_from_slice(&len.to_le_bytes());
        nonce[12..14].copy_from_slice(&VERSION.to_le_bytes());
        nonce[14] = kind as u8;
        Aegis128X2Mac::new_with_nonce(&self.key, &nonce)
    }

    /// The tag of the next frame, which is thereby sent. Its payload may lie in parts.
    pub(crate) fn seal_frame<'a>(&mut self, len: u32, payload: impl IntoIterator<Item = &'a [u8]>) -> Tag {
        let mut mac = self.mac(self.number, Kind::Frame, len);
        payload.into_iter().for_each(|part| mac.update(part));
        self.number += 1;
        Tag(mac.finalize())
    }

    /// Takes in the next frame.
    pub(crate) fn open_frame(&mut self, len: u32, payload: &[u8], tag: &Tag) -> Result<(), NotGenuine> {
        let mut mac = self.mac(self.number, Kind::Frame, len);
        mac.update(payload);
        mac.verify(&tag.0).map_err(|_| NotGenuine)?;
        self.number += 1;
        Ok(())
    }

    /// The tag of bytes that will follow the next frame, which carries it.
    pub fn seal_content(&self, content: &[u8]) -> Tag {
        let mut mac = self.mac(self.number, Kind::Content, 0);
        mac.update(content);
        Tag(mac.finalize())
    }

    /// Checks bytes that have followed the last frame, which has carried `tag`.
    ///
    /// # Errors
    /// [`NotGenuine`].
    pub fn check_content(&self, content: &[u8], tag: &Tag) -> Result<(), NotGenuine> {
        let announced = self.number.checked_sub(1).ok_or(NotGenuine)?;
        let mut mac = self.mac(announced, Kind::Content, 0);
        mac.update(content);
        mac.verify(&tag.0).map_err(|_| NotGenuine)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").field("number", &self.number).finish_non_exhaustive()
    }
}
