//! What happens to calls of the database that are under way when the process exits.
//!
//! `exit` destroys what RocksDB's C++ keeps in statics, on whichever thread calls it, while other threads may
//! be in the middle of a call: an ordinary `std::process::exit(7)` of the application would end in a crash
//! now and then. So an exit waits for the calls that are under way, and no more are begun.

use std::{
    mem,
    sync::{Once, PoisonError, RwLock, RwLockReadGuard, TryLockError},
    thread,
    time::{Duration, Instant},
};

use crate::options::options;

/// Held shared by calls, and taken for good by an exit.
static CALLS: RwLock<()> = RwLock::new(());
/// How long an exit waits at most: a disk may hang for ever.
const WAIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(1);

/// Lets an exit from now on wait for calls that are under way. A program that opens a store on another thread
/// calls this first: an exit that has begun waits for nothing.
pub fn prepare() {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // Handlers run in reverse order: what the database keeps in statics has to be there before.
        drop(options());
        // SAFETY: the function stays where it is, and does not unwind.
        if unsafe { libc::atexit(wait_for_calls) } != 0 {
            tracing::warn!("no room for an exit handler: the process may crash when it exits");
        }
    });
}

/// A call of the database. While it lasts, the process does not exit; once it exits, no call begins any more.
pub(crate) fn call() -> RwLockReadGuard<'static, ()> {
    prepare();
    CALLS.read().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn wait_for_calls() {
    let start = Instant::now();
    while start.elapsed() < WAIT {
        match CALLS.try_write() {
            Err(TryLockError::WouldBlock) => thread::sleep(POLL),
            taken => return mem::forget(taken),
        }
    }
}
