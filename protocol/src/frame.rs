//! How a batch of messages looks on the wire.
//!
//! ```text
//! offset  bytes  field
//!      0      4  magic "evfd"
//!      4      2  version
//!      6      2  reserved, zero
//!      8      4  length of the payload in bytes
//!     12     16  tag of the frame, see `seal`
//!     28      …  payload: header and messages, encoded by `codec`
//! ```
//! All integers are little-endian. A reader checks magic and version before it believes the length, the
//! length before it allocates, and the tag before it decodes.

use crate::{
    codec::{self, CodecError},
    parcel::{self, Carry, Following, ParcelError},
    seal::{NotGenuine, Seal, Tag},
};
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Range;
use serde::{Serialize, de::DeserializeOwned};

pub use crate::codec::VERSION;

/// First bytes of every frame.
pub const MAGIC: [u8; 4] = *b"evfd";
/// Bytes before the payload.
pub const PRELUDE_BYTES: usize = 28;

/// Why bytes are not a frame. The connection they came from cannot be used any further.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Something else talks to this port.
    #[error("not an everfold frame: it starts with {0:02x?}")]
    Magic([u8; 4]),
    /// The peer was built from another version of everfold.
    #[error(
        "the peer speaks version {0} of the protocol, this process version {VERSION}; use one build for a job"
    )]
    Version(u16),
    /// A bit that must be zero is not.
    #[error("reserved bits of the frame are {0:#06x}")]
    Reserved(u16),
    /// The frame is longer than the limit.
    #[error("a frame of {bytes} bytes is over the limit of {limit}")]
    TooLong {
        /// Announced or actual length of the payload.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// It is not the frame that the other side has sent next.
    #[error("a frame is not the one that the other side has sent: {0}")]
    NotGenuine(#[from] NotGenuine),
    /// The payload is no batch of messages.
    #[error(transparent)]
    Payload(#[from] CodecError),
    /// The payload is no parcel.
    #[error(transparent)]
    Parcel(#[from] ParcelError),
}

/// The part of a frame before its payload, checked as far as it can be alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prelude {
    /// Length of the payload in bytes.
    pub payload_bytes: u32,
    tag: Tag,
}

impl Prelude {
    /// Reads and checks the first bytes of a frame.
    ///
    /// # Errors
    /// [`FrameError::Magic`], [`FrameError::Version`], [`FrameError::Reserved`], or [`FrameError::TooLong`]
    /// if the payload would have more than `limit` bytes.
    pub fn parse(bytes: &[u8; PRELUDE_BYTES], limit: u64) -> Result<Self, FrameError> {
        let [m0, m1, m2, m3, v0, v1, r0, r1, l0, l1, l2, l3, tag @ ..] = *bytes;
        let magic = [m0, m1, m2, m3];
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        let reserved = u16::from_le_bytes([r0, r1]);
        if reserved != 0 {
            return Err(FrameError::Reserved(reserved));
        }
        let payload_bytes = u32::from_le_bytes([l0, l1, l2, l3]);
        if u64::from(payload_bytes) > limit {
            return Err(FrameError::TooLong { bytes: payload_bytes.into(), limit });
        }
        Ok(Self { payload_bytes, tag: Tag(tag) })
    }

    /// Decodes the payload that follows this prelude, if it is the next one of those that `seal` checks.
    ///
    /// # Errors
    /// [`FrameError::NotGenuine`] or [`FrameError::Payload`].
    pub fn decode<T: DeserializeOwned>(self, payload: &[u8], seal: &mut Seal) -> Result<T, FrameError> {
        seal.open_frame(self.payload_bytes, payload, &self.tag)?;
        Ok(codec::decode(payload)?)
    }

    /// Decodes the [`parcel`] that follows this prelude, if it is the next payload of those that `seal` checks.
    /// `lend` gives a range of it.
    ///
    /// # Errors
    /// [`FrameError::NotGenuine`] or [`FrameError::Parcel`].
    pub fn decode_parcel<H: DeserializeOwned, M: DeserializeOwned + Carry>(
        self,
        payload: &[u8],
        seal: &mut Seal,
        lend: impl Fn(Range<usize>) -> Bytes,
    ) -> Result<(H, Vec<M>), FrameError> {
        seal.open_frame(self.payload_bytes, payload, &self.tag)?;
        Ok(parcel::decode(payload, lend)?)
    }
}

/// Appends `value` to `out` as the next frame of those that `seal` seals.
///
/// # Errors
/// [`FrameError::TooLong`] or [`FrameError::Payload`]; `out` and `seal` are then as they were.
pub fn encode_into<T: Serialize>(
    value: &T,
    limit: u64,
    seal: &mut Seal,
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let start = out.len();
    out.resize(start + PRELUDE_BYTES, 0);
    let encoded = codec::encode_into(value, out).map_err(FrameError::from);
    let sealed = encoded.and_then(|()| finish(&mut out[start..], &[], limit, seal));
    sealed.inspect_err(|_| out.truncate(start))
}

/// Appends a [`parcel`] to `out` as the next frame of those that `seal` seals, but for the bodies that follow:
/// they are returned, and to be sent next.
///
/// # Errors
/// As [`encode_into`]; `out`, `seal` and the messages are then as they were.
pub fn encode_parcel<H: Serialize, M: Serialize + Carry>(
    header: &H,
    messages: &mut [M],
    limit: u64,
    seal: &mut Seal,
    out: &mut Vec<u8>,
) -> Result<Vec<Bytes>, FrameError> {
    let start = out.len();
    out.resize(start + PRELUDE_BYTES, 0);
    let following: Following = match parcel::encode(header, messages, out) {
        Ok(following) => following,
        Err(error) => {
            out.truncate(start);
            return Err(error.into());
        }
    };
    let bodies: Vec<Bytes> = following.bodies().cloned().collect();
    match finish(&mut out[start..], &bodies, limit, seal) {
        Ok(()) => Ok(bodies),
        Err(error) => {
            out.truncate(start);
            following.put_back(messages);
            Err(error)
        }
    }
}

/// Fills in the prelude of a frame whose payload goes on with `bodies`.
fn finish(frame: &mut [u8], bodies: &[Bytes], limit: u64, seal: &mut Seal) -> Result<(), FrameError> {
    let (prelude, payload) = frame.split_at_mut(PRELUDE_BYTES);
    let bytes = payload.len() as u64 + bodies.iter().map(|body| body.len() as u64).sum::<u64>();
    let limit = limit.min(u32::MAX.into());
    if bytes > limit {
        return Err(FrameError::TooLong { bytes, limit });
    }
    let payload_bytes = bytes as u32;
    prelude[0..4].copy_from_slice(&MAGIC);
    prelude[4..6].copy_from_slice(&VERSION.to_le_bytes());
    prelude[8..12].copy_from_slice(&payload_bytes.to_le_bytes());
    let parts = core::iter::once(&*payload).chain(bodies.iter().map(|body| &body[..]));
    prelude[12..28].copy_from_slice(&seal.seal_frame(payload_bytes, parts).0);
    Ok(())
}

/// Decodes exactly one frame from all of `bytes`.
///
/// # Errors
/// Any [`FrameError`]; `Ok(None)` if the frame is truncated.
pub fn decode<T: DeserializeOwned>(
    bytes: &[u8],
    limit: u64,
    seal: &mut Seal,
) -> Result<Option<T>, FrameError> {
    let Some((prelude, payload)) = bytes.split_first_chunk::<PRELUDE_BYTES>() else {
        return Ok(None);
    };
    let prelude = Prelude::parse(prelude, limit)?;
    match payload.get(..prelude.payload_bytes as usize) {
        Some(payload) => prelude.decode(payload, seal).map(Some),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: u64 = 1 << 20;

    fn frame(words: &[String]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_into(&words.to_vec(), LIMIT, &mut Seal::of_strangers(), &mut bytes).unwrap();
        bytes
    }

    fn decode<T: DeserializeOwned>(bytes: &[u8], limit: u64) -> Result<Option<T>, FrameError> {
        super::decode(bytes, limit, &mut Seal::of_strangers())
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(words: Vec<String>) {
            let bytes = frame(&words);
            prop_assert_eq!(decode::<Vec<String>>(&bytes, LIMIT).unwrap(), Some(words));
        }

        #[test]
        fn a_truncated_frame_is_incomplete(words: Vec<String>, cut: prop::sample::Index) {
            let bytes = frame(&words);
            let cut = cut.index(bytes.len());
            prop_assert!(decode::<Vec<String>>(&bytes[..cut], LIMIT).unwrap().is_none());
        }

        #[test]
        fn a_flipped_bit_is_found(words: Vec<String>, bit: prop::sample::Index) {
            let mut bytes = frame(&words);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let decoded = decode::<Vec<String>>(&bytes, LIMIT);
            // A longer announced length only makes the frame incomplete.
            prop_assert!(!matches!(decoded, Ok(Some(_))), "{decoded:?}");
        }

        #[test]
        fn garbage_is_refused(bytes: Vec<u8>) {
            prop_assume!(!bytes.starts_with(&MAGIC));
            prop_assert!(!matches!(decode::<Vec<String>>(&bytes, LIMIT), Ok(Some(_))));
        }
    }

    #[test]
    fn each_kind_of_bad_prelude_has_its_error() {
        let good = frame(&["x".to_owned()]);
        let with = |at: usize, value: &[u8]| {
            let mut bytes = good.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            decode::<Vec<String>>(&bytes, LIMIT).unwrap_err()
        };
        assert!(matches!(with(0, b"HTTP"), FrameError::Magic(m) if &m == b"HTTP"));
        let other = VERSION + 1;
        assert!(matches!(with(4, &other.to_le_bytes()), FrameError::Version(version) if version == other));
        assert!(matches!(with(6, &[1, 0]), FrameError::Reserved(1)));
        assert!(
            matches!(with(8, &[255; 4]), FrameError::TooLong { bytes, limit: LIMIT } if bytes == u32::MAX.into())
        );
        assert!(matches!(with(12, &[0; 16]), FrameError::NotGenuine(_)));
    }

    #[test]
    fn a_batch_over_the_limit_is_refused_and_nothing_is_written() {
        let mut out = vec![1, 2, 3];
        let error = encode_into(&vec![0u8; 100], 50, &mut Seal::of_strangers(), &mut out).unwrap_err();
        assert!(matches!(error, FrameError::TooLong { limit: 50, .. }));
        assert_eq!(out, [1, 2, 3]);
    }

    /// The two ends of one direction.
    fn ends(key: u8) -> (Seal, Seal) {
        (Seal::new([key; 16]), Seal::new([key; 16]))
    }

    fn sealed(number: u32, seal: &mut Seal) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_into(&number, LIMIT, seal, &mut bytes).unwrap();
        bytes
    }

    /// Whether `frames` are accepted one after the other.
    fn accepts(frames: &[&Vec<u8>], seal: &mut Seal) -> bool {
        frames.iter().all(|frame| match super::decode::<u32>(frame, LIMIT, seal) {
            Ok(decoded) => decoded.is_some(),
            Err(FrameError::NotGenuine(_)) => false,
            Err(error) => panic!("{error}"),
        })
    }

    #[test]
    fn frames_are_accepted_once_in_order_and_from_the_other_side_only() {
        let (mut outward, _) = ends(1);
        let [a, b, c] = [0, 1, 2].map(|number| sealed(number, &mut outward));
        let (_, mut other) = ends(2);
        let foreign = sealed(0, &mut other);
        let strange = sealed(0, &mut Seal::of_strangers());
        let inward = || ends(1).1;
        assert!(accepts(&[&a, &b, &c], &mut inward()));
        assert!(!accepts(&[&a, &a], &mut inward()), "repeated");
        assert!(!accepts(&[&a, &b, &a], &mut inward()), "repeated later");
        assert!(!accepts(&[&b, &a], &mut inward()), "in another order");
        assert!(!accepts(&[&a, &c], &mut inward()), "one is left out");
        assert!(!accepts(&[&b], &mut inward()), "the first is left out");
        assert!(
            !accepts(&[&foreign], &mut inward()),
            "of another direction: sent back, or of another connection"
        );
        assert!(!accepts(&[&a, &strange], &mut inward()), "made up without the key");
        let mut shorter = a.clone();
        shorter[8] -= 1;
        assert!(!accepts(&[&shorter], &mut inward()), "cut, and said to be so");
        // What was refused is not taken in: the next one is still awaited.
        let mut patient = inward();
        assert!(!accepts(&[&b], &mut patient));
        assert!(accepts(&[&a, &b], &mut patient));
    }

    #[test]
    fn content_belongs_to_its_frame() {
        let (mut outward, mut inward) = ends(1);
        let tags = [b"one", b"two"].map(|content| {
            let tag = outward.seal_content(content);
            sealed(0, &mut outward);
            tag
        });
        assert!(inward.check_content(b"one", &tags[0]).is_err(), "there was no frame yet");
        let mut again = ends(1).0;
        assert!(accepts(&[&sealed(0, &mut again)], &mut inward));
        assert_eq!(inward.check_content(b"one", &tags[0]), Ok(()));
        assert!(inward.check_content(b"One", &tags[0]).is_err(), "changed");
        assert!(inward.check_content(b"on", &tags[0]).is_err(), "cut");
        assert!(inward.check_content(b"two", &tags[1]).is_err(), "of the next frame");
        assert!(accepts(&[&sealed(0, &mut again)], &mut inward));
        assert_eq!(inward.check_content(b"two", &tags[1]), Ok(()));
        assert!(inward.check_content(b"one", &tags[0]).is_err(), "of the frame before");
        assert!(ends(2).1.check_content(b"one", &tags[0]).is_err());
    }
}
