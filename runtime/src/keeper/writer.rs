//! The one thread that writes to disk.
//!
//! It gives way to folding, and so do the database's own threads, but not for ever: a reduction may wait for
//! a replica, and if the application computes on every core, the lowest priority would get no time at all.
//! Jobs are done in the order in which they come.
//!
//! A disk that refuses is tried again with the next record, in the store that is open: acknowledged records
//! can still be read from it, and not from a store that was closed and cannot be opened again. Only
//! operations that are slow to fail are not tried for every record: opening, and writing to a disk that
//! stands still.

use std::{
    io,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bytes::Bytes;
use everfold_protocol::ReductionId;
use everfold_storage::{Kind, RecordKey, StoreError};
use nix::sys::signal::{SigSet, Signal};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use super::{disk::Disk, error::DiskError};

/// How long after a failure that took its time the disk is left alone.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the thread is to do.
#[derive(Debug)]
pub(super) enum Job {
    /// Store a record.
    Put(Put),
    /// Remove all records of a reduction.
    Release(ReductionId),
}

/// A record on its way to disk.
pub(super) struct Put {
    pub(super) kind: Kind,
    pub(super) key: RecordKey,
    pub(super) bytes: Bytes,
    /// Its other end is dropped when the reduction is released.
    pub(super) released: watch::Receiver<()>,
    pub(super) answer: oneshot::Sender<Result<(), Arc<DiskError>>>,
    /// Its room in the queue, given back when the record is done.
    pub(super) room: OwnedSemaphorePermit,
}

impl std::fmt::Debug for Put {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, {} of {}", self.bytes.len(), self.kind, self.key)
    }
}

/// The thread, seen from outside. It ends with its last job when this is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(disk: Arc<Disk>) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let thread = thread::Builder::new().name("everfold-keeper".to_owned()).spawn(move || {
            lower_priority();
            see_limits_as_errors();
            Work { disk, unreleased: Vec::new(), trouble: None }.run(&queue);
        })?;
        Ok(Self { jobs, thread })
    }

    /// Queues a job. If the thread is gone, its answer is dropped.
    pub(super) fn send(&self, job: Job) {
        if self.jobs.send(job).is_err() {
            tracing::warn!("the thread that writes to disk is gone");
        }
    }

    /// Waits until all jobs are done and the thread has ended.
    pub(super) fn end(self) {
        drop(self.jobs);
        if self.thread.join().is_err() {
            tracing::warn!("the thread that writes to disk panicked");
        }
    }
}

/// What the thread works on.
struct Work {
    disk: Arc<Disk>,
    /// Reductions whose records could not be removed yet. Each has records on disk, which take more room than
    /// this.
    unreleased: Vec<ReductionId>,
    /// The last failure, unless something went well since.
    trouble: Option<Trouble>,
}

struct Trouble {
    error: Arc<DiskError>,
    retry_at: Instant,
}

impl Work {
    fn run(mut self, queue: &mpsc::Receiver<Job>) {
        for job in queue {
            match job {
                Job::Release(reduction) => self.unreleased.push(reduction),
                // Released meanwhile, or nobody waits for it any more.
                Job::Put(put) if put.released.has_changed().is_err() || put.answer.is_closed() => continue,
                Job::Put(Put { kind, key, bytes, answer, room, .. }) => {
                    let result = self.put(Instant::now(), kind, key, &bytes);
                    let failed = result.is_err();
                    // The asker may have given up.
                    let _ = answer.send(result);
                    drop((bytes, room));
                    if failed {
                        continue;
                    }
                }
            }
            self.release(Instant::now());
        }
    }

    fn put(&mut self, now: Instant, kind: Kind, key: RecordKey, bytes: &[u8]) -> Result<(), Arc<DiskError>> {
        self.attempt(now, |disk| disk.put(kind, key, bytes))
    }

    /// Removes what is to be removed, as far as the disk allows.
    fn release(&mut self, now: Instant) {
        // What was never opened holds nothing.
        if !self.disk.is_open() {
            self.unreleased.clear();
        }
        while let Some(&reduction) = self.unreleased.last() {
            if self.attempt(now, |disk| disk.release(reduction)).is_err() {
                return;
            }
            self.unreleased.pop();
        }
    }

    /// Does something with the disk, unless that is in trouble and left alone for now.
    fn attempt(
        &mut self,
        now: Instant,
        work: impl FnOnce(&Disk) -> Result<(), DiskError>,
    ) -> Result<(), Arc<DiskError>> {
        if let Some(trouble) = self.trouble.as_ref().filter(|trouble| now < trouble.retry_at) {
            return Err(trouble.error.clone());
        }
        let Err(error) = work(&self.disk) else {
            if self.trouble.take().is_some() {
                tracing::info!("the disk keeps records again");
            }
            return Ok(());
        };
        // Once, not for every record.
        if self.trouble.is_none() {
            tracing::warn!(%error, "the disk does not keep records");
        } else {
            tracing::debug!(%error, "the disk still does not keep records");
        }
        let was_slow = !self.disk.is_open() || matches!(error, DiskError::Store(StoreError::Stalled { .. }));
        let error = Arc::new(error);
        let failed_at = Instant::now();
        let retry_at = if was_slow { failed_at + RETRY_AFTER } else { failed_at };
        self.trouble = Some(Trouble { error: error.clone(), retry_at });
        Err(error)
    }
}

/// What is added to the nice value: about a third of the share of a core that a thread which folds has.
const NICE: libc::c_int = 5;

/// A file that gets longer than the limit (`ulimit -f`) would end this process; here, and in the database's
/// threads, writing it fails instead, as on a full disk.
fn see_limits_as_errors() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    if let Err(error) = signals.thread_block() {
        tracing::debug!(%error, "a limit on files would end this process");
    }
}

/// Lowers the priority of the calling thread; those that it starts inherit it.
fn lower_priority() {
    // SAFETY: the calls take plain integers. On Linux a process id of 0 means the calling thread alone.
    let result = unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, nice + NICE)
    };
    if result != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "cannot lower the priority of keeping");
    }
}

#[cfg(all(test, feature = "disk"))]
mod tests {
    use everfold_protocol::{JobId, ProcessId};

    use super::*;
    use crate::keeper::KeeperConfig;

    #[test]
    fn a_directory_that_cannot_be_used_is_not_tried_for_every_record() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("base");
        std::fs::write(&base, "a file, where a directory should be").unwrap();
        let disk = Arc::new(Disk::new(KeeperConfig::new(base.clone(), JobId(1), ProcessId::first(0))));
        let mut work = Work { disk, unreleased: Vec::new(), trouble: None };
        let owner = ProcessId::first(1);
        let key = RecordKey { reduction: ReductionId::new("test", 0), owner, segment: None };
        let mut put = |now| work.put(now, Kind::Replica, key, b"value");

        let now = Instant::now();
        let error = put(now).unwrap_err();
        assert!(matches!(*error, DiskError::Directory(_)), "{error:?}");
        std::fs::remove_file(&base).unwrap();
        assert!(Arc::ptr_eq(&put(now + RETRY_AFTER / 2).unwrap_err(), &error), "it was tried again at once");
        put(now + 600 * RETRY_AFTER).unwrap();
        put(now).unwrap();
        assert_eq!(work.disk.read(Kind::Replica, key).unwrap().unwrap(), "value");
    }
}
