//! `everfold plan`: where to put checkpoints.
//!
//! | to know | see |
//! |---|---|
//! | how profiles are written | [`profile`], `csv` |
//! | what is printed and drawn | `table`, `picture` |
//! | the paper's six applications | `paper` |

mod csv;
mod paper;
mod picture;
pub mod profile;
mod saved;
mod table;

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand, ValueEnum};
use everfold_planner::{
    plan::{Placement, Planner, Rule, Wish},
    profile::RUN_NS_MOST,
};
use everfold_protocol::units;

use self::profile::Described;
use crate::{Failure, files};

/// The exit code if the profile or the wish cannot be used.
const UNUSABLE: u8 = 2;
/// The exit code if there is no such plan.
const NO_PLAN: u8 = 3;
/// What a plan is written to.
const TEXT: &str = "plan.toml";
/// What it is drawn to.
const PICTURE: &str = "plan.svg";

const EXAMPLE: &str = "\
A profile is a file such as this. Every quantity has its unit:

  title = \"a stencil on one device\"

  [machine]
  storage = \"100 MB/s\"           # bandwidth from the host to stable storage
  bus = \"4 GB/s\"                 # between device and host; leave it and mtbf_device out where there is no device
  mtbf_host = \"400 s\"            # mean time between failures
  mtbf_device = \"240 s\"
  restart = \"5 s\"                # after a failure, until a checkpoint can be read; 0 s if left out
  reread = 1.0                   # reading a checkpoint takes so many times what writing it takes

  [[section]]                    # a body of points that the program passes 1200 times
  name = \"step\"
  times = 1200
  lasts = \"900 ms\"               # one pass, without checkpoints
  points = [                     # where a checkpoint may be taken, with the bytes that are live there
    { name = \"step begins\", at = \"0 s\", host = \"200 MB\", device = \"85 MB\" },
    { name = \"fluxes known\", at = \"400 ms\", host = \"200 MB\", device = \"140 MB\" },
  ]

  [[section]]                    # sections follow one another
  name = \"output\"
  lasts = \"4 s\"
  csv = \"output.csv\"             # instead of points: a table with columns name,at_ms,host_mb,device_mb

  [[level]]                      # with --levels: lowest first; a checkpoint of a level is one of those below, too
  name = \"region\"
  latency = \"1 ms\"
  bandwidth = \"8 GB/s\"
  restart = \"1 s\"
  mtbf = \"2 h\"                   # of failures that need this level and no higher one

Then:
  everfold plan stencil.toml                 host and device saved together, as cheaply as the distance allows
  everfold plan stencil.toml --async         each for itself, the host while the device computes
  everfold plan stencil.toml --offset 5s     near each point, take the one with the fewest live bytes
  everfold plan stencil.toml --rule soonest  the least mean time to the end, failures included
  everfold plan paper                        the applications, tables and figures of the paper

The distance of neighbouring points is at most half the MTBF, unless --apart says otherwise. Exit codes: 0, there is
a plan; 2, the profile or an argument cannot be used; 3, no plan keeps the distance, and the gap is named.";

/// Find the points at which a program should take checkpoints.
///
/// Reads a profile of the program: the points at which it may take checkpoints, the live bytes there, and the
/// times at which it reaches them. Prints the plan beside others, and writes plan.toml and a picture,
/// plan.svg.
#[derive(Args)]
#[command(after_long_help = EXAMPLE, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Plan {
    #[command(subcommand)]
    paper: Option<Command>,
    /// The profile, in TOML; --help shows one.
    #[arg(required = true)]
    profile: Option<PathBuf>,
    /// Save host and device together (the default).
    #[arg(long, conflicts_with = "asynchronous")]
    sync: bool,
    /// Save host and device each for itself, the host while the device computes.
    #[arg(long = "async")]
    asynchronous: bool,
    /// How points are chosen.
    #[arg(long, value_enum, default_value_t = Choice::Cheapest)]
    rule: Choice,
    /// Greatest distance of neighbouring points [default: half the MTBF].
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    apart: Option<f64>,
    /// Greatest distance by which a point is moved to one with fewer live bytes.
    #[arg(long, value_name = "TIME", value_parser = units::seconds, default_value = "0s")]
    offset: f64,
    /// Use the levels that the profile describes, all at once.
    #[arg(long, conflicts_with_all = ["asynchronous", "rule", "apart", "offset"])]
    levels: bool,
    /// Print all checkpoints, and not only the first ones.
    #[arg(long)]
    all: bool,
    /// Where plan.toml and plan.svg go.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    out: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    Paper(paper::Paper),
}

/// How points are chosen.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Choice {
    /// The least total time of checkpoints, with neighbours within the distance.
    Cheapest,
    /// The points nearest to multiples of the distance.
    Every,
    /// The points nearest to multiples of Young's interval.
    Young,
    /// The points nearest to multiples of Daly's interval.
    Daly,
    /// The least mean time to the end, failures included.
    Soonest,
}

