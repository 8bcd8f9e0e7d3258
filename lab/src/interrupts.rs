//! Ctrl-C and SIGTERM as events.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    thread,
};

use nix::sys::signal::{SigSet, Signal};

use crate::Failure;

/// Blocks SIGINT and SIGTERM in this thread and those that it starts from now on, and hands them to `take`
/// instead until that says false. Child processes are not affected.
///
/// # Errors
/// The system refuses to block the signals, or a thread that waits for them.
pub fn listen(mut take: impl FnMut(Signal) -> bool + Send + 'static) -> io::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    let listen = move || {
        while let Ok(signal) = signals.wait() {
            if !take(signal) {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
    Ok(())
}

/// Whether we are asked to end. By default nobody asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupts(Arc<AtomicI32>);

impl Interrupts {
    /// From now on, Ctrl-C and SIGTERM only show here. To be called before there are other threads.
    pub fn listen() -> io::Result<Self> {
        let taken = Arc::new(AtomicI32::new(0));
        let take = taken.clone();
        listen(move |signal| {
            take.store(signal as i32, Ordering::SeqCst);
            true
        })?;
        Ok(Self(taken))
    }

    /// An error if we are to end.
    pub fn check(&self) -> Result<(), Failure> {
        match Signal::try_from(self.0.load(Ordering::SeqCst)) {
            Ok(signal) => Err(Failure::interrupted(signal)),
            Err(_) => Ok(()),
        }
    }
}
