//! The built-in program: steps that depend on each other, whose ranks can come back.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use everfold::prelude::*;
use everfold_protocol::units;
use serde::{Deserialize, Serialize};

use crate::{Failure, chaos::pattern::mix, size};

/// What each rank does.
#[derive(Clone, Debug, Args)]
pub struct Solver {
    /// Steps, each with an allreduce and a chance to save a checkpoint.
    #[arg(long, value_name = "N", default_value_t = 200, help_heading = "Built-in program")]
    steps: u64,
    /// How long a rank computes in a step.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_time, help_heading = "Built-in program")]
    step_time: Duration,
    /// Size of a rank's state.
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = size::parse, help_heading = "Built-in program")]
    state: u64,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(units::seconds(text)?).map_err(|error| error.to_string())
}

/// What a rank needs to go on, beside its field.
#[derive(Default, Serialize, Deserialize)]
struct State {
    step: u64,
    /// Depends on all that was reduced in all steps.
    digest: u64,
}

impl Solver {
    /// The arguments from which a rank reads this again.
    pub fn arguments(&self) -> [String; 3] {
        let Self { steps, step_time, state } = self;
        [
            format!("--steps={steps}"),
            format!("--step-time={}us", step_time.as_micros()),
            format!("--state={state}"),
        ]
    }

    /// One rank of it.
    ///
    /// # Errors
    /// What the job says.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let solved = everfold::launch(Launch::from_env_or_local(1), |session| self.solve(session));
        solved.map(|()| ExitCode::SUCCESS).map_err(Failure::from)
    }

    async fn solve(&self, session: Session) -> everfold::Result<()> {
        let seed = u64::from(session.rank().0);
        let mut field = vec![seed; (self.state as usize / size_of::<u64>()).max(1)];
        let saved: Option<State> = session.resume().array("field", &mut field).await?;
        let mut state = saved.unwrap_or_default();
        while state.step < self.steps {
            let begun = Instant::now();
            let at = state.step as usize % field.len();
            field[at] = mix(field[at] ^ state.digest);
            let Sum(all) = session.allreduce("step", Sum(vec![field[at]])).await?.value;
            state.digest = mix(state.digest ^ all[0]);
            state.step += 1;
            session.checkpoint(&state).array("field", &field).await?;
            std::thread::sleep(self.step_time.saturating_sub(begun.elapsed()));
        }
        let Min(least) = session.allreduce("least", Min(vec![state.digest])).await?.value;
        let Max(most) = session.allreduce("most", Max(vec![state.digest])).await?.value;
        if session.rank() == 0 {
            let same = least == most;
            let digest = state.digest;
            let line =
                format!("digest of {} steps: {digest:016x}, the same on all ranks: {same}", self.steps);
            say!("{line}").map_err(|failure| everfold::Error::application(failure.message))?;
        }
        Ok(())
    }
}
