//! What a process finds in its environment, case by case.
#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::io::Write;

use everfold::launch::environment::{Environment, EnvironmentError, Secret, Transport, detect};
use everfold_protocol::{Incarnation, JobId, Rank};

const RENDEZVOUS: &str = "EVERFOLD_RENDEZVOUS";
const RANK: &str = "EVERFOLD_RANK";
const SIZE: &str = "EVERFOLD_SIZE";
const JOB: &str = "EVERFOLD_JOB";
const SECRET: &str = "EVERFOLD_SECRET";
const SECRET_FILE: &str = "EVERFOLD_SECRET_FILE";
const TRANSPORT: &str = "EVERFOLD_TRANSPORT";
const INCARNATION: &str = "EVERFOLD_INCARNATION";

const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff";

fn detect_in(variables: &[(&str, &str)]) -> Result<Option<Environment>, EnvironmentError> {
    detect(|name| variables.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
}

fn refusal(variables: &[(&str, &str)]) -> String {
    detect_in(variables).unwrap_err().to_string()
}

/// A job of ours with `changes` made to it.
fn ours<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut variables =
        vec![(RENDEZVOUS, "unix:@there"), (RANK, "3"), (SIZE, "8"), (JOB, "00000000000000af"), (SECRET, HEX)];
    variables.extend(changes);
    variables
}

#[test]
fn a_bare_environment_means_alone() {
    assert_eq!(detect_in(&[]).unwrap(), None);
    assert_eq!(detect_in(&[(RENDEZVOUS, ""), (RANK, ""), (TRANSPORT, "tcp")]).unwrap(), None);
}

#[test]
fn our_own_variables_describe_a_job() {
    let environment = detect_in(&ours(&[(TRANSPORT, "shm"), (INCARNATION, "2")])).unwrap().unwrap();
    let expected = Environment {
        rank: Rank(3),
        incarnation: Incarnation(2),
        size: 8,
        job: JobId(0xaf),
        secret: Secret::from_hex(HEX).unwrap(),
        rendezvous: "unix:@there".to_owned(),
        transport: Transport::Shm,
        agent: None,
    };
    assert_eq!(environment, expected);
}

#[test]
fn what_is_written_is_read_back() {
    for transport in [Transport::Auto, Transport::Shm, Transport::Tcp] {
        let environment = Environment {
            rank: Rank(4095),
            incarnation: Incarnation(u32::MAX),
            size: 4096,
            job: JobId(u64::MAX - 1),
            secret: Secret::generate().unwrap(),
            rendezvous: "tcp:[::1]:9".to_owned(),
            transport,
            agent: Some("everfold-agent-7".to_owned()),
        };
        let variables = environment.variables();
        let found =
            detect(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone()));
        assert_eq!(found.unwrap(), Some(environment));
    }
}

#[test]
fn other_launchers_give_rank_and_size() {
    let launchers: [&[(&str, &str)]; 6] = [
        &[
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "2"),
        ],
        &[("PMIX_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMI_SIZE", "9")],
        &[("PMIX_RANK", "1"), ("PMI_SIZE", "4"), ("PMI_RANK", "7")],
        &[("PMIX_RANK", "1"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4")],
        &[("PMI_RANK", "1"), ("PMI_SIZE", "4")],
        &[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4")],
    ];
    for launcher in launchers {
        let mut variables = vec![(RENDEZVOUS, "tcp:node1:4000"), (SECRET, HEX)];
        variables.extend(launcher);
        let environment = detect_in(&variables).unwrap().unwrap();
        assert_eq!(
            (environment.rank, environment.size, environment.job),
            (Rank(1), 4, JobId(0)),
            "{launcher:?}"
        );
    }
}

#[test]
fn our_own_variables_come_before_those_of_launchers() {
    let foreign = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "64")];
    let environment = detect_in(&ours(&foreign)).unwrap().unwrap();
    assert_eq!((environment.rank, environment.size), (Rank(3), 8));
    let without_size: Vec<_> = ours(&foreign).into_iter().filter(|(name, _)| *name != SIZE).collect();
    assert_eq!(
        refusal(&without_size),
        "EVERFOLD_RANK is set, but EVERFOLD_SIZE is not: set both, or neither to start alone"
    );
}

