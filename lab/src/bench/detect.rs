//! `everfold bench detect`: from a failure to the survivors' knowledge of it.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use everfold::{Limits, News, launch::Local, prelude::*};
use futures::StreamExt;
use nix::{
    sys::signal::{Signal, kill, raise},
    unistd::Pid,
};

use crate::{Failure, Transport, clock::now_ns, machine::Machine, size};

/// The process that fails. Not rank 0, which tells when the last survivor knew.
const VICTIM: u32 = 1;

/// Time how long survivors take to hear of a failure.
///
/// Times how long it takes until the last survivor of a job has heard of a failure: of a process that is
/// killed, whose connection breaks, and of one that is frozen, which only its silence shows. The latter is
/// printed beside the ping interval, on which it depends. The kernel gives a dead process's memory back
/// before it closes its connections: `--bytes` shows how long that takes.
///
/// Example: everfold bench detect --ranks 8 --repeat 20
#[derive(Args)]
pub struct Detect {
    /// Number of ranks.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: u32,
    /// Measured failures of each kind.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Let the ranks reduce arrays of this size before, so that their memory is in use.
    #[arg(long, default_value = "8", value_parser = size::parse)]
    bytes: u64,
    /// How the ranks read each other's memory.
    #[arg(long, value_enum, default_value_t)]
    transport: Transport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    Kill,
    Stop,
}

impl Way {
    fn signal(self) -> Signal {
        match self {
            Self::Kill => Signal::SIGKILL,
            Self::Stop => Signal::SIGSTOP,
        }
    }
}

/// One rank of a job that loses a process.
#[derive(Args)]
pub struct DetectRank {
    /// How the victim fails.
    #[arg(long, value_enum)]
    way: Way,
    /// Size of the arrays that are reduced before.
    #[arg(long)]
    bytes: u64,
    /// Where the victim leaves its process id and the time.
    #[arg(long)]
    victim: PathBuf,
    /// Where rank 0 writes how long it took.
    #[arg(long)]
    out: PathBuf,
}

impl Detect {
    /// Measures what was asked for, and prints it.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let machine = Machine::here();
        let interval = Limits::default().ping_interval;
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header(["failure", "median", "least", "most", "median in ping intervals"]);
        for (way, name) in [(Way::Kill, "killed (SIGKILL)"), (Way::Stop, "frozen (SIGSTOP)")] {
            let mut times = (0..self.repeat).map(|_| self.once(way)).collect::<Result<Vec<_>, _>>()?;
            times.sort_unstable();
            let (median, last) = (times[times.len() / 2], times[times.len() - 1]);
            let intervals = median.as_secs_f64() / interval.as_secs_f64();
            let shown = [times[0], last].map(|time| format!("{time:.3?}"));
            let [least, most] = shown;
            table.add_row([name.to_owned(), format!("{median:.3?}"), least, most, format!("{intervals:.2}")]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        say!(
            "{} ({} cores), kernel {}, everfold {}",
            machine.processor,
            machine.cores,
            machine.kernel,
            machine.everfold
        )?;
        say!(
            "{} ranks, {} in use at each, ping interval {interval:?}, {} failures each\n{table}",
            self.ranks,
            size::show(self.bytes),
            self.repeat
        )?;
        Ok(ExitCode::SUCCESS)
    }

    /// One job with one failure.
    fn once(&self, way: Way) -> Result<Duration, Failure> {
        let folder = tempfile::tempdir()?;
        let (victim, out) = (folder.path().join("victim"), folder.path().join("out"));
        let mut local = Local::new(self.ranks, std::env::current_exe()?);
        local.transport = self.transport.into();
        local.survive_deaths = true;
        local.quiet = true;
        let name = way.to_possible_value().map_or_else(String::new, |way| way.get_name().to_owned());
        local.arguments = ["bench", "detect-rank", "--way", &name].map(Into::into).into();
        local.arguments.extend(["--bytes".into(), self.bytes.to_string().into()]);
        local.arguments.extend(["--victim".into(), victim.into_os_string()]);
        local.arguments.extend(["--out".into(), out.clone().into_os_string()]);
        match local.run()? {
            0 => Ok(Duration::from_nanos(serde_json::from_slice(&std::fs::read(out)?)?)),
            exit_code => Err(Failure { message: "a measurement failed".to_owned(), exit_code }),
        }
    }
}

impl DetectRank {
    /// Does as a rank what the command that started it asks for.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        everfold::launch(Launch::from_env_or_local(1), |session| async move { self.watch(&session).await })?;
        Ok(ExitCode::SUCCESS)
    }

    async fn watch(&self, session: &Session) -> everfold::Result<()> {
        let mut news = session.events();
        let mut array = session.array::<u64>((self.bytes / 8) as usize);
        array.fill(1);
        let _in_use = session.allreduce("memory in use", Sum(array)).await?;
        session.allreduce("all are here", Sum(vec![1u8])).await?;
        if session.rank() == VICTIM {
            let said = serde_json::to_vec(&(std::process::id(), now_ns()));
            std::fs::write(&self.victim, said.map_err(everfold::Error::application)?)?;
            raise(self.way.signal()).map_err(std::io::Error::from)?;
            return Ok(());
        }
        while let Some(event) = news.next().await {
            if matches!(event, News::Failed { rank: Rank(VICTIM), .. }) {
                break;
            }
        }
        let survivors = session.world().filter(|rank| rank != VICTIM);
        let Max(known) = session.allreduce("known", Max(vec![now_ns()])).group(&survivors).await?.value;
        if session.rank() == 0 {
            let said = std::fs::read(&self.victim)?;
            let (process, at): (i32, u64) =
                serde_json::from_slice(&said).map_err(everfold::Error::application)?;
            if self.way == Way::Stop {
                kill(Pid::from_raw(process), Signal::SIGKILL).map_err(std::io::Error::from)?;
            }
            std::fs::write(&self.out, (known[0] - at).to_string())?;
        }
        Ok(())
    }
}
