//! A board in shared memory, and the bells that wake up ranks which wait for a round there.
//!
//! The agent that hosts the master makes the board and hands it to rank 0, where the others find it. Where ranks come
//! back, it hands the board to all ranks, as rank 0 may have ended. A bell is a pipe: its owner listens at one end, and
//! the others open the other one, as they do with regions, through `/proc/<pid>/fd/<fd>`.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::FileTypeExt,
    },
    sync::{Arc, OnceLock, atomic::AtomicU64},
    time::Duration,
};

use everfold_protocol::{
    Rank,
    board::{self, Board, body_bytes_max},
    message::Peer,
};
use nix::{
    fcntl::OFlag,
    sys::mman::ProtFlags,
    time::{ClockId, clock_gettime},
    unistd,
};
use tokio::io::{Interest, unix::AsyncFd};

use super::mapping::{self, Mapping};
use crate::transport::line::register;

/// Words that processes share.
#[derive(Debug)]
pub struct SharedWords(Mapping);

impl SharedWords {
    fn map(file: &impl AsFd, words: usize) -> io::Result<Self> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        Mapping::new(file, words * size_of::<AtomicU64>(), protection).map(Self)
    }
}

impl AsRef<[AtomicU64]> for SharedWords {
    fn as_ref(&self) -> &[AtomicU64] {
        let words = self.0.len() / size_of::<AtomicU64>();
        // SAFETY: the mapping begins at a page and has these words for as long as it lives; every process
        // accesses it as atomics only, for which any bits are valid.
        unsafe { std::slice::from_raw_parts(self.0.at(0).cast().as_ptr(), words) }
    }
}

/// The board of a job on one host, as the agent knows it that made it.
#[derive(Debug)]
pub struct OwnBoard {
    board: Arc<Board<SharedWords>>,
    file: OwnedFd,
    bells: OnceLock<Bells>,
}

impl OwnBoard {
    /// A board for a job of this size, if there can be one.
    pub fn for_job(ranks: u32) -> Option<Self> {
        let board = board::holds(ranks).then(|| Self::new(ranks))?;
        // Without it everything still works with messages.
        board
            .inspect_err(
                |error| tracing::warn!(%error, "this host has no board: short arrays go through the master"),
            )
            .ok()
    }

    fn new(ranks: u32) -> io::Result<Self> {
        let file = mapping::shareable(c"everfold-board")?;
        let words = words(ranks);
        mapping::resize(&file, (words * size_of::<AtomicU64>()) as u64)?;
        mapping::seal_length(&file)?;
        let board =
            Arc::new(Board::new(SharedWords::map(&file, words)?, ranks, body_bytes_max(ranks) as usize));
        Ok(Self { board, file, bells: OnceLock::new() })
    }

    /// Its file, to be handed over to a process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The board itself.
    pub fn board(&self) -> &Arc<Board<SharedWords>> {
        &self.board
    }

    /// Learns how to wake the ranks up.
    pub(crate) fn meet(&self, peers: &[Peer]) {
        match Bells::open(peers) {
            Ok(bells) => drop(self.bells.set(bells)),
            // They look at the board by themselves from time to time.
            Err(error) => {
                tracing::warn!(%error, "cannot ring bells: ranks that sleep over the board wake up later")
            }
        }
    }

    /// Wakes these ranks up, if their bells are known.
    pub fn wake(&self, who: Vec<Rank>) {
        if let Some(bells) = self.bells.get() {
            who.into_iter().for_each(|rank| bells.ring(rank));
        }
    }
}

/// The board of a job, which the first of `peers` shows.
pub(crate) fn open(peers: &[Peer]) -> io::Result<Arc<Board<SharedWords>>> {
    let descriptor = peers[0].board.ok_or(ErrorKind::Unsupported)?;
    let file = open_of(&peers[0], descriptor, File::options().read(true).write(true))?;
    map(&file, peers.len() as u32)
}

/// The board of a job of `ranks` ranks in this file.
pub(crate) fn map(file: &File, ranks: u32) -> io::Result<Arc<Board<SharedWords>>> {
    let words = words(ranks);
    mapping::is_sealed(file)?;
    if file.metadata()?.len() != (words * size_of::<AtomicU64>()) as u64 {
        return Err(io::Error::new(ErrorKind::InvalidData, "the descriptor is not a board"));
    }
    Ok(Arc::new(Board::new(SharedWords::map(file, words)?, ranks, body_bytes_max(ranks) as usize)))
}

/// What time it is, by a clock that the processes of a host share.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.unwrap_or_default()
}

fn words(ranks: u32) -> usize {
    Board::<SharedWords>::words(ranks, body_bytes_max(ranks) as usize)
}

/// Opens the file descriptor `descriptor` of `peer`.
fn open_of(peer: &Peer, descriptor: i32, how: &mut OpenOptions) -> io::Result<File> {
    let file = mapping::open_descriptor(peer.pid, descriptor, how)?;
    // If that process still has that id now, it had it before.
    mapping::is_process(peer.pid, &peer.region.ok_or(ErrorKind::Unsupported)?)?;
    Ok(file)
}

/// What wakes this process up.
#[derive(Debug)]
pub(crate) struct Bell {
    listening: Arc<OwnedFd>,
    /// Open as long as this process lives, for others to open.
    ringing: OwnedFd,
}

impl Bell {
    pub fn new() -> io::Result<Self> {
        let (listening, ringing) = unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Self { listening: Arc::new(listening), ringing })
    }

    /// Its descriptor, for peers.
    pub fn handle(&self) -> i32 {
        self.ringing.as_raw_fd()
    }

    /// Lets the current runtime see when it rings.
    pub fn register(&self) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
        register(&self.listening, Interest::READABLE)
    }

    /// Forgets that it has rung.
    pub fn silence(&self) {
        let mut rings = [0; 512];
        while unistd::read(&self.listening, &mut rings) == Ok(rings.len()) {}
    }
}

/// What wakes all others up.
#[derive(Debug)]
pub(crate) struct Bells(Vec<File>);

impl Bells {
    /// Finds the bells of `peers`, by rank.
    pub fn open(peers: &[Peer]) -> io::Result<Self> {
        let open = |peer: &Peer| {
            let descriptor = peer.bell.ok_or(ErrorKind::Unsupported)?;
            // Also to read from it: a signal would end this process should it ring for one that is gone.
            let bell = open_of(peer, descriptor, File::options().read(true).write(true))?;
            let is_pipe = bell.metadata()?.file_type().is_fifo();
            let other = || io::Error::new(ErrorKind::InvalidData, "the descriptor is not a pipe");
            is_pipe.then_some(bell).ok_or_else(other)
        };
        peers.iter().map(open).collect::<io::Result<_>>().map(Self)
    }

    /// Wakes a rank up.
    pub fn ring(&self, rank: Rank) {
        // A pipe that takes no more has been rung often enough, and a rank that has closed it waits for
        // nothing.
        let _ = self.0.get(rank.index()).map(|bell| unistd::write(bell, &[0]));
    }
}