#[test]
fn several_processes_without_a_rendezvous_are_refused() {
    let launchers: [&[(&str, &str)]; 4] = [
        &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")],
        &[("PMIX_RANK", "0"), ("SLURM_NTASKS", "2")],
        &[("PMI_RANK", "0"), ("PMI_SIZE", "2")],
        &[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2")],
    ];
    for launcher in launchers {
        let error = detect_in(launcher).unwrap_err();
        assert!(matches!(error, EnvironmentError::NoRendezvous { size: 2, .. }), "{error}");
        for word in [RENDEZVOUS, SECRET, SECRET_FILE, launcher[1].0] {
            assert!(error.to_string().contains(word), "{error}");
        }
        let single: Vec<_> =
            launcher.iter().map(|(name, value)| (*name, if *value == "2" { "1" } else { *value })).collect();
        assert_eq!(detect_in(&single).unwrap(), None, "{launcher:?}");
    }
}

#[test]
fn a_batch_script_of_slurm_is_alone() {
    assert_eq!(detect_in(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]).unwrap(), None);
}

#[test]
fn half_a_job_is_refused() {
    let message = "EVERFOLD_RANK is set, but EVERFOLD_RENDEZVOUS is not: set both, or neither to start alone";
    assert_eq!(refusal(&[(RANK, "0"), (SIZE, "1")]), message);
    assert!(matches!(
        detect_in(&[(RENDEZVOUS, "unix:@there")]),
        Err(EnvironmentError::Missing { variable: RANK, because: RENDEZVOUS })
    ));
    assert!(matches!(detect_in(&ours(&[(JOB, "")])), Err(EnvironmentError::Missing { variable: JOB, .. })));
    assert!(matches!(detect_in(&ours(&[(SECRET, "")])), Err(EnvironmentError::NoSecret)));
}

#[test]
fn malformed_values_are_named() {
    let cases = [
        ((RANK, "three"), r#"EVERFOLD_RANK is "three"; set it to a whole number from 0"#),
        ((RANK, "-1"), r#"EVERFOLD_RANK is "-1"; set it to a whole number from 0"#),
        ((RANK, "8"), "EVERFOLD_RANK is 8, but a job of 8 has ranks 0 to 7; correct the rank or the size"),
        ((SIZE, "0"), r#"EVERFOLD_SIZE is "0"; set it to a whole number from 1"#),
        (
            (JOB, "xyz"),
            r#"EVERFOLD_JOB is "xyz"; set it to up to 16 hexadecimal digits, alike for all processes"#,
        ),
        ((TRANSPORT, "ib"), r#"EVERFOLD_TRANSPORT is "ib"; set it to auto, shm or tcp"#),
        (
            (INCARNATION, "4294967296"),
            r#"EVERFOLD_INCARNATION is "4294967296"; set it to a whole number from 0"#,
        ),
    ];
    for (change, message) in cases {
        assert_eq!(refusal(&ours(&[change])), message);
    }
}

#[test]
fn the_secret_is_never_shown() {
    for secret in [&HEX[1..], &format!("g{}", &HEX[1..]), &format!("{HEX}0"), "\u{e9}".repeat(32).as_str()] {
        let error = detect_in(&ours(&[(SECRET, secret)])).unwrap_err();
        assert!(matches!(error, EnvironmentError::MalformedSecret { variable: SECRET, .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains(secret));
    }
    let environment = detect_in(&ours(&[])).unwrap().unwrap();
    assert!(!format!("{environment:?}").contains(&HEX[..8]));
    assert_eq!(environment.secret.to_hex(), HEX);
    assert_eq!(environment.secret.bytes()[31], 0xff);
}

#[test]
fn the_secret_may_come_from_a_file() {
    let path = std::env::temp_dir().join(format!("everfold-secret-{}", Secret::generate().unwrap().to_hex()));
    std::fs::File::create_new(&path).unwrap().write_all(format!("{HEX}\n").as_bytes()).unwrap();
    let found = detect_in(&ours(&[(SECRET, ""), (SECRET_FILE, path.to_str().unwrap())]));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(found.unwrap().unwrap().secret.to_hex(), HEX);

    let message = refusal(&ours(&[(SECRET, ""), (SECRET_FILE, path.to_str().unwrap())]));
    assert!(message.contains(path.to_str().unwrap()) && message.contains("No such file"), "{message}");
    // A file without an end.
    let error = detect_in(&ours(&[(SECRET, ""), (SECRET_FILE, "/dev/zero")])).unwrap_err();
    assert!(matches!(error, EnvironmentError::MalformedSecret { variable: SECRET_FILE, .. }), "{error}");
}
