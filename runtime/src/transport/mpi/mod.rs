//! One-sided reads by `MPI_Get`, in programs that MPI has started.
//!
//! Networks of clusters read the memory of other hosts without their processors, and MPI knows how to ask
//! them. [`MpiWindow::create`] makes a dynamic window over a communicator; each process attaches the
//! beginning of its [region](crate::memory::region). A read gets the bytes, and then the window's generation,
//! which says whether they were valid all the time (I3).
//!
//! - MPI never says that a process is dead: reads from it hang, some within `MPI_Rget` itself. So MPI has a
//!   thread of its own here, and a read that brings nothing in time goes over TCP
//!   ([`second`](super::second)).
//! - Nobody calls MPI here to let others read. Where the network needs the processor of the owner, as TCP
//!   does, reads are answered only while the application is within MPI, or if MPI has threads for it
//!   (`MPIR_CVAR_ASYNC_PROGRESS`). Elsewhere they bring nothing, and are not tried again.
//! - Only what lies in the region of a rank's first process is read so: a process that comes back is unknown
//!   to MPI.
//! - What comes this way is not authenticated, and arrays have no checksum: nothing on the network of an MPI
//!   job is. The network's own checks have to do.
//! - One thread reads from all hosts. If it hangs within MPI, all go over TCP from then on.
//!
//! | module | holds |
//! |---|---|
//! | `raw` | the calls of MPI, and what they take for granted |
//! | `reader` | the thread that reads |

mod raw;
mod reader;

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use everfold_protocol::{
    Incarnation,
    message::{ByteRange, Peer, Place, WindowRef},
};
use futures::{FutureExt, future::BoxFuture};
use mpi::{
    collective::SystemOperation,
    environment::{self, Threading},
    traits::CommunicatorCollectives,
};
use tokio::sync::oneshot;

use self::{
    raw::Window,
    reader::{Order, Outcome},
};
use super::{Fetched, OneSidedRead, ReadError, check_range, second::SecondWay, staging::Pool};
use crate::memory::{
    mapping::{GENERATIONS, generation_at},
    region::Region,
};

/// How long a read may bring nothing new. Long for a network, and short beside the silence of a process that
/// is declared failed.
const PATIENCE: Duration = Duration::from_millis(100);

/// The windows of all processes of a communicator, which are the ranks of a job.
#[derive(Debug)]
pub struct MpiWindow {
    window: Window,
    ranks: u32,
    shown_bytes: u64,
    /// None any more once all reads have ended.
    orders: Mutex<Option<mpsc::Sender<Order>>>,
    /// Hangs up when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
    /// How often the thread has looked at its reads.
    turns: Arc<AtomicU64>,
    /// The thread has stood still for so long that it hangs within MPI.
    is_stuck: AtomicBool,
    pool: Pool,
}

impl MpiWindow {
    /// Makes a window in which each process shows up to `shown_bytes` bytes. A collective call: every process
    /// of the communicator makes it, and hears the same error.
    ///
    /// # Errors
    /// MPI was initialized for fewer threads than [`Threading::Multiple`], or refuses.
    pub fn create(communicator: &impl CommunicatorCollectives, shown_bytes: u64) -> io::Result<Self> {
        let has_threads = environment::threading_support() == Threading::Multiple;
        let mine = [u64::from(has_threads), shown_bytes, !shown_bytes];
        let mut least = [0u64; 3];
        communicator.all_reduce_into(&mine[..], &mut least[..], SystemOperation::min());
        if least[0] == 0 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "MPI has to be initialized for several threads, in all processes: \
                 mpi::initialize_with_threading(Threading::Multiple)",
            ));
        }
        if least[1] != !least[2] {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "processes show different numbers of bytes",
            ));
        }
        let window = Window::create(communicator.as_raw());
        // Open MPI's processes read from each other while they make it, and leave it without a word.
        communicator.barrier();
        let window = window?;
        let (orders, incoming) = mpsc::channel();
        let (ending, ended) = mpsc::channel();
        let turns = Arc::new(AtomicU64::new(0));
        let turned = turns.clone();
        std::thread::Builder::new().name("everfold-mpi".to_owned()).spawn(move || {
            reader::read(window, &incoming, &turned);
            drop(ending);
        })?;
        Ok(Self {
            window,
            ranks: communicator.size() as u32,
            shown_bytes,
            orders: Mutex::new(Some(orders)),
            ended: Mutex::new(ended),
            turns,
            is_stuck: AtomicBool::new(false),
            pool: Pool::default(),
        })
    }

    /// Passes a read on to the thread, and waits for its outcome.
    async fn get(&self, order: Order, mut outcome: oneshot::Receiver<Outcome>) -> Outcome {
        let sent = lock(&self.orders).as_ref().is_some_and(|orders| orders.send(order).is_ok());
        if !sent {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut turns = self.turns.load(Relaxed);
        loop {
            match tokio::time::timeout(2 * PATIENCE, &mut outcome).await {
                Ok(outcome) => return outcome.unwrap_or(Err(io::ErrorKind::BrokenPipe.into())),
                // The thread gives a read up by itself, unless it hangs.
                Err(_) if self.turns.load(Relaxed) == turns => {
                    self.is_stuck.store(true, Relaxed);
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(_) => turns = self.turns.load(Relaxed),
            }
        }
    }
}

impl OneSidedRead for MpiWindow {
    fn read<'a>(
        &'a self,
        peer: &'a Peer,
        window: &'a WindowRef,
        range: ByteRange,
    ) -> BoxFuture<'a, Result<Fetched, ReadError>> {
        async move {
            check_range(window, range)?;
            let Some(place) = self.place(peer, window) else {
                return Err(io::Error::from(io::ErrorKind::Unsupported).into());
            };
            let (answer, outcome) = oneshot::channel();
            let order = Order {
                rank: peer.process.rank,
                range: ByteRange { start: place.bytes + range.start, len: range.len },
                generation: place.generation,
                into: self.pool.take(range.len as usize),
                answer,
            };
            let got = self.get(order, outcome).await?;
            match got.generation == window.generation.0 {
                true => Ok(Fetched::Staged(got.bytes)),
                false => Err(ReadError::Released),
            }
        }
        .boxed()
    }
}

/// Where a window lies in the memory of its owner.
struct At {
    bytes: u64,
    generation: u64,
}

impl MpiWindow {
    /// Where a window lies, if MPI leads there.
    fn place(&self, peer: &Peer, window: &WindowRef) -> Option<At> {
        let Place::Region(offset) = window.place else { return None };
        let is_first = peer.process.incarnation == Incarnation(0) && peer.process.rank.0 < self.ranks;
        let region = peer.region.filter(|_| is_first)?;
        let slot = window.window.0 as usize;
        let is_shown = offset.0.saturating_add(window.bytes) <= self.shown_bytes.min(region.bytes);
        (is_shown && slot < GENERATIONS).then(|| At {
            bytes: region.address + offset.0,
            generation: region.address + generation_at(slot) as u64,
        })
    }
}

impl SecondWay for MpiWindow {
    fn show(&self, region: &Region) -> io::Result<()> {
        // SAFETY: what is exposed stays mapped.
        unsafe { self.window.attach(region.expose(self.shown_bytes)) }
    }

    fn leads_to(&self, peer: &Peer, window: &WindowRef) -> bool {
        !self.is_stuck.load(Relaxed) && self.place(peer, window).is_some()
    }

    fn end(&self) {
        drop(lock(&self.orders).take());
        // A thread that hangs within MPI does not end.
        if lock(&self.ended).recv_timeout(2 * PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("a read by MPI hangs: MPI may not end by itself");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
