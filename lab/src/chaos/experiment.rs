//! Many trials: first some without faults, then those that were asked for.

use std::{fs, path::PathBuf, sync::mpsc, time::Duration};

use indicatif::ProgressBar;

use super::{
    job::{Event, JobSpec},
    replay::{describe, describe_kept},
    schedule::{Kind, Plan},
    trial::{Ground, Trial},
};
use crate::{Failure, interrupts, progress, scratch::Scratch};

/// Trials without faults from which it is learnt how long one takes.
const WITHOUT_FAULTS: u64 = 5;

/// What is to be tried.
#[derive(Debug)]
pub struct Experiment {
    /// What each trial runs.
    pub spec: JobSpec,
    /// The rank that the result goes to; nothing if it goes to all.
    pub root: Option<u32>,
    /// What goes wrong.
    pub plan: Plan,
    /// From which it is drawn.
    pub seed: u64,
    /// Which trials.
    pub numbers: Vec<u64>,
    /// A trial that takes longer hangs.
    pub timeout: Duration,
    /// The time in which faults come, if it is not to be measured.
    pub time: Option<Duration>,
    /// The time in which faults come, in times of a trial without faults.
    pub window: f64,
    /// Where to keep the output of bad trials.
    pub keep: PathBuf,
}

/// What was seen.
#[derive(Debug)]
pub struct Seen {
    /// The time of a trial without faults, measured or given.
    pub time: Duration,
    /// Trials without faults.
    pub without_faults: Vec<Trial>,
    /// Trials with faults.
    pub trials: Vec<Trial>,
}

impl Experiment {
    /// Runs all trials. To be called from the main thread, before there are others. For full disks, this
    /// process has to have mounts of its own: see
    /// [`keep_mounts_to_ourselves`](super::storage::keep_mounts_to_ourselves).
    pub fn run(&self) -> Result<Seen, Failure> {
        self.plan.validate()?;
        let can_be_filled = self.plan.kinds.contains(&Kind::DiskFull);
        let (sender, events) = mpsc::channel();
        let signals = sender.clone();
        interrupts::listen(move |signal| signals.send(Event::Signal(signal)).is_ok())?;
        let scratch = Scratch::new_in(&std::env::temp_dir())?;
        let ground = Ground {
            spec: &self.spec,
            scratch: scratch.path(),
            can_be_filled,
            root: self.root,
            timeout: self.timeout,
            events,
            sender,
        };
        let progress = progress::bar(WITHOUT_FAULTS, "trials without faults");
        let seen = self.run_on(&ground, &progress);
        progress.finish_and_clear();
        seen
    }

    fn run_on(&self, ground: &Ground, progress: &ProgressBar) -> Result<Seen, Failure> {
        let without_faults = match self.time {
            Some(_) => Vec::new(),
            None => (0..WITHOUT_FAULTS)
                .map(|_| self.run_without_faults(ground).inspect(|_| progress.inc(1)))
                .collect::<Result<_, _>>()?,
        };
        let mut times: Vec<f64> = without_faults.iter().filter_map(|trial| trial.result_ms).collect();
        times.sort_unstable_by(f64::total_cmp);
        let measured = times.get(times.len() / 2).map(|ms| Duration::from_secs_f64(ms / 1e3));
        let time = self.time.or(measured).unwrap_or_default();
        progress.set_position(0);
        progress.set_length(self.numbers.len() as u64);
        progress.set_message("trials");
        let mut trials = Vec::new();
        for &number in &self.numbers {
            let faults = self.plan.draw(self.seed, number);
            let trial = ground.run(Some(number), &faults, time.mul_f64(self.window))?;
            if trial.is_bad() {
                let kept = self.keep(&trial, time)?;
                progress.suspend(|| note!("{}", describe_kept(&trial, self.seed, time, &kept)));
            }
            trials.push(trial);
            progress.inc(1);
        }
        Ok(Seen { time, without_faults, trials })
    }

    fn run_without_faults(&self, ground: &Ground) -> Result<Trial, Failure> {
        let trial = ground.run(None, &[], Duration::ZERO)?;
        match (trial.result_ms, &trial.why) {
            (Some(_), _) => Ok(trial),
            (None, why) => {
                let why = why.as_deref().unwrap_or("it says nothing");
                let output = trial.output.as_deref().unwrap_or_default();
                Err(Failure::new(format!(
                    "without any fault, the program does not end well: {why}\n{output}"
                )))
            }
        }
    }

    /// Writes what is known of a bad trial to a file.
    fn keep(&self, trial: &Trial, time: Duration) -> Result<PathBuf, Failure> {
        fs::create_dir_all(&self.keep)?;
        let number = trial.number.unwrap_or_default();
        let path = self.keep.join(format!("seed-{}-trial-{number}.txt", self.seed));
        let output = trial.output.as_deref().unwrap_or_default();
        fs::write(&path, format!("{}\n{output}", describe(trial, self.seed, time)))?;
        Ok(path)
    }
}
