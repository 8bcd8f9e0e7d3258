//! The least of many lines at a place, exactly and without overflow (a Li Chao tree).
//!
//! A line is b + p q, where p and q are positive and may be as large or small as e to the power of millions:
//! they are kept as a power of two and what is left of it. Two lines meet once at most. So of two lines, the
//! one that is greater in the middle of a range can be less in one half only, where it goes down in the tree.

use alloc::{vec, vec::Vec};

/// A positive number as wide as needed: `rest` times 2 to the power of `power`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wide {
    power: i64,
    rest: f64,
}

/// A line, by its value at 0 and its slope.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub begin: f64,
    pub slope: Wide,
}

/// Lines, of which one is wanted that is least at a place.
pub(crate) struct Lines {
    /// The places, ascending.
    places: Vec<Wide>,
    lines: Vec<Line>,
    /// Number of the line at each node of the tree, from 1; 0 is no line.
    tree: Vec<u32>,
}

impl Wide {
    /// e to the power of `exponent`.
    pub(crate) fn exp(exponent: f64) -> Self {
        let powers = exponent * core::f64::consts::LOG2_E;
        let power = libm::floor(powers);
        Self { power: power as i64, rest: libm::exp2(powers - power) }
    }

    fn is_greater(self, other: Self) -> bool {
        (self.power, self.rest) > (other.power, other.rest)
    }
}

impl Line {
    fn at(&self, place: Wide) -> f64 {
        let power = self.slope.power.saturating_add(place.power);
        self.begin + self.slope.rest * place.rest * power_of_two(power)
    }

    /// Whether this line is less than `other` at a place. Where both are beyond all numbers, the slope decides.
    fn is_less(&self, other: &Self, place: Wide) -> bool {
        let (here, there) = (self.at(place), other.at(place));
        if here == there { other.slope.is_greater(self.slope) } else { here < there }
    }
}

/// 0 and infinity where there is no such number.
fn power_of_two(power: i64) -> f64 {
    match power {
        ..-1022 => 0.0,
        1024.. => f64::INFINITY,
        _ => f64::from_bits(((power + 1023) as u64) << 52),
    }
}

impl Lines {
    /// No lines yet; `places` are those that will be asked for, ascending.
    pub(crate) fn new(places: Vec<Wide>, lines: usize) -> Self {
        let tree = vec![0; 2 * places.len().next_power_of_two()];
        Self { places, lines: Vec::with_capacity(lines), tree }
    }

    /// Adds a line. Its number is that of lines before it. Places before `from` are not asked for any more.
    pub(crate) fn add(&mut self, line: Line, from: usize) {
        self.lines.push(line);
        let mut number = self.lines.len() as u32;
        let (mut node, mut begin, mut end) = (1, 0, self.tree.len() / 2);
        while end > from && begin < self.places.len() {
            let there = self.tree[node];
            if there == 0 {
                self.tree[node] = number;
                return;
            }
            let middle = usize::midpoint(begin, end);
            let place = self.places[middle.min(self.places.len() - 1)];
            if self.line(number).is_less(self.line(there), place) {
                self.tree[node] = number;
                number = there;
            }
            if end - begin == 1 {
                return;
            }
            // The steeper of two lines is less only before they meet.
            let kept = self.line(self.tree[node]).slope;
            if self.line(number).slope.is_greater(kept) {
                (node, end) = (2 * node, middle);
            } else {
                (node, begin) = (2 * node + 1, middle);
            }
        }
    }

    /// The number of a line that is least at a place.
    pub(crate) fn least(&self, place: usize) -> usize {
        let mut node = place + self.tree.len() / 2;
        let mut best = 0;
        while node > 0 {
            let number = self.tree[node];
            let better = |best| self.line(number).is_less(self.line(best), self.places[place]);
            if number > 0 && (best == 0 || better(best)) {
                best = number;
            }
            node /= 2;
        }
        best as usize - 1
    }

    fn line(&self, number: u32) -> &Line {
        &self.lines[number as usize - 1]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_least_line_is_found(
            lines in prop::collection::vec((-9.0..9.0_f64, -5.0..2.0_f64), 1..40),
            exponents in prop::collection::vec(-2.0..6.0_f64, 1..40),
        ) {
            let mut exponents = exponents;
            exponents.sort_by(f64::total_cmp);
            let mut tree = Lines::new(exponents.iter().map(|e| Wide::exp(*e)).collect(), lines.len());
            for (begin, slope) in &lines {
                tree.add(Line { begin: *begin, slope: Wide::exp(*slope) }, 0);
            }
            for (place, exponent) in exponents.iter().enumerate() {
                let at = |(begin, slope): &(f64, f64)| begin + (slope + exponent).exp();
                let least = lines.iter().map(at).fold(f64::INFINITY, f64::min);
                let found = at(&lines[tree.least(place)]);
                prop_assert!((found - least).abs() <= 1e-9 * (1.0 + least.abs()), "{found} {least}");
            }
        }
    }

    #[test]
    fn lines_beyond_all_numbers_can_be_told_apart() {
        let places: Vec<Wide> = [0.0, 1e6, 1e6 + 1.0].map(Wide::exp).to_vec();
        let mut tree = Lines::new(places, 2);
        tree.add(Line { begin: 0.0, slope: Wide::exp(0.0) }, 0);
        tree.add(Line { begin: 5.0, slope: Wide::exp(-1e6) }, 0);
        assert_eq!([0, 1, 2].map(|place| tree.least(place)), [0, 1, 1]);
    }
}
