//! What there is to run, and the runner: `cargo test` with this project's own `main`.

use std::{
    collections::BTreeMap,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::Instant,
};

use everfold::{Config, Session};
use futures::{FutureExt, future::LocalBoxFuture};

use crate::process::{Process, job};

/// What every rank of a job runs.
pub(crate) struct Program {
    pub(crate) config: Config,
    pub(crate) run: Box<dyn Fn(Session) -> LocalBoxFuture<'static, everfold::Result<()>>>,
}

/// All programs and tests.
#[derive(Default)]
pub(crate) struct Suite {
    programs: BTreeMap<&'static str, Program>,
    tests: Vec<(String, Box<dyn Fn()>)>,
}

/// How peers reach each other's memory, as tests name it.
pub(crate) const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

impl Suite {
    /// Something that a job can run. Tests start it by its name.
    pub(crate) fn program<F>(&mut self, name: &'static str, program: fn(Session) -> F)
    where
        F: Future<Output = everfold::Result<()>> + 'static,
    {
        self.program_with(Config::default(), name, program);
    }

    /// The same with other limits or timeouts.
    pub(crate) fn program_with<F>(&mut self, config: Config, name: &'static str, program: fn(Session) -> F)
    where
        F: Future<Output = everfold::Result<()>> + 'static,
    {
        let run = Box::new(move |session| program(session).boxed_local());
        let before = self.programs.insert(name, Program { config, run });
        assert!(before.is_none(), "two programs are called {name}");
    }

    /// A program, and for each transport the test that all its `ranks` come to their end.
    pub(crate) fn job<F>(&mut self, name: &'static str, ranks: u32, program: fn(Session) -> F)
    where
        F: Future<Output = everfold::Result<()>> + 'static,
    {
        self.job_with(Config::default(), name, ranks, program);
    }

    /// The same with other limits or timeouts.
    pub(crate) fn job_with<F>(
        &mut self,
        config: Config,
        name: &'static str,
        ranks: u32,
        program: fn(Session) -> F,
    ) where
        F: Future<Output = everfold::Result<()>> + 'static,
    {
        self.program_with(config, name, program);
        for transport in TRANSPORTS {
            self.test(format!("{name}::{transport}"), move || {
                Process::spawn(job(name, ranks, transport)).end().assert_done(0..ranks);
            });
        }
    }

    /// A test that does more than watching a job end.
    pub(crate) fn test(&mut self, name: impl Into<String>, test: impl Fn() + 'static) {
        self.tests.push((name.into(), Box::new(test)));
    }

    /// A test of what a job does over each transport.
    pub(crate) fn test_each(&mut self, name: &'static str, test: fn(&'static str)) {
        for transport in TRANSPORTS {
            self.test(format!("{name}::{transport}"), move || test(transport));
        }
    }

    pub(crate) fn program_called(mut self, name: &str) -> Option<Program> {
        self.programs.remove(name)
    }

    /// Runs the tests that `arguments` name. Knows what `cargo test` may pass on; flags without a meaning
    /// here are ignored.
    pub(crate) fn run(self, arguments: &[&str]) -> ExitCode {
        let has = |flag: &str| arguments.contains(&flag);
        let mut filters = Vec::new();
        let mut skipped: Vec<&str> = Vec::new();
        let mut words = arguments.iter();
        while let Some(&word) = words.next() {
            match word {
                "--skip" => skipped.extend(words.next()),
                "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => drop(words.next()),
                flag if flag.starts_with('-') => {}
                filter => filters.push(filter),
            }
        }
        let wanted = |name: &str| {
            let matches =
                |filter: &&str| if has("--exact") { name == *filter } else { name.contains(filter) };
            (filters.is_empty() || filters.iter().any(matches))
                && !skipped.iter().any(|skip| name.contains(skip))
        };
        // None of the tests is ignored by default.
        let tests = self.tests.iter().filter(|(name, _)| wanted(name) && !has("--ignored"));
        if has("--list") {
            tests.for_each(|(name, _)| println!("{name}: test"));
            return ExitCode::SUCCESS;
        }
        let (mut passed, mut failed) = (0, Vec::new());
        let started = Instant::now();
        for (name, test) in tests {
            print!("test {name} ... ");
            let _ = std::io::stdout().flush();
            let started = Instant::now();
            let result = catch_unwind(AssertUnwindSafe(test));
            let seconds = started.elapsed().as_secs_f64();
            match result {
                Ok(()) => {
                    passed += 1;
                    println!("ok ({seconds:.2} s)");
                }
                Err(_) => {
                    println!("FAILED ({seconds:.2} s)");
                    failed.push(name);
                }
            }
        }
        for name in &failed {
            println!("failed: {name}");
        }
        println!("{passed} passed, {} failed in {:.1} s", failed.len(), started.elapsed().as_secs_f64());
        if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
