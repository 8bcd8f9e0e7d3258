//! One of the two files of a vault, and all that is done to it.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use nix::sys::resource::{Resource, getrlimit};
use xxhash_rust::xxh3::Xxh3;

use super::{Half, error::VaultError};

/// So many bytes are read or written at once. They are in the processor's cache while their checksum is
/// computed.
const CHUNK_BYTES: usize = 256 << 10;
/// Slices up to this length are gathered, so that a short record is one write.
const GATHER_BYTES: usize = 16 << 10;

/// One of the two files of a vault. Clones are the same file; one of them at a time is written to.
#[derive(Clone, Debug)]
pub(super) struct HalfFile {
    half: Half,
    file: Arc<File>,
    bytes: Arc<AtomicU64>,
    /// Whether all that it holds has to be removed before anything is written to either file.
    is_to_be_emptied: Arc<AtomicBool>,
}

impl HalfFile {
    pub fn new(half: Half, file: File) -> Result<Self, VaultError> {
        let metadata = file.metadata().map_err(failed("look at", half))?;
        Ok(Self {
            half,
            file: Arc::new(file),
            bytes: Arc::new(metadata.len().into()),
            is_to_be_emptied: Arc::default(),
        })
    }

    pub fn half(&self) -> Half {
        self.half
    }

    /// Length of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Fills `buffer` from `offset` on.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VaultError> {
        self.file.read_exact_at(buffer, offset).map_err(failed("read", self.half))
    }

    /// Fills `buffer` and takes what it reads into `checksum`.
    pub fn read_checked(
        &self,
        mut offset: u64,
        buffer: &mut [u8],
        checksum: &mut Xxh3,
    ) -> Result<(), VaultError> {
        for chunk in buffer.chunks_mut(CHUNK_BYTES) {
            self.read(offset, chunk)?;
            checksum.update(chunk);
            offset += chunk.len() as u64;
        }
        Ok(())
    }

    /// Takes `bytes` bytes from `offset` on into `checksum`, and keeps none of them.
    pub fn skim(&self, mut offset: u64, bytes: u64, checksum: &mut Xxh3) -> Result<(), VaultError> {
        let end = offset + bytes;
        let mut buffer = vec![0; bytes.min(CHUNK_BYTES as u64) as usize];
        while offset < end {
            let chunk = &mut buffer[..(end - offset).min(CHUNK_BYTES as u64) as usize];
            self.read(offset, chunk)?;
            checksum.update(chunk);
            offset += chunk.len() as u64;
        }
        Ok(())
    }

    /// Writes `bytes` at `offset`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), VaultError> {
        #[cfg(test)]
        super::journal::write(self.half, offset, bytes);
        let end = offset + bytes.len() as u64;
        if end > self.bytes() {
            check_limit(end).map_err(failed("write", self.half))?;
            // A write that fails may have written something.
            self.bytes.store(end, Ordering::Release);
        }
        self.file.write_all_at(bytes, offset).map_err(failed("write", self.half))
    }

    /// Gives the file this length if it is longer.
    pub fn cut(&mut self, bytes: u64) -> Result<(), VaultError> {
        if bytes < self.bytes() {
            #[cfg(test)]
            super::journal::cut(self.half, bytes);
            self.file.set_len(bytes).map_err(failed("cut", self.half))?;
            self.bytes.store(bytes, Ordering::Release);
        }
        Ok(())
    }

    /// Removes all that it holds, or sees to it that this is done before anything else is.
    pub fn discard(&mut self) {
        self.is_to_be_emptied.store(true, Ordering::Release);
        if let Err(error) = self.settle() {
            tracing::debug!(%error, "what there is of a checkpoint is removed later");
        }
    }

    /// Does what [`discard`](Self::discard) could not do.
    pub fn settle(&mut self) -> Result<(), VaultError> {
        if self.is_to_be_emptied.load(Ordering::Acquire) {
            self.cut(0)?;
            self.is_to_be_emptied.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Waits until the disk holds what was written.
    pub fn sync(&self) -> Result<(), VaultError> {
        self.file.sync_data().map_err(failed("sync", self.half))
    }
}

/// Writes one slice behind the other. Short ones are gathered.
#[derive(Debug)]
pub(super) struct Outlet {
    /// Where the next write goes.
    offset: u64,
    gathered: Vec<u8>,
}

impl Outlet {
    pub fn new(offset: u64) -> Self {
        Self { offset, gathered: Vec::new() }
    }

    /// Writes `bytes` to `file` and takes them into `checksum`.
    pub fn write_checked(
        &mut self,
        file: &mut HalfFile,
        bytes: &[u8],
        checksum: &mut Xxh3,
    ) -> Result<(), VaultError> {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            checksum.update(chunk);
            self.write(file, chunk)?;
        }
        Ok(())
    }

    /// Writes `bytes` to `file`.
    pub fn write(&mut self, file: &mut HalfFile, bytes: &[u8]) -> Result<(), VaultError> {
        if self.gathered.len() + bytes.len() > GATHER_BYTES {
            self.flush(file)?;
        }
        if bytes.len() <= GATHER_BYTES {
            self.gathered.extend_from_slice(bytes);
            return Ok(());
        }
        file.write(self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Writes what was gathered. Says where it ends.
    pub fn flush(&mut self, file: &mut HalfFile) -> Result<u64, VaultError> {
        if !self.gathered.is_empty() {
            file.write(self.offset, &self.gathered)?;
            self.offset += self.gathered.len() as u64;
            self.gathered.clear();
        }
        Ok(self.offset)
    }
}

/// To pass the limit on files would end this process.
fn check_limit(end: u64) -> io::Result<()> {
    if end > getrlimit(Resource::RLIMIT_FSIZE)?.0 {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the limit on files (ulimit -f) is shorter"));
    }
    Ok(())
}

fn failed(action: &'static str, half: Half) -> impl FnOnce(io::Error) -> VaultError {
    move |source| VaultError::Io { action, half, source }
}
