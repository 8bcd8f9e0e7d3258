//! One-sided reads on the same host.
//!
//! What lies in a peer's region is mapped and folded straight from there. What lies in its private memory, such as a
//! `Vec` of the application, is copied with `process_vm_readv`; the peer's threads do not notice either.

use std::{io, io::IoSliceMut, sync::Arc};

use dashmap::DashMap;
use everfold_protocol::{
    ProcessId,
    message::{ByteRange, Peer, Place, WindowRef},
};
use futures::{FutureExt, future::BoxFuture};
use nix::{
    sys::uio::{RemoteIoVec, process_vm_readv},
    unistd::Pid,
};

use super::{Fetched, Mapped, OneSidedRead, ReadError, check_range, staging::Pool};
use crate::memory::region::PeerRegion;

/// Reads windows of processes on this host.
#[derive(Debug, Default)]
pub struct Shm {
    regions: DashMap<ProcessId, Arc<PeerRegion>>,
    pool: Pool,
}

impl Shm {
    /// A reader that has mapped nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The region of `peer`, mapped at the first use.
    fn region(&self, peer: &Peer) -> Result<Arc<PeerRegion>, ReadError> {
        if let Some(region) = self.regions.get(&peer.process) {
            return Ok(region.clone());
        }
        let handle = peer.region.ok_or(io::ErrorKind::Unsupported).map_err(io::Error::from)?;
        let region = PeerRegion::open(peer.pid, handle)?;
        self.regions.insert(peer.process, region.clone());
        Ok(region)
    }

    /// Maps the region of `peer` now, so that it can be read after its death, too.
    pub fn map(&self, peer: &Peer) {
        if peer.region.is_some()
            && let Err(error) = self.region(peer)
        {
            tracing::debug!(process = %peer.process, %error, "cannot map its memory");
        }
    }

    /// Forgets a process whose memory is not to be read any more.
    pub fn forget(&self, process: ProcessId) {
        self.regions.remove(&process);
    }
}

impl OneSidedRead for Shm {
    fn read<'a>(
        &'a self,
        peer: &'a Peer,
        window: &'a WindowRef,
        range: ByteRange,
    ) -> BoxFuture<'a, Result<Fetched, ReadError>> {
        async move {
            check_range(window, range)?;
            let region = self.region(peer)?;
            let slot = window.window.0 as usize;
            let generation = window.generation.0;
            if region.generation(slot) != generation {
                return Err(ReadError::Released);
            }
            match window.place {
                Place::Region(offset) => {
                    let offset = offset.0 + range.start;
                    let outside = ReadError::Range { start: range.start, end: range.end() };
                    region.bytes(offset, range.len).ok_or(outside)?;
                    Ok(Fetched::Mapped(Mapped { region, offset, len: range.len, slot, generation }))
                }
                Place::Memory(address) => {
                    let pid = Pid::from_raw(peer.pid as i32);
                    let mut staging = self.pool.take(range.len as usize);
                    let copy = move || {
                        copy_from(pid, (address + range.start) as usize, &mut staging).map(|()| staging)
                    };
                    let staging = tokio::task::spawn_blocking(copy).await.map_err(io::Error::other)??;
                    if region.generation(slot) != generation {
                        return Err(ReadError::Released);
                    }
                    Ok(Fetched::Staged(staging))
                }
                Place::Served => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
            }
        }
        .boxed()
    }
}

/// Fills `target` from another process's memory.
fn copy_from(pid: Pid, address: usize, target: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < target.len() {
        let rest = &mut target[done..];
        let remote = RemoteIoVec { base: address + done, len: rest.len() };
        match process_vm_readv(pid, &mut [IoSliceMut::new(rest)], &[remote])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => done += bytes,
        }
    }
    Ok(())
}

/// Lets all processes of this user read this one's memory, where the Yama security module forbids it to siblings.
///
/// Without it such reads fail and go through the server instead.
pub fn allow_peers() {
    // SAFETY: this option takes plain integers and touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    // Fails where there is no Yama, and then nothing needs to be allowed.
    tracing::trace!(result, "allowed peers to read this process");
}

/// A number that is equal for two processes exactly if they can share memory: same boot of the same kernel, same
/// namespace of process ids, same user.
pub fn host_id() -> io::Result<u64> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = std::fs::read_link("/proc/self/ns/pid")?;
    let user = nix::unistd::geteuid();
    Ok(xxhash_rust::xxh3::xxh3_64(format!("{boot} {} {user}", namespace.display()).as_bytes()))
}
