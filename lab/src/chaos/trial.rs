//! One trial: a job, its faults, and what came of it.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::process::ExitStatusExt,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, Sender},
    },
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{
    gate::Gate,
    inject::{Injected, Target, inject_all},
    job::{Event, Folders, Job, JobSpec},
    said::{Loss, Said, Told, Work},
    schedule::{Action, Fault},
    storage::Storage,
    verdict::{self, End, Judgement, Verdict},
};
use crate::{Failure, clock::now_ns, cluster::Host};

/// Where trials take place.
#[derive(Debug)]
pub struct Ground<'a> {
    /// What each of them runs.
    pub spec: &'a JobSpec,
    /// For the folders of trials.
    pub scratch: &'a Path,
    /// Whether the disk is to be filled.
    pub can_be_filled: bool,
    /// The rank that the result goes to; nothing if it goes to all.
    pub root: Option<u32>,
    /// A trial that takes longer hangs.
    pub timeout: Duration,
    /// What happens.
    pub events: Receiver<Event>,
    /// For those who see it happen.
    pub sender: Sender<Event>,
}

/// What came of a trial.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// Its number; nothing if it is one without faults, for comparison.
    pub number: Option<u64>,
    /// How it ended.
    pub verdict: Verdict,
    /// Why it is not recovered.
    pub why: Option<String>,
    /// What is lost, if something is.
    pub loss: Option<Loss>,
    /// What went wrong.
    pub faults: Vec<Injected>,
    /// From the moment from which faults count to the result, in milliseconds; to the end of all processes if
    /// nobody has told that the result is there.
    pub result_ms: Option<f64>,
    /// What was done for the result.
    pub work: Option<Work>,
    /// What the ranks printed, if the trial is to be looked into.
    #[serde(skip)]
    pub output: Option<String>,
}

impl Trial {
    /// Whether it shows that something is wrong.
    pub fn is_bad(&self) -> bool {
        self.verdict > Verdict::Lost
    }
}

/// What the ranks told, and when they had their outcome.
type Tellings = Vec<Option<(u64, Told)>>;

