//! The built-in program: reduces bodies whose sum is known, checks it, and reduces again among the survivors.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use everfold::{Array, DEFAULT_PROTECTION, Path, Receivers, Reduction, Refusal, prelude::*};
use futures::{FutureExt, TryFutureExt};

use super::{
    failing::Asked,
    pattern::{Checked, Listed},
    said::{Loss, Said, Told, Work},
    survivors,
};
use crate::{Failure, clock::now_ns, size};

/// Exit code of a rank, or of a job, that ends in an error which says what is lost (`EX_TEMPFAIL` of
/// `sysexits.h`).
pub const LOST: u8 = 75;

/// What is reduced.
#[derive(Clone, Debug, Args)]
pub struct Program {
    /// Size of each rank's body.
    #[arg(long, default_value = "32MiB", value_parser = size::parse, help_heading = "Built-in program")]
    pub bytes: u64,
    /// What the bodies are.
    #[arg(long, value_enum, default_value_t, help_heading = "Built-in program")]
    pub kind: BodyKind,
    /// Reductions, one after the other.
    #[arg(long, default_value_t = 1, help_heading = "Built-in program")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Deliver to all ranks, not only to one.
    #[arg(long, help_heading = "Built-in program")]
    pub all: bool,
    /// Deliver to this rank.
    #[arg(long, value_name = "RANK", default_value_t = 0, conflicts_with = "all")]
    #[arg(help_heading = "Built-in program")]
    pub root: u32,
    /// How contributions are protected: none, memory, disk or commit-first.
    #[arg(long, value_name = "LEVEL", default_value_t = DEFAULT_PROTECTION, help_heading = "Built-in program")]
    pub protection: Protection,
    /// Prefer a result without lost contributions to an error.
    #[arg(long, help_heading = "Built-in program")]
    pub allow_missing: bool,
}

/// Kinds of bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BodyKind {
    /// An array in shared memory.
    #[default]
    Array,
    /// A `Vec`.
    Vec,
    /// A type that is serialised.
    Object,
}

/// How a reduction has ended, to one or to all.
type Ended<V> = Result<Outcome<Option<V>>, ReduceError>;

impl Program {
    /// The rank that gets the result; nothing if all do.
    pub fn root(&self) -> Option<u32> {
        (!self.all).then_some(self.root)
    }

    /// The arguments from which a rank reads this again.
    pub fn arguments(&self) -> Vec<String> {
        let kind = self.kind.to_possible_value();
        let mut arguments = vec![
            format!("--bytes={}", self.bytes),
            format!("--kind={}", kind.as_ref().map_or("array", |kind| kind.get_name())),
            format!("--rounds={}", self.rounds),
        ];
        arguments.push(if self.all { "--all".to_owned() } else { format!("--root={}", self.root) });
        arguments.push(format!("--protection={}", self.protection));
        arguments.extend(self.allow_missing.then(|| "--allow-missing".to_owned()));
        arguments
    }

