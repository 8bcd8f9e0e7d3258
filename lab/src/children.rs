//! Child processes that die with this one, and threads that are not kept waiting.

use std::{io, os::unix::process::CommandExt, process::Command};

use nix::{
    errno::Errno,
    libc,
    sys::{prctl, signal::Signal},
    unistd::{getpid, getppid},
};

/// Makes what `command` starts die with the thread that starts it, however that ends. Start it from the main
/// thread.
pub fn die_with_us(command: &mut Command) {
    let parent = getpid();
    let die = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // It may have died just before.
        if getppid() == parent { Ok(()) } else { Err(io::Error::from(Errno::ESRCH)) }
    };
    // SAFETY: between fork and exec, the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(die) };
}

/// Lets this thread run as soon as it has something to do, however busy the machine is. It should mostly
/// sleep.
///
/// Without the right to it nothing changes. Processes that the thread starts do not inherit it.
pub fn hurry() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads `priority`, which outlives it; 0 is this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &priority) };
}
