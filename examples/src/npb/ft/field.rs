//! The field, its spectrum, and their planes.

use super::{Class, Direction, Transform};
use crate::npb::random::Generator;
use everfold::prelude::ReducerBody;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Real and imaginary part.
pub type Complex = [f64; 2];

const SEED: u64 = 314_159_265;
/// How fast the spectrum fades.
const ALPHA: f64 = 1e-6;
/// Points of the field that are added up.
const POINTS: usize = 1024;

/// The planes of a field of one class.
///
/// A field in space lies plane by plane in z, each row by row in y: number (x, y, z) has the index
/// `x + nx·(y + ny·z)`. A spectrum of columns lies by y: number (x, y, z) has the index `z + nz·(x + nx·y)`.
#[derive(Debug)]
pub struct Field {
    size: [usize; 3],
    forward: [Transform; 3],
    inverse: [Transform; 3],
}

/// The sum of some points of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checksum(pub Complex);

impl ReducerBody for Checksum {
    fn combine(&mut self, other: Self) {
        self.0[0] += other.0[0];
        self.0[1] += other.0[1];
    }
}

impl Field {
    /// The field of a class.
    pub fn of(class: Class) -> Self {
        let size = class.size();
        let all = |direction| size.map(|length| Transform::new(length, direction));
        Self { size, forward: all(Direction::Forward), inverse: all(Direction::Inverse) }
    }

    /// The initial field in plane `z`, transformed in x and y.
    pub fn initial_plane(&self, z: u64) -> Vec<Complex> {
        let [nx, ny, _] = self.size;
        let mut generator = Generator::new(SEED);
        generator.skip(2 * (nx * ny) as u64 * z);
        let mut plane: Vec<Complex> = (0..nx * ny).map(|_| [generator.draw(), generator.draw()]).collect();
        self.transform_plane(&mut plane, &self.forward);
        plane
    }

    /// The columns of all x at `y`, from a field in space that is transformed in x and y: the spectrum there.
    pub fn spectrum_columns(&self, field: &[Complex], y: u64) -> Vec<Complex> {
        let [nx, ny, nz] = self.size;
        let mut columns = Vec::with_capacity(nx * nz);
        for x in 0..nx {
            columns.extend((0..nz).map(|z| field[x + nx * (y as usize + ny * z)]));
        }
        columns.chunks_exact_mut(nz).for_each(|column| self.forward[2].apply(column));
        columns
    }

    /// The columns of all x at `y` after `steps` steps in time, transformed back in z.
    pub fn later_columns(&self, spectrum: &[Complex], y: u64, steps: u32) -> Vec<Complex> {
        let [nx, _, nz] = self.size;
        let start = y as usize * nx * nz;
        let mut columns = spectrum[start..start + nx * nz].to_vec();
        for (x, column) in columns.chunks_exact_mut(nz).enumerate() {
            for (z, number) in column.iter_mut().enumerate() {
                let factor = self.fading([x, y as usize, z]);
                for _ in 0..steps {
                    *number = number.map(|part| part * factor);
                }
            }
            self.inverse[2].apply(column);
        }
        columns
    }

    /// What plane `z` adds to the checksum, from columns that are transformed back in z.
    pub fn checksum(&self, columns: &[Complex], z: u64) -> Checksum {
        let [nx, ny, nz] = self.size;
        let at = |x, y| columns[z as usize + nz * (x + nx * y)];
        let mut plane: Vec<Complex> = (0..ny).flat_map(|y| (0..nx).map(move |x| at(x, y))).collect();
        self.transform_plane(&mut plane, &self.inverse);
        let mut sum = Checksum::default();
        for point in (1..=POINTS).filter(|point| 5 * point % nz == z as usize) {
            sum.combine(Checksum(plane[point % nx + nx * (3 * point % ny)]));
        }
        let all = (nx * ny * nz) as f64;
        Checksum(sum.0.map(|part| part / all))
    }

    /// Transforms a plane in x and in y.
    fn transform_plane(&self, plane: &mut [Complex], transforms: &[Transform; 3]) {
        let [nx, ny, _] = self.size;
        plane.chunks_exact_mut(nx).for_each(|row| transforms[0].apply(row));
        let mut column = vec![[0.0; 2]; ny];
        for x in 0..nx {
            column.iter_mut().enumerate().for_each(|(y, number)| *number = plane[x + nx * y]);
            transforms[1].apply(&mut column);
            column.iter().enumerate().for_each(|(y, number)| plane[x + nx * y] = *number);
        }
    }

    /// By how much a number of the spectrum fades in a step.
    fn fading(&self, place: [usize; 3]) -> f64 {
        let square = |(index, length): (usize, usize)| {
            let frequency = ((index + length / 2) % length) as f64 - (length / 2) as f64;
            frequency * frequency
        };
        let squares: f64 = place.into_iter().zip(self.size).map(square).sum();
        (-4.0 * ALPHA * PI * PI * squares).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_finds_the_published_checksums() {
        let class = Class::S;
        let (field, [nx, ny, nz]) = (Field::of(class), class.size());
        let planes: Vec<Complex> = (0..nz as u64).flat_map(|z| field.initial_plane(z)).collect();
        let spectrum: Vec<Complex> =
            (0..ny as u64).flat_map(|y| field.spectrum_columns(&planes, y)).collect();
        // The first number is the sum of the initial field.
        assert!((spectrum[0][0] - 1.309_103_458_041e5).abs() < 1e-6);
        assert_eq!(spectrum.len(), nx * ny * nz);
        for step in [1, 6] {
            let columns: Vec<Complex> =
                (0..ny as u64).flat_map(|y| field.later_columns(&spectrum, y, step)).collect();
            let mut sum = Checksum::default();
            (0..nz as u64).for_each(|z| sum.combine(field.checksum(&columns, z)));
            assert!(class.is_published(step, sum), "step {step}: {sum:?}");
        }
    }
}
