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
pub(super) struct Remains(DashMap<ProcessId, Arc<PeerRegion>>);

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
    pub fn of(&self, process: ProcessId) -> Arc<Left> {
        Arc::new(Left(self.0.get(&process).map(|region| region.clone())))
    }
}

/// What one process has left, if that is still needed.
#[derive(Debug)]
pub(super) struct Left(Option<Arc<PeerRegion>>);

impl Shelf for Left {
    async fn read(
        &self,
        window: WindowId,
        generation: Generation,
        range: ByteRange,
        at: Option<RegionOffset>,
    ) -> Result<Held, WindowError> {
        let region = self.0.as_ref().ok_or(WindowError::Released)?;
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
}
