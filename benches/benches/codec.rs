//! How fast batches of messages become frames and back.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use everfold_protocol::{
    Epoch, Generation, JobId, Path, ProcessId, Rank, ReductionId, RegionOffset, SegmentId, SegmentIndex,
    TaskId, WindowId, frame,
    message::{Data, Header, PartialReady, Place, TaskCounters, ToMaster, WindowRef},
    seal::Seal,
};

const LIMIT: u64 = 64 << 20;

fn batch(messages: u64) -> (Header, Vec<ToMaster>) {
    let header = Header { job: JobId(1), epoch: Epoch(0), sender: ProcessId::first(3) };
    let message = |number: u64| {
        ToMaster::PartialReady(PartialReady {
            task: TaskId(number),
            segment: SegmentId {
                reduction: ReductionId::new("gradient", number / 8),
                index: SegmentIndex((number % 8) as u32),
            },
            path: (0..8).filter(|rank| rank % 3 != 0).map(Rank).collect::<Path>(),
            data: Data::Window(WindowRef {
                window: WindowId(number),
                generation: Generation(number),
                bytes: 1 << 20,
                checksum: None,
                place: Place::Region(RegionOffset(number << 20)),
            }),
            counters: TaskCounters {
                task_ns: 123_456,
                fetch_ns: 23_456,
                fetched_bytes: 1 << 20,
                last: Some(Rank(1)),
                others_ns: 12_345,
            },
        })
    };
    (header, (0..messages).map(message).collect())
}

fn codec(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec");
    for messages in [1, 64] {
        let batch = batch(messages);
        let mut bytes = Vec::new();
        frame::encode_into(&batch, LIMIT, &mut Seal::of_strangers(), &mut bytes).expect("a small batch");
        group.throughput(Throughput::Elements(messages));
        group.bench_function(
            format!("encode {messages} reduction messages ({} bytes)", bytes.len()),
            |bencher| {
                let mut out = Vec::with_capacity(bytes.len());
                bencher.iter(|| {
                    out.clear();
                    frame::encode_into(&batch, LIMIT, &mut Seal::of_strangers(), &mut out)
                });
            },
        );
        group.bench_function(format!("decode {messages} reduction messages"), |bencher| {
            bencher.iter_batched(
                || (),
                |()| frame::decode::<(Header, Vec<ToMaster>)>(&bytes, LIMIT, &mut Seal::of_strangers()),
                BatchSize::SmallInput,
            );
        });
    }
}

criterion_group!(benches, codec);
criterion_main!(benches);
