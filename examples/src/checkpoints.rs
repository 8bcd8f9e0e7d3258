//! Programs of kernels that take checkpoints between them.
//!
//! A [`Program`] says what its next kernel is, at which point it is before that, and which buffers are live
//! there. [`main`] does the rest, the same for all of them: it goes on from the last checkpoint, takes
//! checkpoints where a plan says, records profiles, and compares the result with a direct computation.

use std::{
    borrow::Cow,
    io,
    time::{Duration, Instant},
};

use clap::{Args, Parser};
use everfold::{Interval, prelude::*};
use nix::sys::signal::{Signal, raise};
use serde::{Serialize, de::DeserializeOwned};

use crate::device::{Device, Id, LiveBuffers, Speeds};

/// A program of kernels. All that it needs to go on is in its [state](Self::State), and in the device's
/// buffers.
pub trait Program: Sized {
    /// What the host needs to go on.
    type State: Serialize + DeserializeOwned + 'static;
    /// What it is called.
    const NAME: &'static str;
    /// The simulated device for which its default size is meant.
    const SPEEDS: Speeds;
    /// Its kernels for a graphics card, in CUDA C++.
    const SOURCE: &'static str;

    /// Makes buffers and fills those that are not live at any point, such as input that never changes. Every
    /// process begins with it, also one that goes on from a checkpoint.
    fn begin(device: &Device, size: Size) -> (Self, Self::State);

    /// Where the program is; `None` at its end.
    fn place(&self, state: &Self::State) -> Option<Place>;

    /// Launches the kernel behind this point.
    fn launch(&self, state: &Self::State, device: &Device);

    /// What the host does behind the kernel: it ends at the next point.
    fn advance(&self, state: &mut Self::State, device: &Device);

    /// Compares the result with a direct computation, and says in words what was compared.
    ///
    /// # Errors
    /// It is wrong, and how.
    fn check(&self, state: &Self::State, device: &Device) -> Result<String, String>;
}

/// A point before a kernel, and the buffers that are needed to go on from there.
#[derive(Clone, Debug)]
pub struct Place {
    /// What the program calls it.
    pub point: Cow<'static, str>,
    /// The buffers.
    pub live: Vec<Id>,
}

impl Place {
    /// A point and its live buffers.
    pub fn new(point: impl Into<Cow<'static, str>>, live: impl Into<Vec<Id>>) -> Self {
        Self { point: point.into(), live: live.into() }
    }
}

/// How much a program computes, if not as much as usual.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Size {
    /// Length of an array in one dimension, or number of nodes.
    #[arg(long)]
    pub size: Option<usize>,
    /// Number of steps, or of what the program repeats.
    #[arg(long)]
    pub steps: Option<u64>,
}

/// A program of kernels on a device beside the host, which may be killed at any time.
#[derive(Clone, Debug, Parser)]
#[command(after_help = "\
With `everfold run --record profile.toml -n 1 -- PROGRAM`, `everfold plan profile.toml` and
`everfold run --plan plan.toml -n 1 -- PROGRAM`, checkpoints are taken where they cost least.")]
struct Options {
    /// Processes, each with a device of its own, that compute the same.
    #[arg(long, default_value_t = 1)]
    ranks: u32,
    #[command(flatten)]
    size: Size,
    /// Computes on a graphics card instead of a simulated device; ranks share the cards that there are.
    #[arg(long)]
    cuda: bool,
    /// Mean seconds between two failures: sets the interval of checkpoints where no plan does.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400.0)]
    mtbf: f64,
    /// Dies at the Nth point that it passes; the process that comes back at the Mth.
    #[arg(long, value_name = "N,M,…", value_delimiter = ',')]
    die: Vec<u64>,
}

/// Runs a program, as one rank or several.
///
/// # Errors
/// The job fails, or its result is wrong.
pub fn main<P: Program>() -> everfold::Result<()> {
    let options = Options::parse();
    if options.cuda {
        // Better no job than one whose ranks end one after the other.
        Device::find_card().map_err(everfold::Error::application)?;
    }
    let mtbf = Duration::try_from_secs_f64(options.mtbf).map_err(everfold::Error::application)?;
    let config = Config::default().restart_ranks().checkpoint_interval(Interval::Daly { mtbf });
    let launch = Launch::from_env_or_local(options.ranks).config(config);
    everfold::launch(launch, |session| run::<P>(session, options))
}

async fn run<P: Program>(session: Session, options: Options) -> everfold::Result<()> {
    let device = match options.cuda {
        true => Device::card(P::SOURCE, session.rank().0).map_err(everfold::Error::application)?,
        false => Device::simulated(P::SOURCE, P::SPEEDS),
    };
    session.on_checkpoint("device", LiveBuffers::of(&device))?;
    let (program, begin) = P::begin(&device, options.size);
    let mut state = session.resume().await?.unwrap_or(begin);
    let mut run = Run::begin(session, options);
    println!("{} is process {}, life {}, on {}", P::NAME, std::process::id(), run.life, device.name());
    while let Some(Place { point, live }) = program.place(&state) {
        device.sync();
        device.set_live(live);
        run.checkpoint(point.into_owned(), &state).await?;
        program.launch(&state, &device);
        program.advance(&mut state, &device);
    }
    device.sync();
    // What is still being written belongs to the run.
    run.session.checkpoint_written().await;
    println!("{}: {}", P::NAME, run.in_words());
    // The program ends here. To look at its result is no part of it, nor of its profile.
    run.session.close().await;
    match program.check(&state, &device) {
        Ok(words) => println!("{}: right after {} deaths: {words}", P::NAME, run.life),
        Err(wrong) => return Err(everfold::Error::application(format!("WRONG: {wrong}"))),
    }
    Ok(())
}

/// What one process does, and what it costs.
struct Run {
    session: Session,
    options: Options,
    /// How often the process of this rank was started before.
    life: usize,
    began: Instant,
    points: u64,
    saved: u64,
    bytes: u64,
    /// How long checkpoints have held the program up.
    held_up: Duration,
}

impl Run {
    fn begin(session: Session, options: Options) -> Self {
        let life = std::env::var("EVERFOLD_INCARNATION").ok().and_then(|life| life.parse().ok());
        Self {
            session,
            options,
            life: life.unwrap_or_default(),
            began: Instant::now(),
            points: 0,
            saved: 0,
            bytes: 0,
            held_up: Duration::ZERO,
        }
    }

    /// Takes a checkpoint, if one is to be taken here.
    async fn checkpoint<S>(&mut self, point: String, state: &S) -> everfold::Result<()>
    where
        S: Serialize + DeserializeOwned + 'static,
    {
        self.points += 1;
        if self.options.die.get(self.life) == Some(&self.points) {
            raise(Signal::SIGKILL).map_err(io::Error::from)?;
        }
        let begun = Instant::now();
        // Where the plan is asynchronous, it returns as soon as all is copied, and the device goes on.
        let taken = self.session.checkpoint(state).at(point).await?;
        self.held_up += begun.elapsed();
        if let Checkpointed::Saved { bytes, .. } | Checkpointed::Started { bytes, .. } = taken {
            self.saved += 1;
            self.bytes += bytes;
        }
        Ok(())
    }

    fn in_words(&self) -> String {
        format!(
            "{} points in {:.3} s, {} checkpoints of {:.1} MB, which held it up for {:.3} s",
            self.points,
            self.began.elapsed().as_secs_f64(),
            self.saved,
            self.bytes as f64 / 1e6 / self.saved.max(1) as f64,
            self.held_up.as_secs_f64(),
        )
    }
}
