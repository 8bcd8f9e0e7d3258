//! A command of one's own, with a detector that `everfold` does not have.
//!
//! This program is its own test runner, that command (`run …`, `recovery …`), and the program that the
//! command's jobs run (`rank`).

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Command, ExitCode, Output, Stdio},
};

use everfold::{
    Config, Launch, Session, Sum,
    launch::Components,
    recovery::{
        Chain, Detector, Recovery,
        detector::{Death, Sign, Timestamp},
    },
};
use nix::sys::signal::{Signal, raise};

/// The file for it: without the detector, the rank that dies would be started where it was.
const FILE: &str = "process = [\"restart\", \"migrate\"]\ndetectors = [\"restless\"]\n";

/// Ranks whose processes end go to another host.
#[derive(Debug)]
struct Restless;

impl Detector for Restless {
    fn judge(&mut self, _: Timestamp, death: &Death) -> Option<Chain> {
        matches!(death.sign, Sign::Process(_)).then(|| Chain::of(Recovery::Migrate))
    }
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("run" | "recovery") => {
            everfold_cli::main_with(Components::new().detector("restless", || Restless))
        }
        Some("rank") => {
            let launch = Launch::from_env_or_local(1).config(Config::default().restart_ranks());
            everfold::launch(launch, dies_once).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        Some("--list") => ExitCode::SUCCESS,
        _ => {
            let home = tempfile::tempdir().unwrap();
            its_detector_is_known_to_it_alone(home.path());
            its_detector_decides_where_a_rank_goes_on(home.path());
            println!("2 passed");
            ExitCode::SUCCESS
        }
    }
}

/// A command that ends within 90 s.
fn command(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", "90", program]).stdin(Stdio::null());
    command
}

fn own() -> String {
    std::env::current_exe().unwrap().display().to_string()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

fn its_detector_is_known_to_it_alone(home: &Path) {
    let file = home.join("known.toml");
    fs::write(&file, FILE).unwrap();
    let check = |program: &str| command(program).args(["recovery", "check"]).arg(&file).output().unwrap();
    let known = check(&own());
    assert!(known.status.success() && said(&known).contains("in this order: `restless`"), "{known:?}");
    let everfold = env!("CARGO_BIN_EXE_everfold");
    let unknown = check(everfold);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    assert!(said(&unknown).contains("no detector `restless`"), "{unknown:?}");
    let run =
        command(everfold).args(["run", "-n", "1", "--recovery"]).arg(&file).args(["--", "true"]).output();
    let run = run.unwrap();
    assert!(!run.status.success() && said(&run).contains("everfold_cli::main_with"), "{run:?}");
    fs::write(&file, FILE.replace("restless", "resltess")).unwrap();
    let mistyped = check(&own());
    assert_eq!(mistyped.status.code(), Some(2), "{mistyped:?}");
    assert!(said(&mistyped).contains("no detector `resltess`"), "{mistyped:?}");
    assert!(said(&mistyped).contains("which has `restless`"), "{mistyped:?}");
}

fn its_detector_decides_where_a_rank_goes_on(home: &Path) {
    let file = home.join("recovery.toml");
    fs::write(&file, FILE).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hosts = [0, 1].map(|host| {
        let mut host_command = command(&own());
        host_command.args(["run", "-n", "1", "--transport", "tcp", "--hosts", "2", "--recovery"]).arg(&file);
        host_command.args(["--", &own(), "rank"]).env("EVERFOLD_HOST_INDEX", host.to_string());
        host_command.env("EVERFOLD_RENDEZVOUS", format!("127.0.0.1:{port}"));
        host_command.env("EVERFOLD_SECRET", "5a".repeat(32));
        host_command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    let ended = hosts.map(|host| host.wait_with_output().unwrap());
    let codes = ended.each_ref().map(|host| host.status.code());
    assert_eq!(codes, [Some(0); 2], "{ended:?}");
    let has_second_life = ended.each_ref().map(|host| said(host).contains("rank 1 ends, life 1"));
    assert_eq!(has_second_life, [true, false], "it goes on on the other host: {ended:?}");
}

/// Rank 1 dies once, when its replica has the outcome of the call before.
async fn dies_once(session: Session) -> everfold::Result<()> {
    let life = std::env::var("EVERFOLD_INCARNATION").unwrap_or_default();
    session.resume::<u64>().await?;
    for _ in 0..20 {
        session.allreduce("before", Sum(vec![1u64])).await?;
    }
    if session.rank() == 1 && life == "0" {
        raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
    }
    let after = session.allreduce("after", Sum(vec![1u64])).await?;
    assert_eq!(after.value, Sum(vec![2]));
    println!("rank {} ends, life {life}", session.rank());
    Ok(())
}
