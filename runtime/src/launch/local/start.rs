//! How a process of a job is started.

use std::{io, process::Stdio};

use everfold_protocol::{ProcessId, Rank};
use nix::{
    errno::Errno,
    sys::{prctl, signal::Signal},
    unistd::{Pid, getpid, getppid},
};
use tokio::process::Command;

use super::{Local, LocalError, process::Process};
use crate::launch::{
    JobEvent,
    environment::{CHECKPOINTS, Environment, PLAN, RECORD, RECOVERY, RESUME, ROLLBACKS, SECRET_FILE},
    output::Output,
    terminal,
};

impl Local {
    /// Starts all processes, or none.
    pub(super) async fn start_all(
        &self,
        rollbacks: u32,
        job: &Environment,
        output: &Output,
    ) -> Result<Vec<Process>, LocalError> {
        let mut processes = Vec::new();
        let ranks = if self.is_spare() { 0 } else { self.ranks };
        for rank in (0..ranks).map(|index| Rank(job.rank.0 + index)) {
            match self.start(rollbacks, &Environment { rank, ..job.clone() }, false, output) {
                Ok(process) => processes.push(process),
                Err(source) => {
                    processes.iter_mut().for_each(Process::kill);
                    for process in processes {
                        process.gone().await;
                    }
                    return Err(LocalError::Spawn { program: self.program.clone(), source });
                }
            }
        }
        Ok(processes)
    }

    pub(super) fn start(
        &self,
        rollbacks: u32,
        environment: &Environment,
        stands_by: bool,
        output: &Output,
    ) -> io::Result<Process> {
        let rank = environment.rank;
        let (stdout, from_stdout) = output.stdout.open(rank)?;
        let (stderr, from_stderr) = output.stderr.open(rank)?;
        let stdin = if rank == 0 { Stdio::inherit() } else { Stdio::null() };
        let mut command = Command::new(&self.program);
        match output.stderr.is_overwritten().then(|| terminal::name(&stderr)).flatten() {
            Some(pipe) => command.env(terminal::TERMINAL, pipe),
            None => command.env_remove(terminal::TERMINAL),
        };
        if self.is_nested {
            for name in [RECOVERY, PLAN, RECORD] {
                command.env_remove(name);
            }
        }
        command
            .args(&self.arguments)
            .envs(environment.variables())
            .envs(self.recovery.as_ref().map(|file| (RECOVERY, file)))
            .envs(self.plan.as_ref().map(|file| (PLAN, file)))
            .envs(self.record.as_ref().map(|file| (RECORD, file)))
            .env_remove(SECRET_FILE)
            // Those of a job around this one are not meant.
            .env_remove(CHECKPOINTS)
            .env_remove(RESUME)
            .env_remove(ROLLBACKS)
            .envs(self.checkpoints.as_ref().map(|checkpoints| match checkpoints.resumes {
                true => (RESUME, &checkpoints.directory),
                false => (CHECKPOINTS, &checkpoints.directory),
            }))
            .envs(self.rollback.as_ref().map(|_| (ROLLBACKS, rollbacks.to_string())))
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .kill_on_drop(true);
        let supervisor = getpid();
        // SAFETY: between fork and exec, `die_with` makes two system calls and allocates nothing.
        unsafe { command.pre_exec(move || die_with(supervisor)) };
        let may_die = self.survive_deaths;
        let process = ProcessId { rank, incarnation: environment.incarnation };
        let child = command.spawn()?;
        child.id().into_iter().for_each(|pid| self.tell(JobEvent::Started { process, pid, stands_by }));
        Ok(Process::new(process, may_die, child, [from_stdout, from_stderr]))
    }
}

/// Makes this process die when the thread that forked it does.
fn die_with(supervisor: Pid) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // It may have died just before.
    if getppid() == supervisor { Ok(()) } else { Err(Errno::ESRCH.into()) }
}
