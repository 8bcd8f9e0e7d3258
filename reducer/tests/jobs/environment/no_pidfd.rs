//! A system that gives no descriptors of processes: an old kernel, or a filter of system calls.

use std::{io, os::unix::process::CommandExt, process::Command};

use nix::libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, ENOSYS, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP,
    SECCOMP_MODE_FILTER, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SYS_pidfd_open, prctl, sock_filter,
    sock_fprog,
};

use super::job::{Job, RANKS};

/// The agent that ranks have started sees them end all the same, and ends after them.
pub(super) fn ranks_end() {
    let job = Job::new("unix", "environment::sums");
    let start = |rank| {
        let mut command = job.command(rank);
        without_pidfd(command.env("EVERFOLD_SECRET", Job::secret()));
        (rank, job.spawn(&mut command))
    };
    job.assert_done((0..RANKS).map(start).collect());
}

/// Lets the command, and all that it starts, run as on a system that does not know `pidfd_open`.
fn without_pidfd(command: &mut Command) {
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    // The number of the call is the first word that the filter sees.
    let mut filter = [
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_pidfd_open as u32),
        step(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS as u32),
        step(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the system copies the program, which outlives the call.
        let is_installed = unsafe {
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if is_installed { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec, `install` makes two system calls and allocates nothing.
    unsafe { command.pre_exec(install) };
}
