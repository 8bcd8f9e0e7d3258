//! Variables that anything may stand in.

use std::{cell::RefCell, collections::BTreeMap, fs, path::PathBuf};

use everfold_runtime::{
    launch::{
        environment::{EnvironmentError, Transport, detect},
        hosts::{HostCount, Hosts, Said},
    },
    transport::control::Address,
};

use crate::{input::Input, memory::bounded};

const SECRET_FILE: &str = "EVERFOLD_SECRET_FILE";

/// # Panics
/// If a place in a job is found that its own variables do not lead back to.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let said = input.byte();
    let text = String::from_utf8_lossy(input.rest()).into_owned();
    let mut variables: BTreeMap<&str, String> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, value)) = line.split_once('=') {
            variables.insert(name, value.to_owned());
        }
    }
    // The file that holds the secret is one of ours, with what the variable says.
    let file = variables.get(SECRET_FILE).cloned().filter(|content| !content.is_empty());
    if let Some(content) = file {
        let place = secret_file();
        fs::write(&place, content).unwrap();
        variables.insert(SECRET_FILE, place.display().to_string());
    }
    let lookup = |name: &str| variables.get(name).cloned();
    let most = (64 << 10) + 16 * data.len();

    match bounded(most, || detect(lookup)) {
        Ok(Some(environment)) => {
            assert!(environment.rank.0 < environment.size);
            let again: BTreeMap<&str, String> = environment.variables().into();
            assert_eq!(detect(|name| again.get(name).cloned()).unwrap(), Some(environment.clone()));
            if let Ok(address) = environment.rendezvous.parse::<Address>() {
                assert_eq!(address.to_string(), environment.rendezvous);
            }
            assert!(matches!(environment.transport, Transport::Auto | Transport::Shm | Transport::Tcp));
        }
        Ok(None) => assert!(variables.get("EVERFOLD_RENDEZVOUS").is_none_or(String::is_empty)),
        Err(error) => shows_no_secret(&error, &variables),
    }

    let said = Said {
        count: (said & 1 != 0)
            .then(|| HostCount { count: u32::from(said >> 4), spares: u32::from(said >> 6) }),
        index: (said & 2 != 0).then(|| u32::from(said >> 5)),
        rendezvous: (said & 4 != 0).then(|| "host:7077".to_owned()),
    };
    match bounded(most, || Hosts::find(said, lookup)) {
        Ok(Some(hosts)) => {
            assert!(hosts.index < hosts.count + hosts.spares && hosts.rendezvous.starts_with("tcp:"));
        }
        Ok(None) => {}
        Err(error) => drop(error.to_string()),
    }
}

/// An error is told to people.
fn shows_no_secret(error: &EnvironmentError, variables: &BTreeMap<&str, String>) {
    let text = error.to_string();
    let is_shown = |secret: &&String| secret.len() >= 32 && text.contains(secret.as_str());
    if let Some(secret) = variables.get("EVERFOLD_SECRET").filter(is_shown) {
        // An error shows values with escapes, which may read like a secret, too.
        let shows = |value: &String| format!("{value} {value:?}").contains(secret.as_str());
        let elsewhere = variables.iter().any(|(name, value)| *name != "EVERFOLD_SECRET" && shows(value));
        assert!(elsewhere, "{text}");
    }
}

/// One for each thread.
fn secret_file() -> PathBuf {
    thread_local! {
        static FILE: RefCell<Option<tempfile::NamedTempFile>> = const { RefCell::new(None) };
    }
    FILE.with_borrow_mut(|file| {
        let file = file.get_or_insert_with(|| tempfile::NamedTempFile::new().unwrap());
        file.path().to_owned()
    })
}

pub fn samples() -> Vec<Vec<u8>> {
    let secret = "EVERFOLD_SECRET=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    let with = |said: u8, lines: &[&str]| [&[said], lines.join("\n").as_bytes()].concat();
    vec![
        with(
            0,
            &[
                "EVERFOLD_RENDEZVOUS=tcp:host:7077",
                "EVERFOLD_RANK=1",
                "EVERFOLD_SIZE=4",
                "EVERFOLD_JOB=4f",
                "EVERFOLD_TRANSPORT=tcp",
                "EVERFOLD_INCARNATION=2",
                "EVERFOLD_AGENT=name",
                secret,
            ],
        ),
        with(0, &["EVERFOLD_RENDEZVOUS=unix:@n", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", secret]),
        with(0, &["EVERFOLD_RENDEZVOUS=tcp:[::1]:1", "PMIX_RANK=0", "SLURM_STEP_NUM_TASKS=2", secret]),
        with(
            0,
            &["EVERFOLD_RENDEZVOUS=x", "PMI_RANK=1", "PMI_SIZE=2", &secret.replace("SECRET", "SECRET_FILE")],
        ),
        with(0, &["SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=8", "SLURM_NTASKS=8"]),
        with(0, &["EVERFOLD_RANK=1", "EVERFOLD_SIZE=4"]),
        with(
            0x31,
            &[
                "SLURM_STEP_NUM_NODES=4",
                "SLURM_NODEID=2",
                "SLURM_STEP_NODELIST=n[003-7,12]-ib,other",
                "SLURM_JOB_ID=7",
                "SLURM_STEP_ID=1",
                secret,
            ],
        ),
        with(0x27, &["EVERFOLD_HOSTS=3", "JOB_COMPLETION_INDEX=1", "EVERFOLD_JOB=ffffffffffffffff", secret]),
    ]
}
