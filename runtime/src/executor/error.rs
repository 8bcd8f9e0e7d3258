//! Why a body cannot be contributed.

use crate::body::BodyError;

/// There are too many windows open, or too little memory for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many reductions are in flight: there is no window left for another one; await some of them first"
)]
pub struct NoWindow;

/// Why a body cannot be contributed.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// See [`NoWindow`].
    #[error(transparent)]
    NoWindow(#[from] NoWindow),
    /// See [`BodyError`].
    #[error(transparent)]
    Body(#[from] BodyError),
    /// This rank has as many reductions in flight as it may have.
    #[error("{limit} reductions are in flight, which is the limit; await some of them first")]
    TooMany {
        /// The limit.
        limit: u64,
    },
    /// The encoded body is over the job's limit.
    #[error("the encoded body has {bytes} bytes; the limit of this job is {limit} (Config::body_bytes_max)")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}
