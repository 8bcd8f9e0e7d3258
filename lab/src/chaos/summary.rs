//! What a run has shown, for people and for programs.

use std::{collections::BTreeMap, path::Path, time::Duration};

use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use serde::Serialize;

use super::{experiment::Seen, said::Loss, schedule::Action, trial::Trial, verdict::Verdict};
use crate::{Failure, files, machine::Machine};

/// Counts and figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Trials with faults.
    pub trials: usize,
    /// Those that came to a result.
    pub recovered: usize,
    /// Those that ended in an error which says what is lost.
    pub lost: usize,
    /// Those that ended in something wrong.
    pub wrong: usize,
    /// Those that did not end.
    pub hung: usize,
    /// Those that failed in another way.
    pub other: usize,
    /// Time to the result of those that recovered.
    pub result_ms: Option<Spread>,
    /// The same without faults.
    pub without_faults_ms: Option<Spread>,
    /// Folds that were done again, in parts of those that a run without faults needs, where that is known.
    pub folds_redone: Option<Spread>,
    /// Trials in which a dead rank's contribution counts.
    pub survived: usize,
    /// Faults that came when the rank or the whole trial was over, or found no file.
    pub missed: usize,
    /// How often each thing was lost.
    pub losses: BTreeMap<Loss, usize>,
    /// The same counts by the most that was killed in a trial, if that differs.
    pub by_death: BTreeMap<Death, Counts>,
}

/// The most that was killed in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Death {
    /// Nothing.
    Nothing,
    /// Processes.
    Process,
    /// Hosts, each with its agent.
    Host,
    /// Domains, each with all its hosts.
    Domain,
}

impl Death {
    /// Of `trial`. What did not hit counts as nothing.
    fn of(trial: &Trial) -> Self {
        let hit = trial.faults.iter().filter(|injected| injected.at_ms.is_some());
        let deaths = hit.map(|injected| match injected.fault.action {
            Action::Kill { .. } => Self::Process,
            Action::Lose { .. } => Self::Host,
            Action::LoseDomain { .. } => Self::Domain,
            _ => Self::Nothing,
        });
        deaths.max().unwrap_or(Self::Nothing)
    }
}

impl std::fmt::Display for Death {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing killed",
            Self::Process => "processes killed",
            Self::Host => "hosts killed",
            Self::Domain => "domains killed",
        })
    }
}

/// How trials have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Counts {
    pub trials: usize,
    pub recovered: usize,
    pub lost: usize,
    pub wrong: usize,
    pub hung: usize,
    pub other: usize,
}

impl Counts {
    fn add(&mut self, verdict: Verdict) {
        self.trials += 1;
        *match verdict {
            Verdict::Recovered => &mut self.recovered,
            Verdict::Lost => &mut self.lost,
            Verdict::Wrong => &mut self.wrong,
            Verdict::Hung => &mut self.hung,
            Verdict::Failed => &mut self.other,
        } += 1;
    }

    fn row(self, name: &str) -> [String; 7] {
        let Self { trials, recovered, lost, wrong, hung, other } = self;
        let [a, b, c, d, e, f] = [trials, recovered, lost, wrong, hung, other].map(|count| count.to_string());
        [name.to_owned(), a, b, c, d, e, f]
    }
}

/// How figures are spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Half are below.
    pub median: f64,
    /// Nine of ten are below.
    pub p90: f64,
    /// None is above.
    pub max: f64,
}

impl Spread {
    fn of(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let at =
            |part: f64| sorted.get(((sorted.len().checked_sub(1)?) as f64 * part).round() as usize).copied();
        Some(Self { median: at(0.5)?, p90: at(0.9)?, max: at(1.0)? })
    }
}

impl Summary {
    /// Counts `trials` and sets those `without_faults` beside them.
    pub fn new(trials: &[Trial], without_faults: &[Trial]) -> Self {
        let count = |verdict| trials.iter().filter(|trial| trial.verdict == verdict).count();
        let times = |trials: &[Trial]| Spread::of(trials.iter().filter_map(|trial| trial.result_ms));
        let recovered = || trials.iter().filter(|trial| trial.verdict == Verdict::Recovered);
        let work = || recovered().filter_map(|trial| trial.work);
        let mut losses = BTreeMap::new();
        for loss in trials.iter().filter_map(|trial| trial.loss) {
            *losses.entry(loss).or_default() += 1;
        }
        let faults = trials.iter().flat_map(|trial| &trial.faults);
        let mut by_death = BTreeMap::<Death, Counts>::new();
        for trial in trials {
            by_death.entry(Death::of(trial)).or_default().add(trial.verdict);
        }
        Self {
            trials: trials.len(),
            recovered: count(Verdict::Recovered),
            lost: count(Verdict::Lost),
            wrong: count(Verdict::Wrong),
            hung: count(Verdict::Hung),
            other: count(Verdict::Failed),
            result_ms: times(trials),
            without_faults_ms: times(without_faults),
            folds_redone: Spread::of(
                work().filter(|work| work.folds > 0).map(|work| work.folds_redone as f64 / work.folds as f64),
            ),
            survived: work().filter(|work| work.survived > 0).count(),
            missed: faults.filter(|injected| injected.at_ms.is_none()).count(),
            losses,
            by_death,
        }
    }

    /// Whether nothing was seen that should not be. The `built_in` program fails in no other way than those
    /// it tells; with another one, every exit code may be meant.
    pub fn is_good(&self, built_in: bool) -> bool {
        self.wrong == 0 && self.hung == 0 && (self.other == 0 || !built_in)
    }

