//! The four operators of a V-cycle. Each weighs a point, its 6 neighbours at a face, its 12 at an edge, and its
//! 8 at a corner.

use super::grid::Grid;

/// What a point is weighed with, and its neighbours at faces, edges and corners.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients(pub [f64; 4]);

/// The operator A of the equation A·u = v.
const LAPLACE: Coefficients = Coefficients([-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0]);

/// What the points around a row add up to, for each x: those in its own plane or column, and those diagonal to
/// it.
#[derive(Default)]
struct Around {
    straight: Vec<f64>,
    diagonal: Vec<f64>,
}

impl Around {
    fn take(&mut self, grid: &Grid, y: usize, z: usize) {
        let row = |y, z| grid.row(y, z);
        let sum = |into: &mut Vec<f64>, [a, b, c, d]: [&[f64]; 4]| {
            into.clear();
            into.extend(a.iter().zip(b).zip(c.iter().zip(d)).map(|((a, b), (c, d))| (a + b) + (c + d)));
        };
        sum(&mut self.straight, [row(y - 1, z), row(y + 1, z), row(y, z - 1), row(y, z + 1)]);
        let corners = [row(y - 1, z - 1), row(y + 1, z - 1), row(y - 1, z + 1), row(y + 1, z + 1)];
        sum(&mut self.diagonal, corners);
    }

    /// The weighed sum at each of a row's own points.
    fn weigh<'a>(
        &'a self,
        row: &'a [f64],
        Coefficients([point, face, edge, corner]): Coefficients,
    ) -> impl Iterator<Item = f64> + 'a {
        let threes = row.windows(3).zip(self.straight.windows(3)).zip(self.diagonal.windows(3));
        threes.map(move |((own, straight), diagonal)| {
            let at_faces = own[0] + own[2] + straight[1];
            let at_edges = diagonal[1] + (straight[0] + straight[2]);
            let at_corners = diagonal[0] + diagonal[2];
            point * own[1] + face * at_faces + edge * at_edges + corner * at_corners
        })
    }
}

/// Does something with each row of `grid` and the weighed sums of `of` at its points.
fn each_row(grid: &mut Grid, of: &Grid, weights: Coefficients, act: impl Fn(&mut f64, f64)) {
    let (points, planes) = (grid.points(), grid.planes().len());
    let mut around = Around::default();
    for (z, y) in (1..=planes).flat_map(|z| (1..=points).map(move |y| (z, y))) {
        around.take(of, y, z);
        let sums = around.weigh(of.row(y, z), weights);
        grid.row_mut(y, z)[1..=points].iter_mut().zip(sums).for_each(|(value, sum)| act(value, sum));
    }
    grid.wrap();
}

/// `r -= A·u`, where `r` is the right-hand side before.
pub fn residual(r: &mut Grid, u: &Grid) {
    each_row(r, u, LAPLACE, |value, sum| *value -= sum);
}

/// `u += S·r`.
pub fn smooth(u: &mut Grid, r: &Grid, smoother: Coefficients) {
    each_row(u, r, smoother, |value, sum| *value += sum);
}

/// Weighs `fine` at every other point into `coarse`.
pub fn restrict(coarse: &mut Grid, fine: &Grid) {
    const WEIGHTS: Coefficients = Coefficients([1.0 / 2.0, 1.0 / 4.0, 1.0 / 8.0, 1.0 / 16.0]);
    let (points, planes) = (coarse.points(), coarse.planes().len());
    let mut around = Around::default();
    for (z, y) in (1..=planes).flat_map(|z| (1..=points).map(move |y| (z, y))) {
        around.take(fine, 2 * y, 2 * z);
        // The first point of the coarse row is the second of the fine one.
        let sums = around.weigh(fine.row(2 * y, 2 * z), WEIGHTS).skip(1).step_by(2);
        coarse.row_mut(y, z)[1..=points].iter_mut().zip(sums).for_each(|(value, sum)| *value = sum);
    }
    coarse.wrap();
}

