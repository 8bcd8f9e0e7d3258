//! One-sided reads on the same host.
//!
//! What lies in a peer's region is mapped and folded straight from there. What lies in its private memory,
//! such as a `Vec` of the application, is copied with `process_vm_readv`; the peer's threads do not notice
//! either.

use std::{io, io::IoSliceMut, sync::Arc};

use dashmap::DashMap;
use everfold_protocol::{
    ProcessId,
    message::{ByteRange, Peer, Place, RegionRef, WindowRef},
};
use futures::{FutureExt, future::BoxFuture};
use nix::{
    sys::uio::{RemoteIoVec, process_vm_readv},
    unistd::Pid,
};

use super::{Fetched, Mapped, OneSidedRead, ReadError, check_range, staging::Pool};
use crate::{
    ancestry::common_ancestor,
    memory::{mapping::GENERATIONS, peer_region::PeerRegion},
};

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
        let region = PeerRegion::open(peer.pid, &region_of(peer)?).map_err(io::Error::from)?;
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
            if slot >= GENERATIONS || !region.is_open(slot, generation) {
                return Err(ReadError::Released);
            }
            match window.place {
                Place::Region(offset) => {
                    let outside = ReadError::Range { start: range.start, end: range.end() };
                    let view =
                        region.view(offset.0.saturating_add(range.start), range.len)?.ok_or(outside)?;
                    Ok(Fetched::Mapped(Mapped { region, view, slot, generation }))
                }
                Place::Memory(address) => {
                    let mut staging = self.pool.take(range.len as usize);
                    let memory = PrivateMemory::of(peer)?;
                    let copy = move || {
                        memory.copy(address.saturating_add(range.start), &mut staging).map(|()| staging)
                    };
                    let staging = tokio::task::spawn_blocking(copy).await.map_err(io::Error::other)??;
                    if !region.is_still_open(slot, generation) {
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

fn region_of(peer: &Peer) -> io::Result<RegionRef> {
    peer.region.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// The private memory of a process on this host.
struct PrivateMemory {
    pid: Pid,
    /// What proves that the process with that id is the one that is meant.
    region: RegionRef,
}

impl PrivateMemory {
    fn of(peer: &Peer) -> io::Result<Self> {
        let pid = i32::try_from(peer.pid).map_err(io::Error::other)?;
        Ok(Self { pid: Pid::from_raw(pid), region: region_of(peer)? })
    }

    /// Fills `target` from the bytes at `address`.
    fn copy(&self, address: u64, target: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < target.len() {
            match self.read(address + done as u64, &mut target[done..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => done += bytes,
            }
        }
        Ok(())
    }

    /// Reads some of the bytes at `address`, and in the same call what tells whose they are.
    fn read(&self, address: u64, target: &mut [u8]) -> io::Result<usize> {
        const NONCE_BYTES: usize = size_of::<u128>();
        let remote = |address: u64, len| RemoteIoVec { base: address as usize, len };
        let sources = [remote(self.region.address, NONCE_BYTES), remote(address, target.len())];
        let mut nonce = [0; NONCE_BYTES];
        let mut targets = [IoSliceMut::new(&mut nonce), IoSliceMut::new(target)];
        let bytes = process_vm_readv(self.pid, &mut targets, &sources)?;
        if bytes < NONCE_BYTES || u128::from_ne_bytes(nonce) != self.region.nonce {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the process is gone; the system has given its id to another one",
            ));
        }
        Ok(bytes - NONCE_BYTES)
    }
}

/// Lets the processes of this job on this host read this one's memory where the Yama security module forbids
/// it to all but ancestors, as on Ubuntu. Without it such reads fail and go through the server instead.
///
/// Yama lets a process name one other, and means that one's descendants, too. This names the nearest process
/// from which all `processes` descend: the supervisor, or the launcher's daemon. Whatever else descends from
/// it may then read and trace this process, if it belongs to the same user, as without Yama.
pub fn allow_peers(processes: &[u32]) {
    if processes.len() < 2 || !is_restricted(&std::fs::read_to_string(PTRACE_SCOPE).unwrap_or_default()) {
        return;
    }
    let Some(ancestor) = common_ancestor(processes) else {
        return tracing::info!("processes on this host have no ancestor in common: Vecs are read over TCP");
    };
    // SAFETY: this option takes plain integers and touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(ancestor), 0, 0, 0) };
    tracing::debug!(ancestor, result, "descendants of it may read this process");
}

/// Which processes Yama lets read others.
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Whether a process can make exceptions and has to: 0 lets everyone read, from 2 on nobody without a
/// privilege may.
fn is_restricted(scope: &str) -> bool {
    scope.trim() == "1"
}

/// A number that is equal for two processes exactly if they can share memory: same boot of the same kernel,
/// same namespace of process ids, same user.
///
/// # Errors
/// The system does not tell, for instance because there is no `/proc`. Such a process shares memory with
/// nobody.
pub fn host_id() -> io::Result<u64> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = std::fs::read_link("/proc/self/ns/pid")?;
    let user = nix::unistd::geteuid();
    identify(&boot, &format!("{} {user}", namespace.display()))
}

/// Everything but the boot's number is often the same on other hosts.
fn identify(boot: &str, rest: &str) -> io::Result<u64> {
    if boot.trim().len() < 32 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{boot:?} is no number of a boot")));
    }
    Ok(xxhash_rust::xxh3::xxh3_64(format!("{boot} {rest}").as_bytes()))
}

/// What takes the place of [`host_id`] for a process that shares memory with nobody.
pub fn host_apart(process: ProcessId) -> u64 {
    u64::from(process.rank) | 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_by_its_boot() {
        let boot = "4c0e5ae4-2a2b-4a5c-9d31-7a5d0f0c9a11\n";
        let here = identify(boot, "pid:[4026531836] 1000").unwrap();
        assert_eq!(identify(boot, "pid:[4026531836] 1000").unwrap(), here);
        assert_ne!(identify(boot, "pid:[4026531837] 1000").unwrap(), here);
        assert_ne!(identify(boot, "pid:[4026531836] 1001").unwrap(), here);
        // Masked files are empty: all hosts would look alike.
        assert!(identify("", "pid:[4026531836] 1000").is_err());
        assert!(identify("\n", "pid:[4026531836] 1000").is_err());
    }

    #[test]
    fn exceptions_are_made_only_where_they_count() {
        assert!(is_restricted("1\n"));
        assert!(["", "0\n", "2\n", "3\n"].iter().all(|scope| !is_restricted(scope)));
    }
}
