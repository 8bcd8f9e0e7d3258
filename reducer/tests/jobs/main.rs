//! Whole jobs of real processes: values, errors, deaths, strangers, and what is left behind.
//!
//! This program is both the test runner and what the jobs run. Started by `cargo test`, it runs each test in
//! turn; a test starts the program again as `run PROGRAM RANKS TRANSPORT`, which becomes a job as every
//! everfold program does: it starts copies of itself and supervises them. The same can be done by hand:
//!
//! ```text
//! cargo test --release -p everfold --test jobs                             every test
//! cargo test --release -p everfold --test jobs -- strangers                those whose names contain it
//! cargo test --release -p everfold --test jobs -- --list                   their names
//! cargo test --release -p everfold --test jobs -- run values::sums 5 tcp   one program, with its output
//! ```
//!
//! A program says on each rank when it comes to its end; a value or an error that is not as it should be
//! makes its rank panic. Each test has a deadline, after which the whole job is killed and the test has
//! failed, and after each test no process of it may be left.

// Tables of scenarios have the types that they have.
#![allow(clippy::type_complexity)]
#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

mod behind;
mod broken;
mod calls;
mod collective;
mod come_back;
mod concurrent;
mod death;
mod disagreements;
mod environment;
mod fixed;
mod given_up;
mod hosts;
mod kept;
mod leftovers;
mod located;
mod migrate;
mod outlive;
mod own_detectors;
mod own_directories;
mod paces;
mod plans;
mod process;
mod progress;
mod promote;
mod recovery;
mod refusals;
mod reports;
mod segments;
mod slow;
mod stopped;
mod strangers;
mod suite;
mod survive;
mod teams;
mod unfit;
mod unread;
mod values;

use std::process::ExitCode;

use everfold::launch::{Launch, Transport};

use crate::suite::Suite;

fn suite() -> Suite {
    let mut suite = Suite::default();
    values::add_to(&mut suite);
    collective::add_to(&mut suite);
    fixed::add_to(&mut suite);
    concurrent::add_to(&mut suite);
    calls::add_to(&mut suite);
    come_back::add_to(&mut suite);
    given_up::add_to(&mut suite);
    plans::add_to(&mut suite);
    behind::add_to(&mut suite);
    outlive::add_to(&mut suite);
    recovery::add_to(&mut suite);
    reports::add_to(&mut suite);
    disagreements::add_to(&mut suite);
    refusals::add_to(&mut suite);
    broken::add_to(&mut suite);
    unfit::add_to(&mut suite);
    unread::add_to(&mut suite);
    death::add_to(&mut suite);
    survive::add_to(&mut suite);
    teams::add_to(&mut suite);
    stopped::add_to(&mut suite);
    strangers::add_to(&mut suite);
    environment::add_to(&mut suite);
    segments::add_to(&mut suite);
    progress::add_to(&mut suite);
    kept::add_to(&mut suite);
    slow::add_to(&mut suite);
    hosts::add_to(&mut suite);
    migrate::add_to(&mut suite);
    promote::add_to(&mut suite);
    own_detectors::add_to(&mut suite);
    own_directories::add_to(&mut suite);
    paces::add_to(&mut suite);
    leftovers::add_to(&mut suite);
    located::add_to(&mut suite);
    suite
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["run", program, ranks, transport] => run(program, ranks, transport),
        ["host", program, ranks] => migrate::host(program, ranks),
        ["inside-a-runtime"] => environment::inside_a_runtime(),
        ["run", ..] => {
            eprintln!("usage: run PROGRAM RANKS auto|shm|tcp");
            ExitCode::FAILURE
        }
        _ => suite().run(&words),
    }
}

/// What a job runs: starts copies of this process, or is one of them.
fn run(name: &str, ranks: &str, transport: &str) -> ExitCode {
    if name == migrate::NEVER_JOINS {
        loop {
            std::thread::park();
        }
    }
    let suite = suite();
    let program = suite.program_called(name).unwrap_or_else(|| panic!("there is no program {name:?}"));
    let transport = match transport {
        "auto" => Transport::Auto,
        "shm" => Transport::Shm,
        "tcp" => Transport::Tcp,
        other => panic!("there is no transport {other:?}"),
    };
    let launch = Launch::from_env_or_local(ranks.parse().unwrap())
        .transport(transport)
        .config(program.config)
        .components(own_detectors::components())
        .checkpoint_pace("wary", paces::Wary::default);
    let ended: everfold::Result<()> = everfold::launch(launch, async |session| {
        let rank = session.rank();
        (program.run)(session).await?;
        println!("{}{rank}", process::DONE);
        Ok(())
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}
