//! What runs have shown, for people and for programs.

use std::path::{Path, PathBuf};

use everfold_protocol::units::show_seconds;
use serde::Serialize;

use super::{
    rates::Fault,
    run::{End, Seen},
};
use crate::{
    Failure,
    chaos::summary::{align, table},
    files,
    machine::Machine,
};

/// The runs of the program under one recovery file.
#[derive(Debug, Serialize)]
pub struct Contestant {
    /// The file.
    pub file: PathBuf,
    /// A run without faults.
    pub undisturbed: Seen,
    /// Runs with faults, by trial. The faults of a trial are the same for all files.
    pub trials: Vec<Seen>,
}

/// A row of the table. Figures are means over trials; times are those of runs that have come to their end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The recovery file.
    pub file: String,
    /// Trials that have come to their end.
    pub ended: usize,
    /// All trials.
    pub trials: usize,
    /// Time to the end without faults, in seconds.
    pub undisturbed_s: f64,
    /// Time to the end, in seconds.
    pub time_s: Option<f64>,
    /// What of it the faults have cost.
    pub lost_time_s: Option<f64>,
    /// By how much the time differs from that of the first file, of trials that have come to their end under both.
    pub beside_first: Option<f64>,
    /// For how long ranks did again what was done before, added up over ranks.
    pub again_s: f64,
    /// Processes that were started again on their host.
    pub restarts: f64,
    /// Processes that were started on another host.
    pub migrations: f64,
    /// Standbys that took the places of their ranks' processes.
    pub promotions: f64,
    /// How often all ranks went back to a checkpoint.
    pub rollbacks: f64,
    /// Ranks that were not back in the end.
    pub lost: f64,
    /// Faults that have hit something.
    pub faults: f64,
}

impl Row {
    /// The row of `contestant`, beside the one in the first row.
    pub fn new(contestant: &Contestant, first: &Contestant) -> Self {
        let Contestant { file, undisturbed, trials } = contestant;
        let has_ended = |seen: &&Seen| seen.end == End::Well;
        let all = |figure: &dyn Fn(&Seen) -> f64| mean(trials.iter().map(figure)).unwrap_or_default();
        let time_s = mean(trials.iter().filter(has_ended).map(|seen| seen.time_s));
        let both: Vec<(&Seen, &Seen)> = trials
            .iter()
            .zip(&first.trials)
            .filter(|(one, other)| has_ended(one) && has_ended(other))
            .collect();
        let of_first = mean(both.iter().map(|(_, first)| first.time_s));
        let of_this = mean(both.iter().map(|(this, _)| this.time_s));
        Self {
            file: file.display().to_string(),
            ended: trials.iter().filter(has_ended).count(),
            trials: trials.len(),
            undisturbed_s: undisturbed.time_s,
            time_s,
            lost_time_s: time_s.map(|time_s| time_s - undisturbed.time_s),
            beside_first: of_this.zip(of_first).map(|(this, first)| this / first - 1.0),
            again_s: all(&|seen| seen.course.again_s),
            restarts: all(&|seen| seen.course.restarts as f64),
            migrations: all(&|seen| seen.course.migrations as f64),
            promotions: all(&|seen| seen.course.promotions as f64),
            rollbacks: all(&|seen| seen.course.rollbacks as f64),
            lost: all(&|seen| seen.course.lost as f64),
            faults: all(&|seen| seen.faults.iter().filter(|fault| fault.hit.is_some()).count() as f64),
        }
    }

    fn cells(&self, is_first: bool) -> [String; 13] {
        let time = |time_s: Option<f64>| time_s.map_or("-".to_owned(), |time_s| format!("{time_s:.1} s"));
        let beside = self.beside_first.filter(|_| !is_first);
        [
            self.file.clone(),
            format!("{} of {}", self.ended, self.trials),
            time(Some(self.undisturbed_s)),
            time(self.time_s),
            time(self.lost_time_s),
            beside.map_or("-".to_owned(), |part| format!("{:+.0} %", part * 100.0)),
            show_seconds(self.again_s),
            count(self.restarts),
            count(self.migrations),
            count(self.promotions),
            count(self.rollbacks),
            count(self.lost),
            count(self.faults),
        ]
    }
}

