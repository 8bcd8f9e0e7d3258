//! Loops over blocks of elements: known trip counts, no branch inside.

use bytemuck::Pod;

use super::Pass;

/// Folds the elements of `right` into those of `left`, several blocks at once.
#[inline(always)]
pub(super) fn each<T: Pod>(left: &mut [u8], right: &[&[u8]], pass: Pass, combine: impl Fn(T, T) -> T) {
    match pass {
        Pass::InTurn => in_turn(left, right, combine),
        Pass::InPairs => in_pairs(left, right, combine),
    }
}

/// Block after block: seven, three or one of them at once.
#[inline(always)]
fn in_turn<T: Pod>(left: &mut [u8], mut right: &[&[u8]], combine: impl Fn(T, T) -> T) {
    let Ok(left) = bytemuck::try_cast_slice_mut::<u8, T>(left) else {
        // A type of the application's that asks for more alignment than memory for partials has.
        for right in right {
            unaligned(left, right, &combine);
        }
        return;
    };
    while let Some(one) = right.first() {
        let passed = if let Some(seven) = aligned::<T, 7>(right) {
            fused(left, seven, &combine);
            7
        } else if let Some(three) = aligned::<T, 3>(right) {
            fused(left, three, &combine);
            3
        } else if let Some(one) = aligned::<T, 1>(right) {
            fused(left, one, &combine);
            1
        } else {
            // Inlined bodies lie wherever their frame put them.
            for (left, right) in left.iter_mut().zip(one.chunks_exact(size_of::<T>())) {
                *left = combine(*left, bytemuck::pod_read_unaligned(right));
            }
            1
        };
        right = &right[passed..];
    }
}

/// One, three or seven blocks: neighbours meet, then their results, and so on.
#[inline(always)]
fn in_pairs<T: Pod>(left: &mut [u8], right: &[&[u8]], combine: impl Fn(T, T) -> T) {
    if let Ok(left) = bytemuck::try_cast_slice_mut::<u8, T>(left) {
        if let Some(seven) = aligned(right) {
            return fused_eight(left, seven, &combine);
        } else if right.len() == 3
            && let Some(three) = aligned(right)
        {
            return fused_four(left, three, &combine);
        } else if right.len() == 1
            && let Some(one) = aligned::<T, 1>(right)
        {
            return fused(left, one, &combine);
        }
    }
    let size = size_of::<T>();
    for at in (0..left.len()).step_by(size) {
        let element = |block: &[u8]| bytemuck::pod_read_unaligned(&block[at..at + size]);
        let mut results = [T::zeroed(); 8];
        results[0] = element(left);
        results[1..].iter_mut().zip(right).for_each(|(result, block)| *result = element(block));
        let mut count = right.len() + 1;
        while count > 1 {
            count /= 2;
            (0..count).for_each(|i| results[i] = combine(results[2 * i], results[2 * i + 1]));
        }
        left[at..at + size].copy_from_slice(bytemuck::bytes_of(&results[0]));
    }
}

fn unaligned<T: Pod>(left: &mut [u8], right: &[u8], combine: &impl Fn(T, T) -> T) {
    let size = size_of::<T>();
    for (left, right) in left.chunks_exact_mut(size).zip(right.chunks_exact(size)) {
        let element = combine(bytemuck::pod_read_unaligned(left), bytemuck::pod_read_unaligned(right));
        left.copy_from_slice(bytemuck::bytes_of(&element));
    }
}

/// The first `N` blocks, if there are as many and they are aligned for `T`.
#[inline(always)]
fn aligned<'a, T: Pod, const N: usize>(blocks: &[&'a [u8]]) -> Option<[&'a [T]; N]> {
    let blocks = blocks.first_chunk::<N>()?;
    let mut elements = [&[] as &[T]; N];
    for (elements, block) in elements.iter_mut().zip(blocks) {
        *elements = bytemuck::try_cast_slice(block).ok()?;
    }
    Some(elements)
}

/// One pass over `left` and `N` blocks: known trip counts, no bounds checks, no exits.
#[inline(always)]
fn fused<T: Pod, const N: usize>(left: &mut [T], right: [&[T]; N], combine: &impl Fn(T, T) -> T) {
    let len = left.len();
    let right = right.map(|block| &block[..len]);
    for index in 0..len {
        let mut element = left[index];
        for block in right {
            element = combine(element, block[index]);
        }
        left[index] = element;
    }
}

