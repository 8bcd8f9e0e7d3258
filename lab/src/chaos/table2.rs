//! `everfold chaos table2`: the fault tolerance experiment of the paper, beside its figures.

use std::process::ExitCode;

use clap::Args;

use super::{
    job::Begin,
    said::Loss,
    schedule::{Kind, Plan},
    setting::Setting,
    summary::{Summary, align, table},
    trial::Trial,
    verdict::Verdict,
};
use crate::{Failure, size};

/// Unrecoverable reductions of 100 in each of the paper's seven cases (DR, Table 2; DR-17).
const PAPER: [usize; 7] = [2, 1, 0, 2, 3, 1, 2];
/// Reductions in each of them.
const PAPER_TRIALS: usize = 100;
/// Processes there.
const PAPER_RANKS: u32 = 200;
/// The process that is killed.
const VICTIM: u32 = 1;

/// Repeat the fault tolerance experiment of the paper.
///
/// Reduces 32 MiB per rank, seven times a hundred times, kills rank 1 in each while its reduction is under
/// way, and counts the reductions that cannot be recovered. The moment is drawn uniformly from the time
/// between rank 1's call and the result, as it was measured without faults. The paper did so on 200
/// processes.
///
/// Example: everfold chaos table2 --ranks 16 --json table2.json
///
/// Between hosts, as root: everfold chaos table2 --ranks 8 --hosts 8 --rate 500mbit --kind vec
#[derive(Args)]
#[command(args_override_self = true)]
pub struct Table2 {
    /// Trials in each of the seven cases.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    trials_per_case: u64,
    #[command(flatten)]
    setting: Setting,
}

impl Table2 {
    /// Runs the trials and prints what came of them beside the paper's figures.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let Self { trials_per_case, setting } = self;
        let ranks = setting.ranks.unwrap_or(16);
        setting.check_file()?;
        let cluster = setting.cluster(ranks, false)?;
        let layout = setting.layout(ranks, cluster.as_ref());
        let plan = Plan { kinds: vec![Kind::Kill], faults: None, victims: vec![VICTIM], layout };
        if ranks <= VICTIM {
            return Err(Failure::new("rank 1 is to be killed: there have to be two ranks or more"));
        }
        let spec = setting.spec(Vec::new(), layout, cluster, Begin::CallOf(VICTIM))?;
        let seen = setting.experiment(spec, plan, PAPER.len() as u64 * trials_per_case).run()?;
        let summary = Summary::new(&seen.trials, &seen.without_faults);
        let mut results = format!(
            "{} per rank, rank {VICTIM} killed within {:.3?} of its call, protection {}\n",
            size::show(setting.program.bytes),
            seen.time.mul_f64(setting.window),
            setting.program.protection,
        );
        if setting.trial.is_none() {
            let table = compare(ranks, &seen.trials, trials_per_case as usize);
            results += &format!("{table}\npaper: Li et al., DR, Table 2\n");
        }
        setting.tell(&seen, &summary, &(results + &summary.show()))?;
        Ok(if summary.is_good(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Whether the rank was killed before the result was there.
fn is_under_way(trial: &Trial) -> bool {
    let is_before_result = |at: f64| trial.result_ms.is_none_or(|result| at < result);
    trial.faults.iter().filter_map(|injected| injected.at_ms).any(is_before_result)
}

fn compare(ranks: u32, trials: &[Trial], per_case: usize) -> comfy_table::Table {
    let ours = format!("everfold, {ranks} ranks: unrecoverable");
    let paper = format!("paper, {PAPER_RANKS} processes: unrecoverable");
    let mut table =
        table(["case", "killed before the result", &ours, "of these not yet contributed", &paper]);
    let count = |trials: &[Trial], is_meant: fn(&Trial) -> bool| {
        trials.iter().filter(|trial| is_meant(trial)).count()
    };
    let is_unrecovered: fn(&Trial) -> bool = |trial| trial.verdict != Verdict::Recovered;
    let is_absent: fn(&Trial) -> bool = |trial| trial.loss == Some(Loss::Absent);
    for (case, (trials, paper)) in trials.chunks(per_case).zip(PAPER).enumerate() {
        let (unrecovered, absent) = (count(trials, is_unrecovered), count(trials, is_absent));
        let under_way = count(trials, is_under_way);
        table.add_row([
            (case + 1).to_string(),
            under_way.to_string(),
            format!("{unrecovered} of {}", trials.len()),
            absent.to_string(),
            format!("{paper} of {PAPER_TRIALS}"),
        ]);
    }
    let recovered = |unrecovered: usize, of: usize| {
        format!("{:.2} % recovered", 100.0 * (of - unrecovered) as f64 / of as f64)
    };
    table.add_row([
        "all".to_owned(),
        count(trials, is_under_way).to_string(),
        recovered(count(trials, is_unrecovered), trials.len()),
        count(trials, is_absent).to_string(),
        recovered(PAPER.iter().sum(), PAPER.len() * PAPER_TRIALS),
    ]);
    align(&mut table);
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::{
        inject::Injected,
        schedule::{Action, Fault},
    };

    #[test]
    fn the_cases_are_set_beside_the_paper() {
        let trial = |number: u64| {
            let verdict = if number.is_multiple_of(14) { Verdict::Lost } else { Verdict::Recovered };
            Trial {
                number: Some(number),
                verdict,
                why: None,
                loss: None,
                faults: Vec::new(),
                result_ms: None,
                work: None,
                output: None,
            }
        };
        let trials: Vec<Trial> = (0..28).map(trial).collect();
        let shown = compare(16, &trials, 4).to_string();
        assert_eq!(shown.matches(" of 4 ").count(), 7, "{shown}");
        assert!(shown.contains("92.86 % recovered") && shown.contains("98.43 % recovered"), "{shown}");
    }

    #[test]
    fn a_kill_counts_as_under_way_until_the_result_is_there() {
        let killed = |at_ms, result_ms| {
            let fault = Fault { at: 0.5, action: Action::Kill { rank: VICTIM } };
            let faults = vec![Injected { fault, at_ms, note: None }];
            let (verdict, why, loss, work, output) = (Verdict::Recovered, None, None, None, None);
            Trial { number: Some(0), verdict, why, loss, faults, result_ms, work, output }
        };
        assert!(is_under_way(&killed(Some(1.0), Some(2.0))));
        assert!(is_under_way(&killed(Some(1.0), None)), "there was no result");
        assert!(!is_under_way(&killed(Some(2.0), Some(1.0))));
        assert!(!is_under_way(&killed(None, Some(1.0))), "it hit nothing");
    }
}
