//! CG, the conjugate gradient kernel: the smallest eigenvalue of a large sparse matrix, by the inverse power
//! method.
//!
//! The matrix follows from the stream of random numbers, so every rank has it without hearing of it, and can
//! compute any row of a product, again if need be, to the same bits.

mod matrix;
mod published;

pub use matrix::Matrix;
pub use published::{Class, TOLERANCE};

/// Steps of conjugate gradients in each outer iteration. There is no test of convergence.
pub const STEPS: u32 = 25;

/// The scalar product, from left to right.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
