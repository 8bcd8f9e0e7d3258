//! `everfold sim recoveries`: what choices of recoveries make of a job of hours.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use everfold::recovery::{Recoveries, RecoveryFile};
use everfold_protocol::units::{self, show_seconds};
use everfold_sim::{
    model::Failures,
    recoveries::{Course, Job, Nodes, run},
};
use serde::Serialize;

use crate::{Failure, files};

/// Recoveries of process and of physical faults, as the paper has them in all its runs.
const BOTH: &str = "process = \"restart\"\nphysical = \"migrate\"\n";
/// And of repeated faults: the second one of a node. The paper does not say which one it is there.
const REPEATED: &str = "[repeated]\nfaults = 1\nwithin = \"1 d\"\nrecovery = \"migrate\"\n";
/// And of network faults: more than a fifth of the nodes behind a switch. The paper does not say how many there.
const NETWORK: &str = "[network]\nshare_percent = 20\nrecovery = \"migrate\"\n";

const EXAMPLES: &str = "\
Examples:
  everfold sim recoveries
      The two experiments of the paper: frequent process faults with and without a detector of repeated faults, and
      physical faults behind a bad switch with and without a detector of network faults.
  everfold sim recoveries one.toml other.toml --process-every 30min,1h --work 10h --interval 5min
      What two recovery files make of process faults, one of each bad node in 30 min or 1 h.

Each rank is on a node of its own, and begins on a bad one. A fault is seen at the next look of the detectors. All ranks wait
until the one that was hit has done again what it had done since its checkpoint, after T_load, and after T_transfer if that is
on another node. No fault comes meanwhile, and only nodes with ranks fail. What is done about a fault is decided by the code
that decides in real jobs.";

/// Simulate a job of hours under faults, with several choices of recoveries.
///
/// Costs are those of the paper on selectable recoveries: T_recovery = T_elapsed + T_transfer + T_load.
#[derive(Args)]
#[command(args_override_self = true, after_long_help = EXAMPLES)]
pub struct SimRecoveries {
    /// Recovery files instead of the paper's choices.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Mean times between process faults of a bad node.
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = time, default_value = "15min,30min,45min,60min,90min,120min")]
    process_every: Vec<f64>,
    /// Mean times until a bad node is lost.
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = time, default_value = "1h,2h,4h,8h,16h")]
    physical_every: Vec<f64>,
    /// Number of processes.
    #[arg(long, value_name = "P", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    ranks: u32,
    /// Nodes that fail, behind one switch; ranks begin there.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    bad: u32,
    /// Nodes that do not fail, behind another switch.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    good: u32,
    /// Time of the computation without faults.
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = time)]
    work: f64,
    /// Computing between two checkpoints.
    #[arg(long, value_name = "TIME", default_value = "15min", value_parser = time)]
    interval: f64,
    /// Time between two looks of the detectors.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    look: f64,
    /// Time to transfer a checkpoint to another node, as 1.45 GB over 1 Gbit/s.
    #[arg(long, value_name = "TIME", default_value = "12s", value_parser = time)]
    transfer: f64,
    /// Time to load a checkpoint.
    #[arg(long, value_name = "TIME", default_value = "35s", value_parser = time)]
    load: f64,
    /// A job that takes longer is ended.
    #[arg(long, value_name = "TIME", default_value = "15h", value_parser = time)]
    limit: f64,
    /// Shape of the Weibull law of the gaps between faults: 1 is a constant rate.
    #[arg(long, value_name = "K", default_value_t = 1.0)]
    shape: f64,
    /// Jobs for each row.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    trials: u64,
    /// Seed of the faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also write all rows to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn time(text: &str) -> Result<f64, String> {
    let time_s = units::seconds(text)?;
    if (1e-3..=1e9).contains(&time_s) { Ok(time_s) } else { Err("it is not from 1 ms to 10⁹ s".to_owned()) }
}

/// Jobs with one choice and one rate of faults.
#[derive(Debug, Serialize)]
struct Row {
    every_s: f64,
    choice: String,
    ended: usize,
    /// Means: of jobs that have ended.
    time_s: Option<f64>,
    /// Of jobs that have ended with this and with the first choice.
    beside_first: Option<f64>,
    restarts: f64,
    migrations: f64,
    again_s: f64,
}

/// A kind of faults, as in one of the paper's experiments.
struct Experiment<'a> {
    title: &'a str,
    every_s: &'a [f64],
    is_physical: bool,
    choices: Vec<(String, Recoveries)>,
}

