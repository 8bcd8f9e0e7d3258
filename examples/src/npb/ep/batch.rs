//! The work of EP: which batches there are, and the computing of one.

use super::Tally;
use crate::npb::random::{Generator, Lanes};

/// Pairs of one batch. Another size would change the order of summation and nothing else.
pub const PAIRS_PER_BATCH: u64 = 1 << 16;

/// The seed of EP's stream.
const SEED: u64 = 271_828_183;

/// Pairs that are worked on together: as many as leave all their arrays in the first-level cache.
const BLOCK: usize = 512;

/// Sums kept side by side, because a single one waits for its own last addition.
const SIDE_BY_SIDE: usize = 8;

/// The state in which the generator enters batch `index`.
pub fn batch_start(index: u64) -> u64 {
    let mut generator = Generator::new(SEED);
    generator.skip(2 * PAIRS_PER_BATCH * index);
    generator.state()
}

/// Computes one batch from the state of the generator before it.
///
/// A pair of numbers in (-1, 1) that lies in the unit circle becomes a pair of Gaussian deviates by
/// Marsaglia's polar method. Each step runs over a whole block before the next step begins, so that the
/// compiler can vectorise the steps that are plain arithmetic, and the logarithm, which is not, is taken of
/// accepted pairs alone.
pub fn batch(start: u64) -> Tally {
    let mut lanes = Lanes::new(start);
    let mut block = Block::new();
    let mut tally = Tally::default();
    for _ in 0..PAIRS_PER_BATCH / BLOCK as u64 {
        lanes.fill(&mut block.draws);
        let accepted = block.accept();
        block.transform(accepted);
        block.count(accepted, &mut tally);
    }
    tally
}

/// The arrays of one block. Those after `draws` hold the accepted pairs at their front.
struct Block {
    draws: [f64; 2 * BLOCK],
    x: [f64; BLOCK],
    y: [f64; BLOCK],
    /// x² + y², a number in (0, 1].
    square: [f64; BLOCK],
    logarithm: [f64; BLOCK],
    /// max(|x|, |y|) of the deviates, which says in which annulus they lie.
    magnitude: [f64; BLOCK],
}

impl Block {
    fn new() -> Self {
        Self {
            draws: [0.0; 2 * BLOCK],
            x: [0.0; BLOCK],
            y: [0.0; BLOCK],
            square: [0.0; BLOCK],
            logarithm: [0.0; BLOCK],
            magnitude: [0.0; BLOCK],
        }
    }

    /// Moves the pairs in the unit circle to the front and returns how many there are.
    ///
    /// About one pair in five is rejected, at random. Each pair is therefore written, and overwritten by the
    /// next if it is rejected: a branch would be mispredicted once in five pairs.
    fn accept(&mut self) -> usize {
        let mut accepted = 0;
        for [first, second] in self.draws.as_chunks().0 {
            let (x, y) = (2.0 * first - 1.0, 2.0 * second - 1.0);
            let square = x * x + y * y;
            self.x[accepted] = x;
            self.y[accepted] = y;
            self.square[accepted] = square;
            accepted += usize::from(square <= 1.0);
        }
        accepted
    }

    /// Turns the accepted pairs into Gaussian deviates and finds their magnitudes.
    fn transform(&mut self, accepted: usize) {
        let (x, y) = (&mut self.x[..accepted], &mut self.y[..accepted]);
        let (square, logarithm) = (&self.square[..accepted], &mut self.logarithm[..accepted]);
        let magnitude = &mut self.magnitude[..accepted];
        for i in 0..accepted {
            logarithm[i] = square[i].ln();
        }
        for i in 0..accepted {
            let factor = (-2.0 * logarithm[i] / square[i]).sqrt();
            x[i] *= factor;
            y[i] *= factor;
            let (width, height) = (x[i].abs(), y[i].abs());
            // `f64::max` would also look for NaN, of which there is none, and take longer.
            magnitude[i] = if width > height { width } else { height };
        }
    }

    /// Adds the accepted pairs to the tally.
    fn count(&self, accepted: usize, tally: &mut Tally) {
        let [sx, sum_abs_x] = sums(&self.x[..accepted]);
        let [sy, sum_abs_y] = sums(&self.y[..accepted]);
        tally.sx += sx;
        tally.sy += sy;
        tally.sum_abs_x += sum_abs_x;
        tally.sum_abs_y += sum_abs_y;
        // A pass per annulus, comparing, is faster than one pass that looks the annulus of each pair up. Few
        // passes are needed, for large magnitudes are rare.
        let mut at_least = accepted as u64;
        for (count, outer) in tally.counts.iter_mut().zip(1_u32..) {
            let beyond = count_from(f64::from(outer), &self.magnitude[..accepted]);
            *count += at_least - beyond;
            at_least = beyond;
            if beyond == 0 {
                break;
            }
        }
    }
}

/// How many values are at least `bound`.
fn count_from(bound: f64, values: &[f64]) -> u64 {
    // A block is far too short for the count to wrap, and a check after each addition would not be
    // vectorised.
    values.iter().fold(0, |count: u64, value| count.wrapping_add(u64::from(*value >= bound)))
}

/// The sum of the values and that of their magnitudes.
fn sums(values: &[f64]) -> [f64; 2] {
    let (rows, rest) = values.as_chunks::<SIDE_BY_SIDE>();
    let (mut signed, mut magnitudes) = ([0.0; SIDE_BY_SIDE], [0.0; SIDE_BY_SIDE]);
    for row in rows {
        for i in 0..SIDE_BY_SIDE {
            signed[i] += row[i];
            magnitudes[i] += row[i].abs();
        }
    }
    for (i, value) in rest.iter().enumerate() {
        signed[i] += value;
        magnitudes[i] += value.abs();
    }
    [signed.iter().sum(), magnitudes.iter().sum()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_starts_are_strides_of_the_stream() {
        assert_eq!(batch_start(0), SEED);
        let mut generator = Generator::new(SEED);
        for _ in 0..2 * PAIRS_PER_BATCH {
            generator.draw();
        }
        assert_eq!(batch_start(1), generator.state());
    }

    /// The definition of EP, pair by pair.
    #[test]
    fn a_batch_agrees_with_the_definition() {
        let start = batch_start(77);
        let mut generator = Generator::new(start);
        let mut expected = Tally::default();
        for _ in 0..PAIRS_PER_BATCH {
            let (x, y) = (2.0 * generator.draw() - 1.0, 2.0 * generator.draw() - 1.0);
            let square = x * x + y * y;
            if square <= 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                expected.sx += x * factor;
                expected.sy += y * factor;
                expected.sum_abs_x += (x * factor).abs();
                expected.sum_abs_y += (y * factor).abs();
                expected.counts[(x * factor).abs().max((y * factor).abs()) as usize] += 1;
            }
        }
        let found = batch(start);
        assert_eq!(found.counts, expected.counts);
        for (found, expected) in [
            (found.sx, expected.sx),
            (found.sy, expected.sy),
            (found.sum_abs_x, expected.sum_abs_x),
            (found.sum_abs_y, expected.sum_abs_y),
        ] {
            assert!((found - expected).abs() <= 1e-9, "{found} is not {expected}");
        }
    }
}