    /// One rank of it.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let mut code = ExitCode::FAILURE;
        let ended: everfold::Result<()> = everfold::launch(Launch::from_env_or_local(1), async |session| {
            let all_rounds = async {
                match self.kind {
                    BodyKind::Array => self.reduce_all::<Sum<Array<u64>>>(&session).await,
                    BodyKind::Vec => self.reduce_all::<Sum<Vec<u64>>>(&session).await,
                    BodyKind::Object => self.reduce_all::<Listed>(&session).await,
                }
            };
            let asked = Asked::listen()?;
            let (at_ns, told) = tokio::select! {
                told = all_rounds => told,
                way = asked.wait() => return way.fail(&session, self.bytes),
            };
            code = match &told {
                Told::Ok(_) => ExitCode::SUCCESS,
                Told::Lost { .. } => ExitCode::from(LOST),
                Told::Failed { .. } | Told::Wrong { .. } => ExitCode::FAILURE,
            };
            say(&Said::Ended { at_ns, told });
            Ok(())
        });
        ended?;
        Ok(code)
    }

    /// All rounds, and when the last outcome was there.
    async fn reduce_all<B>(&self, session: &Session) -> (u64, Told)
    where
        B: Body<Value = B> + Checked,
    {
        let elements = (self.bytes as usize / size_of::<u64>()).max(1);
        // The first one is filled before faults count.
        let mut filled = Some(B::contribution(session, 0, elements));
        // Some may have heard the outcome, called and died before others hear it.
        if let Err(error) = session.allreduce("all are here", Sum(vec![1u8])).await {
            return (now_ns(), told(&error));
        }
        let mut group = session.world();
        let mut all_told = Told::Ok(Work::default());
        let mut ended_ns = now_ns();
        say(&Said::Go { at_ns: ended_ns });
        for round in 0..self.rounds {
            let body = filled.take().unwrap_or_else(|| B::contribution(session, round, elements));
            let ended = match self.call(session, &group, round, body) {
                Ok(called) => {
                    if round == 0 {
                        say(&Said::Called { at_ns: now_ns() });
                    }
                    called.await
                }
                Err(error) => Err(error),
            };
            ended_ns = now_ns();
            all_told = all_told.and(self.judge(ended, &group, round));
            group = match survivors::go_on(session, group, round).await {
                Ok(group) => group,
                Err(ReduceError::MasterLost) => {
                    return (ended_ns, all_told.and(told(&ReduceError::MasterLost)));
                }
                Err(error) => {
                    let why = format!("the session does not go on: {error}");
                    return (ended_ns, all_told.and(Told::Failed { why }));
                }
            };
        }
        (ended_ns, all_told)
    }

    fn call<B: Body>(
        &self,
        session: &Session,
        group: &Group,
        round: u64,
        body: B,
    ) -> Result<impl Future<Output = Ended<B::Value>>, ReduceError> {
        // Ranks that do not agree on the group do not wait for each other: they mean different reductions.
        let name = format!("round {round} of {}", path(group));
        Ok(if self.all {
            self.start(session.allreduce(name, body), group)?.map_ok(Outcome::from).left_future()
        } else {
            self.start(session.reduce(name, body).root(self.root), group)?.right_future()
        })
    }

    fn start<B: Body, D: Receivers>(
        &self,
        reduction: Reduction<B, D>,
        group: &Group,
    ) -> Result<ReduceFuture<D::Received<B::Value>>, ReduceError> {
        let reduction = reduction.group(group).protection(self.protection);
        if self.allow_missing { reduction.allow_missing().start() } else { reduction.start() }
    }

    fn judge<B: Checked>(&self, ended: Ended<B>, group: &Group, round: u64) -> Told {
        let Outcome { value, report } = match ended {
            Ok(outcome) => outcome,
            Err(error) => return told(&error),
        };
        let missing = if self.allow_missing { report.missing.clone() } else { Path::empty() };
        let expected = path(group).difference(&missing);
        if report.contributors != expected {
            let what = format!("ranks {} contributed, not {expected}", report.contributors);
            return Told::Wrong { what };
        }
        if let Some(Err(what)) = value.map(|value| value.check(&report.contributors, round)) {
            return Told::Wrong { what };
        }
        Told::Ok(Work {
            folds: report.folds,
            folds_redone: report.folds_redone,
            survived: report.survived.len() as u64,
        })
    }
}

fn say(said: &Said) {
    // Somebody who started the program by hand may have stopped listening.
    let line = serde_json::to_string(said).unwrap_or_default();
    let _ = std::io::Write::write_all(&mut std::io::stdout(), format!("{line}\n").as_bytes());
}

fn path(group: &Group) -> Path {
    group.iter().collect()
}

/// How a reduction that ended in `error` has ended.
fn told(error: &ReduceError) -> Told {
    let why = error.to_string();
    let loss = match error {
        ReduceError::Refused(Refusal::ProcessFailed { .. }) => Some(Loss::Absent),
        ReduceError::Refused(Refusal::ContributionLost { .. }) => Some(Loss::Contribution),
        ReduceError::ResultLost { .. } => Some(Loss::Result),
        ReduceError::MasterLost => Some(Loss::Master),
        _ => None,
    };
    match loss {
        Some(loss) => Told::Lost { loss, why },
        None => Told::Failed { why },
    }
}
