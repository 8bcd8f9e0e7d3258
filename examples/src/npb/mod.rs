//! Kernels of the NAS Parallel Benchmarks, and the random numbers that all of them draw.
//!
//! The kernels are written from their definition: D. Bailey et al., *The NAS Parallel Benchmarks*, report
//! RNR-94-007 (1994), with the sizes and the published answers of NPB 3.4.

pub mod cg;
pub mod ep;
pub mod ft;
pub mod is;
pub mod kill;
pub mod mg;
pub mod random;