/// The same over four blocks in pairs.
#[inline(always)]
fn fused_four<T: Pod>(left: &mut [T], right: [&[T]; 3], combine: &impl Fn(T, T) -> T) {
    let len = left.len();
    let [b, c, d] = right.map(|block| &block[..len]);
    for i in 0..len {
        left[i] = combine(combine(left[i], b[i]), combine(c[i], d[i]));
    }
}

/// The same over eight blocks in pairs.
#[inline(always)]
fn fused_eight<T: Pod>(left: &mut [T], right: [&[T]; 7], combine: &impl Fn(T, T) -> T) {
    let len = left.len();
    let [b, c, d, e, f, g, h] = right.map(|block| &block[..len]);
    for i in 0..len {
        let one = combine(combine(left[i], b[i]), combine(c[i], d[i]));
        let other = combine(combine(e[i], f[i]), combine(g[i], h[i]));
        left[i] = combine(one, other);
    }
}

/// Runs a loop with the widest vectors that all processors of the last ten years have, if this one has them.
/// They round as the narrow ones do.
#[cfg(target_arch = "x86_64")]
pub(super) fn widely(pass: impl FnOnce()) {
    #[target_feature(enable = "avx2")]
    fn avx2(pass: impl FnOnce()) {
        pass();
    }
    match std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: this processor has those instructions.
        true => unsafe { avx2(pass) },
        false => pass(),
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn widely(pass: impl FnOnce()) {
    pass();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_operands_is_folded_in_order() {
        // Not commutative: the last operand wins in the low digits.
        let combine = |a: u64, b: u64| a.wrapping_mul(31).wrapping_add(b);
        for count in 0..20u64 {
            let operands: Vec<Vec<u64>> = (1..=count).map(|n| vec![n, n * n, 7]).collect();
            let blocks: Vec<&[u8]> = operands.iter().map(|block| bytemuck::cast_slice(block)).collect();
            let mut left = [5u64, 6, 7];
            each(bytemuck::cast_slice_mut(&mut left), &blocks, Pass::InTurn, combine);
            let fold = |at: usize, first| operands.iter().fold(first, |sum, block| combine(sum, block[at]));
            let expected = [fold(0, 5), fold(1, 6), fold(2, 7)];
            assert_eq!(left, expected, "{count} operands");
            let mut anywhere = [0u8; 25];
            anywhere[1..].copy_from_slice(bytemuck::cast_slice(&[5u64, 6, 7]));
            each(&mut anywhere[1..], &blocks, Pass::InTurn, combine);
            assert_eq!(
                anywhere[1..],
                *bytemuck::cast_slice::<u64, u8>(&expected),
                "{count} operands, unaligned"
            );
        }
    }

    #[test]
    fn two_four_and_eight_operands_meet_in_pairs() {
        let combine = |a: u64, b: u64| (a.rotate_left(7) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bytes = |before: usize, operand: &[u64; 3]| -> Vec<u8> {
            [vec![0; before], bytemuck::cast_slice(operand).to_vec()].concat()
        };
        for count in [2, 4, 8] {
            let operands: Vec<[u64; 3]> = (1..=count).map(|n| [n, n * n, 7]).collect();
            let mut expected = operands.clone();
            while expected.len() > 1 {
                let met =
                    expected.chunks(2).map(|pair| [0, 1, 2].map(|at| combine(pair[0][at], pair[1][at])));
                expected = met.collect();
            }
            for (left_at, right_at) in [(0, 0), (1, 0), (0, 1)] {
                let mut left = bytes(left_at, &operands[0]);
                let right: Vec<Vec<u8>> = operands[1..].iter().map(|it| bytes(right_at, it)).collect();
                let right: Vec<&[u8]> = right.iter().map(|block| &block[right_at..]).collect();
                each(&mut left[left_at..], &right, Pass::InPairs, combine);
                assert_eq!(
                    left[left_at..],
                    bytes(0, &expected[0]),
                    "{count} operands at {left_at}, {right_at}"
                );
            }
        }
    }
}
