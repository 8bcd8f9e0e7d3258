//! `everfold plan paper`: the evaluation of the paper on checkpoints (CP §3).

mod failures;
mod published;
mod tables;

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use everfold_planner::plan::{Placement, Plan, PlanError, Planner, Rule, Wish};

use self::published::{APPLICATIONS, Application};
use super::{
    picture,
    profile::{self, Described},
    table,
};
use crate::{Failure, files};

/// How far points are moved in plans with an offset.
const OFFSET_NS: u64 = 5_000_000_000;

/// Place checkpoints in the applications of the paper, beside its tables and figures.
///
/// Writes a CSV file for each table and figure, and pictures of the plans. The paper gives neither live bytes nor
/// the run times without checkpoints: the profiles are fitted to what it gives. See docs/planner.md.
///
/// Example: everfold plan paper
#[derive(Args)]
pub struct Paper {
    /// Where the files go.
    #[arg(long, value_name = "FOLDER", default_value = "docs/planner")]
    out: PathBuf,
    /// Runs with drawn failures of each plan.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    runs: u32,
    /// Decides everything that is drawn.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Plans of one application.
struct Planned {
    application: Application,
    described: Described,
    /// At equal distances, as in the paper's experiments: synchronous, asynchronous.
    every: [Plan; 2],
    /// The least by the paper's models.
    cheapest: [Plan; 2],
    /// The same, with an offset.
    offset: [Plan; 2],
    /// The least mean time to the end.
    soonest: [Plan; 2],
}

impl Planned {
    fn new(application: Application) -> Result<Self, Failure> {
        let described = profile::parse(application.profile, application.name.to_owned(), |table| {
            Err(format!("{table} is not built in"))
        })
        .map_err(Failure::new)?;
        let planner = Planner::new(&described.profile, &described.machine)?;
        let both = |rule: Rule, offset_ns: u64| -> Result<[Plan; 2], PlanError> {
            let place = |placement| planner.place(&Wish { placement, rule, apart_ns: None, offset_ns });
            Ok([place(Placement::Synchronous)?, place(Placement::Asynchronous)?])
        };
        let (every, cheapest) = (both(Rule::Every, 0)?, both(Rule::Cheapest, 0)?);
        let (offset, soonest) = (both(Rule::Every, OFFSET_NS)?, both(Rule::Soonest, 0)?);
        Ok(Self { application, described, every, cheapest, offset, soonest })
    }
}

impl Paper {
    /// Makes all plans, writes the files and prints the tables.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let planned = APPLICATIONS.into_iter().map(Planned::new).collect::<Result<Vec<_>, _>>()?;
        files::make_folder(&self.out)?;
        for each in &planned {
            for plan in &each.cheapest {
                let name = each.application.name.to_lowercase();
                let file = format!("{name}-{}.svg", table::placement(plan.placement));
                files::write(&self.out.join(file), picture::draw(&each.described, plan)?)?;
            }
        }
        let tables = [
            (
                "alone",
                "run time without checkpoints, as the paper's figures imply it",
                tables::alone(&planned),
            ),
            ("table1", "table 1: checkpoints, sync and host/device", tables::counts(&planned)),
            ("table2", "table 2: run time with checkpoints, s", tables::run_times(&planned)),
            ("fig11", "figure 11: one checkpoint, s", tables::one(&planned)),
            ("fig12", "figure 12: all checkpoints, s", tables::all(&planned)),
            (
                "failures",
                "mean time to the end with drawn failures, s",
                tables::failures(&planned, self.runs, self.seed),
            ),
        ];
        for (name, _, table) in &tables {
            files::write(&self.out.join(format!("{name}.csv")), table.csv())?;
        }
        for (_, title, table) in &tables {
            say!("{title}\n{}", table.shown())?;
        }
        say!("tables and pictures: {}", self.out.display())?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_at_equal_distances_have_as_many_checkpoints_as_in_table_1() {
        for application in APPLICATIONS {
            let planned = Planned::new(application).unwrap();
            let tracks = planned.every.iter().flat_map(|plan| &plan.tracks);
            let counts: Vec<usize> = tracks.map(|track| track.stops.len()).collect();
            assert_eq!(counts, application.checkpoints, "{}", application.name);
        }
    }

    #[test]
    fn profiles_run_as_long_as_the_paper_implies_and_take_what_it_says() {
        for application in APPLICATIONS {
            let planned = Planned::new(application).unwrap();
            let [least_s, most_s] = application.run_alone_s();
            let run_s = planned.described.profile.run_ns() as f64 / 1e9;
            assert!((least_s..=most_s).contains(&run_s), "{}: {run_s}", application.name);
            for (plan, published_s) in planned.every.iter().zip(application.run_s) {
                let ours_s = (plan.run_ns + plan.taken_ns) as f64 / 1e9;
                assert!((ours_s / published_s - 1.0).abs() < 1e-4, "{}: {ours_s}", application.name);
            }
        }
    }

    #[test]
    fn the_models_never_cost_more_than_equal_distances_that_keep_theirs() {
        for application in APPLICATIONS {
            let planned = Planned::new(application).unwrap();
            for (every, cheapest) in planned.every.iter().zip(&planned.cheapest) {
                for (every, cheapest) in every.tracks.iter().zip(&cheapest.tracks) {
                    let written = |track: &everfold_planner::plan::Track| -> u64 {
                        track.stops.iter().map(|stop| stop.write_ns).sum()
                    };
                    let keeps = every.stops.iter().all(|stop| stop.since_ns <= every.apart_ns);
                    assert!(!keeps || written(cheapest) <= written(every), "{}", application.name);
                }
            }
        }
    }
}
