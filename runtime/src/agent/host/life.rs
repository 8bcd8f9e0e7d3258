//! Sees processes end that other processes have started.
//!
//! - Where the system has descriptors of processes (`pidfd_open`, since Linux 5.3), one becomes readable when its
//!   process ends.
//! - Elsewhere, also where a filter of system calls forbids them, the process is looked up in `/proc` from when its
//!   connection has closed. Nothing else tells: it may have closed it and live on.

use std::{
    fs, io,
    os::fd::{FromRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use nix::libc;
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::UnixStream,
};

use crate::{descriptors::patiently, transport::line::register};

/// Between two looks at a process that has closed its connection.
const PAUSE: Duration = Duration::from_millis(20);

/// The life of a process on this host.
#[derive(Debug)]
pub(super) struct Life {
    pid: i32,
    sight: Sight,
}

#[derive(Debug)]
enum Sight {
    Descriptor(Arc<OwnedFd>),
    /// When it has begun, which tells it from a later one with the same number.
    Entry(u64),
}

impl Life {
    /// That of the process at the other end of `stream`.
    ///
    /// # Errors
    /// It is in none of the places where this process could see it.
    pub(super) fn behind(stream: &UnixStream) -> io::Result<Self> {
        let pid = stream.peer_cred()?.pid().ok_or(io::ErrorKind::NotFound)?;
        match descriptor_of(pid) {
            Ok(descriptor) => Ok(Self { pid, sight: Sight::Descriptor(Arc::new(descriptor)) }),
            Err(error) => {
                tracing::debug!(pid, %error, "no descriptor of the process");
                Self::in_proc(pid)
            }
        }
    }

    fn in_proc(pid: i32) -> io::Result<Self> {
        let entry = entry(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { pid, sight: Sight::Entry(entry.began) })
    }

    /// Waits until the process has ended, which may only be seen once it has `hung_up`.
    ///
    /// # Errors
    /// The system cannot wait for it.
    pub(super) async fn outlast(self, hung_up: impl Future) -> io::Result<()> {
        match self.sight {
            Sight::Descriptor(descriptor) => {
                let ended = patiently(|| register(&descriptor, Interest::READABLE)).await?;
                AsyncFd::readable(&ended).await.map(drop)
            }
            Sight::Entry(began) => {
                hung_up.await;
                while entry(self.pid).is_some_and(|entry| entry.began == began && entry.lives) {
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(())
            }
        }
    }
}

fn descriptor_of(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: this call takes plain integers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
    match descriptor {
        // SAFETY: the system has just opened it for this process, and nobody else knows of it.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What `/proc` says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    lives: bool,
    began: u64,
}

fn entry(pid: i32) -> Option<Entry> {
    entry_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of the program stands in parentheses, and may itself hold some. A first thread that has ended looks like a
/// process that has, but for the others.
fn entry_in(status: &str) -> Option<Entry> {
    let fields: Vec<&str> = status.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, threads, began) = (*fields.first()?, fields.get(17)?, fields.get(19)?);
    let has_ended = matches!(state, "Z" | "X" | "x") && threads.parse::<u32>().ok()? <= 1;
    Some(Entry { lives: !has_ended, began: began.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn an_entry_tells_whether_the_process_lives_and_which_it_is() {
        let entry = |state: &str, threads: u32| {
            entry_in(&format!(
                "17 (a) S (b) {state} 4 17 17 0 -1 1 2 3 4 5 6 7 8 9 20 0 {threads} 0 4711 99 1"
            ))
        };
        assert_eq!(entry("S", 1), Some(Entry { lives: true, began: 4711 }));
        assert_eq!(entry("Z", 1), Some(Entry { lives: false, began: 4711 }));
        assert_eq!(entry("Z", 3), Some(Entry { lives: true, began: 4711 }), "other threads live");
        assert_eq!(entry_in("17 (a) S 1"), None);
        assert_eq!(entry_in(""), None);
    }

    /// A child that ends when its stdin is closed. It stays a zombie until it is waited for.
    fn child() -> std::process::Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
    }

    #[tokio::test]
    async fn both_ways_tell_the_end_of_a_process() {
        for with_descriptor in [true, false] {
            let mut child = child();
            let pid = child.id() as i32;
            let life = match with_descriptor {
                true => {
                    let Ok(descriptor) = descriptor_of(pid) else { continue };
                    Life { pid, sight: Sight::Descriptor(Arc::new(descriptor)) }
                }
                false => Life::in_proc(pid).unwrap(),
            };
            let mut ended = tokio::spawn(life.outlast(ready(())));
            tokio::task::yield_now().await;
            assert!(!ended.is_finished(), "it lives");
            drop(child.stdin.take());
            (&mut ended).await.unwrap().unwrap();
            child.wait().unwrap();
        }
    }

    #[tokio::test]
    async fn nobody_looks_before_the_connection_is_closed() {
        let mut child = child();
        let life = Life::in_proc(child.id() as i32).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let mut ended = std::pin::pin!(life.outlast(pending::<()>()));
        assert!(futures::poll!(&mut ended).is_pending());
    }
}
