//! A contribution that a keeper holds, as a window shows it.

use std::{num::NonZeroU64, sync::Arc};

use bytes::Bytes;
use everfold_protocol::{ProcessId, ReductionId, SegmentIndex, message::ByteRange};
use everfold_storage::{Kind, RecordKey};

use super::{KeepError, Keeper};

/// A contribution that is kept as one record, or as one for each segment.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Who keeps it.
    pub keeper: Arc<Keeper>,
    /// Whether it is an original or a replica, seen from whose store it lies in.
    pub kind: Kind,
    /// Which reduction.
    pub reduction: ReductionId,
    /// Whose contribution.
    pub owner: ProcessId,
    /// Length of the whole contribution in bytes.
    pub bytes: u64,
    /// Length in bytes of each segment but the last, which may be shorter. `None`: all of it is one record.
    pub segment_bytes: Option<NonZeroU64>,
    /// Where all of it lies in this process's region, if it does.
    pub region_offset: Option<u64>,
    /// Checksum of the whole contribution, if it has one.
    pub checksum: Option<u64>,
}

/// Why what should be kept cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// A record cannot be read, or is damaged.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// A record is not there.
    #[error("there is no {kind} of {key}")]
    Missing {
        /// Of which kind.
        kind: Kind,
        /// Under which key.
        key: RecordKey,
    },
    /// A record is whole, but is not the one that should be there.
    #[error("the {kind} of {key} has {bytes} bytes instead of {expected}")]
    Length {
        /// Of which kind.
        kind: Kind,
        /// Under which key.
        key: RecordKey,
        /// Its length.
        bytes: u64,
        /// What it should be.
        expected: u64,
    },
}

impl Kept {
    /// The bytes in `range`, which lies inside. Each record that it touches is read as a whole; they are
    /// copied only if there are several.
    ///
    /// # Errors
    /// [`KeptError`]. Bytes are returned only if all of them are what was kept.
    pub async fn read(&self, range: ByteRange) -> Result<Bytes, KeptError> {
        let segment_bytes = self.segment_bytes.map_or(self.bytes.max(1), NonZeroU64::get);
        let mut gathered = Vec::new();
        let mut start = range.start;
        while start < range.end() {
            let index = start / segment_bytes;
            let first = index * segment_bytes;
            let len = segment_bytes.min(self.bytes - first);
            let record = self.record(index, len).await?;
            let end = range.end().min(first + len);
            let part = record.slice((start - first) as usize..(end - first) as usize);
            if part.len() as u64 == range.len {
                return Ok(part);
            }
            gathered.reserve_exact(range.len as usize - gathered.len());
            gathered.extend_from_slice(&part);
            start = end;
        }
        Ok(gathered.into())
    }

    /// The record of the segment with this index, which has `expected` bytes.
    async fn record(&self, index: u64, expected: u64) -> Result<Bytes, KeptError> {
        let &Self { kind, reduction, owner, .. } = self;
        let segment = self.segment_bytes.map(|_| SegmentIndex(index as u32));
        let key = RecordKey { reduction, owner, segment };
        let record = self.keeper.read(kind, key).await?.ok_or(KeptError::Missing { kind, key })?;
        let bytes = record.len() as u64;
        if bytes == expected { Ok(record) } else { Err(KeptError::Length { kind, key, bytes, expected }) }
    }
}
