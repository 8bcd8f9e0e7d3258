//! `everfold bench open`: what a reduction costs while many others are open.

use std::{path::PathBuf, process::ExitCode, time::Instant};

use clap::Args;
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use everfold::{Config, launch::Local, prelude::*};
use futures::{FutureExt, TryFutureExt};
use serde::{Deserialize, Serialize};

use super::rank::barrier;
use crate::{Failure, Transport, machine::Machine, size};

/// Time many small reductions that are open at the same time.
///
/// Starts that many small reductions on each rank and then awaits them all, at the slowest rank, and divides
/// by their number. All are equally small, so the cost of one should not depend on their number.
/// Every value is checked.
///
/// Example: everfold bench open --ranks 4 --open 1000,10000,100000 --transport tcp
#[derive(Args)]
pub struct Open {
    /// Number of ranks.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: u32,
    /// Numbers of reductions that are open at the same time.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,40000")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    open: Vec<u64>,
    /// Measured repetitions; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    repeat: u64,
    #[command(flatten)]
    kind: Kind,
    /// How the ranks read each other's memory.
    #[arg(long, value_enum, default_value_t)]
    transport: Transport,
}

/// One rank of that job; started by the other.
#[derive(Args)]
pub struct OpenRank {
    #[arg(long, value_delimiter = ',')]
    open: Vec<u64>,
    #[arg(long)]
    repeat: u64,
    #[command(flatten)]
    kind: Kind,
    /// Where rank 0 writes what was measured.
    #[arg(long)]
    out: PathBuf,
}

/// What is open.
#[derive(Args, Clone, Debug)]
struct Kind {
    /// Size of each body.
    #[arg(long, default_value = "32", value_parser = size::parse)]
    bytes: u64,
    /// Reduce objects instead of arrays.
    #[arg(long)]
    object: bool,
    /// Use one name for all of them instead of a name for each.
    #[arg(long)]
    one_name: bool,
    /// Deliver the results to rank 0 only.
    #[arg(long)]
    root: bool,
}

/// An array as an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Numbers(Vec<u64>);

impl ReducerBody for Numbers {
    fn combine(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// What was measured for one number of open reductions, in seconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Measured {
    open: u64,
    /// Until all were started.
    starting: f64,
    /// Until all had ended.
    all: f64,
}

impl Open {
    /// Measures what was asked for, and prints it.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let machine = Machine::here();
        let folder = tempfile::tempdir()?;
        let out = folder.path().join("measured.json");
        let mut local = Local::new(self.ranks, std::env::current_exe()?);
        local.transport = self.transport.into();
        let open: Vec<String> = self.open.iter().map(u64::to_string).collect();
        local.arguments = ["bench", "open-rank", "--open", &open.join(",")].map(Into::into).into();
        local.arguments.extend(["--repeat".into(), self.repeat.to_string().into()]);
        local.arguments.extend(["--bytes".into(), self.kind.bytes.to_string().into()]);
        let Kind { object, one_name, root, .. } = self.kind;
        for (flag, set) in [("--object", object), ("--one-name", one_name), ("--root", root)] {
            local.arguments.extend(set.then(|| flag.into()));
        }
        local.arguments.extend(["--out".into(), out.clone().into_os_string()]);
        match local.run()? {
            0 => {}
            exit_code => return Err(Failure { message: "the measurement failed".to_owned(), exit_code }),
        }
        let measured: Vec<Measured> = serde_json::from_slice(&std::fs::read(out)?)?;
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header(["open", "started in", "ended in", "each"]);
        for Measured { open, starting, all } in measured {
            let each = format!("{:.2} µs", all / open as f64 * 1e6);
            table.add_row([open.to_string(), format!("{starting:.3} s"), format!("{all:.3} s"), each]);
        }
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        say!(
            "{} ({} cores), kernel {}, everfold {}",
            machine.processor,
            machine.cores,
            machine.kernel,
            machine.everfold
        )?;
        say!("{} ranks\n{table}", self.ranks)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl OpenRank {
    /// Does as a rank what the command that started it asks for.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let most = self.open.iter().copied().max().unwrap_or(1);
        let launch = Launch::from_env_or_local(1).config(Config::default().reductions_max(most + 64));
        everfold::launch(launch, |session| async move { self.measure(&session).await })?;
        Ok(ExitCode::SUCCESS)
    }

    async fn measure(&self, session: &Session) -> everfold::Result<()> {
        let mut measured = Vec::new();
        for &open in &self.open {
            let mut seconds = Vec::new();
            for _ in 0..self.repeat {
                seconds.push(self.once(session, open).await?);
            }
            seconds.sort_by(|(_, one), (_, other)| one.total_cmp(other));
            let (starting, all) = seconds[seconds.len() / 2];
            measured.push(Measured { open, starting, all });
        }
        if session.rank() == 0 {
            let json = serde_json::to_vec(&measured).map_err(everfold::Error::application)?;
            std::fs::write(&self.out, json)?;
        }
        Ok(())
    }

    /// The time until all were started, and until all had ended, at the slowest rank.
    async fn once(&self, session: &Session, open: u64) -> everfold::Result<(f64, f64)> {
        let (starting, all) = match self.kind.object {
            true => self.time(session, open, Numbers, |Numbers(value)| value).await?,
            false => self.time(session, open, Sum, |Sum(value)| value).await?,
        };
        let Max(seconds) = session.allreduce("slowest", Max(vec![starting, all])).await?.value;
        Ok((seconds[0], seconds[1]))
    }

    async fn time<B: Body>(
        &self,
        session: &Session,
        open: u64,
        body: impl Fn(Vec<u64>) -> B,
        numbers: impl Fn(B::Value) -> Vec<u64>,
    ) -> everfold::Result<(f64, f64)> {
        let Kind { bytes, one_name, root, .. } = self.kind;
        let (mine, ranks) = (u64::from(session.rank().0 + 1), u64::from(session.size()));
        let elements = (bytes / 8).max(1) as usize;
        barrier(session).await?;
        let began = Instant::now();
        let mut open_ones = Vec::new();
        for number in 0..open {
            let name = if one_name { "open".to_owned() } else { format!("open {number}") };
            let body = body(vec![mine + number; elements]);
            open_ones.push(match root {
                true => session.reduce(name, body).start()?.left_future(),
                false => session.allreduce(name, body).start()?.map_ok(Outcome::from).right_future(),
            });
        }
        let starting = began.elapsed().as_secs_f64();
        for (number, reduction) in (0..open).zip(open_ones) {
            let right = ranks * (ranks + 1) / 2 + ranks * number;
            let value = reduction.await?.value.map(&numbers);
            if value.is_some_and(|value| value.iter().any(|element| *element != right)) {
                return Err(everfold::Error::application(format!("reduction {number} is not {right}")));
            }
        }
        Ok((starting, began.elapsed().as_secs_f64()))
    }
}
