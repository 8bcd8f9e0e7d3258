//! Ctrl-C and SIGTERM as events.

use std::{io, thread};

use nix::sys::signal::{SigSet, Signal};

/// Blocks SIGINT and SIGTERM in this thread and those that it starts from now on, and hands them to `take` instead
/// until that says false. Child processes are not affected.
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
