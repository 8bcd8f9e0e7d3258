//! The field, its spectrum, and their planes.

use super::{
    Class,
    transform::{Direction, Lines, Transform},
};
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

/// The parts of a field of one class.
///
/// A *plane* in z has nx·ny numbers, row by row in y. A *slab* at y has nx·nz numbers, row by row in z.
/// So a field plane by plane has number (x, y, z) at the index `x + nx·(y + ny·z)`, and slab by slab at
/// `x + nx·(z + nz·y)`.
#[derive(Debug)]
pub struct Field {
    size: [usize; 3],
    forward: [Transform; 3],
    inverse: [Transform; 3],
    /// By how much a number fades in a step because of its place in each dimension.
    fading: [Vec<f64>; 3],
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
        Self {
            size,
            forward: all(Direction::Forward),
            inverse: all(Direction::Inverse),
            fading: size.map(fading),
        }
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

    /// The spectrum's slab at `y`, from planes that are transformed in x and y.
    pub fn spectrum_slab(&self, planes: &[Complex], y: u64) -> Vec<Complex> {
        let [nx, ny, nz] = self.size;
        let mut slab = Vec::with_capacity(nx * nz);
        for z in 0..nz {
            slab.extend(&planes[nx * (y as usize + ny * z)..][..nx]);
        }
        self.forward[2].apply(&mut slab, self.across());
        slab
    }

    /// The slab at `y` after `steps` steps in time, transformed back in z.
    pub fn later_slab(&self, spectrum: &[Complex], y: u64, steps: u32) -> Vec<Complex> {
        let [nx, _, nz] = self.size;
        let y = y as usize;
        let mut slab = spectrum[y * nx * nz..][..nx * nz].to_vec();
        let faded = |in_step: f64| (0..steps).map(|_| in_step).product::<f64>();
        let in_x: Vec<f64> = self.fading[0].iter().map(|factor| faded(*factor)).collect();
        for (row, factor) in slab.chunks_exact_mut(nx).zip(&self.fading[2]) {
            let in_row = faded(self.fading[1][y] * factor);
            for (number, in_column) in row.iter_mut().zip(&in_x) {
                *number = number.map(|part| part * (in_row * in_column));
            }
        }
        self.inverse[2].apply(&mut slab, self.across());
        slab
    }

    /// What plane `z` adds to the checksum, from slabs that are transformed back in z.
    pub fn checksum(&self, slabs: &[Complex], z: u64) -> Checksum {
        let [nx, ny, nz] = self.size;
        let mut plane = Vec::with_capacity(nx * ny);
        for y in 0..ny {
            plane.extend(&slabs[nx * (z as usize + nz * y)..][..nx]);
        }
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
        transforms[0].apply(plane, Lines { count: ny, apart: nx, step: 1 });
        transforms[1].apply(plane, self.across());
    }

    /// The lines of a plane or slab that go from row to row.
    fn across(&self) -> Lines {
        let [nx, _, _] = self.size;
        Lines { count: nx, apart: 1, step: nx }
    }
}

/// By how much the numbers at each place of a dimension fade in a step.
fn fading(length: usize) -> Vec<f64> {
    let factor = |place| {
        let frequency = ((place + length / 2) % length) as f64 - (length / 2) as f64;
        (-4.0 * ALPHA * PI * PI * frequency * frequency).exp()
    };
    (0..length).map(factor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_finds_the_published_checksums() {
        let class = Class::S;
        let (field, [nx, ny, nz]) = (Field::of(class), class.size());
        let planes: Vec<Complex> = (0..nz as u64).flat_map(|z| field.initial_plane(z)).collect();
        let spectrum: Vec<Complex> = (0..ny as u64).flat_map(|y| field.spectrum_slab(&planes, y)).collect();
        // The first number is the sum of the initial field.
        assert!((spectrum[0][0] - 1.309_103_458_041e5).abs() < 1e-6);
        assert_eq!(spectrum.len(), nx * ny * nz);
        for step in [1, 6] {
            let slabs: Vec<Complex> =
                (0..ny as u64).flat_map(|y| field.later_slab(&spectrum, y, step)).collect();
            let mut sum = Checksum::default();
            (0..nz as u64).for_each(|z| sum.combine(field.checksum(&slabs, z)));
            assert!(class.is_published(step, sum), "step {step}: {sum:?}");
        }
    }
}