    /// For people.
    pub fn show(&self) -> String {
        let mut counts = table(["trials", "recovered", "lost", "wrong", "hung", "other"]);
        let numbers = [self.trials, self.recovered, self.lost, self.wrong, self.hung, self.other];
        counts.add_row(numbers.map(|number| number.to_string()));
        align(&mut counts);
        let mut deaths = table(["", "trials", "recovered", "lost", "wrong", "hung", "other"]);
        for (death, counts) in &self.by_death {
            deaths.add_row(counts.row(&death.to_string()));
        }
        align(&mut deaths);
        let mut figures = table(["", "median", "90 %", "max"]);
        let rows = [
            ("time to result, recovered", self.result_ms, show_ms as fn(f64) -> String),
            ("time to result, without faults", self.without_faults_ms, show_ms),
            ("folds done again", self.folds_redone, |part| format!("{:.1} %", part * 100.0)),
        ];
        for (name, spread, show) in rows {
            if let Some(Spread { median, p90, max }) = spread {
                figures.add_row([name.to_owned(), show(median), show(p90), show(max)]);
            }
        }
        align(&mut figures);
        let mut text = format!("{counts}\n");
        if self.by_death.keys().any(|death| *death > Death::Process) {
            text += &format!("{deaths}\n");
        }
        if self.result_ms.is_some() || self.without_faults_ms.is_some() {
            text += &format!("{figures}\n");
        }
        if self.survived > 0 {
            text += &format!("{} results have contributions of ranks that died\n", self.survived);
        }
        for (loss, count) in &self.losses {
            text += &format!("{count} are lost: {loss}\n");
        }
        if self.missed > 0 {
            text += &format!("{} faults hit nothing: too late, or no file was there\n", self.missed);
        }
        text
    }
}

/// A table with our looks.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    table
}

/// Sets all columns but the first to the right.
pub fn align(table: &mut Table) {
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn show_ms(ms: f64) -> String {
    format!("{:.3?}", Duration::from_secs_f64(ms / 1e3))
}

/// What goes into a file for programs.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    machine: Machine,
    seed: u64,
    time_without_faults_ms: f64,
    summary: &'a Summary,
    without_faults: &'a [Trial],
    trials: &'a [Trial],
}

/// Writes all that was seen to `path`.
pub fn write(path: &Path, seed: u64, seen: &Seen, summary: &Summary) -> Result<(), Failure> {
    let document = Document {
        machine: Machine::here(),
        seed,
        time_without_faults_ms: seen.time.as_secs_f64() * 1e3,
        summary,
        without_faults: &seen.without_faults,
        trials: &seen.trials,
    };
    files::write(path, serde_json::to_vec_pretty(&document)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        chaos::{inject::Injected, said::Work, schedule::Fault},
        cluster::Host,
    };

    fn trial(verdict: Verdict, loss: Option<Loss>, result_ms: Option<f64>, redone: u64) -> Trial {
        let work = result_ms.map(|_| Work { folds: 10, folds_redone: redone, survived: redone });
        let (number, faults) = (Some(0), Vec::new());
        Trial { number, verdict, why: None, loss, faults, result_ms, work, output: None }
    }

    #[test]
    fn deaths_of_processes_hosts_and_domains_are_told_apart() {
        let killed = |actions: Vec<Action>, at_ms| {
            let injected = |action| Injected { fault: Fault { at: 0.5, action }, at_ms, note: None };
            let faults = actions.into_iter().map(injected).collect();
            Trial { faults, ..trial(Verdict::Recovered, None, Some(1.0), 0) }
        };
        let (kill, host) = (Action::Kill { rank: 1 }, Action::Lose { host: Host(1) });
        let domain = Action::LoseDomain { domain: 1 };
        let trials = [
            killed(vec![kill.clone()], Some(1.0)),
            killed(vec![kill, host.clone()], Some(1.0)),
            killed(vec![domain, host.clone()], Some(1.0)),
            killed(vec![host], None),
        ];
        let summary = Summary::new(&trials, &[]);
        let counts = Counts { trials: 1, recovered: 1, ..Counts::default() };
        let all = [Death::Nothing, Death::Process, Death::Host, Death::Domain];
        assert_eq!(summary.by_death, all.map(|death| (death, counts)).into());
        assert!(summary.show().contains("domains killed"));
        assert!(!Summary::new(&trials[..1], &[]).show().contains("killed"));
    }

    #[test]
    fn trials_are_counted() {
        let lost = || trial(Verdict::Lost, Some(Loss::Contribution), None, 0);
        let recovered = |at: u32| trial(Verdict::Recovered, None, Some(at.into()), at.into());
        let mut trials: Vec<Trial> = (0..10).map(recovered).collect();
        trials.extend([lost(), lost(), trial(Verdict::Hung, None, None, 0)]);
        let summary = Summary::new(&trials, &[]);
        assert_eq!((summary.trials, summary.recovered, summary.lost, summary.hung), (13, 10, 2, 1));
        assert_eq!((summary.wrong, summary.other, summary.survived), (0, 0, 9));
        assert_eq!(summary.result_ms, Some(Spread { median: 5.0, p90: 8.0, max: 9.0 }));
        assert_eq!(summary.folds_redone, Some(Spread { median: 0.5, p90: 0.8, max: 0.9 }));
        assert_eq!(summary.without_faults_ms, None);
        assert_eq!(summary.losses, BTreeMap::from([(Loss::Contribution, 2)]));
        assert!(!summary.is_good(true));
        assert!(Summary::new(&trials[..12], &[]).is_good(true));
        trials[12] = trial(Verdict::Failed, None, None, 0);
        let summary = Summary::new(&trials, &[]);
        assert!(
            !summary.is_good(true) && summary.is_good(false),
            "of other programs exit codes may be anything"
        );
    }
}