impl Ground<'_> {
    /// Runs a trial. To be called from the main thread.
    ///
    /// # Errors
    /// It cannot be set up, or we are asked to end.
    pub fn run(&self, number: Option<u64>, faults: &[Fault], window: Duration) -> Result<Trial, Failure> {
        let folder = tempfile::tempdir_in(self.scratch)?;
        let storage = Storage::new(folder.path().join("storage"), self.can_be_filled)?;
        let output = folder.path().join("output");
        fs::create_dir(&output)?;
        let folders = Folders { output: &output, storage: storage.path() };

        let gate = Arc::new(Gate::default());
        let job = Job::start(self.spec, &folders, &gate, &self.sender)?;
        if !self.spec.speaks {
            gate.open(now_ns());
        }
        let (processes, cluster) = (job.processes(), self.spec.cluster.as_ref());
        let (agents, layout) = (job.agents(), self.spec.layout);
        let target = Target { gate: &gate, window, processes, agents, layout, cluster, storage: &storage };
        let (attended, injected) = inject_all(target, faults, || {
            let attended = self.attend();
            gate.end();
            attended
        });
        let (tellings, ended_ns) = attended?;
        self.heal(faults)?;
        let statuses = job.end()?;
        self.drain()?;

        let excused = self.hit(&injected, |_| true);
        let kills = |action: &Action| {
            matches!(action, Action::Kill { .. } | Action::Lose { .. } | Action::LoseDomain { .. })
        };
        let killed = self.hit(&injected, kills);
        let ends = (0..).zip(tellings.iter().zip(statuses)).map(|(rank, (telling, status))| End {
            told: telling.as_ref().map(|(_, told)| told.clone()),
            code: status.map(|status| status.code().unwrap_or(128 + status.signal().unwrap_or(0))),
            is_killed: killed.contains(&rank),
            is_excused: excused.contains(&rank),
        });
        let ends: Vec<End> = ends.collect();
        let Judgement { verdict, why, loss } = verdict::judge(&ends, self.spec.speaks);
        let result_ns = result_ns(self.root, &tellings, &excused).unwrap_or(ended_ns);
        let result_ms = gate.opened_ns().filter(|_| verdict == Verdict::Recovered);
        let trial = Trial {
            number,
            verdict,
            why,
            loss,
            faults: injected,
            result_ms: result_ms.map(|opened| result_ns.saturating_sub(opened) as f64 / 1e6),
            work: verdict::work(&ends, self.root),
            output: None,
        };
        let output = trial.is_bad().then(|| self.output(&folders, &ends));
        Ok(Trial { output, ..trial })
    }

    /// Listens until all processes have ended, or too much time has passed. Tells when that was.
    fn attend(&self) -> Result<(Tellings, u64), Failure> {
        let deadline = Instant::now() + self.timeout;
        let ranks = self.spec.layout.ranks;
        let mut tellings: Tellings = vec![None; ranks as usize];
        let mut living: BTreeSet<u32> = (0..ranks).collect();
        while !living.is_empty() {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Event::Said(rank, Said::Ended { at_ns, told })) => {
                    tellings[rank as usize] = Some((at_ns, told));
                }
                Ok(Event::Said(_, Said::Go { .. } | Said::Called { .. })) => {}
                Ok(Event::Ended(rank)) => drop(living.remove(&rank)),
                Ok(Event::Signal(signal)) => return Err(Failure::interrupted(signal)),
                Err(_) => break,
            }
        }
        Ok((tellings, now_ns()))
    }

    /// What is still on its way does not concern the next trial.
    fn drain(&self) -> Result<(), Failure> {
        while let Ok(event) = self.events.try_recv() {
            if let Event::Signal(signal) = event {
                return Err(Failure::interrupted(signal));
            }
        }
        Ok(())
    }

    fn heal(&self, faults: &[Fault]) -> Result<(), Failure> {
        let hosts = faults.iter().filter_map(|fault| match fault.action {
            Action::Cut { host, .. } => Some(host),
            _ => None,
        });
        let hosts: Vec<Host> = hosts.collect();
        if let Some(cluster) = &self.spec.cluster {
            hosts.into_iter().try_for_each(|host| cluster.heal(host))?;
        }
        Ok(())
    }

    /// The ranks that were hit by faults of a kind, and so that the others may take them for dead.
    fn hit(&self, injected: &[Injected], is_meant: impl Fn(&Action) -> bool) -> BTreeSet<u32> {
        let hit = injected.iter().filter(|injected| injected.at_ms.is_some());
        let actions = hit.map(|injected| &injected.fault.action).filter(|action| is_meant(action));
        actions.flat_map(|action| action.suspects(self.spec.layout)).collect()
    }

    /// What the ranks printed and how they ended.
    fn output(&self, folders: &Folders, ends: &[End]) -> String {
        let mut text = String::new();
        for (rank, end) in (0..).zip(ends) {
            let code =
                end.code.map_or("did not end".to_owned(), |code| format!("ended with exit code {code}"));
            let told = end.told.as_ref().map_or("nothing".to_owned(), |told| format!("{told:?}"));
            let printed = fs::read(folders.output(rank)).unwrap_or_default();
            text += &format!("== rank {rank} {code} and told {told}\n{}", String::from_utf8_lossy(&printed));
        }
        text
    }
}

/// When the result was where it had to be: at the root, or at all ranks that are not excused.
fn result_ns(root: Option<u32>, tellings: &[Option<(u64, Told)>], excused: &BTreeSet<u32>) -> Option<u64> {
    let times = (0u32..).zip(tellings).filter_map(|(rank, telling)| {
        let is_meant = match root {
            Some(root) => rank == root,
            None => !excused.contains(&rank),
        };
        telling.as_ref().filter(|_| is_meant).map(|(at_ns, _)| *at_ns)
    });
    times.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_there_when_its_root_has_it_or_all_have() {
        let told = |at_ns| Some((at_ns, Told::Ok(Work::default())));
        let (tellings, excused) = (vec![told(10), told(30), told(20), None], BTreeSet::from([1]));
        assert_eq!(result_ns(Some(0), &tellings, &excused), Some(10));
        assert_eq!(result_ns(Some(2), &tellings, &excused), Some(20));
        assert_eq!(result_ns(Some(3), &tellings, &excused), None, "it was killed");
        assert_eq!(result_ns(None, &tellings, &excused), Some(20));
    }
}