fn mean(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let figures: Vec<f64> = figures.collect();
    (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
}

/// A mean of counts: without a point if it is whole.
fn count(mean: f64) -> String {
    if mean.fract() == 0.0 { format!("{mean:.0}") } else { format!("{mean:.1}") }
}

/// All rows as a table.
pub fn show(rows: &[Row]) -> String {
    let mut shown = table([
        "recovery file",
        "ended",
        "undisturbed",
        "time",
        "lost",
        "beside first",
        "done again",
        "restarts",
        "migrations",
        "promotions",
        "rollbacks",
        "ranks lost",
        "faults",
    ]);
    for (index, row) in rows.iter().enumerate() {
        shown.add_row(row.cells(index == 0));
    }
    align(&mut shown);
    shown.to_string()
}

/// What goes into a file for programs.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    machine: Machine,
    seed: u64,
    time_limit_s: f64,
    rows: &'a [Row],
    /// By trial, what was to go wrong.
    schedules: &'a [Vec<Fault>],
    files: &'a [Contestant],
}

/// Writes all that was seen to `path`.
pub fn write(
    path: &Path,
    (seed, time_limit_s): (u64, f64),
    schedules: &[Vec<Fault>],
    contestants: &[Contestant],
    rows: &[Row],
) -> Result<(), Failure> {
    let document =
        Document { machine: Machine::here(), seed, time_limit_s, rows, schedules, files: contestants };
    files::write(path, serde_json::to_vec_pretty(&document)?)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        chaos::compare::{course::Course, rates::What, run::Injected},
        cluster::Host,
    };

    fn seen(time_s: f64, end: End, restarts: usize) -> Seen {
        let fault = |at_s| Fault { at_s, what: What::Process { host: Host(0), choice: 1 } };
        let hit = Injected { fault: fault(1.0), hit: Some("rank 1".to_owned()) };
        let missed = Injected { fault: fault(2.0), hit: None };
        let course = Course { restarts, again_s: 0.5, ..Course::default() };
        Seen {
            end,
            time_s,
            begun_s: Some(0.5),
            faults: vec![hit, missed],
            course,
            lines: BTreeSet::new(),
            output: None,
        }
    }

    pub fn contestant(name: &str, times_s: &[f64]) -> Contestant {
        let trials = times_s.iter().enumerate().map(|(restarts, time_s)| match *time_s {
            time_s if time_s < 60.0 => seen(time_s, End::Well, restarts),
            time_s => seen(time_s, End::TimeLimit, restarts),
        });
        let trials = trials.collect();
        Contestant { file: name.into(), undisturbed: seen(4.0, End::Well, 0), trials }
    }

    #[test]
    fn rows_are_means_of_what_has_ended() {
        let (first, second) = (contestant("a", &[10.0, 20.0, 60.0]), contestant("b", &[5.0, 13.0, 30.0]));
        let row = Row::new(&first, &first);
        assert_eq!((row.ended, row.trials, row.time_s, row.lost_time_s), (2, 3, Some(15.0), Some(11.0)));
        assert_eq!((row.restarts, row.faults, row.again_s), (1.0, 1.0, 0.5));
        let beside = Row::new(&second, &first);
        assert_eq!(beside.time_s, Some(16.0));
        assert_eq!(beside.beside_first, Some(9.0 / 15.0 - 1.0), "only of trials that have ended under both");
        let shown = show(&[row, beside]);
        assert!(shown.contains("2 of 3") && shown.contains("-40 %") && shown.contains("11.0 s"), "{shown}");
        let never = contestant("c", &[60.0]);
        let row = Row::new(&never, &never);
        assert_eq!((row.ended, row.time_s, row.beside_first), (0, None, None));
        assert!(show(&[row]).contains("0 of 1"));
    }
}
