//! Criterion benchmarks live in `benches/`; run them with `make bench`.
