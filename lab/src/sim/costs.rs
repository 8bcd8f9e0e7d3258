//! `everfold sim costs`: what a message costs the master, however many ranks and open reductions there are.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use everfold::Protection;
use everfold_sim::{
    Policy,
    costs::{Cost, Costs, Part},
};
use serde::Serialize;

use super::scale::thousands;
use crate::{
    Failure,
    clock::{self, cpu_ns},
    machine::Machine,
    size,
};

/// Measure what a message costs the master.
///
/// The master's machine is driven alone, without sockets and codec, by ranks that call in random order and
/// answer at once. While the first part opens the small reductions of 16 ranks each, one rank of each of them
/// is late. Meanwhile all ranks reduce once to one of them and once to all; in the last part the late ranks
/// come. Each figure is the mean time of a message that the master receives or sends, in microseconds of
/// processor time; > marks a part that was broken off.
///
/// Example: everfold sim costs --ranks 200,1k,10k --open 1,100,10k --dead 0,3
#[derive(Args)]
pub struct PerMessage {
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_value = "200,1k,10k", value_parser = thousands)]
    ranks: Vec<u32>,
    /// Numbers of small reductions that are open meanwhile.
    #[arg(long, value_delimiter = ',', default_value = "1,100,10k", value_parser = numbers)]
    open: Vec<u32>,
    /// Numbers of ranks that have died before. Two ranks stay alive in any case.
    #[arg(long, value_delimiter = ',', default_value = "0,3", value_parser = numbers)]
    dead: Vec<u32>,
    /// Levels of protection.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LEVEL",
        default_value = "none,memory,disk,commit-first"
    )]
    protection: Vec<Protection>,
    /// Size of the bodies.
    #[arg(long, default_value = "32k", value_parser = size::parse)]
    bytes: u64,
    /// Seconds after which a part is broken off.
    #[arg(long = "part-s", value_name = "PART_S", default_value = "5", value_parser = clock::parse_seconds)]
    part: Duration,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
}

/// What one part of one run cost.
#[derive(Serialize)]
struct Row {
    protection: String,
    ranks: u32,
    open: u32,
    dead: u32,
    part: &'static str,
    messages: u64,
    us_per_message: f64,
    longest_ms: f64,
    broken_off: bool,
}

impl PerMessage {
    /// Measures one cell after the other, and prints tables or JSON.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        if !self.json {
            let machine = Machine::here();
            say!("{} ({} cores), everfold {}", machine.processor, machine.cores, machine.everfold)?;
            say!("microseconds per message, bodies of {}", size::show(self.bytes))?;
        }
        let mut all = Vec::new();
        for &protection in &self.protection {
            let mut rows = Vec::new();
            for (ranks, dead, open) in self.cells() {
                rows.extend(self.measure(protection, ranks, dead, open));
            }
            if !self.json {
                say!("protection {protection}\n{}", table(&rows))?;
            }
            all.extend(rows);
        }
        if self.json {
            say!("{}", serde_json::to_string_pretty(&all)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// All that is measured at one level of protection: ranks, how many of them are dead, and open
    /// reductions.
    fn cells(&self) -> Vec<(u32, u32, u32)> {
        let mut cells = Vec::new();
        for &ranks in &self.ranks {
            let mut dead: Vec<u32> = self.dead.iter().map(|dead| (*dead).min(ranks - 2)).collect();
            dead.sort_unstable();
            dead.dedup();
            cells.extend(
                dead.into_iter().flat_map(|dead| self.open.iter().map(move |open| (ranks, dead, *open))),
            );
        }
        cells
    }

    fn measure(&self, protection: Protection, ranks: u32, dead: u32, open: u32) -> Vec<Row> {
        let costs = Costs {
            ranks,
            open,
            dead,
            protection,
            bytes: self.bytes,
            policy: Policy::default(),
            seed: 0,
            part_max: self.part,
            stopwatch: cpu_ns,
        };
        let row = |(part, cost): (Part, Cost)| Row {
            protection: protection.to_string(),
            ranks,
            open,
            dead,
            part: name(part),
            messages: cost.messages,
            us_per_message: cost.us(),
            longest_ms: cost.longest.as_secs_f64() * 1e3,
            broken_off: cost.broken_off,
        };
        costs.measure().into_iter().map(row).collect()
    }
}

fn name(part: Part) -> &'static str {
    match part {
        Part::Opening => "opening",
        Part::ToOne => "to one",
        Part::ToAll => "to all",
        Part::Closing => "closing",
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    let parts = Part::ALL.map(name);
    table.set_header(["ranks", "dead", "open"].into_iter().chain(parts).chain(["longest"]));
    for run in rows.chunk_by(|a, b| (a.ranks, a.dead, a.open) == (b.ranks, b.dead, b.open)) {
        let figure = |part: &str| match run.iter().find(|row| row.part == part) {
            Some(row) => format!("{}{:.2}", if row.broken_off { ">" } else { "" }, row.us_per_message),
            None => String::new(),
        };
        let longest = run.iter().map(|row| row.longest_ms).fold(0.0, f64::max);
        let which = [run[0].ranks, run[0].dead, run[0].open].map(|number| number.to_string());
        let figures = parts.iter().map(|part| figure(part));
        table.add_row(which.into_iter().chain(figures).chain([format!("{longest:.1} ms")]));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Reads `0`, `100` or `10k`.
fn numbers(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(number) if number < 2 => Ok(number),
        _ => thousands(text),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        costs: PerMessage,
    }

    fn read(words: &str) -> Result<PerMessage, clap::Error> {
        let words = ["costs"].into_iter().chain(words.split_whitespace());
        Line::try_parse_from(words).map(|line| line.costs)
    }

    #[test]
    fn a_row_says_how_many_are_dead() {
        let cells = |words: &str| read(words).unwrap().cells();
        assert_eq!(cells("--ranks 20 --dead 30,40 --open 1"), [(20, 18, 1)]);
        assert_eq!(cells("--ranks 2,9 --dead 0,3 --open 1"), [(2, 0, 1), (9, 0, 1), (9, 3, 1)]);
    }

    #[test]
    fn the_time_for_a_part_is_one() {
        assert_eq!(read("--part-s 0.5").unwrap().part, Duration::from_millis(500));
        for time in ["nan", "1e300", "-1", "5s"] {
            assert!(read(&format!("--part-s={time}")).is_err(), "{time}");
        }
    }
}
