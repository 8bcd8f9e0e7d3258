//! One rank of a measurement.

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use everfold::{Array, Interval, prelude::*};
use everfold_timeline::Timeline;
use serde::{Deserialize, Serialize};

use crate::{Failure, size};

const HOUR: Duration = Duration::from_secs(3600);

/// One rank of a measurement; started by the others.
#[derive(Args)]
pub struct RankArguments {
    /// Sizes of the bodies in bytes.
    #[arg(long, value_delimiter = ',')]
    bytes: Vec<u64>,
    /// Measured repetitions; chosen by size if zero.
    #[arg(long)]
    repeat: u64,
    /// Deliver to all ranks.
    #[arg(long)]
    allreduce: bool,
    /// Contribute a `Vec` instead of an array in shared memory.
    #[arg(long)]
    vec: bool,
    /// Reduce in the fixed order.
    #[arg(long)]
    fixed: bool,
    /// Let ranks come back.
    #[arg(long)]
    restart_ranks: bool,
    /// How contributions are protected.
    #[arg(long)]
    protection: Protection,
    /// Measure every other repetition at this level.
    #[arg(long)]
    against: Option<Protection>,
    /// Draw the last repetition of the last size.
    #[arg(long)]
    trace: bool,
    /// Where rank 0 writes what was measured.
    #[arg(long)]
    out: PathBuf,
}

/// What was measured for one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Size of a body.
    pub bytes: u64,
    /// Per repetition, the time of the slowest rank from its call to its outcome, in seconds.
    pub seconds: Vec<f64>,
    /// The same at the other level of protection, measured in turns.
    pub against_seconds: Vec<f64>,
    /// What happened in the last repetition.
    pub timeline: Option<Timeline>,
}

impl RankArguments {
    /// Does as a rank what the command that started it asks for.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        // A checkpoint is due when half of the room for outcomes is taken.
        let config = Config::default().checkpoint_interval(Interval::Fixed(HOUR));
        let config = if self.restart_ranks { config.restart_ranks() } else { config };
        let launch = Launch::from_env_or_local(1).config(config);
        everfold::launch(launch, |session| async move { self.measure(&session).await })?;
        Ok(ExitCode::SUCCESS)
    }

    async fn measure(&self, session: &Session) -> everfold::Result<()> {
        session.resume::<u64>().await?;
        let mut results = Vec::new();
        for (index, &bytes) in self.bytes.iter().enumerate() {
            let trace = self.trace && index + 1 == self.bytes.len();
            results.push(self.measure_size(session, bytes, trace).await?);
        }
        if session.rank() == 0 {
            let json = serde_json::to_vec(&results).map_err(everfold::Error::application)?;
            std::fs::write(&self.out, json)?;
        }
        Ok(())
    }

    fn repetitions(&self, session: &Session, bytes: u64) -> u64 {
        match self.repeat {
            0 => ((4 << 30) / (bytes * u64::from(session.size()))).clamp(11, 301),
            repeat => repeat,
        }
    }

    async fn measure_size(&self, session: &Session, bytes: u64, trace: bool) -> everfold::Result<Measured> {
        let elements = (bytes as usize / size_of::<f32>()).max(1);
        let repetitions = self.repetitions(session, bytes);
        // The first rounds touch fresh memory and open connections; the best of libraries is measured warm.
        let warm_up = (repetitions / 10).clamp(2, 20);
        let mut seconds = Vec::new();
        let mut against_seconds = Vec::new();
        let mut timeline = None;
        for round in 0..warm_up + repetitions {
            let last = round + 1 == warm_up + repetitions;
            if let Some(level) = self.against {
                let (taken, _) = self.once(session, elements, round, level, false).await?;
                against_seconds.extend((round >= warm_up).then_some(taken));
            }
            let (taken, report) = self.once(session, elements, round, self.protection, trace && last).await?;
            if round >= warm_up {
                seconds.push(taken);
            }
            if trace && last && session.rank() == 0 {
                let title = format!("A sum of {} on {} ranks", size::show(bytes), session.size());
                timeline = Some(Timeline::new(title, session.size(), &report));
            }
        }
        let seconds = slowest(session, seconds).await?;
        let against_seconds = match against_seconds.is_empty() {
            true => against_seconds,
            false => slowest(session, against_seconds).await?,
        };
        Ok(Measured { bytes, seconds, against_seconds, timeline })
    }

    /// One reduction, from a barrier to its outcome. Checks the value.
    async fn once(
        &self,
        session: &Session,
        elements: usize,
        round: u64,
        level: Protection,
        trace: bool,
    ) -> everfold::Result<(f64, Report)> {
        let mine = f32::from(session.rank().0 as u16 + 1);
        let order = if self.fixed { Order::Fixed } else { Order::Arrival };
        let body = Elements::filled(session, self.vec, elements, mine);
        barrier(session).await?;
        let started = Instant::now();
        let (value, report) = match (body, self.allreduce) {
            (Elements::Shared(array), false) => {
                let mut reduction = session.reduce("measured", Sum(array)).order(order).protection(level);
                if trace {
                    reduction = reduction.trace();
                }
                let outcome = reduction.await?;
                (outcome.value.map(|Sum(array)| Elements::Shared(array)), outcome.report)
            }
            (Elements::Shared(array), true) => {
                let reduction = session.allreduce("measured", Sum(array)).order(order).protection(level);
                let Outcome { value: Sum(array), report } = reduction.await?;
                (Some(Elements::Shared(array)), report)
            }
            (Elements::Private(array), false) => {
                let outcome = session.reduce("measured", Sum(array)).order(order).protection(level).await?;
                (outcome.value.map(|Sum(array)| Elements::Private(array)), outcome.report)
            }
            (Elements::Private(array), true) => {
                let reduction = session.allreduce("measured", Sum(array)).order(order).protection(level);
                let Outcome { value: Sum(array), report } = reduction.await?;
                (Some(Elements::Private(array)), report)
            }
        };
        let taken = started.elapsed().as_secs_f64();
        // Nobody touches the next body while another rank still waits for a core to stop its clock on.
        barrier(session).await?;
        session.checkpoint(&round).await?;
        let ranks = session.size();
        let right = (ranks * (ranks + 1) / 2) as f32;
        if let Some(wrong) = value.as_ref().and_then(|value| value.position_of_other(right)) {
            let message = format!("round {round}: element {wrong} of {elements} is not {right}");
            return Err(everfold::Error::application(message));
        }
        Ok((taken, report))
    }
}

/// Per repetition, the time of the slowest rank; empty but at rank 0.
async fn slowest(session: &Session, seconds: Vec<f64>) -> everfold::Result<Vec<f64>> {
    let slowest = session.reduce("slowest", Max(seconds)).await?;
    Ok(slowest.value.map_or_else(Vec::new, |Max(seconds)| seconds))
}

/// Nobody gets out before all are in.
pub(super) async fn barrier(session: &Session) -> everfold::Result<()> {
    session.allreduce("barrier", Sum(vec![1u8])).await?;
    Ok(())
}

/// A body in either kind of memory.
enum Elements {
    Shared(Array<f32>),
    Private(Vec<f32>),
}

impl Elements {
    fn filled(session: &Session, private: bool, elements: usize, value: f32) -> Self {
        if private {
            return Self::Private(vec![value; elements]);
        }
        let mut array = session.array(elements);
        array.fill(value);
        Self::Shared(array)
    }

    fn position_of_other(&self, value: f32) -> Option<usize> {
        match self {
            Self::Shared(array) => array.iter().position(|element| *element != value),
            Self::Private(array) => array.iter().position(|element| *element != value),
        }
    }
}
