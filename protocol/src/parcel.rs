//! A batch of messages with long bodies, which follow the messages, so that nobody copies them on their way.
//!
//! ```text
//! header and messages; bodies that follow are empty here     encoded by `codec`
//! which bodies follow, and how long each is                  encoded by `codec`
//! zeros, up to a multiple of 64 bytes
//! the bodies, one after the other
//! ```
//! A parcel without long bodies ends behind its messages. The sender hands bodies to its connection where they
//! lie, and the receiver's messages share the memory that the parcel came in.

use alloc::vec::Vec;
use core::ops::Range;

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use crate::codec::{self, CodecError};

/// Bodies from this length on follow the messages. Shorter ones are copied: that costs less than a further part.
pub const LONG_BYTES: usize = 16 << 10;

/// Where the first body begins: aligned for every element type, and in step with what seals take at a time.
const ALIGNMENT: usize = 64;

/// What may carry bodies.
pub trait Carry {
    /// Visits those that are worth sending without a copy, always in the same order.
    fn each_body(&mut self, visit: &mut dyn FnMut(&mut Bytes));
}

impl Carry for Bytes {
    fn each_body(&mut self, visit: &mut dyn FnMut(&mut Bytes)) {
        visit(self);
    }
}

/// Why bytes are no parcel.
#[derive(Debug, thiserror::Error)]
pub enum ParcelError {
    /// Its messages, or the list of bodies, are none.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// What follows the messages is not the bodies that belong there.
    #[error("the bodies that follow are not those of the messages")]
    Bodies,
}

/// A body that is out of its message, and its number in the batch.
type Taken = (u32, Bytes);

/// Appends a parcel to `out`, but for the bodies that follow, which are returned. They are out of their messages
/// then.
///
/// # Errors
/// [`CodecError::Encode`]; the messages are then as they were, and `out` may hold a part of them.
pub fn encode<H: Serialize, M: Serialize + Carry>(
    header: &H,
    messages: &mut [M],
    out: &mut Vec<u8>,
) -> Result<Following, CodecError> {
    let taken = take_out(messages);
    let start = out.len();
    let encoded = codec::encode_into(&(header, &*messages), out).and_then(|()| match taken.is_empty() {
        true => Ok(()),
        false => {
            let lengths: Vec<(u32, u64)> =
                taken.iter().map(|(number, body)| (*number, body.len() as u64)).collect();
            codec::encode_into(&lengths, out)?;
            let len = (out.len() - start).next_multiple_of(ALIGNMENT);
            out.resize(start + len, 0);
            Ok(())
        }
    });
    let following = Following(taken);
    match encoded {
        Ok(()) => Ok(following),
        Err(error) => {
            following.put_back(messages);
            Err(error)
        }
    }
}

/// The bodies that follow the messages of a parcel.
#[derive(Debug)]
pub struct Following(Vec<Taken>);

impl Following {
    /// One after the other.
    pub fn bodies(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter().map(|(_, body)| body)
    }

    /// Puts them back into the messages that they were taken out of.
    pub fn put_back<M: Carry>(self, messages: &mut [M]) {
        put_back(messages, self.0);
    }
}

/// Decodes a parcel from all of `payload`; `lend` gives a range of it.
///
/// # Errors
/// It is none.
pub fn decode<H: DeserializeOwned, M: DeserializeOwned + Carry>(
    payload: &[u8],
    lend: impl Fn(Range<usize>) -> Bytes,
) -> Result<(H, Vec<M>), ParcelError> {
    let ((header, mut messages), used) = codec::decode_first::<(H, Vec<M>)>(payload)?;
    if used == payload.len() {
        return Ok((header, messages));
    }
    let (lengths, more) = codec::decode_first::<Vec<(u32, u64)>>(&payload[used..])?;
    let listed = used + more;
    let mut start = listed.next_multiple_of(ALIGNMENT);
    let mut taken = Vec::with_capacity(lengths.len());
    for (number, len) in lengths {
        let len = usize::try_from(len).map_err(|_| ParcelError::Bodies)?;
        let end = start.checked_add(len).filter(|end| len >= LONG_BYTES && *end <= payload.len());
        let end = end.ok_or(ParcelError::Bodies)?;
        taken.push((number, lend(start..end)));
        start = end;
    }
    let is_padded = payload.get(listed..listed.next_multiple_of(ALIGNMENT));
    let is_padded = is_padded.is_some_and(|padding| padding.iter().all(|byte| *byte == 0));
    let is_whole = is_padded && !taken.is_empty() && start == payload.len();
    match is_whole && put_back(&mut messages, taken) {
        true => Ok((header, messages)),
        false => Err(ParcelError::Bodies),
    }
}

