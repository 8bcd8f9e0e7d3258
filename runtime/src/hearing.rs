//! The thread that hears the master.
//!
//! What ends a future is for the application. Where the application's thread waits for it, that thread hears
//! it by itself: to be woken up by the I/O thread would take two wake-ups instead of one, and with small
//! bodies wake-ups are what takes the time. Where the application computes, the I/O thread hears.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};
use tokio::io::Interest;

use crate::{descriptors::patiently, transport::line::register};

/// How long the application computes at least before the I/O thread takes over: one that reduces again and
/// again waits again by then, and spares the change.
const PATIENCE: Duration = Duration::from_millis(1);

/// How often the patience doubles at most while the application is found waiting.
const DOUBLINGS_MAX: u32 = 3;

/// Which thread listens.
///
/// While the I/O thread rests and the application's thread computes, the timer runs, or the I/O thread is
/// about to see that it has run out.
pub(crate) struct Hearing {
    application_listens: AtomicBool,
    application_waits: AtomicBool,
    io_rests: AtomicBool,
    timer_runs: AtomicBool,
    /// How often the patience is doubled now.
    doublings: AtomicU32,
    timer: TimerFd,
    /// The same timer, for the I/O thread to wait on.
    ring: Arc<OwnedFd>,
}

impl Hearing {
    /// The I/O thread listens.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn new() -> io::Result<Self> {
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        Ok(Self {
            application_listens: AtomicBool::new(false),
            application_waits: AtomicBool::new(false),
            io_rests: AtomicBool::new(false),
            timer_runs: AtomicBool::new(false),
            doublings: AtomicU32::new(0),
            ring: Arc::new(timer.as_fd().try_clone_to_owned()?),
            timer,
        })
    }

    /// Whether the application's thread listens.
    pub(crate) fn application_waits(&self) -> bool {
        self.application_waits.load(SeqCst)
    }

    /// The application's thread can listen, until this is dropped.
    pub(crate) fn begin(&self) -> impl Drop {
        self.application_listens.store(true, SeqCst);
        Listening(self)
    }

    /// The application's thread waits, and listens if it can.
    pub(crate) fn wait(&self) {
        self.application_waits.store(self.application_listens.load(SeqCst), SeqCst);
    }

    /// The application's thread computes.
    pub(crate) fn compute(&self) {
        self.application_waits.store(false, SeqCst);
        if self.io_rests.load(SeqCst) && !self.timer_runs.swap(true, SeqCst) {
            self.ring_after(PATIENCE * (1 << self.doublings.load(SeqCst)));
        }
    }

    /// The application's thread waits where it does not listen.
    pub(crate) fn wait_deaf(&self) {
        self.application_waits.store(false, SeqCst);
        if self.io_rests.load(SeqCst) {
            self.timer_runs.store(true, SeqCst);
            self.ring_after(Duration::from_nanos(1));
        }
    }

    fn ring_after(&self, time: Duration) {
        let expiration = Expiration::OneShot(TimeSpec::from(time));
        if let Err(error) = self.timer.set(expiration, TimerSetTimeFlags::empty()) {
            tracing::error!(%error, "cannot set a timer");
        }
    }

    /// Lets the I/O thread rest while the application's thread listens.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) async fn rest(&self) -> io::Result<()> {
        let ring = patiently(|| register(&self.ring, Interest::READABLE)).await?;
        self.io_rests.store(true, SeqCst);
        let mut doublings = 0;
        while self.application_waits() {
            self.doublings.store(doublings.min(DOUBLINGS_MAX), SeqCst);
            ring.readable().await?.clear_ready();
            // If it has been set anew meanwhile, there is nothing to read.
            let _ = self.timer.wait();
            self.timer_runs.store(false, SeqCst);
            doublings += 1;
        }
        self.io_rests.store(false, SeqCst);
        Ok(())
    }
}

/// While the application's thread can listen.
struct Listening<'a>(&'a Hearing);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.application_listens.store(false, SeqCst);
        self.0.wait_deaf();
    }
}
