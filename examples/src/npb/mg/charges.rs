//! The right-hand side: the points with the largest and the smallest random numbers.

use std::ops::Range;

use super::Class;
use crate::npb::random::{LANES, Lanes};

const SEED: u64 = 314_159_265;
/// Charges of each sign.
const CHARGES: usize = 10;

/// A point, in x, y and z.
pub type Point = [usize; 3];

/// Where the charges are: +1 at the first points, in descending order of their numbers, -1 at the others, in
/// ascending order. Each point has a number, x running fastest.
pub fn charges(class: Class) -> [Vec<Point>; 2] {
    let points = class.points();
    let mut lanes = Lanes::new(SEED);
    let mut numbers = vec![0.0; points * points];
    let (mut largest, mut smallest) = (Vec::new(), Vec::new());
    for z in 0..points {
        lanes.fill(&mut numbers);
        for (index, &number) in numbers.iter().enumerate() {
            let point = || [index % points, index / points, z];
            enter(&mut largest, number, point, |a, b| a > b);
            enter(&mut smallest, number, point, |a, b| a < b);
        }
    }
    [largest, smallest].map(|best| best.into_iter().map(|(_, point)| point).collect())
}

/// Takes a number in among the best.
fn enter(
    best: &mut Vec<(f64, Point)>,
    number: f64,
    point: impl Fn() -> Point,
    is_better: impl Fn(f64, f64) -> bool,
) {
    if best.len() == CHARGES && best.last().is_some_and(|(last, _)| !is_better(number, *last)) {
        return;
    }
    let at = best.partition_point(|(other, _)| is_better(*other, number));
    best.insert(at, (number, point()));
    best.truncate(CHARGES);
}

/// Planes of numbers are drawn at once.
const _: () = assert!((1_usize << 5).is_multiple_of(LANES));

/// The charges in the planes `planes`, as points and their values.
pub(super) fn within(charges: &[Vec<Point>; 2], planes: &Range<usize>) -> Vec<(Point, f64)> {
    let of =
        |points: &[Point], value: f64| points.iter().map(move |point| (*point, value)).collect::<Vec<_>>();
    let all = of(&charges[0], 1.0).into_iter().chain(of(&charges[1], -1.0));
    all.filter(|([.., z], _)| planes.contains(z)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charges_are_those_of_npb() {
        let [largest, smallest] = charges(Class::S);
        let expected = [
            [7, 1, 20],
            [19, 29, 31],
            [2, 0, 3],
            [4, 22, 3],
            [1, 16, 21],
            [21, 31, 6],
            [12, 15, 12],
            [30, 4, 25],
            [28, 0, 28],
            [17, 26, 17],
        ];
        assert_eq!(largest, expected);
        assert_eq!(smallest[..3], [[0, 11, 2], [13, 8, 17], [5, 14, 0]]);
        let [largest, smallest] = charges(Class::W);
        assert_eq!((largest[0], largest[9]), ([113, 85, 50], [115, 86, 20]));
        assert_eq!((smallest[0], smallest[9]), ([15, 22, 123], [114, 103, 5]));
    }
}