/// Adds `coarse` to `fine`: at every other point, and in between the mean of the neighbours.
pub fn prolongate(fine: &mut Grid, coarse: &Grid) {
    let (points, planes) = (fine.points(), fine.planes().len());
    let mut sum = vec![0.0; coarse.points() + 2];
    for (z, y) in (1..=planes).flat_map(|z| (1..=points).map(move |y| (z, y))) {
        // An odd number lies between two points of the coarse grid.
        let pair = |number: usize| [number / 2, number.div_ceil(2)];
        let ([z1, z2], [y1, y2]) = (pair(z), pair(y));
        let rows = [coarse.row(y1, z1), coarse.row(y2, z1), coarse.row(y1, z2), coarse.row(y2, z2)];
        for (x, sum) in sum.iter_mut().enumerate() {
            *sum = 0.25 * ((rows[0][x] + rows[1][x]) + (rows[2][x] + rows[3][x]));
        }
        for (two, between) in fine.row_mut(y, z)[1..=points].chunks_exact_mut(2).zip(sum.windows(2)) {
            two[0] += 0.5 * (between[0] + between[1]);
            two[1] += between[1];
        }
    }
    fine.wrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A whole cube, made of numbers that differ in every point.
    fn cube(points: usize) -> Grid {
        let mut grid = Grid::zero(points, 0..points);
        for (z, y) in (1..=points).flat_map(|z| (1..=points).map(move |y| (z, y))) {
            let row = grid.row_mut(y, z);
            (1..=points).for_each(|x| row[x] = ((x * 7 + y * 13 + z * 29) % 31) as f64 - 15.0);
        }
        grid.wrap();
        grid.close();
        grid
    }

    /// The operator by its definition.
    fn weigh(grid: &Grid, [x, y, z]: [usize; 3], Coefficients(weights): Coefficients) -> f64 {
        let around = |at: usize| [at - 1, at, at + 1];
        let mut sum = 0.0;
        for (dz, nz) in around(z).into_iter().enumerate() {
            for (dy, ny) in around(y).into_iter().enumerate() {
                for (dx, nx) in around(x).into_iter().enumerate() {
                    let steps = [dx, dy, dz].iter().filter(|step| **step != 1).count();
                    sum += weights[steps] * grid.row(ny, nz)[nx];
                }
            }
        }
        sum
    }

    #[test]
    fn a_point_and_its_26_neighbours_are_weighed() {
        let u = cube(8);
        let mut r = Grid::zero(8, 0..8);
        residual(&mut r, &u);
        for (z, y, x) in [(1, 1, 1), (8, 8, 8), (3, 1, 6)] {
            assert!((r.row(y, z)[x] + weigh(&u, [x, y, z], LAPLACE)).abs() < 1e-12);
        }
        let mut coarse = Grid::zero(4, 0..4);
        restrict(&mut coarse, &u);
        let weights = Coefficients([0.5, 0.25, 0.125, 0.0625]);
        for (z, y, x) in [(1, 1, 1), (4, 4, 4), (2, 3, 1)] {
            let expected = weigh(&u, [2 * x, 2 * y, 2 * z], weights);
            assert!((coarse.row(y, z)[x] - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn what_is_prolongated_goes_half_way_between_points() {
        let coarse = cube(4);
        let mut fine = Grid::zero(8, 0..8);
        prolongate(&mut fine, &coarse);
        assert_eq!(fine.row(2, 2)[2], coarse.row(1, 1)[1]);
        assert_eq!(fine.row(8, 8)[8], coarse.row(4, 4)[4]);
        let ends = coarse.row(1, 1)[1] + coarse.row(1, 1)[2];
        assert_eq!(fine.row(2, 2)[3], 0.5 * ends);
        let corners: f64 = [0, 1]
            .iter()
            .flat_map(|z| [0, 1].map(|y| (*z, y)))
            .flat_map(|(z, y)| [0, 1].map(|x| coarse.row(y, z)[x]))
            .sum();
        assert_eq!(fine.row(1, 1)[1], corners / 8.0);
    }

    #[test]
    fn a_slab_computes_the_same_bits_as_the_cube() {
        let u = cube(8);
        let (mut whole, mut slab) = (cube(8), cube(8).cut(2..6));
        residual(&mut whole, &u);
        residual(&mut slab, &u.cut(2..6));
        (1..=4).for_each(|plane| assert_eq!(slab.plane(plane), whole.plane(plane + 2)));
        let (mut all, mut part) = (Grid::zero(4, 0..4), Grid::zero(4, 1..3));
        restrict(&mut all, &u);
        restrict(&mut part, &u.cut(2..6));
        (1..=2).for_each(|plane| assert_eq!(part.plane(plane), all.plane(plane + 1)));
        all.close();
        let (mut whole, mut slab) = (cube(8), cube(8).cut(2..6));
        prolongate(&mut whole, &all);
        prolongate(&mut slab, &all.cut(1..3));
        (1..=4).for_each(|plane| assert_eq!(slab.plane(plane), whole.plane(plane + 2)));
    }
}
