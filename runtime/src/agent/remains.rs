//! The memory that the processes of a host have handed over to their agent.
//!
//! The memory of a dead process is read as peers of its host read it: a window's generation stands in the
//! region, and is compared before and after. So the agent needs nothing but the region, and it does not
//! matter whether the process lives.
//!
//! State that a process [keeps](crate::memory::catalogue) stays when its other memory is not needed any more,
//! until the job ends, or a later process of its rank is released, too.

use std::{fs::File, io, ops::Range, sync::Arc};

use dashmap::DashMap;
use everfold_protocol::{Generation, ProcessId, RegionOffset, WindowId, message::ByteRange};

use nix::fcntl::{FallocateFlags, fallocate};

use crate::memory::{
    catalogue,
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

    /// Gives a region back to the system, once no process reads it any more, unless its process keeps state
    /// there.
    pub fn release(&self, process: ProcessId) {
        let is_earlier =
            |other: &ProcessId| other.rank == process.rank && other.incarnation.0 < process.incarnation.0;
        self.0.retain(|other, _| !is_earlier(other));
        let region = self.0.get(&process).map(|region| region.clone());
        let kept = region.map_or(0, |region| kept(&region).len());
        if kept <= 1 {
            self.0.remove(&process);
        }
    }

    /// Gives back to the system the memory of a process that has ended, but for its kept state.
    pub fn thin(&self, process: ProcessId) {
        let Some(region) = self.0.get(&process).map(|region| region.clone()) else { return };
        let kept = kept(&region);
        let starts = kept.iter().map(|range| range.end);
        let ends = kept.iter().skip(1).map(|range| range.start).chain([region.bytes()]);
        for (start, end) in starts.zip(ends).filter(|(start, end)| start < end) {
            if let Err(error) = punch(region.file(), start, end - start) {
                return tracing::warn!(%process, %error, "memory of a dead process stays until the job ends");
            }
        }
    }

    /// What `process` has handed over.
    pub fn of(self: &Arc<Self>, process: ProcessId) -> Arc<Left> {
        Arc::new(Left { remains: self.clone(), process })
    }
}

/// What of a region is kept.
fn kept(region: &PeerRegion) -> Vec<Range<u64>> {
    let (_, offset, range) = catalogue::window();
    let view = region.view(offset.0, range.len).ok().flatten();
    view.map_or_else(Vec::new, |view| catalogue::kept_ranges(view.bytes()))
}

/// Makes a hole in a file of shared memory, which reads as zeros.
fn punch(file: &File, start: u64, bytes: u64) -> io::Result<()> {
    let signed = |bytes| i64::try_from(bytes).map_err(io::Error::other);
    let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    Ok(fallocate(file, how, signed(start)?, signed(bytes)?)?)
}

/// What one process has left, as long as that is needed.
#[derive(Debug)]
pub struct Left {
    remains: Arc<Remains>,
    process: ProcessId,
}

/// So much is copied on the spot. The thread that serves also answers the master's pings.
const COPIED_ON_THE_SPOT_BYTES: u64 = 128 << 10;

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
        if range.len <= COPIED_ON_THE_SPOT_BYTES {
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
        tracing::error!(%error, bytes = range.len, "this agent has no room to show the memory of a process");
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
    use std::os::unix::fs::MetadataExt;

    use crate::memory::{
        catalogue::{Search, Sight},
        region::Region,
        seqlock,
        window::Windows,
    };

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

    #[test]
    fn what_is_kept_stays_and_the_rest_goes() {
        let region = Region::new().unwrap();
        let windows = Windows::new(Some(region.clone()));
        let one = ProcessId::first(1);
        let hold = || {
            let file = region.file().try_clone_to_owned().unwrap();
            PeerRegion::adopt(file, &region.handle()).unwrap()
        };
        let remains = Remains::default();
        remains.hold(one, hold());
        remains.release(one);
        assert!(remains.0.is_empty(), "it kept nothing");

        let mut array = region.allocate(8 << 20).unwrap();
        array.bytes_mut().fill(1);
        let catalogue = windows.catalogue().unwrap();
        catalogue.keep(7, 0, b"state").unwrap();
        let peer = hold();
        remains.hold(one, peer.clone());
        remains.release(one);
        assert!(remains.0.contains_key(&one));
        let before = peer.file().metadata().unwrap().blocks();
        remains.thin(one);
        assert!(peer.file().metadata().unwrap().blocks() + (7 << 20) / 512 < before);
        let (window, at, range) = catalogue::window();
        let read = copy(&peer, window.window, window.generation, range, Some(at)).unwrap();
        let Sight::Kept(entry) = Search::new(7).look(&read) else { panic!("it is kept") };
        let (window, at) = catalogue::window_of(&entry);
        let range = ByteRange { start: 0, len: entry.bytes() };
        let state = copy(&peer, window.window, window.generation, range, Some(at)).unwrap();
        assert!(entry.is(&state) && &*state == b"state");
        remains.release(ProcessId { incarnation: everfold_protocol::Incarnation(1), ..one });
        assert!(remains.0.is_empty(), "a later process of its rank has gone, too");
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
