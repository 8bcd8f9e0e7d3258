//! The memory that the processes of a host have handed over to their agent.
//!
//! What a process has left is read as peers of its host read it: a window's generation stands in the region,
//! and is compared before and after. So nothing has to be known of the process but its region, and it does
//! not matter whether it lives.

use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use everfold_protocol::{Generation, ProcessId, RegionOffset, WindowId, message::ByteRange};

use crate::memory::{
    mapping::GENERATIONS,
    peer_region::PeerRegion,
    window::{Held, Shelf, WindowError},
};

/// Regions by process.
#[derive(Debug, Default)]
pub struct Remains(DashMap<ProcessId, Arc<PeerRegion>>);

impl Remains {
    /// Holds a region from now on.
    pub fn hold(&self, process: ProcessId, region: Arc<PeerRegion>) {
        self.0.insert(process, region);
    }

    /// Gives it back to the system, once nobody reads it any more.
    pub fn release(&self, process: ProcessId) {
        self.0.remove(&process);
    }

    /// What `process` has handed over.
    pub fn of(self: &Arc<Self>, process: ProcessId) -> Arc<Left> {
        Arc::new(Left { remains: self.clone(), process })
    }
}

/// What one process has left, as long as that is needed.
#[derive(Debug)]
pub struct Left {
    remains: Arc<Remains>,
    process: ProcessId,
}

/// So much is copied on the spot. The thread that serves also answers the master's pings.
const ON_THE_SPOT_BYTES: u64 = 128 << 10;

impl Shelf for Left {
    async fn read(
        &self,
        window: WindowId,
        generation: Generation,
        range: ByteRange,
        at: Option<RegionOffset>,
    ) -> Result<Held, WindowError> {
        let region = self.remains.0.get(&self.process).map(|region| region.clone());
        let region = region.ok_or(WindowError::Released)?;
        let read = move || copy(&region, window, generation, range, at);
        if range.len <= ON_THE_SPOT_BYTES {
            return read();
        }
        tokio::task::spawn_blocking(read).await.unwrap_or(Err(WindowError::Damaged))
    }
}

fn copy(
    region: &PeerRegion,
    window: WindowId,
    generation: Generation,
    range: ByteRange,
    at: Option<RegionOffset>,
) -> Result<Held, WindowError> {
    let refused = || WindowError::Range { start: range.start, end: range.end() };
    let offset = at.and_then(|at| at.0.checked_add(range.start)).ok_or_else(refused)?;
    let slot = usize::try_from(window.0).ok().filter(|slot| *slot < GENERATIONS);
    let slot = slot.filter(|slot| region.is_open(*slot, generation.0)).ok_or(WindowError::Released)?;
    let view = region.view(offset, range.len).map_err(|_| WindowError::Damaged)?.ok_or_else(refused)?;
    let bytes = Bytes::copy_from_slice(view.bytes());
    match region.is_still_open(slot, generation.0) {
        true => Ok(Held::Bytes(bytes)),
        false => Err(WindowError::Released),
    }
}
