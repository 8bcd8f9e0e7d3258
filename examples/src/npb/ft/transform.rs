//! The discrete Fourier transform in one dimension.

use super::Complex;
use std::f64::consts::TAU;

/// Which way a transform goes. Neither is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the field to its spectrum, with the kernel `exp(2πi·jk/n)`.
    Forward,
    /// Back, with the kernel `exp(-2πi·jk/n)`.
    Inverse,
}

/// Transforms of one length in one direction.
#[derive(Clone, Debug)]
pub struct Transform {
    /// The first half of the roots of unity.
    roots: Vec<Complex>,
}

impl Transform {
    /// Transforms of `length` numbers.
    ///
    /// # Panics
    /// If `length` is no power of two.
    pub fn new(length: usize, direction: Direction) -> Self {
        assert!(length.is_power_of_two(), "a transform of {length} numbers: it has to be a power of two");
        let sign = if direction == Direction::Forward { 1.0 } else { -1.0 };
        let root = |k| {
            let angle = sign * TAU * k as f64 / length as f64;
            [angle.cos(), angle.sin()]
        };
        Self { roots: (0..length / 2).map(root).collect() }
    }

    /// Transforms `line` in place: numbers in the order of their reversed bits, then butterflies.
    ///
    /// # Panics
    /// If the line has another length.
    pub fn apply(&self, line: &mut [Complex]) {
        let length = line.len();
        assert!(length == 1 || length == 2 * self.roots.len(), "a line of {length} numbers");
        for index in 1..length {
            let reversed = index.reverse_bits() >> (usize::BITS - length.ilog2());
            if index < reversed {
                line.swap(index, reversed);
            }
        }
        let mut half = 1;
        while half < length {
            let stride = self.roots.len() / half;
            for block in line.chunks_exact_mut(2 * half) {
                let (even, odd) = block.split_at_mut(half);
                for ((even, odd), [re, im]) in even.iter_mut().zip(odd).zip(self.roots.iter().step_by(stride))
                {
                    let turned = [odd[0] * re - odd[1] * im, odd[0] * im + odd[1] * re];
                    *odd = [even[0] - turned[0], even[1] - turned[1]];
                    *even = [even[0] + turned[0], even[1] + turned[1]];
                }
            }
            half *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_agrees_with_its_definition() {
        for length in [1usize, 2, 8, 16] {
            let line: Vec<Complex> = (0..length).map(|j| [(j * j % 7) as f64, j as f64 - 3.0]).collect();
            for (direction, sign) in [(Direction::Forward, 1.0), (Direction::Inverse, -1.0)] {
                let mut found = line.clone();
                Transform::new(length, direction).apply(&mut found);
                for (k, found) in found.into_iter().enumerate() {
                    let mut expected = [0.0, 0.0];
                    for (j, [re, im]) in line.iter().enumerate() {
                        let (sin, cos) = (sign * TAU * (j * k) as f64 / length as f64).sin_cos();
                        expected[0] += re * cos - im * sin;
                        expected[1] += re * sin + im * cos;
                    }
                    let error = (found[0] - expected[0]).abs() + (found[1] - expected[1]).abs();
                    assert!(
                        error < 1e-10,
                        "{length} numbers, {direction:?}, {k}: {found:?}, not {expected:?}"
                    );
                }
            }
        }
    }
}