impl From<Choice> for Rule {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Cheapest => Self::Cheapest,
            Choice::Every => Self::Every,
            Choice::Young => Self::Young,
            Choice::Daly => Self::Daly,
            Choice::Soonest => Self::Soonest,
        }
    }
}

impl Plan {
    /// Makes the plan that was asked for, writes its files and prints it.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there is no plan.
    pub fn run(self) -> Result<ExitCode, Failure> {
        match (&self.paper, &self.profile) {
            (Some(Command::Paper(paper)), _) => paper.run(),
            (None, Some(path)) => {
                let unusable = |error: String| refuse(UNUSABLE, format!("{}: {error}", path.display()));
                let described = profile::load(path).map_err(unusable)?;
                files::make_folder(&self.out)?;
                if let Some(name) =
                    [TEXT, PICTURE].into_iter().find(|name| is_same(path, &self.out.join(name)))
                {
                    let words =
                        format!("{name} would replace this profile: rename it, or choose another --out");
                    return Err(unusable(words));
                }
                if self.levels { self.place_levels(&described) } else { self.place(&described) }
            }
            (None, None) => Err(refuse(UNUSABLE, "there is no profile".to_owned())),
        }
    }

    fn wish(&self) -> Wish {
        // Longer than any program makes no difference.
        let nanoseconds = |time_s: f64| ((time_s * 1e9).round() as u64).min(RUN_NS_MOST);
        Wish {
            placement: match self.asynchronous && !self.sync {
                true => Placement::Asynchronous,
                false => Placement::Synchronous,
            },
            rule: self.rule.into(),
            apart_ns: self.apart.map(nanoseconds),
            offset_ns: nanoseconds(self.offset),
        }
    }

    fn place(&self, described: &Described) -> Result<ExitCode, Failure> {
        let planner = Planner::new(&described.profile, &described.machine)?;
        let wish = self.wish();
        let plan = planner.place(&wish).map_err(|error| refuse(NO_PLAN, error.to_string()))?;
        let (text, picture) = (self.out.join(TEXT), self.out.join(PICTURE));
        files::write(&text, saved::plan(&described.title, &plan)?)?;
        files::write(&picture, picture::draw(described, &plan)?)?;
        say!("{}", table::heading(described))?;
        say!("{}", table::beside_others(&planner, &wish, &plan))?;
        say!("{}", table::stops(&plan, if self.all { usize::MAX } else { 20 }))?;
        say!("plan: {}, picture: {}", text.display(), picture.display())?;
        Ok(ExitCode::SUCCESS)
    }

    fn place_levels(&self, described: &Described) -> Result<ExitCode, Failure> {
        if described.levels.is_empty() {
            let words = "--levels needs a [[level]] in the profile; --help shows one".to_owned();
            return Err(refuse(UNUSABLE, words));
        }
        let plan = saved::leveled(described);
        let text = self.out.join(TEXT);
        files::write(&text, toml::to_string(&plan)?)?;
        say!("{}", table::heading(described))?;
        say!("{}", table::levels(described, &plan))?;
        say!("plan: {}", text.display())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Whether both names lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    identity(one).is_some_and(|found| identity(other) == Some(found))
}

fn refuse(exit_code: u8, message: String) -> Failure {
    Failure { message, exit_code }
}
