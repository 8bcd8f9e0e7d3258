//! A body on its way back to the application.

use std::{
    borrow::Cow,
    sync::{Arc, PoisonError},
};

use everfold_worker::machine::ExecutionError;

use super::{Kind, Share, array::handed_back, row};
use crate::{
    body::{BodyError, Object},
    memory::buffer::{Buffer, Memory, ReadLease, Unavailable},
};

impl Share {
    /// Makes the body of a `result` that lies in the partial: takes the partial, if both are memory of the
    /// same kind, or copies it. No other process needs it any more.
    async fn put_in_place(
        &self,
        result: Arc<Buffer>,
        original: Arc<Buffer>,
    ) -> Result<Arc<Buffer>, ExecutionError> {
        self.shown.release(|window| self.shown.windows.shows(window, &result));
        result.idle().await;
        if result.is_block() && original.is_block() {
            return Ok(result);
        }
        let copy = move || {
            let bytes = original.len() as u64;
            original.write(0, bytes)?.copy_from_slice(&result.read(0, bytes)?);
            Ok::<_, Unavailable>(original)
        };
        let copied = tokio::task::spawn_blocking(copy).await;
        let copied = copied.map_err(|error| ExecutionError::blame(self.me, error))?;
        copied.map_err(|error| ExecutionError::blame(self.me, error))
    }

    /// The result, once it is here.
    ///
    /// # Errors
    /// It was handed back, or cannot be encoded.
    pub(crate) fn value(&self) -> Result<Value, BodyError> {
        match &self.kind {
            Kind::Array(array) => {
                let lease = array.original()?.read(0, array.bytes as u64);
                lease.map(Value::Array).map_err(|error| BodyError::Failed(error.to_string()))
            }
            Kind::Object(object) => {
                let object = object.lock().unwrap_or_else(PoisonError::into_inner);
                object.as_ref().ok_or_else(handed_back)?.encode().map(Value::Object)
            }
            Kind::Pieces(row) => row.noted().map(Value::Object),
        }
    }

    /// Takes the body out: the result, where this rank was to have it. Waits for readers. Partials stay
    /// readable.
    ///
    /// # Errors
    /// It was taken before.
    pub async fn take_body(&self) -> Result<Returned, ExecutionError> {
        match &self.kind {
            Kind::Array(array) => {
                let original = array.original.lock().unwrap_or_else(PoisonError::into_inner).take();
                let original = original.ok_or_else(|| ExecutionError::blame(self.me, handed_back()))?;
                self.shown.release(|window| self.shown.windows.shows(window, &original));
                original.idle().await;
                if let Some(result) = array.take_beside() {
                    let result = self.put_in_place(result, original).await?;
                    return Ok(Returned::Array(alone(result).await));
                }
                Ok(Returned::Array(alone(original).await))
            }
            Kind::Object(object) => {
                let object = object.lock().unwrap_or_else(PoisonError::into_inner).take();
                object.map(Returned::Object).ok_or_else(|| ExecutionError::blame(self.me, handed_back()))
            }
            Kind::Pieces(row) => {
                let (result, lengths) =
                    row.take().ok_or_else(|| ExecutionError::blame(self.me, handed_back()))?;
                self.shown.release(|window| self.shown.windows.shows(window, &result));
                Ok(Returned::Pieces { memory: alone(result).await, lengths })
            }
        }
    }
}

/// Gives a buffer without windows back to its owner, once no process reads it.
async fn alone(mut buffer: Arc<Buffer>) -> Box<dyn Memory> {
    loop {
        buffer.idle().await;
        match buffer.into_owner() {
            Ok(owner) => return owner,
            // Another thread is about to drop it.
            Err(held) => buffer = held,
        }
        tokio::task::yield_now().await;
    }
}

/// The bytes of a result.
pub(crate) enum Value {
    /// Of an array, where they are.
    Array(ReadLease),
    /// Of an object, encoded; or of pieces, with their lengths.
    Object(Vec<u8>),
}

impl Value {
    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Array(lease) => lease,
            Self::Object(bytes) => bytes,
        }
    }
}

/// A body on its way back to the application.
pub enum Returned {
    /// The memory it came in.
    Array(Box<dyn Memory>),
    /// The object.
    Object(Box<dyn Object>),
    /// The pieces of those that have contributed, side by side.
    Pieces {
        /// Their bytes.
        memory: Box<dyn Memory>,
        /// How long each is.
        lengths: Vec<u64>,
    },
}

impl Returned {
    /// What came of a call on the board, for the result log.
    pub fn noted(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Array(memory) => memory.bytes().into(),
            Self::Pieces { memory, lengths } => row::noted(lengths, memory.bytes()).into(),
            Self::Object(_) => unreachable!("no object lies on a board"),
        }
    }
}
