//! A slab of a cube of points, with a layer of its neighbours' points around it.

use std::ops::Range;

use super::charges::{self, Point};

/// Planes `planes` of a cube. Around the points lies one layer of neighbours: those in x and y are the points
/// at the opposite face, those in z belong to the slabs below and above.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    points: usize,
    planes: Range<usize>,
    values: Vec<f64>,
}

impl Grid {
    /// Zeros. The cube has so many points in each dimension.
    pub fn zero(points: usize, planes: Range<usize>) -> Self {
        let values = vec![0.0; (points + 2).pow(2) * (planes.len() + 2)];
        Self { points, planes, values }
    }

    /// The right-hand side.
    pub fn charged(points: usize, planes: Range<usize>, charges: &[Vec<Point>; 2]) -> Self {
        let mut grid = Self::zero(points, planes);
        for ([x, y, z], value) in charges::within(charges, &grid.planes) {
            let z = z - grid.planes.start;
            grid.row_mut(y + 1, z + 1)[x + 1] = value;
        }
        grid.wrap();
        grid
    }

    /// Points of the cube in each dimension.
    pub fn points(&self) -> usize {
        self.points
    }

    /// The planes of the cube that it has.
    pub fn planes(&self) -> Range<usize> {
        self.planes.clone()
    }

    /// All values, those of neighbours included.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The same, to be read from a checkpoint.
    pub fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }

    /// Sets all values to zero.
    pub fn clear(&mut self) {
        self.values.fill(0.0);
    }

    /// Takes over all values of another grid of the same size.
    ///
    /// # Panics
    /// If it has another size.
    pub fn copy(&mut self, other: &Self) {
        self.values.copy_from_slice(&other.values);
    }

    fn plane_len(&self) -> usize {
        (self.points + 2).pow(2)
    }

    /// A plane, with what lies around it. Number 0 is the neighbour's below, 1 is the first of its own.
    pub fn plane(&self, number: usize) -> &[f64] {
        let len = self.plane_len();
        &self.values[number * len..][..len]
    }

    /// The same, to be written.
    pub fn plane_mut(&mut self, number: usize) -> &mut [f64] {
        let len = self.plane_len();
        &mut self.values[number * len..][..len]
    }

    /// Row `y` of plane `z`, with what lies around it: numbers of its own points begin with 1.
    pub(super) fn row(&self, y: usize, z: usize) -> &[f64] {
        let width = self.points + 2;
        &self.values[(z * width + y) * width..][..width]
    }

    /// The same, to be written.
    pub(super) fn row_mut(&mut self, y: usize, z: usize) -> &mut [f64] {
        let width = self.points + 2;
        &mut self.values[(z * width + y) * width..][..width]
    }

    /// Copies the points at opposite faces around its own planes, in x and y.
    pub fn wrap(&mut self) {
        let (points, width) = (self.points, self.points + 2);
        for number in 1..=self.planes.len() {
            let plane = self.plane_mut(number);
            for row in plane.chunks_exact_mut(width).skip(1).take(points) {
                (row[0], row[points + 1]) = (row[points], row[1]);
            }
            plane.copy_within(points * width..(points + 1) * width, 0);
            plane.copy_within(width..2 * width, (points + 1) * width);
        }
    }

    /// Copies its own outermost planes around it, if it is the whole cube.
    pub fn close(&mut self) {
        let (len, last) = (self.plane_len(), self.planes.len());
        self.values.copy_within(last * len..(last + 1) * len, 0);
        self.values.copy_within(len..2 * len, (last + 1) * len);
    }

    /// The planes `planes` of the whole cube, with those around them.
    pub fn cut(&self, planes: Range<usize>) -> Self {
        let len = self.plane_len();
        let values = self.values[planes.start * len..(planes.end + 2) * len].to_vec();
        Self { points: self.points, planes, values }
    }

    /// The sum of the squares in each of its planes.
    pub fn squares(&self) -> Vec<f64> {
        let row = |y, z| self.row(y, z)[1..=self.points].iter().map(|value| value * value).sum::<f64>();
        (1..=self.planes.len()).map(|z| (1..=self.points).map(|y| row(y, z)).sum()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opposite_faces_meet() {
        let mut grid = Grid::zero(4, 0..4);
        for (z, y) in (1..=4).flat_map(|z| (1..=4).map(move |y| (z, y))) {
            (1..=4).for_each(|x| grid.row_mut(y, z)[x] = (100 * z + 10 * y + x) as f64);
        }
        grid.wrap();
        grid.close();
        let at = |x, y, z| grid.row(y, z)[x];
        assert_eq!((at(0, 2, 3), at(5, 2, 3)), (324.0, 321.0));
        assert_eq!((at(2, 0, 3), at(2, 5, 3)), (342.0, 312.0));
        assert_eq!((at(2, 3, 0), at(2, 3, 5)), (432.0, 132.0));
        assert_eq!((at(0, 0, 0), at(5, 5, 5)), (444.0, 111.0));
        let slab = grid.cut(1..3);
        assert_eq!((slab.row(2, 0)[3], slab.row(2, 3)[3]), (123.0, 423.0));
        assert_eq!(grid.squares()[1..3], slab.squares());
    }
}
