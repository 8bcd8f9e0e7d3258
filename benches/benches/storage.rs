//! How long a process needs to keep a replica on its disk, to read it back and to forget it; and what a rank
//! pays for its vault.
//!
//! The store's files lie in the directory for temporary files (`TMPDIR`). In memory (`/dev/shm`) the
//! database's own work shows; on a disk it is mostly hidden behind the disk. Without the feature `disk` only
//! the vault is measured: `cargo bench -p everfold-benches --no-default-features --bench storage`.
//!
//! The vault lies in memory. Its log is longer than any cache, so an outcome goes to main memory, as it does
//! in a program; the checkpoint that empties a full log is in its time. A checkpoint goes where the one before
//! the last was. `memcpy` has both its arrays ready, in the cache if they fit.

use std::{fs::File, io::IoSlice};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use everfold_protocol::{JobId, Rank};
#[cfg(feature = "disk")]
use everfold_protocol::{ProcessId, ReductionId};
use everfold_storage::vault::{Options, Owner, Vault, VaultError};
#[cfg(feature = "disk")]
use everfold_storage::{Durability, Kind, RecordKey, Store};
use nix::sys::memfd::{MFdFlags, memfd_create};

#[cfg(feature = "disk")]
const SIZES: [(&str, usize); 3] = [("1 KiB", 1 << 10), ("64 KiB", 64 << 10), ("4 MiB", 4 << 20)];
const VAULT_SIZES: [(&str, usize); 4] =
    [("64 B", 64), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20), ("32 MiB", 32 << 20)];
const LOG_BYTES_MAX: u64 = 256 << 20;

#[cfg(feature = "disk")]
fn key(sequence: u64) -> RecordKey {
    RecordKey { reduction: ReductionId::new("gradient", sequence), owner: ProcessId::first(1), segment: None }
}

#[cfg(feature = "disk")]
fn storage(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let store = Store::open(&directory.path().join("0.0")).expect("a new store");
    let mut group = criterion.benchmark_group("storage");
    group.sample_size(20);
    let mut sequence = 0;
    for (name, bytes) in SIZES {
        group.throughput(Throughput::Bytes(bytes as u64));
        let value: Vec<u8> = (0..bytes).map(|index| ((index * 167) >> 3) as u8).collect();
        group.bench_function(format!("put and release {name}"), |bencher| {
            bencher.iter(|| {
                sequence += 1;
                store.put(Kind::Replica, key(sequence), &value, Durability::Stored).expect("there is room");
                store.release(key(sequence).reduction).expect("there is room");
            });
        });
        sequence += 1;
        store.put(Kind::Replica, key(sequence), &value, Durability::Stored).expect("there is room");
        group.bench_function(format!("get {name}"), |bencher| {
            bencher.iter(|| store.get(Kind::Replica, key(sequence)).expect("it is not damaged"));
        });
        store.release(key(sequence).reduction).expect("there is room");
    }
    group.finish();
}

#[cfg(not(feature = "disk"))]
fn storage(_: &mut Criterion) {}

fn vault(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("vault");
    group.sample_size(20);
    for (name, bytes) in VAULT_SIZES {
        group.throughput(Throughput::Bytes(bytes as u64));
        let value: Vec<u8> = (0..bytes).map(|index| ((index * 167) >> 3) as u8).collect();
        let mut copied = vec![0; bytes];
        group.bench_function(format!("memcpy {name}"), |bencher| {
            bencher.iter(|| std::hint::black_box(&mut copied).copy_from_slice(&value));
        });
        group.bench_function(format!("append {name}"), |bencher| {
            let mut vault = new_vault();
            bencher.iter(|| append(&mut vault, &value));
        });
        group.bench_function(format!("checkpoint {name}"), |bencher| {
            let mut vault = new_vault();
            bencher.iter(|| vault.checkpoint(b"step", &[&value]).expect("there is room"));
        });
    }
    group.finish();
}

fn new_vault() -> Vault {
    let file = || File::from(memfd_create(c"everfold-bench", MFdFlags::MFD_CLOEXEC).expect("a memfd"));
    let owner = Owner { job: JobId(1), rank: Rank(0) };
    Vault::create([file(), file()], owner, Options::in_memory(LOG_BYTES_MAX)).expect("there is room")
}

fn append(vault: &mut Vault, value: &[u8]) {
    match vault.append(b"residual #11", &[IoSlice::new(value)]) {
        Err(VaultError::Full { .. }) => {
            vault.checkpoint(b"step", &[]).expect("there is room");
        }
        appended => appended.expect("there is room"),
    }
}

criterion_group!(benches, storage, vault);
criterion_main!(benches);
