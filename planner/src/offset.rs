//! Offset placement: near each chosen point, take the one with the fewest live bytes (CP-5).

use alloc::{collections::VecDeque, vec::Vec};

/// Where a checkpoint was to be, and where it is to be now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The point that was chosen at first.
    pub from: usize,
    /// The point in its place.
    pub to: usize,
}

/// Moves each point of `chosen` to the one with the fewest bytes within `offset_ns` before or after it. Of
/// equals, the one that is nearest, then the earlier one. Two that move to one point become one.
///
/// Tells of each move where from and where to. Order is kept, and neighbours move apart by at most twice the offset. `at_ns` and `bytes` tell of each
/// candidate point; there are `points`. Takes O(points) time where windows do not overlap.
pub fn displace(
    chosen: &[usize],
    points: usize,
    offset_ns: u64,
    at_ns: impl Fn(usize) -> u64,
    bytes: impl Fn(usize) -> u64,
) -> Vec<Move> {
    // Points of the window of which none has fewer bytes behind it: bytes ascend from the front.
    let mut window: VecDeque<usize> = VecDeque::new();
    let mut next = 0;
    let mut moved: Vec<Move> = Vec::with_capacity(chosen.len());
    for &centre in chosen {
        let centre_ns = at_ns(centre);
        while next < points && at_ns(next) <= centre_ns.saturating_add(offset_ns) {
            while window.back().is_some_and(|&back| bytes(back) > bytes(next)) {
                window.pop_back();
            }
            window.push_back(next);
            next += 1;
        }
        while window.front().is_some_and(|&front| at_ns(front) < centre_ns.saturating_sub(offset_ns)) {
            window.pop_front();
        }
        let fewest = window.front().map(|&front| bytes(front));
        let equals = window.iter().copied().take_while(|&point| Some(bytes(point)) == fewest);
        let best = equals.min_by_key(|&point| at_ns(point).abs_diff(centre_ns)).unwrap_or(centre);
        if moved.last().is_none_or(|last| last.to != best) {
            moved.push(Move { from: centre, to: best });
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(chosen: &[usize], offset_ns: u64, bytes: &[u64]) -> Vec<usize> {
        displace(chosen, bytes.len(), offset_ns, |point| 10 * point as u64, |point| bytes[point])
            .into_iter()
            .map(|moved| moved.to)
            .collect()
    }

    #[test]
    fn each_moves_to_the_fewest_bytes_in_reach() {
        let bytes = [9, 5, 9, 9, 7, 2, 9, 9];
        assert_eq!(moved(&[2, 6], 0, &bytes), [2, 6]);
        assert_eq!(moved(&[2, 6], 10, &bytes), [1, 5]);
        assert_eq!(moved(&[3, 6], 20, &bytes), [5], "both move to one point");
    }

    #[test]
    fn of_equals_the_nearest_and_then_the_earlier() {
        assert_eq!(moved(&[2], 20, &[1, 9, 9, 1, 9]), [3]);
        assert_eq!(moved(&[2], 10, &[9, 1, 9, 1, 9]), [1]);
        assert_eq!(moved(&[2], 20, &[1, 1, 1, 1, 1]), [2]);
    }
}
