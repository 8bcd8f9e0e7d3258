//! Bytes per second of the combine kernels beside `memcpy` of the same size.
//!
//! A kernel reads two operands and writes one; `memcpy` reads one and writes one. Both are given as bytes of
//! *source* per second. In the cache a kernel that is not vectorised falls far behind; in memory all of them
//! are bound by traffic.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use everfold_protocol::{
    bracketing::{self, Span},
    spec::{ElementType, Operation},
};
use everfold_runtime::kernel::{Bracketing, Own, Pass, fold, fold_bracketed, predefined};

const SIZES: [(&str, usize); 2] = [("32 KiB in cache", 32 << 10), ("32 MiB in memory", 32 << 20)];

fn kernels(criterion: &mut Criterion) {
    for (name, bytes) in SIZES {
        let mut group = criterion.benchmark_group(format!("kernel/{name}"));
        group.throughput(Throughput::Bytes(bytes as u64));
        if bytes > 1 << 20 {
            group.sample_size(20);
        }
        // Eight-byte words, so that every element type is aligned. All ones: a finite float in every type.
        let words = vec![0x3f80_0000_3f80_0000u64; bytes / 8];
        let right: &[u8] = bytemuck::cast_slice(&words);
        let mut left_words = words.clone();
        group.bench_function("memcpy", |bencher| {
            bencher.iter(|| bytemuck::cast_slice_mut::<u64, u8>(&mut left_words).copy_from_slice(right));
        });
        for (element, operation) in table() {
            let accumulate = predefined(&element, &operation).expect("the table lists defined kernels");
            group.bench_function(format!("{operation} {element}"), |bencher| {
                let left: &mut [u8] = bytemuck::cast_slice_mut(&mut left_words);
                left.copy_from_slice(right);
                bencher.iter(|| accumulate(left, &[right], Pass::InTurn));
            });
        }
    }
}

fn table() -> Vec<(ElementType, Operation)> {
    use ElementType::{F32, F64, I32, I64, Located, U8, U32, U64};
    use Operation::{
        BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, LogicalXor, Max, MaxLoc, Min, MinLoc, Product, Sum,
    };
    let mut table = Vec::new();
    for element in [F32, F64, I32, I64, U32, U64, U8] {
        table.extend([Sum, Product, Min, Max].map(|operation| (element.clone(), operation)));
    }
    for element in [I32, I64, U32, U64, U8] {
        let integer = [BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, LogicalXor];
        table.extend(integer.map(|operation| (element.clone(), operation)));
    }
    for element in [F32, F64, I32, I64, U32, U64] {
        table.extend([MinLoc, MaxLoc].map(|operation| (Located(Box::new(element.clone())), operation)));
    }
    table
}

/// Several sources at once: each byte is read once, the target stays in the cache.
fn folds(criterion: &mut Criterion) {
    let bytes = 8 << 20;
    let words = vec![0x3f80_0000_3f80_0000u64; bytes / 8];
    let source: &[u8] = bytemuck::cast_slice(&words);
    let mut target = words.clone();
    let accumulate = predefined(&ElementType::F32, &Operation::Sum).expect("defined");
    let mut group = criterion.benchmark_group("fold f32 sum, 8 MiB");
    group.sample_size(20);
    for sources in [1, 3, 7, 15] {
        let copies = vec![words.clone(); sources];
        let sources: Vec<&[u8]> = copies.iter().map(|words| bytemuck::cast_slice(words)).collect();
        group.throughput(Throughput::Bytes((bytes * (sources.len() + 1)) as u64));
        group.bench_function(format!("{} operands", sources.len() + 1), |bencher| {
            bencher.iter(|| {
                fold(bytemuck::cast_slice_mut(&mut target), Own::From(source), &sources, 4, &accumulate)
            });
        });
        let leaves = (0..=sources.len()).map(|at| (Span { first: at, last: at }, Bracketing::operand(at)));
        let bracketing = bracketing::fold(leaves, Bracketing::pair).expect("there are operands");
        group.bench_function(format!("{} operands, fixed order", sources.len() + 1), |bencher| {
            bencher.iter(|| {
                let (target, own) = (bytemuck::cast_slice_mut(&mut target), Own::From(source));
                fold_bracketed(target, own, 0, &sources, &bracketing, 4, &accumulate);
            });
        });
    }
}

criterion_group!(benches, kernels, folds);
criterion_main!(benches);
