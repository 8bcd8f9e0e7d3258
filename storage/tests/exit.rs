//! An application may exit at any time, also while the database works on another thread.

#![allow(clippy::unwrap_used)]

use std::{env, path::Path, process::Command, thread, time::Duration};

use everfold_protocol::{ProcessId, ReductionId};
use everfold_storage::{Durability, Kind, RecordKey, Store, ending};

/// Where the process that is to exit keeps its store, and after how many microseconds it exits.
const DIRECTORY: &str = "EXIT_TEST_DIRECTORY";
const AFTER_US: &str = "EXIT_TEST_AFTER_US";
const EXITS: u64 = 100;
/// Opening, some records and closing take about so long.
const SPAN_US: u64 = 40_000;

#[test]
fn an_exit_in_the_middle_of_a_call_has_its_own_code() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        exit_while_the_database_works(Path::new(&directory));
    }
    for after in (0..EXITS).map(|step| step * SPAN_US / EXITS) {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "an_exit_in_the_middle_of_a_call_has_its_own_code", "--nocapture"]);
        child.env(DIRECTORY, directory.path()).env(AFTER_US, after.to_string());
        let output = child.output().unwrap();
        assert_eq!(output.status.code(), Some(7), "after {after} µs: {output:?}");
    }
}

fn exit_while_the_database_works(directory: &Path) -> ! {
    let path = directory.join("0.0");
    ending::prepare();
    thread::spawn(move || {
        let store = Store::open(&path).unwrap();
        for sequence in 0..20 {
            let reduction = ReductionId::new("test", sequence);
            let key = RecordKey { reduction, owner: ProcessId::first(1), segment: None };
            store.put(Kind::Original, key, &[7; 100_000], Durability::Stored).unwrap();
        }
    });
    thread::sleep(Duration::from_micros(env::var(AFTER_US).unwrap().parse().unwrap()));
    std::process::exit(7);
}
