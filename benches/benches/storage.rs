//! How long a process needs to keep a replica on its disk, to read it back and to forget it.
//!
//! The files lie in the directory for temporary files (`TMPDIR`). In memory (`/dev/shm`) the database's own work
//! shows; on a disk it is mostly hidden behind the disk.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use everfold_protocol::{ProcessId, ReductionId};
use everfold_storage::{Durability, Kind, RecordKey, Store};

const SIZES: [(&str, usize); 3] = [("1 KiB", 1 << 10), ("64 KiB", 64 << 10), ("4 MiB", 4 << 20)];

fn key(sequence: u64) -> RecordKey {
    RecordKey { reduction: ReductionId::new("gradient", sequence), owner: ProcessId::first(1), segment: None }
}

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

criterion_group!(benches, storage);
criterion_main!(benches);
