//! The replicas that an agent holds for ranks of other hosts.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use everfold_agent::replicas::{HALVES, Refused, Replicas as Ledger};
use everfold_protocol::ProcessId;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{Answer, Ask, CHUNK_BYTES, Line, Patch};
use crate::transport::{
    control::BoxStream,
    handshake::{HandshakeError, Seals},
};

/// Replicas in memory, by process.
#[derive(Debug, Default)]
pub struct Replicas(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    ledger: Ledger,
    files: BTreeMap<ProcessId, Files>,
}

/// The files of a vault.
type Files = Arc<[File; HALVES]>;

impl Replicas {
    /// Limits the bytes of all replicas together.
    pub fn limit(&self, bytes_max: u64) {
        self.lock().ledger.limit(bytes_max);
    }

    /// Holds a replica no longer.
    pub fn release(&self, process: ProcessId) {
        let mut inner = self.lock();
        inner.ledger.release(process);
        inner.files.remove(&process);
    }

    /// Begins a replica anew.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn begin(&self, process: ProcessId) -> Result<(), String> {
        let mut inner = self.lock();
        inner.ledger.begin(process).map_err(why)?;
        let file = || memfd_create(c"everfold-replica", MFdFlags::MFD_CLOEXEC).map(OwnedFd::into);
        let files: Result<[File; HALVES], _> = file().and_then(|first| Ok([first, file()?]));
        let files = files.map_err(|error| error.to_string())?;
        inner.files.insert(process, Arc::new(files));
        Ok(())
    }

    /// Writes all of these, or nothing if it would be too much.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn write(&self, process: ProcessId, patches: &[Patch]) -> Result<(), String> {
        let mut inner = self.lock();
        for Patch { half, offset, bytes } in patches {
            let end = offset.checked_add(bytes.len() as u64).ok_or("it is too long")?;
            inner.ledger.grow(process, usize::from(*half), end).map_err(why)?;
        }
        let files = inner.files.get(&process).ok_or_else(|| why(Refused::Unknown))?;
        let write = |patch: &Patch| files[usize::from(patch.half)].write_all_at(&patch.bytes, patch.offset);
        patches.iter().try_for_each(write).map_err(|error| error.to_string())
    }

    /// Lets a later process take a replica, which stays as it is from then on. Returns its files and their
    /// lengths.
    fn take(&self, process: ProcessId) -> Result<(Files, [u64; HALVES]), String> {
        let mut inner = self.lock();
        let lengths = inner.ledger.take(process).map_err(why)?;
        let files = inner.files.get(&process).cloned().ok_or_else(|| why(Refused::Unknown))?;
        Ok((files, lengths))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn why(refused: Refused) -> String {
    match refused {
        Refused::Full { bytes_max } => {
            format!(
                "replicas may take {bytes_max} bytes there (`migrate.replica_bytes`), and would take more"
            )
        }
        Refused::Unknown => "it holds no replica of that process".to_owned(),
        Refused::Taken => "another process of that rank goes on from there".to_owned(),
    }
}

/// Serves one process.
///
/// # Errors
/// The connection broke.
pub async fn serve(
    replicas: &Replicas,
    process: ProcessId,
    stream: BoxStream,
    seals: Seals,
) -> Result<(), HandshakeError> {
    let mut line = Line::new(stream, seals);
    loop {
        let done = match line.hear().await? {
            Ask::Begin => replicas.begin(process),
            Ask::Write(patches) => replicas.write(process, &patches),
            Ask::Confirm => {
                line.tell(&Answer::Done).await?;
                continue;
            }
            Ask::Take(earlier) if earlier.rank == process.rank => match replicas.take(earlier) {
                Ok(taken) => return send(&mut line, taken).await,
                Err(reason) => Err(reason),
            },
            Ask::Take(_) => Err("it belongs to another rank".to_owned()),
        };
        if let Err(reason) = done {
            return line.tell(&Answer::Refused(reason)).await;
        }
    }
}

/// Sends a replica.
async fn send(line: &mut Line, (files, lengths): (Files, [u64; HALVES])) -> Result<(), HandshakeError> {
    for (half, (file, bytes)) in files.iter().zip(lengths).enumerate() {
        let mut offset = 0;
        while offset < bytes {
            let mut piece = vec![0; (bytes - offset).min(CHUNK_BYTES as u64) as usize];
            read_what_is_there(file, offset, &mut piece)?;
            let next = offset + piece.len() as u64;
            let patch = Patch { half: half as u8, offset, bytes: piece.into() };
            line.tell(&Answer::Piece(patch)).await?;
            offset = next;
        }
    }
    line.tell(&Answer::Done).await
}

/// A file may be shorter than what was to be written.
fn read_what_is_there(file: &File, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.read_at(buffer, offset)? {
            0 => return Ok(()),
            read => {
                offset += read as u64;
                buffer = &mut buffer[read..];
            }
        }
    }
    Ok(())
}
