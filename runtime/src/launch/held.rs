//! The output of a process that stands by.
//!
//! The first process of its rank prints the same. So it is held back until that is known to have printed it, and
//! shown if this process takes its place: no line is lost, and few come twice. If its program fails, stderr says
//! why.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::fs::FileExt,
    },
    sync::atomic::{AtomicU64, Ordering},
};

use nix::{
    libc,
    sys::memfd::{MFdFlags, memfd_create},
};

/// Our stdout and stderr, as long as output there is held back.
#[derive(Debug)]
pub(crate) struct Held([Stream; 2]);

/// How much was printed on each.
pub(crate) type Printed = [u64; 2];

#[derive(Debug)]
struct Stream {
    number: RawFd,
    real: File,
    /// Output goes there.
    memory: File,
    /// Before that all was printed by the first process, too.
    shown_from: AtomicU64,
}

impl Held {
    /// Holds output back from now on.
    ///
    /// # Errors
    /// What the system says. Nothing is held back then.
    pub fn begin() -> io::Result<Self> {
        Ok(Self([Stream::begin(libc::STDOUT_FILENO)?, Stream::begin(libc::STDERR_FILENO)?]))
    }

    /// How much was printed so far.
    pub fn printed(&self) -> Printed {
        [0, 1].map(|index| self.0[index].memory.metadata().map_or(0, |metadata| metadata.len()))
    }

    /// Takes in that the first process has printed what this one had by then.
    pub fn drop_before(&self, printed: Printed) {
        for (stream, bytes) in self.0.iter().zip(printed) {
            stream.drop_before(bytes);
        }
    }

    /// Shows the rest, and holds no output back any more.
    pub fn show(self) {
        self.0.iter().for_each(Stream::show);
    }

    /// Shows the rest of stderr, and holds no output back there any more.
    pub fn show_errors(self) {
        self.0[1].show();
    }
}

impl Stream {
    fn begin(number: RawFd) -> io::Result<Self> {
        // SAFETY: this call takes plain integers.
        let real = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
        if real < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the system has just opened it for this process, and nobody else knows of it.
        let real = File::from(unsafe { OwnedFd::from_raw_fd(real) });
        let memory: OwnedFd = memfd_create(c"everfold-held", MFdFlags::MFD_CLOEXEC)?;
        // SAFETY: this call takes plain integers.
        if unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) } < 0 {
            return Err(io::Error::last_os_error());
        }
        point(number, memory.as_raw_fd())?;
        Ok(Self { number, real, memory: memory.into(), shown_from: AtomicU64::new(0) })
    }

    fn drop_before(&self, bytes: u64) {
        let from = self.shown_from.fetch_max(bytes, Ordering::Relaxed);
        if from < bytes {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let (from, length) = (from as libc::off_t, (bytes - from) as libc::off_t);
            // SAFETY: this call takes plain integers. If it fails, the memory is kept.
            unsafe { libc::fallocate(self.memory.as_raw_fd(), mode, from, length) };
        }
    }

    /// If it cannot be written, it is lost, as it would be without us.
    fn show(&self) {
        let mut at = self.shown_from.load(Ordering::Relaxed);
        let _ = self.copy(&mut at);
        if let Err(error) = point(self.number, self.real.as_raw_fd()) {
            tracing::warn!(%error, "the output of this standby stays hidden");
        }
        // What was printed in between.
        let _ = self.copy(&mut at);
    }

    fn copy(&self, at: &mut u64) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        loop {
            match self.memory.read_at(&mut bytes, *at)? {
                0 => return Ok(()),
                read => {
                    (&self.real).write_all(&bytes[..read])?;
                    *at += read as u64;
                }
            }
        }
    }
}

/// Lets a descriptor mean what another one does.
fn point(number: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: both are open, and nothing in this process owns the number of a standard stream.
    match unsafe { libc::dup2(to, number) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
