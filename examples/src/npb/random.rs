//! The random numbers of the NAS kernels: `x' = 5^13 · x mod 2^46`, and `x' / 2^46` is the number drawn.
//!
//! The state after `n` draws is `5^(13 n) · x`, so any part of the stream can be reached without drawing what
//! comes before it. That makes the answers of the kernels independent of the number of ranks.

/// The factor from one state to the next, 5^13.
pub const MULTIPLIER: u64 = 1_220_703_125;

const STATE_BITS: u32 = 46;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;

/// Independent streams that [`Lanes`] advances side by side.
pub const LANES: usize = 8;

/// The factor from one state to the state `draws` later.
pub fn stride(draws: u64) -> u64 {
    let (mut result, mut square, mut bits) = (1, MULTIPLIER, draws);
    while bits > 0 {
        if bits & 1 == 1 {
            result = times(result, square);
        }
        square = times(square, square);
        bits >>= 1;
    }
    result
}

/// The product modulo 2^46. Wrapping at 2^64 loses none of the low 46 bits.
fn times(a: u64, b: u64) -> u64 {
    a.wrapping_mul(b) & STATE_MASK
}

/// The generator, one number at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generator {
    state: u64,
}

impl Generator {
    /// A generator whose first number is the successor of `seed`; the seed itself is never drawn.
    pub fn new(seed: u64) -> Self {
        Self { state: seed & STATE_MASK }
    }

    /// The state, from which [`Generator::new`] continues.
    pub fn state(self) -> u64 {
        self.state
    }

    /// Skips `draws` numbers, in time that grows with the logarithm of `draws`.
    pub fn skip(&mut self, draws: u64) {
        self.state = times(self.state, stride(draws));
    }

    /// The next number, in (0, 1).
    pub fn draw(&mut self) -> f64 {
        self.state = times(self.state, MULTIPLIER);
        // Exact: a state has 46 bits and an f64 holds 53.
        self.state as f64 / (1_u64 << STATE_BITS) as f64
    }
}

/// The same stream as a [`Generator`], many numbers at a time.
///
/// One state depends on the one before it, so a plain loop waits out a multiplication per number. Lane `i`
/// draws numbers `i`, `i + LANES`, `i + 2·LANES` … instead, and the lanes do not wait for each other.
#[derive(Clone, Debug)]
pub struct Lanes {
    /// Next number of each lane, held in the top 46 bits: there the product wraps modulo 2^46 by itself.
    next: [u64; LANES],
    stride: u64,
}

impl Lanes {
    /// Lanes that together draw what `Generator::new(state)` draws.
    pub fn new(state: u64) -> Self {
        let mut generator = Generator::new(state);
        let next = std::array::from_fn(|_| {
            generator.draw();
            generator.state() << (u64::BITS - STATE_BITS)
        });
        Self { next, stride: stride(LANES as u64) }
    }

    /// Fills `numbers` with the next numbers of the stream, in (0, 1).
    ///
    /// # Panics
    /// If the length is no multiple of [`LANES`].
    pub fn fill(&mut self, numbers: &mut [f64]) {
        let (rows, rest) = numbers.as_chunks_mut::<LANES>();
        assert!(rest.is_empty(), "{} numbers are left over by {LANES} lanes", rest.len());
        let mut next = self.next;
        for row in rows {
            for (number, state) in row.iter_mut().zip(&mut next) {
                *number = unit_interval(*state);
                *state = state.wrapping_mul(self.stride);
            }
        }
        self.next = next;
    }
}

/// Turns 46 top bits into the number in [0, 1) that they are the binary fraction of.
///
/// The bits become the fraction of a float in [1, 2), which is exact and needs no conversion instruction.
fn unit_interval(top_bits: u64) -> f64 {
    const ONE: u64 = 1_f64.to_bits();
    f64::from_bits(ONE | top_bits >> (u64::BITS - f64::MANTISSA_DIGITS + 1)) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First states and numbers of the two seeds that NPB uses.
    #[test]
    fn first_numbers_are_those_of_npb() {
        let expected = [
            (
                314_159_265,
                [55_909_509_111_989, 61_155_031_930_969, 45_573_031_421_645],
                0.794_521_911_188_738_3,
            ),
            (
                271_828_183,
                [32_883_653_486_115, 55_063_727_434_591, 39_106_144_873_291],
                0.467_304_822_196_226_16,
            ),
        ];
        for (seed, states, first) in expected {
            let mut generator = Generator::new(seed);
            assert_eq!(generator.draw(), first);
            let mut seen = vec![generator.state()];
            for _ in 1..states.len() {
                generator.draw();
                seen.push(generator.state());
            }
            assert_eq!(seen, states);
        }
    }

    #[test]
    fn a_skip_equals_that_many_draws() {
        for draws in [0, 1, 2, 15, 1000] {
            let mut skipped = Generator::new(314_159_265);
            let mut drawn = skipped;
            skipped.skip(draws);
            for _ in 0..draws {
                drawn.draw();
            }
            assert_eq!(skipped, drawn);
        }
        assert_eq!(stride(1 << 17), 62_362_532_446_209);
    }

    #[test]
    fn lanes_draw_the_same_stream() {
        let mut generator = Generator::new(271_828_183);
        let mut lanes = Lanes::new(271_828_183);
        let mut numbers = [0.0; 4 * LANES];
        for _ in 0..3 {
            lanes.fill(&mut numbers);
            for number in numbers {
                assert_eq!(number, generator.draw());
            }
        }
    }
}