/// Takes long bodies out of their messages.
fn take_out<M: Carry>(messages: &mut [M]) -> Vec<Taken> {
    let (mut taken, mut number) = (Vec::new(), 0);
    for message in messages {
        message.each_body(&mut |body| {
            if body.len() >= LONG_BYTES {
                taken.push((number, core::mem::take(body)));
            }
            number += 1;
        });
    }
    taken
}

/// Puts bodies into their messages. Returns whether each has found an empty place.
fn put_back<M: Carry>(messages: &mut [M], taken: Vec<Taken>) -> bool {
    let (mut left, mut number) = (taken.into_iter().peekable(), 0);
    for message in messages {
        message.each_body(&mut |body| {
            if let Some((_, taken)) = left.next_if(|(place, _)| *place == number && body.is_empty()) {
                *body = taken;
            }
            number += 1;
        });
    }
    left.next().is_none()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn body(len: usize) -> Bytes {
        (0..len).map(|at| (at * 7 + len) as u8).collect()
    }

    fn parcel(messages: &[Bytes]) -> Vec<u8> {
        let (mut messages, mut out) = (messages.to_vec(), Vec::new());
        let following = encode(&7u32, &mut messages, &mut out).unwrap();
        following.bodies().for_each(|body| out.extend_from_slice(body));
        out
    }

    fn opened(payload: &[u8]) -> Result<(u32, Vec<Bytes>), ParcelError> {
        decode(payload, |range| Bytes::copy_from_slice(&payload[range]))
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(lengths in prop::collection::vec(prop_oneof![0usize..40, 16_000usize..17_000], 0..6)) {
            let messages: Vec<Bytes> = lengths.into_iter().map(body).collect();
            let payload = parcel(&messages);
            prop_assert_eq!(opened(&payload).unwrap(), (7, messages.clone()));
            prop_assert!(opened(&payload[..payload.len() - 1]).is_err(), "it was cut");
            prop_assert!(opened(&[&payload[..], &[0]].concat()).is_err(), "something follows");
        }
    }

    #[test]
    fn long_bodies_are_lent_and_begin_where_any_element_may() {
        let messages = [body(3), body(LONG_BYTES), body(LONG_BYTES + 64)];
        let payload = Bytes::from(parcel(&messages));
        let (_, opened) = decode::<u32, Bytes>(&payload, |range| payload.slice(range)).unwrap();
        assert_eq!(opened, messages);
        let begins: Vec<usize> =
            opened[1..].iter().map(|it| it.as_ptr() as usize - payload.as_ptr() as usize).collect();
        assert_eq!(begins, [ALIGNMENT, ALIGNMENT + LONG_BYTES]);
    }

    #[test]
    fn bodies_that_belong_nowhere_are_refused() {
        let mut message = body(LONG_BYTES);
        let with = |list: &[(u32, u64)], messages: &[Bytes], pad: u8, bodies: &[u8]| {
            let mut out = codec::encode(&(7u32, messages)).unwrap();
            codec::encode_into(&list.to_vec(), &mut out).unwrap();
            out.resize(out.len().next_multiple_of(ALIGNMENT), pad);
            out.extend_from_slice(bodies);
            opened(&out)
        };
        let (long, none) = (LONG_BYTES as u64, Bytes::new());
        let empty = std::slice::from_ref(&none);
        assert!(with(&[(0, long)], empty, 0, &message).is_ok());
        assert!(with(&[(1, long)], empty, 0, &message).is_err(), "there is no such body");
        assert!(
            with(&[(0, long)], std::slice::from_ref(&message), 0, &message).is_err(),
            "it is there already"
        );
        assert!(
            with(&[(0, long - 1)], empty, 0, &message[1..]).is_err(),
            "a short one has no need to follow"
        );
        assert!(with(&[(0, u64::MAX)], empty, 0, &message).is_err());
        assert!(with(&[(0, long)], empty, 1, &message).is_err(), "something is between them");
        assert!(with(&[], empty, 0, &[]).is_err(), "a list of none");
        let both = [message.clone(), message.clone()].concat();
        assert!(with(&[(0, long), (0, long)], empty, 0, &both).is_err(), "two for one place");
        // A message that cannot be sent is as it was.
        let following = encode(&7u32, std::slice::from_mut(&mut message), &mut Vec::new()).unwrap();
        assert!(message.is_empty());
        following.put_back(std::slice::from_mut(&mut message));
        assert_eq!(message, body(LONG_BYTES));
    }
}
