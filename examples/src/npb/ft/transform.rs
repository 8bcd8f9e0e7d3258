//! The discrete Fourier transform in one dimension.

use super::Complex;
use std::{array, f64::consts::TAU};

/// Lines that are transformed side by side: 8 lines of 256 numbers take 32 KiB.
const SIDE: usize = 8;

/// Real and imaginary parts of the numbers at one place of all these lines.
type Row = [[f64; SIDE]; 2];

/// Which way a transform goes. Neither is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the field to its spectrum, with the kernel `exp(2πi·jk/n)`.
    Forward,
    /// Back, with the kernel `exp(-2πi·jk/n)`.
    Inverse,
}

/// Lines in a field: number `j` of line `i` has the index `i·apart + j·step`.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// How many there are.
    pub count: usize,
    /// From a line to the next.
    pub apart: usize,
    /// From a number to the next of its line.
    pub step: usize,
}

/// Transforms of one length in one direction.
#[derive(Clone, Debug)]
pub struct Transform {
    length: usize,
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
        Self { length, roots: (0..length / 2).map(root).collect() }
    }

    /// Transforms each of `lines` in place.
    ///
    /// # Panics
    /// If the field is too short for them.
    pub fn apply(&self, field: &mut [Complex], Lines { count, apart, step }: Lines) {
        let mut rows = vec![Row::default(); self.length];
        for first in (0..count).step_by(SIDE) {
            let (start, side) = (first * apart, SIDE.min(count - first));
            for place in 0..self.length {
                let row = &mut rows[self.reversed(place)];
                for line in 0..side {
                    let [re, im] = field[start + line * apart + place * step];
                    (row[0][line], row[1][line]) = (re, im);
                }
            }
            self.join_halves(&mut rows);
            for (place, [re, im]) in rows.iter().enumerate() {
                for line in 0..side {
                    field[start + line * apart + place * step] = [re[line], im[line]];
                }
            }
        }
    }

    /// The place whose bits are those of `place` from behind.
    fn reversed(&self, place: usize) -> usize {
        match self.length {
            1 => 0,
            length => place.reverse_bits() >> (usize::BITS - length.ilog2()),
        }
    }

    /// Butterflies between rows that lie in the order of their reversed bits.
    fn join_halves(&self, rows: &mut [Row]) {
        let mut half = 1;
        while half < self.length {
            let roots = self.roots.iter().step_by(self.roots.len() / half);
            for block in rows.chunks_exact_mut(2 * half) {
                let (even, odd) = block.split_at_mut(half);
                even.iter_mut().zip(odd).zip(roots.clone()).for_each(|((even, odd), root)| {
                    butterfly(even, odd, *root);
                });
            }
            half *= 2;
        }
    }
}

fn butterfly(even: &mut Row, odd: &mut Row, [re, im]: Complex) {
    let turned: Row = [
        array::from_fn(|line| odd[0][line] * re - odd[1][line] * im),
        array::from_fn(|line| odd[0][line] * im + odd[1][line] * re),
    ];
    *odd = array::from_fn(|part| array::from_fn(|line| even[part][line] - turned[part][line]));
    *even = array::from_fn(|part| array::from_fn(|line| even[part][line] + turned[part][line]));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transform by its definition.
    fn defined(line: &[Complex], sign: f64) -> Vec<Complex> {
        let at = |k: usize| {
            let each = line.iter().enumerate().map(|(j, [re, im])| {
                let (sin, cos) = (sign * TAU * (j * k) as f64 / line.len() as f64).sin_cos();
                [re * cos - im * sin, re * sin + im * cos]
            });
            each.fold([0.0, 0.0], |sum, number| [sum[0] + number[0], sum[1] + number[1]])
        };
        (0..line.len()).map(at).collect()
    }

    #[test]
    fn lines_are_transformed_as_defined_however_they_lie() {
        for (length, count) in [(1, 1), (2, 3), (8, 8), (16, 21)] {
            for lines in [Lines { count, apart: length, step: 1 }, Lines { count, apart: 1, step: count }] {
                for (direction, sign) in [(Direction::Forward, 1.0), (Direction::Inverse, -1.0)] {
                    let field: Vec<Complex> =
                        (0..length * count).map(|at| [(at * at % 7) as f64, at as f64 - 3.0]).collect();
                    let mut found = field.clone();
                    Transform::new(length, direction).apply(&mut found, lines);
                    for line in 0..count {
                        let of = |field: &[Complex]| -> Vec<Complex> {
                            (0..length).map(|at| field[line * lines.apart + at * lines.step]).collect()
                        };
                        for (found, expected) in of(&found).iter().zip(defined(&of(&field), sign)) {
                            let error = (found[0] - expected[0]).abs() + (found[1] - expected[1]).abs();
                            assert!(error < 1e-9, "{length} numbers, {lines:?}, {direction:?}, line {line}");
                        }
                    }
                }
            }
        }
    }
}
