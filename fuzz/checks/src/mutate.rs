//! Mutations of inputs, drawn from a seed.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Longest input.
pub const BYTES_MAX: usize = 4 << 10;

/// What numbers are replaced with.
const NUMBERS: [u64; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 250, 251, 1 << 31, u32::MAX as u64, 1 << 62, u64::MAX - 1, u64::MAX];

/// One of `inputs` with some changes, always the same for one seed.
pub fn mutated(inputs: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut bytes = pick(inputs, &mut random).to_vec();
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..=bytes.len());
        let end = (at + random.random_range(0..16)).min(bytes.len());
        match random.random_range(0..8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
            1 if at < bytes.len() => bytes[at] = random.random(),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            4 => {
                let number = NUMBERS[random.random_range(0..NUMBERS.len())].to_le_bytes();
                let width = 1 << random.random_range(0..4);
                let end = (at + width).min(bytes.len());
                bytes.splice(at..end, number[..width].iter().copied());
            }
            5 => {
                let other = pick(inputs, &mut random);
                let from = random.random_range(0..=other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            6 => {
                let other = pick(inputs, &mut random);
                let from = random.random_range(0..=other.len());
                let to = (from + random.random_range(0..64)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            _ => bytes.truncate(at),
        }
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn pick<'a>(inputs: &'a [Vec<u8>], random: &mut ChaCha8Rng) -> &'a [u8] {
    if inputs.is_empty() { &[] } else { &inputs[random.random_range(0..inputs.len())] }
}
