//! Replicas of others' originals, as this rank shows them: one window for all segments of an original,
//! whichever are there.
//!
//! A replica that stays in memory lies in the region, if that has room. So it outlives this process: the agent
//! of this host shows it to others when the process has ended. Deliberately absent: making replicas, and how
//! much of them may be held at once.

use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use everfold_protocol::{
    ProcessId, ReductionId,
    message::{ByteRange, Data, KeepAs, Source, WindowRef, Writing},
};

use super::Share;
use crate::{
    keeper::{self, Keeper},
    memory::{
        buffer::{Buffer, ReadLease},
        region::Region,
        window::Content,
    },
};

/// Replicas by owner.
#[derive(Debug, Default)]
pub(super) struct Copies(Mutex<BTreeMap<ProcessId, Replica>>);

/// What there is for the replica of one original.
#[derive(Debug)]
struct Replica {
    /// Room for all of it in the region. It stays until the share goes, even if the keeper releases replicas
    /// before.
    room: Option<Arc<Buffer>>,
    window: Option<WindowRef>,
}

impl Copies {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ProcessId, Replica>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the replica of `source`'s original is to lie, if that is in the region. All segments of a replica
    /// lie there, or none does.
    fn room(&self, source: &Source, how: KeepAs, region: Option<&Arc<Region>>) -> Option<Arc<Buffer>> {
        let mut replicas = self.lock();
        let replica = replicas.entry(source.process).or_insert_with(|| {
            // A replica on its way to disk leaves memory again.
            let region = region.filter(|_| how.writing == Writing::Never);
            let block = usize::try_from(source.data.len()).ok().and_then(|len| region?.allocate(len));
            Replica { room: block.map(|block| Buffer::new(Box::new(block))), window: None }
        });
        replica.room.clone()
    }
}

/// Bytes of a buffer, lent for as long as this lives.
struct Lent(ReadLease);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Share {
    /// Puts `bytes`, which are `range` of `source`'s original or all of it, where they outlive this process,
    /// if that is possible. No reader may hold the bytes that lay there before.
    ///
    /// # Errors
    /// A reader holds the bytes that were there before.
    pub(crate) async fn shelter_copy(
        &self,
        source: &Source,
        range: Option<ByteRange>,
        bytes: Bytes,
        how: KeepAs,
    ) -> Result<Bytes, String> {
        let Some(room) = self.copies.room(source, how, self.shown.windows.region()) else { return Ok(bytes) };
        let (start, len) = (range.map_or(0, |range| range.start), bytes.len() as u64);
        let put = move || {
            room.write(start, len)?.copy_from_slice(&bytes);
            room.read(start, len).map(|lease| Bytes::from_owner(Lent(lease)))
        };
        let put = tokio::task::spawn_blocking(put).await.map_err(|error| error.to_string())?;
        put.map_err(|error| error.to_string())
    }

    /// Shows the replica of an original.
    pub(crate) fn show_copy(
        &self,
        keeper: &Arc<Keeper>,
        reduction: ReductionId,
        source: &Source,
        how: KeepAs,
    ) -> Result<Data, String> {
        let room = self.copies.room(source, how, self.shown.windows.region());
        let mut replicas = self.copies.lock();
        let Some(replica) = replicas.get_mut(&source.process) else {
            return Err("there is no replica".to_owned());
        };
        if let Some(window) = &replica.window {
            return Ok(Data::Window(window.clone()));
        }
        let checksum = match &source.data {
            Data::Window(window) => window.checksum,
            _ => None,
        };
        let kept = keeper::Kept {
            keeper: keeper.clone(),
            kind: everfold_storage::Kind::Replica,
            reduction,
            owner: source.process,
            bytes: source.data.len(),
            segment_bytes: NonZeroU64::new(how.segment_bytes),
            region_offset: room.and_then(|room| room.region_offset()),
            checksum,
        };
        let data = self.shown.publish(Content::Kept(Arc::new(kept))).map_err(|error| error.to_string())?;
        if let Data::Window(window) = &data {
            replica.window = Some(window.clone());
        }
        Ok(data)
    }
}
