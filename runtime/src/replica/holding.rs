//! The replicas that an agent holds for ranks of other hosts.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use everfold_agent::replicas::{HALVES, Refused, Replicas as Ledger};
use everfold_protocol::ProcessId;
use nix::sys::memfd::{MFdFlags, memfd_create};
use tokio::sync::mpsc;

use super::{
    Answer, Ask, CHUNK_BYTES, Line, Patch,
    front::{Advance, Front, Generation},
};
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
    /// How many were begun.
    begun: u64,
    replicas: BTreeMap<ProcessId, Replica>,
}

/// The files of a replica, and who follows it.
#[derive(Debug)]
struct Replica {
    /// Tells it from an earlier replica of the same process.
    number: u64,
    files: Files,
    front: Front,
    feed: Option<Feed>,
}

/// The files of a vault. Who reads one of them holds it.
type Files = [Arc<File>; HALVES];

/// What a process is to be told that follows a replica.
#[derive(Debug)]
struct Feed {
    to: mpsc::UnboundedSender<Answer>,
    /// Bytes that it has yet to be told.
    queued: Arc<AtomicU64>,
}

/// What a process gets that follows a replica: the generation in force, and what comes.
struct Follower {
    file: Arc<File>,
    generation: Generation,
    fed: mpsc::UnboundedReceiver<Answer>,
    queued: Arc<AtomicU64>,
}

impl Replicas {
    /// Limits the bytes of all replicas together, and of what those have yet to hear who follow them.
    pub fn limit(&self, bytes_max: u64) {
        self.lock().ledger.limit(bytes_max);
    }

    /// Holds a replica no longer.
    pub fn release(&self, process: ProcessId) {
        let mut inner = self.lock();
        inner.ledger.release(process);
        inner.replicas.remove(&process);
    }

    /// Begins a replica anew. Returns its number.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn begin(&self, process: ProcessId) -> Result<u64, String> {
        let mut inner = self.lock();
        inner.ledger.begin(process).map_err(why)?;
        let files: io::Result<Files> = new_file().and_then(|first| Ok([first, new_file()?]));
        let files = files.map_err(|error| error.to_string())?;
        inner.begun += 1;
        let number = inner.begun;
        inner.replicas.insert(process, Replica { number, files, front: Front::default(), feed: None });
        Ok(number)
    }

    /// Writes all of these into the replica with this number, or nothing if it would be too much. What still
    /// comes of an earlier replica, over a connection that its process has given up, is not written.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn write(&self, process: ProcessId, number: u64, patches: &[Patch]) -> Result<(), String> {
        let mut inner = self.lock();
        let Inner { ledger, replicas, .. } = &mut *inner;
        let replica = replicas.get_mut(&process).filter(|replica| replica.number == number);
        let replica = replica.ok_or_else(|| why(Refused::Unknown))?;
        for Patch { half, offset, bytes } in patches {
            let end = offset.checked_add(bytes.len() as u64).ok_or("it is too long")?;
            ledger.grow(process, usize::from(*half), end).map_err(why)?;
        }
        let write = |patch| replica.write(patch, ledger);
        patches.iter().try_for_each(write).map_err(|error| error.to_string())
    }

    /// Lets a process take the place of the one whose replica it follows: nothing more is written there.
    pub fn conclude(&self, process: ProcessId) {
        let mut inner = self.lock();
        if inner.ledger.take(process).is_ok()
            && let Some(feed) = inner.replicas.get_mut(&process).and_then(|replica| replica.feed.take())
        {
            // If it does not listen any more, it ends.
            let _ = feed.to.send(Answer::Done);
        }
    }

    /// Lets a later process take a replica, which stays as it is from then on. Returns its files and their
    /// lengths.
    fn take(&self, process: ProcessId) -> Result<(Files, [u64; HALVES]), String> {
        let mut inner = self.lock();
        let lengths = inner.ledger.take(process).map_err(why)?;
        let files = inner.replicas.get(&process).map(|replica| replica.files.clone());
        Ok((files.ok_or_else(|| why(Refused::Unknown))?, lengths))
    }

    /// The files of a replica, for whatever looks at them when nobody writes there any more.
    #[cfg(test)]
    pub(super) fn files(&self, process: ProcessId) -> Option<[File; HALVES]> {
        let (files, _) = self.take(process).ok()?;
        Some(files.map(|file| file.try_clone().expect("there are descriptors left")))
    }

    /// Lets a later process follow a replica.
    fn follow(&self, process: ProcessId) -> Result<Follower, String> {
        let mut inner = self.lock();
        let is_taken = inner.ledger.is_taken(process);
        let replica = inner.replicas.get_mut(&process).ok_or_else(|| why(Refused::Unknown))?;
        let generation = replica.front.in_force().ok_or("it is not whole")?;
        let (to, fed) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicU64::new(0));
        match is_taken {
            true => drop(to.send(Answer::Done)),
            false => replica.feed = Some(Feed { to, queued: queued.clone() }),
        }
        let file = replica.files[usize::from(generation.half)].clone();
        Ok(Follower { file, generation, fed, queued })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replica {
    fn write(&mut self, Patch { half, offset, bytes }: &Patch, ledger: &Ledger) -> io::Result<()> {
        let file = &mut self.files[usize::from(*half)];
        if self.front.begins_another(*half, *offset) && Arc::get_mut(file).is_none() {
            // Somebody still reads what was there.
            *file = new_file()?;
        }
        file.write_all_at(bytes, *offset)?;
        match self.front.take_in(*half, *offset, bytes) {
            Some(advance) => self.feed(&advance, ledger),
            None => Ok(()),
        }
    }

    /// Tells a process that follows what the log has grown by. One that does not take it in time follows no longer.
    fn feed(&mut self, Advance { half, mark, from, to }: &Advance, ledger: &Ledger) -> io::Result<()> {
        let Some(feed) = &self.feed else { return Ok(()) };
        let queued = feed.queued.fetch_add(to - from, Ordering::Relaxed) + (to - from);
        if !ledger.have_room_for(queued) {
            let reason =
                "it takes what comes too slowly, and there is no room for more (`migrate.replica_bytes`)";
            let _ = feed.to.send(Answer::Refused(reason.to_owned()));
            self.feed = None;
            return Ok(());
        }
        let mark = Bytes::copy_from_slice(mark);
        let mut at = *from;
        while at < *to {
            let mut bytes = vec![0; (to - at).min(CHUNK_BYTES as u64) as usize];
            self.files[usize::from(*half)].read_exact_at(&mut bytes, at)?;
            let next = at + bytes.len() as u64;
            let _ = feed.to.send(Answer::Log { mark: mark.clone(), at, bytes: bytes.into() });
            at = next;
        }
        Ok(())
    }
}

