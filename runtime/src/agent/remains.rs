//! The memory that the processes of a host have handed over to their agent.
//!
//! What a process has left is read as peers of its host read it: a window's generation stands in the region,
//! and is compared before and after. So nothing has to be known of the process but its region, and it does
//! not matter whether it lives.

use std::sync::Arc;

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
        let read = tokio::task::spawn_blocking(read).await;
        read.unwrap_or_else(|error| Err(WindowError::NoRoom(error.to_string())))
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
    let no_room = |error: &dyn std::error::Error| {
        tracing::error!(%error, bytes = range.len, "no room to show what a process has left");
        WindowError::NoRoom(error.to_string())
    };
    let view = region.view(offset, range.len).map_err(|error| no_room(&error))?.ok_or_else(refused)?;
    let mut bytes = Vec::new();
    // An agent that lacks memory says so: with it all would go that its host has left.
    bytes.try_reserve_exact(view.bytes().len()).map_err(|error| no_room(&error))?;
    bytes.extend_from_slice(view.bytes());
    match region.is_still_open(slot, generation.0) {
        true => Ok(Held::Bytes(bytes.into())),
        false => Err(WindowError::Released),
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::message::RegionRef;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::*;
    use crate::memory::{region::Region, seqlock};

    /// Set in the process that has little address space.
    const MEANT: &str = "EVERFOLD_TEST_LITTLE_ADDRESS_SPACE";
    const NAME: &str = "agent::remains::tests::what_cannot_be_mapped_is_not_called_damaged";

    /// A limit on address space holds for a whole process: this test runs itself once more.
    #[test]
    fn what_cannot_be_mapped_is_not_called_damaged() {
        if std::env::var_os(MEANT).is_some() {
            return with_little_address_space();
        }
        let mut itself = std::process::Command::new(std::env::current_exe().unwrap());
        let output = itself.args([NAME, "--exact", "--nocapture"]).env(MEANT, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "it has run");
    }

    fn with_little_address_space() {
        let region = Region::new().unwrap();
        let handle: RegionRef = region.handle();
        assert!(handle.bytes > 1 << 30, "only its beginning is mapped at first");
        let peer = PeerRegion::adopt(region.file().try_clone_to_owned().unwrap(), &handle).unwrap();
        seqlock::open(region.generation(3), 5);
        let (_, most) = getrlimit(Resource::RLIMIT_AS).unwrap();
        // What is mapped stays; nothing as long as the region is mapped any more.
        setrlimit(Resource::RLIMIT_AS, handle.bytes, most).unwrap();
        let at = Some(RegionOffset(handle.bytes - 4096));
        let range = ByteRange { start: 0, len: 4096 };
        let read = copy(&peer, WindowId(3), Generation(5), range, at);
        assert!(matches!(read, Err(WindowError::NoRoom(_))), "{read:?}");
    }
}
