//! Child processes that die with this one, and threads that are not kept waiting.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use nix::{
    errno::Errno,
    libc,
    sys::{prctl, signal::Signal},
    unistd::{Pid, getpid, getppid},
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

/// Kills a process, if it is a child of `parent` that has not ended. No process that has got its number meanwhile is
/// hit. Says whether it was.
///
/// # Errors
/// What the system says.
pub fn kill_child_of(parent: Pid, pid: Pid) -> io::Result<bool> {
    // SAFETY: the call takes two integers; the descriptor that it gives is nobody else's.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let descriptor = match Errno::result(opened) {
        // SAFETY: it was opened just now.
        Ok(descriptor) => unsafe { OwnedFd::from_raw_fd(descriptor as i32) },
        Err(Errno::ESRCH) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    // From here on the descriptor means one process, which is that child if it has the number now.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    if !is_living_child(&stat, parent) {
        return Ok(false);
    }
    let (number, info) = (descriptor.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
    // SAFETY: the descriptor is open, and no information comes with the signal.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, number, libc::SIGKILL, info, 0) };
    match Errno::result(sent) {
        Ok(_) => Ok(true),
        Err(Errno::ESRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether that is what `/proc/PID/stat` says of a child of `parent` that is no zombie.
fn is_living_child(stat: &str, parent: Pid) -> bool {
    // The name of the program stands in parentheses and may have any characters.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let (state, of) = (fields.next(), fields.next());
    !matches!(state, None | Some("Z" | "X")) && of == Some(&parent.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn only_a_living_child_is_killed() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("there is sleep");
        let pid = Pid::from_raw(child.id() as i32);
        assert!(!kill_child_of(Pid::from_raw(1), pid).expect("it is asked"), "of another parent");
        assert!(kill_child_of(getpid(), pid).expect("it is asked"));
        let status = child.wait().expect("it was started");
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        assert!(!kill_child_of(getpid(), pid).expect("it is asked"), "it was waited for");
        assert!(!is_living_child("7 (a) b) Z 1 7", Pid::from_raw(1)));
        assert!(is_living_child("7 (a) b) S 1 7", Pid::from_raw(1)));
    }
}
