//! The reads under way over one connection.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use everfold_protocol::message::ByteRange;
use tokio::sync::{Notify, oneshot};

use super::super::{ReadError, staging::Staging};

/// A read under way.
pub(super) type Read = (ByteRange, oneshot::Sender<Result<Staging, ReadError>>);

/// The reads under way over one connection.
#[derive(Debug, Default)]
pub(super) struct Pending {
    reads: Mutex<HashMap<u64, Read>>,
    added: Notify,
}

impl Pending {
    pub fn add(&self, number: u64, read: Read) {
        self.lock().insert(number, read);
        self.added.notify_one();
    }

    pub fn take(&self, number: u64) -> Option<Read> {
        self.lock().remove(&number)
    }

    /// The bytes of the longest read, if there is one.
    pub fn longest(&self) -> Option<u64> {
        self.lock().values().map(|(range, _)| range.len).max()
    }

    /// As [`longest`](Self::longest), once there is one.
    pub async fn some(&self) -> u64 {
        loop {
            match self.longest() {
                Some(longest) => return longest,
                None => self.added.notified().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Read>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