impl SimRecoveries {
    /// Simulates all jobs and prints what came of them.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        if !(0.3..=5.0).contains(&self.shape) {
            return Err(Failure::new(format!("--shape is {}; it has to be 0.3 to 5", self.shape)));
        }
        if self.ranks > self.bad {
            return Err(Failure::new("each rank begins on a bad node of its own: take more --bad nodes"));
        }
        let experiments = self.experiments()?;
        self.json.iter().try_for_each(|path| files::check(path))?;
        let rows: Vec<(&str, Vec<Row>)> =
            experiments.iter().map(|experiment| (experiment.title, self.rows(experiment))).collect();
        let json = serde_json::to_vec_pretty(&rows)?;
        let written = self.json.iter().try_for_each(|path| files::write(path, &json));
        for (title, rows) in &rows {
            say!(
                "{title}: {} ranks, {} of computing, a checkpoint every {}",
                self.ranks,
                show_seconds(self.work),
                show_seconds(self.interval),
            )?;
            say!("{}", self.show(rows))?;
        }
        written.map(|()| ExitCode::SUCCESS)
    }

    fn experiments(&self) -> Result<[Experiment<'_>; 2], Failure> {
        let choices = |addition: &str, name: &str| -> Result<Vec<(String, Recoveries)>, Failure> {
            if self.files.is_empty() {
                let [without, with] =
                    [BOTH.to_owned(), format!("{BOTH}{addition}")].map(|text| RecoveryFile::parse(&text));
                return Ok(vec![
                    ("process, physical".to_owned(), without?.recoveries()),
                    (format!("process, physical, {name}"), with?.recoveries()),
                ]);
            }
            let read =
                |file: &PathBuf| Ok((file.display().to_string(), RecoveryFile::read(file)?.recoveries()));
            self.files.iter().map(read).collect()
        };
        Ok([
            Experiment {
                title: "process faults of bad nodes",
                every_s: &self.process_every,
                is_physical: false,
                choices: choices(REPEATED, "repeated")?,
            },
            Experiment {
                title: "losses of nodes behind a bad switch",
                every_s: &self.physical_every,
                is_physical: true,
                choices: choices(NETWORK, "network")?,
            },
        ])
    }

    fn rows(&self, experiment: &Experiment<'_>) -> Vec<Row> {
        let Self { ranks, work, interval, look, transfer, load, limit, bad, good, .. } = *self;
        let job = Job {
            ranks,
            work_s: work,
            interval_s: interval,
            look_s: look,
            transfer_s: transfer,
            load_s: load,
            limit_s: limit,
        };
        let mut rows = Vec::new();
        for &every_s in experiment.every_s {
            let law = Failures { node_mtbf_hours: every_s / 3600.0, shape: self.shape };
            let (process, physical) =
                if experiment.is_physical { (None, Some(law)) } else { (Some(law), None) };
            let nodes = Nodes { bad, good, process, physical };
            let all = |choice: &Recoveries| -> Vec<Course> {
                (0..self.trials)
                    .map(|trial| run(&job, &nodes, choice, self.seed.wrapping_add(trial)))
                    .collect()
            };
            let first = all(&experiment.choices[0].1);
            for (index, (name, choice)) in experiment.choices.iter().enumerate() {
                let row = Row::new(every_s, name, &all(choice), &first);
                rows.push(Row { beside_first: row.beside_first.filter(|_| index > 0), ..row });
            }
        }
        rows
    }

    fn show(&self, rows: &[Row]) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        let header = [
            "a node fails every",
            "detectors",
            "ended",
            "time",
            "beside first",
            "done again",
            "restarts",
            "migrations",
        ];
        table.set_header(header);
        for row in rows {
            let beside = row.beside_first.map_or("-".to_owned(), |part| format!("{:+.0} %", part * 100.0));
            table.add_row([
                show_seconds(row.every_s),
                row.choice.clone(),
                format!("{} of {}", row.ended, self.trials),
                row.time_s.map_or("-".to_owned(), show_seconds),
                beside,
                show_seconds(row.again_s),
                format!("{:.1}", row.restarts),
                format!("{:.1}", row.migrations),
            ]);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

impl Row {
    fn new(every_s: f64, choice: &str, courses: &[Course], first: &[Course]) -> Self {
        let mean = |figures: Vec<f64>| {
            (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
        };
        let all =
            |figure: &dyn Fn(&Course) -> f64| mean(courses.iter().map(figure).collect()).unwrap_or_default();
        let ended: Vec<f64> =
            courses.iter().filter(|course| course.has_ended).map(|course| course.time_s).collect();
        let both = || courses.iter().zip(first).filter(|(one, other)| one.has_ended && other.has_ended);
        let of_this = mean(both().map(|(this, _)| this.time_s).collect());
        let of_first = mean(both().map(|(_, first)| first.time_s).collect());
        Self {
            every_s,
            choice: choice.to_owned(),
            ended: ended.len(),
            time_s: mean(ended),
            beside_first: of_this.zip(of_first).map(|(this, first)| this / first - 1.0),
            restarts: all(&|course| f64::from(course.restarts)),
            migrations: all(&|course| f64::from(course.migrations)),
            again_s: all(&|course| course.again_s),
        }
    }
}
