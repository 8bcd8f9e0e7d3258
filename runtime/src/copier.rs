//! Replicas of other ranks' originals: made, shown, written to disk.

use std::sync::Arc;

use bytes::Bytes;
use everfold_protocol::{
    ProcessId, ReductionId, SegmentIndex,
    message::{ByteRange, Data, Fault, Keep, KeepAs, Kept, NotKept, Writing},
};
use everfold_storage::{Kind, RecordKey};

use crate::{
    executor::Share,
    keeper::{self, KeepError, Keeper},
    peers::Peers,
};

/// Makes copies of other ranks' originals, and shows them.
pub struct Copier {
    keeper: Arc<Keeper>,
    peers: Arc<Peers>,
    /// Hears of copies that could not be written to disk after they had been acknowledged.
    trouble: Arc<dyn Fn(Kept) + Send + Sync>,
}

impl Copier {
    /// Copies what `peers` reach into `keeper`.
    ///
    /// `trouble` hears of copies that could not be written to disk after they had been acknowledged.
    pub fn new(
        keeper: Arc<Keeper>,
        peers: Arc<Peers>,
        trouble: impl Fn(Kept) + Send + Sync + 'static,
    ) -> Self {
        Self { keeper, peers, trouble: Arc::new(trouble) }
    }

    /// Makes the copies that `keep` asks for.
    pub async fn copy(&self, share: &Share, keep: Keep) -> Kept {
        let Keep { reduction, source, segments, how } = keep;
        let copied = async {
            for index in segments.clone().map(SegmentIndex) {
                let range = segment_range(&source.data, how, index);
                let bytes = self.peers.copy(&source, range).await;
                let bytes = bytes.map_err(|error| match error.fault {
                    Fault::Unreachable => NotKept::Unreachable,
                    Fault::Gone => NotKept::Gone,
                    _ => NotKept::Impossible(error.to_string()),
                })?;
                let key = record_key(reduction, source.process, index, how);
                // A copy that is there already, if it is made again, lies where this one is to lie.
                self.keeper.unload(Kind::Replica, key);
                let bytes = share.shelter_copy(&source, range, bytes, how).await?;
                self.keep(key, index, bytes, how).await?;
            }
            share.show_copy(&self.keeper, reduction, &source, how).map_err(NotKept::from)
        };
        let result = copied.await;
        Kept { reduction, owner: source.process, segments, result }
    }

    async fn keep(
        &self,
        key: RecordKey,
        index: SegmentIndex,
        bytes: Bytes,
        how: KeepAs,
    ) -> Result<(), String> {
        let (keeper, kind) = (&self.keeper, Kind::Replica);
        let kept = match how.writing {
            Writing::Never => keeper.keep(kind, key, bytes, keeper::Medium::Memory).await,
            Writing::Through => keeper.keep(kind, key, bytes, keeper::Medium::Disk).await,
            Writing::Behind => match keeper.keep(kind, key, bytes.clone(), keeper::Medium::Memory).await {
                Ok(()) => {
                    self.write_behind(index, key, bytes);
                    Ok(())
                }
                Err(KeepError::Full { .. }) => keeper.keep(kind, key, bytes, keeper::Medium::Disk).await,
                Err(error) => Err(error),
            },
        };
        kept.map_err(|error| error.to_string())
    }

    /// Writes a replica in memory to disk, and then keeps it only there.
    fn write_behind(&self, index: SegmentIndex, key: RecordKey, bytes: Bytes) {
        let (keeper, trouble) = (self.keeper.clone(), self.trouble.clone());
        let kind = Kind::Replica;
        tokio::spawn(async move {
            match keeper.keep(kind, key, bytes, keeper::Medium::Disk).await {
                Ok(()) => keeper.unload(kind, key),
                Err(KeepError::Released | KeepError::Closed) => {}
                Err(error) => trouble(Kept {
                    reduction: key.reduction,
                    owner: key.owner,
                    segments: index.0..index.0 + 1,
                    result: Err(NotKept::Impossible(format!("the copy is only in memory: {error}"))),
                }),
            }
        });
    }
}

/// Under which key a segment is kept; without segments, the whole original.
fn record_key(reduction: ReductionId, owner: ProcessId, index: SegmentIndex, how: KeepAs) -> RecordKey {
    RecordKey { reduction, owner, segment: (how.segment_bytes > 0).then_some(index) }
}

/// Where a segment lies in an original.
fn segment_range(data: &Data, how: KeepAs, index: SegmentIndex) -> Option<ByteRange> {
    let start = u64::from(index.0) * how.segment_bytes;
    let len = how.segment_bytes.min(data.len().saturating_sub(start));
    (how.segment_bytes > 0).then_some(ByteRange { start, len })
}
