//! `everfold bench reduce`: sizes × ranks, beside the bound.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use everfold::{DEFAULT_PROTECTION, Protection, launch::Local};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{bound, rank::Measured};
use crate::{Failure, Transport, files, machine::Machine, size};

/// Time reductions of arrays over sizes and numbers of ranks, beside the bound of the hardware.
///
/// Times `Sum<f32>` from a barrier to the outcome at the slowest rank, and sets it beside the bound: the time
/// in which all cores do nothing but read p bodies and write one, plus two messages. Every value is checked.
///
/// Example: everfold bench reduce --ranks 2,4,8 --bytes 64k,1m,32m --json bench.json
#[derive(Args)]
pub struct Reduce {
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: Vec<u32>,
    /// Sizes of the bodies.
    #[arg(long, value_delimiter = ',', default_value = "8,1k,64k,1m,8m,32m,128m", value_parser = size::parse)]
    bytes: Vec<u64>,
    /// How the ranks read each other's memory.
    #[arg(long, value_enum, default_value_t)]
    transport: Transport,
    /// Measured repetitions of each size; by default 11 to 301, fewer for long bodies.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    repeat: u64,
    /// Deliver the result to all ranks.
    #[arg(long)]
    allreduce: bool,
    /// Contribute a `Vec` instead of an array in shared memory.
    #[arg(long)]
    vec: bool,
    /// Reduce in the fixed order, which gives the same bits in every run.
    #[arg(long)]
    fixed: bool,
    /// Let ranks come back whose processes die: each notes its results before it hands them out.
    #[arg(long)]
    restart_ranks: bool,
    /// How contributions are protected: none, memory, disk or commit-first.
    #[arg(long, value_name = "LEVEL", default_value_t = DEFAULT_PROTECTION)]
    protection: Protection,
    /// Measure in turns at this other level of protection, too, and print the ratio. `--against none` shows
    /// the cost of protection.
    #[arg(long, value_name = "LEVEL")]
    against: Option<Protection>,
    /// Also write the figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the last repetition of the last size and number of ranks.
    #[arg(long, value_name = "FILE.svg", conflicts_with_all = ["allreduce", "vec"])]
    timeline: Option<PathBuf>,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
struct Row {
    ranks: u32,
    bytes: u64,
    repetitions: usize,
    /// Seconds: median, and the first and last of ten parts.
    median_s: f64,
    p10_s: f64,
    p90_s: f64,
    /// Seconds that the hardware needs for the memory traffic and two messages.
    bound_s: f64,
    /// Median over bound.
    ratio: f64,
    /// Median at the other level of protection, and the median over it.
    against_s: Option<f64>,
    against_ratio: Option<f64>,
    /// Bytes read and written, (p + 1) · n, per second, in units of 10⁹.
    gigabytes_per_s: f64,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    machine: &'a Machine,
    transport: String,
    operation: &'static str,
    rows: &'a [Row],
}

impl Reduce {
    /// Measures what was asked for, and prints it.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        self.json.iter().chain(&self.timeline).try_for_each(|path| files::check(path))?;
        let machine = Machine::here();
        let two_messages = bound::two_messages()?;
        let progress = ProgressBar::new(self.ranks.len() as u64);
        let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {msg}");
        progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let mut rows = Vec::new();
        let mut drawn = None;
        for &ranks in &self.ranks {
            progress.set_message(format!("{ranks} ranks"));
            for measured in self.measure(ranks)? {
                let bound = two_messages + bound::memory_traffic(ranks, measured.bytes);
                rows.push(Row::new(ranks, &measured, bound));
                drawn = measured.timeline.or(drawn);
            }
            progress.inc(1);
        }
        progress.finish_and_clear();
        let drawn = self.timeline.as_ref().zip(drawn);
        let figures = self.write_figures(&machine, &rows);
        let picture = drawn.as_ref().map_or(Ok(()), |(path, timeline)| files::write(path, timeline.svg()));
        say!(
            "{} ({} cores), kernel {}, everfold {}",
            machine.processor,
            machine.cores,
            machine.kernel,
            machine.everfold
        )?;
        say!("{}", self.table(&rows))?;
        figures.and(picture)?;
        if let Some(path) = &self.json {
            say!("figures: {}", path.display())?;
        }
        if let Some((path, _)) = drawn {
            say!("timeline of one reduction: {}", path.display())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Writes the file that is asked for.
    fn write_figures(&self, machine: &Machine, rows: &[Row]) -> Result<(), Failure> {
        let Some(path) = &self.json else { return Ok(()) };
        let transport = format!("{:?}", self.transport).to_lowercase();
        let operation = match (self.allreduce, self.fixed) {
            (false, false) => "reduce sum of f32",
            (true, false) => "allreduce sum of f32",
            (false, true) => "reduce sum of f32, fixed order",
            (true, true) => "allreduce sum of f32, fixed order",
        };
        let document = Document { machine, transport, operation, rows };
        files::write(path, serde_json::to_vec_pretty(&document)?)
    }

    /// Runs one job that measures all sizes.
    fn measure(&self, ranks: u32) -> Result<Vec<Measured>, Failure> {
        let folder = tempfile::tempdir()?;
        let out = folder.path().join("measured.json");
        let sizes: Vec<String> = self.bytes.iter().map(u64::to_string).collect();
        let mut local = Local::new(ranks, std::env::current_exe()?);
        local.transport = self.transport.into();
        let mut arguments =
            vec!["bench".to_owned(), "rank".to_owned(), "--bytes".to_owned(), sizes.join(",")];
        arguments.extend(["--repeat".to_owned(), self.repeat.to_string()]);
        arguments.extend(["--protection".to_owned(), self.protection.to_string()]);
        if let Some(against) = self.against {
            arguments.extend(["--against".to_owned(), against.to_string()]);
        }
        for (flag, set) in [
            ("--allreduce", self.allreduce),
            ("--vec", self.vec),
            ("--fixed", self.fixed),
            ("--restart-ranks", self.restart_ranks),
            ("--trace", self.timeline.is_some()),
        ] {
            arguments.extend(set.then(|| flag.to_owned()));
        }
        local.arguments = arguments.into_iter().map(Into::into).collect();
        local.arguments.extend(["--out".into(), out.clone().into_os_string()]);
        match local.run()? {
            0 => Ok(serde_json::from_slice(&std::fs::read(out)?)?),
            exit_code => {
                Err(Failure { message: format!("the measurement with {ranks} ranks failed"), exit_code })
            }
        }
    }

    fn table(&self, rows: &[Row]) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        let mut header: Vec<String> =
            ["ranks", "bytes", "median", "10 % – 90 %", "traffic", "bound", "ratio"].map(String::from).into();
        if let Some(against) = self.against {
            header.extend([format!("protection {against}"), format!("{} / {against}", self.protection)]);
        }
        table.set_header(header);
        for row in rows {
            let against = row.against_s.zip(row.against_ratio);
            let against = against.map(|(median, ratio)| [show(median), format!("{ratio:.2}")]);
            let figures = [
                row.ranks.to_string(),
                size::show(row.bytes),
                show(row.median_s),
                format!("{} – {}", show(row.p10_s), show(row.p90_s)),
                format!("{:.1} GB/s", row.gigabytes_per_s),
                show(row.bound_s),
                format!("{:.2}", row.ratio),
            ];
            table.add_row(figures.into_iter().chain(against.into_iter().flatten()));
        }
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

fn show(seconds: f64) -> String {
    format!("{:.3?}", Duration::from_secs_f64(seconds))
}

impl Row {
    fn new(ranks: u32, measured: &Measured, bound: Duration) -> Self {
        let sorted = |seconds: &[f64]| {
            let mut seconds = seconds.to_vec();
            seconds.sort_unstable_by(f64::total_cmp);
            seconds
        };
        let seconds = sorted(&measured.seconds);
        let at = |part: f64| {
            seconds.get(((seconds.len() - 1) as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
        };
        let (median_s, bound_s) = (at(0.5), bound.as_secs_f64());
        let against = sorted(&measured.against_seconds);
        let against_s = against.get(against.len() / 2).copied();
        let traffic = (u64::from(ranks) + 1) * measured.bytes;
        Self {
            ranks,
            bytes: measured.bytes,
            repetitions: seconds.len(),
            median_s,
            p10_s: at(0.1),
            p90_s: at(0.9),
            bound_s,
            ratio: median_s / bound_s,
            against_s,
            against_ratio: against_s.map(|other| median_s / other),
            gigabytes_per_s: traffic as f64 / median_s / 1e9,
        }
    }
}
