//! Makes things go wrong at the right moment.

use std::{io, thread, time::Duration};

use nix::sys::signal::Signal;
use serde::Serialize;

use super::{
    failing,
    gate::Gate,
    job::{Agent, Process},
    schedule::{Action, Fault, Layout},
    storage::Storage,
};
use crate::{
    children::hurry,
    cluster::{Cluster, Host},
};

/// A process that is slow is stopped and continued this often.
const SLOW_PERIOD: Duration = Duration::from_millis(20);
/// How often to look for a file to corrupt.
const FILE_POLL: Duration = Duration::from_millis(1);

/// A fault, and what has become of it.
#[derive(Clone, Debug, Serialize)]
pub struct Injected {
    /// The fault.
    pub fault: Fault,
    /// When it hit, in milliseconds since the gate opened. Nothing if the trial was over before.
    pub at_ms: Option<f64>,
    /// What there is to say about it.
    pub note: Option<String>,
}

/// What can be hit in a trial.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// When.
    pub gate: &'a Gate,
    /// The time in which the faults are to come.
    pub window: Duration,
    /// The job, by rank.
    pub processes: &'a [Process],
    /// Its agents, by host.
    pub agents: &'a [Agent],
    /// Where the ranks are.
    pub layout: Layout,
    /// Its hosts.
    pub cluster: Option<&'a Cluster>,
    /// What it stores.
    pub storage: &'a Storage,
}

impl Target<'_> {
    /// Waits for the fault's moment and makes it happen, from begin to end.
    pub fn inject(self, fault: Fault) -> Injected {
        hurry();
        let mut injected = Injected { fault, at_ms: None, note: None };
        if !self.gate.wait(self.window.mul_f64(injected.fault.at)) {
            return injected;
        }
        let action = injected.fault.action.clone();
        let hit = self.act(&action, || injected.at_ms = Some(self.gate.since().as_secs_f64() * 1e3));
        injected.note = hit.unwrap_or_else(|error| Some(format!("it failed: {error}")));
        injected
    }

    /// Calls `hit` when it has hit.
    fn act(self, action: &Action, hit: impl FnOnce()) -> io::Result<Option<String>> {
        match action {
            Action::Kill { rank } => self.signal(*rank, Signal::SIGKILL, hit),
            Action::Lose { host } => self.lose(&[*host], hit),
            Action::LoseDomain { domain } => {
                self.lose(&self.layout.hosts_in(*domain).collect::<Vec<_>>(), hit)
            }
            Action::Fail { rank, way } => self.signal(*rank, failing::signal(*way), hit),
            Action::Stop { rank, seconds } => {
                let note = self.signal(*rank, Signal::SIGSTOP, hit)?;
                let until = self.gate.since() + Duration::from_secs_f64(*seconds);
                if self.gate.wait(until) {
                    self.processes[*rank as usize].signal(Signal::SIGCONT)?;
                }
                Ok(note)
            }
            Action::Slow { rank, share } => {
                let process = &self.processes[*rank as usize];
                let note = self.signal(*rank, Signal::SIGSTOP, hit)?;
                while !process.has_ended()
                    && self.gate.wait(self.gate.since() + SLOW_PERIOD.mul_f64(1.0 - share))
                {
                    process.signal(Signal::SIGCONT)?;
                    if self.gate.wait(self.gate.since() + SLOW_PERIOD.mul_f64(*share)) {
                        process.signal(Signal::SIGSTOP)?;
                    }
                }
                process.signal(Signal::SIGCONT)?;
                Ok(note)
            }
            Action::Cut { host, direction, seconds } => {
                let Some(cluster) = self.cluster else { return Ok(None) };
                cluster.cut(*host, *direction).map_err(io::Error::other)?;
                hit();
                let healed = seconds.is_some_and(|seconds| {
                    self.gate.wait(self.gate.since() + Duration::from_secs_f64(seconds))
                });
                if healed {
                    cluster.heal(*host).map_err(io::Error::other)?;
                }
                Ok(None)
            }
            Action::DiskFull => {
                self.storage.fill()?;
                hit();
                Ok(None)
            }
            Action::Corrupt { choice, bytes } => loop {
                if let Some(file) = self.storage.corrupt(*choice, *bytes)? {
                    hit();
                    return Ok(Some(format!("it was {}", file.display())));
                }
                if !self.gate.wait(self.gate.since() + FILE_POLL) {
                    return Ok(Some("there was no file to change".to_owned()));
                }
            },
        }
    }

    /// Kills all that runs on `hosts`: all at once, as far as that can be.
    fn lose(self, hosts: &[Host], hit: impl FnOnce()) -> io::Result<Option<String>> {
        hosts.iter().try_for_each(|host| self.agents[host.0 as usize].kill())?;
        hit();
        let ranks = hosts.iter().flat_map(|host| self.layout.ranks_on(*host));
        for process in ranks.map(|rank| &self.processes[rank as usize]).filter(|process| !process.has_ended())
        {
            process.signal(Signal::SIGKILL)?;
        }
        Ok(None)
    }

    fn signal(self, rank: u32, signal: Signal, hit: impl FnOnce()) -> io::Result<Option<String>> {
        let process = &self.processes[rank as usize];
        if process.has_ended() {
            return Ok(Some("the rank had ended".to_owned()));
        }
        process.signal(signal)?;
        hit();
        Ok(None)
    }
}

/// Injects all `faults` while `meanwhile` runs, which has to end the gate.
pub fn inject_all<T>(target: Target, faults: &[Fault], meanwhile: impl FnOnce() -> T) -> (T, Vec<Injected>) {
    thread::scope(|scope| {
        let injecting: Vec<_> =
            faults.iter().map(|fault| scope.spawn(move || target.inject(fault.clone()))).collect();
        let result = meanwhile();
        let injected = injecting.into_iter().map(|thread| thread.join().expect("injecting does not panic"));
        (result, injected.collect())
    })
}
