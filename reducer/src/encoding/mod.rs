//! The encoding of objects, and what is refused because it would not come back from it.
//!
//! The encoding has no names and no types in it: the decoder asks for the fields that the type declares, in
//! order, and takes the next bytes for them. A value that leaves a field out, or announces another length
//! than it writes, still encodes, and what comes back is another value. So every encoding is *watched*: it
//! ends in an error where the value does what the encoding cannot express. What cannot be seen while
//! encoding, such as a field that is never written or two fields that are read in the other order, shows when
//! the value is decoded and encoded again. That is done with the first body of a type in a process, and again
//! with each that shows a struct or variant not seen before.

mod serializer;
mod watch;

use std::{
    any::{TypeId, type_name},
    collections::HashMap,
    sync::{LazyLock, PoisonError, RwLock},
};

use everfold_protocol::codec;
use everfold_runtime::body::{BodyError, Unfit};
use serde::{Serialize, de::DeserializeOwned};

use self::{
    serializer::Watched,
    watch::{Parts, Watch},
};

/// What has been seen of each type, and comes back.
static KNOWN: LazyLock<RwLock<HashMap<TypeId, Parts>>> = LazyLock::new(RwLock::default);

/// Encodes `value`.
///
/// # Errors
/// [`BodyError::Unfit`] if it would not come back, [`BodyError::Failed`] if its own `Serialize` fails.
pub(crate) fn encode<T: Serialize + DeserializeOwned + 'static>(value: &T) -> Result<Vec<u8>, BodyError> {
    let (bytes, parts) = watched::<T, false>(value)?;
    if !known::<T>().is_some_and(|known| known.include(parts)) {
        comes_back(value, &bytes)?;
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(TypeId::of::<T>()).or_default().add(parts);
    }
    Ok(bytes)
}

/// Decodes a value.
///
/// # Errors
/// [`BodyError::Failed`] if `bytes` are no encoding of a `T`, or of one that is too deep.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BodyError> {
    codec::decode(bytes).map_err(|error| BodyError::Failed(error.to_string()))
}

/// Makes sure of a type whose values come back, if none was encoded in this process yet.
///
/// # Errors
/// As [`encode`].
pub(crate) fn check<T: Serialize + DeserializeOwned + 'static>(value: &T) -> Result<(), BodyError> {
    match known::<T>() {
        Some(_) => Ok(()),
        None => encode(value).map(drop),
    }
}

fn known<T: 'static>() -> Option<Parts> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&TypeId::of::<T>()).copied()
}

/// The encoding of `value`, its sequences and maps in the order of their bytes if `SORTED`; and what has been
/// seen in it.
fn watched<T: Serialize, const SORTED: bool>(value: &T) -> Result<(Vec<u8>, Parts), BodyError> {
    let watch = Watch::default();
    let bytes =
        codec::encode(&Watched::<T, SORTED>::new(value, &watch)).map_err(|error| match watch.unfit() {
            Some(unfit) => BodyError::Unfit { type_name: type_name::<T>(), unfit },
            None => BodyError::Failed(error.to_string()),
        })?;
    Ok((bytes, watch.parts()))
}

/// Decodes what `value` was encoded to, and encodes it again.
fn comes_back<T: Serialize + DeserializeOwned>(value: &T, bytes: &[u8]) -> Result<(), BodyError> {
    let unfit = |unfit| BodyError::Unfit { type_name: type_name::<T>(), unfit };
    let decoded: T = decode(bytes).map_err(|error| match error {
        BodyError::Failed(reason) => unfit(Unfit::Undecodable { reason }),
        error => error,
    })?;
    let (again, _) = watched::<T, false>(&decoded)?;
    // Sets and maps that are ordered by a hash come back in another order.
    if again != bytes && watched::<T, true>(&decoded)?.0 != watched::<T, true>(value)?.0 {
        return Err(unfit(Unfit::Changed));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
