//! A death at any byte: a process copies its vault, and what reaches the agent ends after every byte. What is
//! in the replica then is what the vault had after one of its calls, and never a mixture.

use std::{fs::File, os::unix::fs::FileExt, time::Duration};

use everfold_protocol::{
    JobId, ProcessId, Rank, ReductionId,
    report::Refusal,
    seal::{KEY_BYTES, Seal},
};
use everfold_storage::vault::{Extent, Options, Owner, Part, Vault};
use everfold_worker::machine::End;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::UnixStream,
};

use super::{
    Line,
    holding::{Replicas, serve},
    keeping::Replica,
};
use crate::{
    result_log::{ResultLog, own_files},
    transport::handshake::Seals,
};

const JOB: JobId = JobId(1);
const BYTES_MAX: u64 = 1 << 20;

/// What the vault of a process is told, one after the other.
enum Call {
    /// Outcomes, each so long.
    Note(&'static [usize]),
    /// A checkpoint, with a part that is so long.
    Save(usize),
}

const CALLS: [Call; 6] = [
    Call::Note(&[5]),
    Call::Save(700),
    Call::Note(&[300, 0]),
    Call::Save(90),
    Call::Note(&[40]),
    Call::Save(10),
];

/// What is found in a vault: its generation, its parts and its outcomes.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    generation: u64,
    parts: Vec<Vec<u8>>,
    outcomes: Vec<(Vec<u8>, Vec<u8>)>,
}

fn process() -> ProcessId {
    ProcessId::first(Rank(3))
}

fn call(log: &ResultLog, at: usize) {
    match &CALLS[at] {
        Call::Note(lengths) => {
            for (sequence, bytes) in lengths.iter().enumerate() {
                let reduction = ReductionId::new("call", (at * 10 + sequence) as u64);
                let value = vec![at as u8 + 1; *bytes];
                log.note(reduction, 0, &End::Refused(Refusal::EmptyGroup), &value).unwrap();
            }
        }
        Call::Save(bytes) => {
            log.save(None, Vec::new(), vec![at as u8; 20], &[&vec![at as u8; *bytes]]).unwrap();
        }
    }
}

/// What a process finds that goes on from these files.
fn find(files: [File; 2]) -> Option<Found> {
    let owner = Owner { job: JOB, rank: process().rank };
    let (vault, remembered) = Vault::open(files, owner, Options::in_memory(BYTES_MAX)).ok()?;
    vault.verify().unwrap();
    let parts = remembered.checkpoint.iter().flat_map(|checkpoint| checkpoint.parts());
    let part = |part: &Part| {
        let mut bytes = vec![0; part.bytes() as usize];
        vault.read_part(part, &mut bytes).unwrap();
        bytes
    };
    let parts = parts.map(part).collect();
    let outcomes = remembered.outcomes.iter().map(|outcome| {
        let mut value = vec![0; outcome.value_bytes() as usize];
        vault.read_value(outcome, &mut value).unwrap();
        (outcome.key().to_vec(), value)
    });
    Some(Found { generation: remembered.generation.0, parts, outcomes: outcomes.collect() })
}

/// What is found in a copy of a vault that had this extent.
fn find_copy(log: &ResultLog, extent: Extent) -> Option<Found> {
    let mut bytes = vec![0; extent.bytes as usize];
    assert!(log.read_raw(extent, 0, &mut bytes).unwrap());
    let files = own_files().unwrap();
    files[0].write_all_at(&bytes, 0).unwrap();
    find(files)
}

/// What is to be there after each call.
fn expected() -> Vec<Found> {
    let log = ResultLog::open(own_files().unwrap(), JOB, process(), BYTES_MAX).unwrap();
    let after = |at| {
        call(&log, at);
        find_copy(&log, log.extent()).unwrap()
    };
    (0..CALLS.len()).map(after).collect()
}

#[test]
fn a_copy_ends_where_the_log_ended_although_more_is_noted_meanwhile() {
    let expected = expected();
    for (at, expected) in expected.iter().enumerate() {
        let log = ResultLog::open(own_files().unwrap(), JOB, process(), BYTES_MAX).unwrap();
        (0..=at).for_each(|at| call(&log, at));
        let extent = log.extent();
        let later = ReductionId::new("later", 0);
        log.note(later, 0, &End::Refused(Refusal::EmptyGroup), &[9; 30]).unwrap();
        assert_eq!(find_copy(&log, extent).as_ref(), Some(expected), "after call {at}");
    }
}

/// Copies a vault to an agent, to which so many bytes come. Returns how many there were, and what is in the
/// replica.
async fn copied(bytes_most: u64) -> (u64, Option<Found>) {
    let log = ResultLog::open(own_files().unwrap(), JOB, process(), BYTES_MAX).unwrap();
    let replicas = Replicas::default();
    replicas.limit(BYTES_MAX);
    let [(mine, near), (far, agent)] = [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
    let seal = |number| Seal::new([number; KEY_BYTES]);
    let keep = async {
        let seals = Seals { outward: seal(1), inward: seal(2) };
        let line = Line::new(Box::new(mine), seals);
        let Ok(mut replica) = Replica::over(line, Duration::from_secs(600)).await else { return };
        for at in 0..CALLS.len() {
            call(&log, at);
            if replica.catch_up(&log).await.is_err() {
                return;
            }
        }
    };
    let carry = async {
        let ((from_process, mut to_process), (mut from_agent, mut to_agent)) =
            (near.into_split(), far.into_split());
        let there = async {
            let carried = copy(&mut from_process.take(bytes_most), &mut to_agent).await.unwrap();
            to_agent.shutdown().await.unwrap();
            carried
        };
        let back = async {
            // The process may be dead by then.
            let _ = copy(&mut from_agent, &mut to_process).await;
            let _ = to_process.shutdown().await;
        };
        tokio::join!(there, back).0
    };
    // It ends when the connection breaks.
    let hold = async {
        drop(serve(&replicas, process(), Box::new(agent), Seals { outward: seal(2), inward: seal(1) }).await)
    };
    let ((), carried, ()) = tokio::join!(keep, carry, hold);
    (carried, replicas.files(process()).and_then(find))
}

#[tokio::test]
async fn a_replica_that_ends_at_any_byte_is_what_the_vault_had_after_a_call() {
    let expected = expected();
    let (all, whole) = copied(u64::MAX).await;
    assert_eq!(whole.as_ref(), expected.last());
    let (mut reached, mut absent) = (0, 0);
    for bytes in 0..all {
        let Some(found) = copied(bytes).await.1 else {
            assert_eq!(reached, 0, "after {bytes} bytes there is nothing any more");
            absent += 1;
            continue;
        };
        let at = expected.iter().position(|it| *it == found);
        let at = at.unwrap_or_else(|| panic!("after {bytes} bytes there is {found:?}"));
        assert!((reached..=reached + 1).contains(&at), "after {bytes} bytes it goes from {reached} to {at}");
        reached = at;
    }
    assert!(absent > 0 && reached + 1 == expected.len(), "{absent} {reached} {}", expected.len());
}
