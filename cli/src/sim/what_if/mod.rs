//! `everfold sim what-if`: what a reduction would take and risk in a cluster that is not at hand.
//!
//! | to know | see |
//! |---|---|
//! | what can be asked, and how | [`question`] |
//! | how it is simulated | [`answer`] |

mod answer;
mod question;

use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use everfold::Protection;
use everfold_lab::{
    Failure, say,
    sim::figure::{Axis, Figure, Point, Series, seconds},
    size,
};
use everfold_sim::model::Failures;

use self::{
    answer::{Answer, DEATHS_LEAST, DEATHS_MOST, Effort},
    question::Question,
};

const EXAMPLE: &str = "\
A question is a file such as this. The first two lines are needed; other lines that are no comments show the
defaults. A table may be left out; one that is there needs all its keys but core_us, which is 0 by default:
  ranks = 200                    # one per node
  sizes = [\"1MiB\", \"8MiB\", \"64MiB\"]
  link = \"10gbe\"                 # or 100gbe, hdr, ndr; what follows overrides it
  # alpha_us = 20.0              # what a message costs however short it is
  # gbit_per_s = 9.5
  # disk_mb_per_s = 120.0        # what copies on disk are written with
  protection = \"disk\"            # or none, memory, commit-first
  # failures = \"lanl-18\"         # a law of failures: lanl-2, lanl-16, lanl-18, lanl-19, lanl-20, llama-3, rsc-1, rsc-2
  node_mtbf_hours = 7506.0       # mean time between failures of a node, if not the law's
  weibull_shape = 1.0            # of the gaps between failures, if not the law's: below 1 they come in bursts
  reductions = 1                 # how many the job makes, one after the other

  # [interference]               # other programs that come and go, for heavy-tailed times with these means
  # nodes = 100
  # busy_ms = 300.0
  # idle_ms = 100.0
  # cpu_left = 0.5               # parts that they leave while they are there
  # link_left = 0.25

  # [racks]                      # instead of a flat network
  # nodes = 20                   # per rack
  # oversubscription = 4.0       # how many times less than its nodes together a rack can send
  # core_us = 1.0                # added to the latency between racks

T is the mean of runs without failures. P is the probability that any of the nodes fails during T, which begins
at any moment, or right after a failure. The failures of the job are drawn. Deaths are simulated: of the node of a rank
drawn from all, at a moment drawn from T. The node of rank 0 is among them; rank 0 receives the results and the
master lives there, so that its death loses everything. \"lost\" is told with 95 % intervals: they are the wider,
the fewer deaths were simulated. Long bodies take long to simulate and get fewer deaths, unless --deaths says how
many. With commit-first a node mostly dies while contributions are still copied: one that did not count yet is missing
then, and the reduction has no result, though nothing that counted is lost.";

/// Tell how long reductions would take, and what they would risk, in a cluster that a file describes.
///
/// Simulates reductions in the cluster that FILE describes: their times, the cost of protection, and the
/// probability of a loss. Writes a picture and a CSV file beside it.
#[derive(Args)]
#[command(after_long_help = EXAMPLE)]
pub struct WhatIf {
    /// The question, in TOML; --help shows one.
    file: PathBuf,
    /// Where the picture and the CSV file go [default: beside FILE].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Runs without failures per size.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Runs per size in which a rank dies [default: 20 to 200, fewer where a run takes long].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    deaths: Option<u32>,
    /// Seed of everything that is drawn.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl WhatIf {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let unusable = |error: &dyn Display| Failure {
            exit_code: 2,
            ..Failure::new(format!("{}: {}", self.file.display(), error.to_string().trim_end()))
        };
        let text = fs::read_to_string(&self.file).map_err(|error| unusable(&error))?;
        let question: Question = toml::from_str(&text).map_err(|error| unusable(&error))?;
        let effort = Effort { repeat: self.repeat, deaths: self.deaths };
        let said = say!("{}", plan(&question, effort));
        let answers = answer::simulate(&question, effort, self.seed);
        let beside = self.file.parent().map_or(PathBuf::new(), Path::to_owned);
        let folder = self.out.unwrap_or(beside);
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        fs::create_dir_all(&folder)?;
        let name = self.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let figure = figure(name, &question, &answers);
        figure.write(&folder)?;
        said?;
        say::results(table(&question, &answers))?;
        say!("picture: {}", folder.join(format!("{}.svg", figure.name)).display())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What is going to be simulated.
fn plan(question: &Question, Effort { repeat, deaths }: Effort) -> String {
    let Question { ranks, sizes, protection, .. } = question;
    let sizes = sizes.iter().map(|bytes| size::show(*bytes)).collect::<Vec<_>>().join(", ");
    let unprotected = match protection {
        Protection::None => String::new(),
        _ => format!(", {repeat} without protection"),
    };
    let deaths = deaths.map_or(format!("{DEATHS_LEAST} to {DEATHS_MOST}"), |deaths| deaths.to_string());
    format!(
        "simulating reductions of {sizes} on {ranks} ranks: of each size {repeat} runs with protection \
         {protection}{unprotected}, and {deaths} in which a rank dies"
    )
}

fn table(question: &Question, answers: &[Answer]) -> String {
    let Question { ranks, protection, reductions, .. } = question;
    let Failures { node_mtbf_hours, shape } = question.failures();
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    let whole = format!("lost in {reductions} reductions");
    table.set_header([
        "size",
        "time, unprotected",
        "time",
        "protection costs",
        "time if a rank dies",
        "lost if a rank dies",
        "one dies meanwhile",
        "after a failure",
        &whole,
    ]);
    for answer in answers {
        let time_s = |time_s: f64| format!("{:.3?}", Duration::from_secs_f64(time_s));
        table.add_row([
            size::show(answer.bytes),
            time_s(answer.unprotected_s.mean),
            time_s(answer.protected_s.mean),
            format!("{:+.1} %", 100.0 * answer.overhead()),
            answer.with_death_s.map_or("none ended well".to_owned(), |time| time_s(time.mean)),
            format!("{} of {}: {}", answer.lost, answer.deaths, percent(answer.fatal())),
            format!("{:.2e}", answer.death_probability),
            format!("{:.2e}", answer.death_probability_after_failure),
            format!("{:.1e} to {:.1e}", answer.loss_probability[0], answer.loss_probability[1]),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{ranks} ranks, protection {protection}, a node fails every {node_mtbf_hours} h (Weibull, shape {shape})\n{table}\n"
    )
}

/// A probability of which the ends of an interval are known.
fn percent(ends: [f64; 2]) -> String {
    let [low, high] = ends.map(|end| (100.0 * end).round());
    format!("{low} to {high} %")
}

fn figure(name: String, question: &Question, answers: &[Answer]) -> Figure {
    let series = |name: String, point: &dyn Fn(&Answer) -> Option<Point>| Series {
        name,
        points: answers.iter().filter_map(point).collect(),
    };
    let at = |answer: &Answer, value: f64| Point::new(answer.bytes as f64, &[value]);
    let series = vec![
        series("lower bound".to_owned(), &|answer| Some(at(answer, answer.bound_s))),
        series("unprotected".to_owned(), &|answer| Some(answer.unprotected_s)),
        series(format!("protection {}", question.protection), &|answer| Some(answer.protected_s)),
        series("if a rank dies and nothing is lost".to_owned(), &|answer| answer.with_death_s),
    ];
    Figure {
        name,
        title: format!("Reduction on {} nodes, simulated", question.ranks),
        x: Axis {
            column: "bytes",
            title: "size",
            logarithmic: true,
            show: |bytes| size::show(1 << (bytes.max(1.0).log2().round() as u32).min(63)),
        },
        y: Axis { column: "seconds", title: "time to result", logarithmic: true, show: seconds },
        series,
    }
}
