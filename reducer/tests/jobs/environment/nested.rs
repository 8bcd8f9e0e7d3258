//! Jobs within jobs, and within runtimes.

use std::process::{Command, ExitCode};

use everfold::{Config, Launch, Session, launch::environment::detect};

use super::{
    job::{Job, RANKS},
    sums,
};
use crate::process::Process;

/// Calls `launch` where it would block a runtime, and `Session::join` where there is a job.
pub(crate) fn inside_a_runtime() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let launched: everfold::Result<()> = everfold::launch(Launch::from_env_or_local(1), async |_| {
            unreachable!("it does not come to that")
        });
        println!("Error: {}", launched.unwrap_err());
        if let Some(environment) = detect(|name| std::env::var(name).ok()).unwrap() {
            let session = Session::join(&environment, &Config::default()).unwrap();
            sums(session.clone()).await.unwrap();
            session.close().await;
            println!("{}{}", crate::process::DONE, session.rank());
        }
    });
    ExitCode::SUCCESS
}

/// The same typed error, alone and in a job.
pub(super) fn launch_inside_a_runtime() {
    let command = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("inside-a-runtime");
        command
    };
    let is_told = |line: &String| line.contains("Error: launch blocks") && line.contains("Session::join");
    let end = Process::spawn(command()).end();
    assert!(end.code == 0 && end.said.iter().any(is_told), "{end:?}");

    let job = Job::new("unix", "");
    let mut in_a_job = command();
    in_a_job.envs(job.variables(0, 1)).env("EVERFOLD_SECRET", Job::secret());
    let end = Process::spawn(in_a_job).end();
    end.assert_done([0]);
    assert!(end.said.iter().any(is_told), "{end:?}");
}

/// What a rank finds in its environment whose job has these files. They would let a program fail that takes
/// them.
const OF_THE_JOB_AROUND: [(&str, &str); 3] = [
    ("EVERFOLD_RECOVERY", "/nowhere"),
    ("EVERFOLD_PLAN", "/nowhere"),
    ("EVERFOLD_RECORD", "/nowhere/at/all"),
];

/// A rank that starts other everfold programs, in every way.
pub(super) async fn nested(session: Session) -> everfold::Result<()> {
    let program = std::env::current_exe()?;
    let program = program.to_str().unwrap();
    // Only a job of its own has two ranks.
    let job = [program, "run", "environment::two", "2", "auto"];
    let in_a_shell = format!("{}; exit $?", job.join(" "));
    let within_another = format!("{program} run environment::nested_once 1 tcp; exit $?");
    let ways: [&[&str]; 5] = [
        &job,
        &["sh", "-c", &in_a_shell],
        &["env", "SOME=thing", "nice", "sh", "-c", &in_a_shell],
        &["setsid", "--wait", "sh", "-c", &in_a_shell],
        &["sh", "-c", &within_another],
    ];
    for way in ways {
        let output = Command::new(way[0]).args(&way[1..]).envs(OF_THE_JOB_AROUND).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let all = format!("{way:?} says {said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{all}");
        let ends = said.lines().filter(|line| line.contains(crate::process::DONE)).count();
        assert_eq!(ends, if way.last() == Some(&&*within_another) { 1 } else { 2 }, "{all}");
    }
    // This rank is what it was.
    sums(session).await
}

pub(super) async fn two(session: Session) -> everfold::Result<()> {
    assert_eq!(session.size(), 2);
    sums(session).await
}

/// A job within a job that starts one more.
pub(super) async fn nested_once(session: Session) -> everfold::Result<()> {
    let output =
        Command::new(std::env::current_exe()?).args(["run", "environment::two", "2", "shm"]).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sums(session).await
}

pub(super) fn nested_locally() {
    for transport in ["auto", "tcp"] {
        Process::spawn(crate::process::job("environment::nested", 2, transport)).end().assert_done(0..2);
    }
}

pub(super) fn nested_by_hand() {
    let job = Job::new("tcp", "environment::nested");
    let ranks = (0..RANKS).map(|rank| (rank, job.start(rank)));
    job.assert_done(ranks.collect());
}