fn new_file() -> io::Result<Arc<File>> {
    let file = memfd_create(c"everfold-replica", MFdFlags::MFD_CLOEXEC)?;
    Ok(Arc::new(OwnedFd::into(file)))
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
    // No replica has this number.
    let mut number = 0;
    loop {
        let done = match line.hear().await? {
            Ask::Begin => replicas.begin(process).map(|begun| number = begun),
            Ask::Write(patches) => replicas.write(process, number, &patches),
            Ask::Confirm => {
                line.tell(&Answer::Done).await?;
                continue;
            }
            Ask::Take(earlier) if earlier.rank == process.rank => match replicas.take(earlier) {
                Ok(taken) => return send(&mut line, taken).await,
                Err(reason) => Err(reason),
            },
            Ask::Follow(earlier) if earlier.rank == process.rank => match replicas.follow(earlier) {
                Ok(follower) => return lead(&mut line, follower).await,
                Err(reason) => Err(reason),
            },
            Ask::Take(_) | Ask::Follow(_) => Err("it belongs to another rank".to_owned()),
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

/// Sends a replica as it is, and then what comes, until the process that follows takes a place.
async fn lead(line: &mut Line, follower: Follower) -> Result<(), HandshakeError> {
    let Follower { file, generation: Generation { mark, end, .. }, mut fed, queued } = follower;
    let piece = |offset, bytes| Answer::Piece(Patch { half: 0, offset, bytes });
    line.tell(&piece(0, Bytes::copy_from_slice(&mark))).await?;
    let mut offset = mark.len() as u64;
    while offset < end {
        let mut bytes = vec![0; (end - offset).min(CHUNK_BYTES as u64) as usize];
        read_what_is_there(&file, offset, &mut bytes)?;
        let next = offset + bytes.len() as u64;
        line.tell(&piece(offset, bytes.into())).await?;
        offset = next;
    }
    drop(file);
    // The log that it gets ends here, whatever has been written behind it since.
    line.tell(&piece(end, Bytes::from_static(&[0]))).await?;
    line.tell(&Answer::Level).await?;
    while let Some(answer) = fed.recv().await {
        line.tell(&answer).await?;
        if let Answer::Log { bytes, .. } = &answer {
            queued.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
        }
        if matches!(answer, Answer::Done | Answer::Refused(_)) {
            return Ok(());
        }
    }
    line.tell(&Answer::Refused("nobody needs it any more".to_owned())).await
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

#[cfg(test)]
mod tests {
    use everfold_protocol::Rank;

    use super::*;

    #[test]
    fn what_comes_late_of_an_earlier_replica_is_not_written() {
        let (replicas, process) = (Replicas::default(), ProcessId::first(Rank(3)));
        replicas.limit(1 << 20);
        let write = |number, byte: u8| {
            let bytes = Bytes::from(vec![byte; 4]);
            replicas.write(process, number, &[Patch { half: 0, offset: 0, bytes }])
        };
        let first = replicas.begin(process).unwrap();
        assert_eq!(write(first, 1), Ok(()));
        let second = replicas.begin(process).unwrap();
        assert_eq!(write(second, 2), Ok(()));
        assert!(write(first, 1).is_err() && write(0, 1).is_err());
        let [file, _] = replicas.files(process).unwrap();
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [2; 4]);
    }
}
