//! Models (2-3) and (2-4) solved exactly, as a shortest path.
//!
//! The beginning of the program, its candidate points and its end are the nodes of a graph. An edge leads from
//! a node to each later one that is not too far away, and is as long as the checkpoint at its end. A
//! placement is a path from the beginning to the end, and the best one is the shortest.
//!
//! The nodes from which a node can be reached are a window that moves along. Its least value is at the front
//! of a queue in which values ascend. Every node enters and leaves the queue once: n points take O(n) time
//! and memory.

use alloc::{collections::VecDeque, vec, vec::Vec};

use crate::{candidates::Candidates, gap::Gap};

/// The points at which checkpoints take least time together, neighbours at most `apart_ns` apart. Of two such
/// choices, the one with fewer points. The beginning and the end of the program are neighbours, too.
///
/// # Errors
/// The [`Gap`] that cannot be bridged.
pub fn shortest(candidates: &Candidates, apart_ns: u64) -> Result<Vec<usize>, Gap> {
    if let Some(gap) = Gap::find(candidates, apart_ns) {
        return Err(gap);
    }
    let count = candidates.len();
    // Node 0 is the beginning, node i + 1 is point i, the last one is the end.
    let mut before = vec![0_u32; count + 2];
    let at_ns = |node: usize| match node {
        0 => 0,
        _ if node <= count => candidates.at_ns(node - 1),
        _ => candidates.end_ns(),
    };
    let mut window = VecDeque::from([Reached { node: 0, value: (0, 0) }]);
    for (node, before) in before.iter_mut().enumerate().skip(1) {
        let now_ns = at_ns(node);
        while window.front().is_some_and(|front| now_ns - at_ns(front.node) > apart_ns) {
            window.pop_front();
        }
        let best = *window.front().expect("without a gap, the point before is in reach");
        *before = best.node as u32;
        if node <= count {
            let value = (best.value.0.saturating_add(candidates.write_ns(node - 1)), best.value.1 + 1);
            while window.back().is_some_and(|back| back.value >= value) {
                window.pop_back();
            }
            window.push_back(Reached { node, value });
        }
    }
    Ok(trace(&before))
}

/// A node, and the least time and number of checkpoints with which it is reached.
#[derive(Clone, Copy)]
struct Reached {
    node: usize,
    value: (u64, u32),
}

/// The points on the way to the last node, given the node before each.
pub(crate) fn trace(before: &[u32]) -> Vec<usize> {
    let mut chosen = Vec::new();
    let mut node = before[before.len() - 1] as usize;
    while node > 0 {
        chosen.push(node - 1);
        node = before[node] as usize;
    }
    chosen.reverse();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_points_in_reach_are_taken() {
        let candidates = Candidates::from_times(&[(10, 9), (20, 1), (30, 9), (40, 2), (50, 9)], 60);
        assert_eq!(shortest(&candidates, 20), Ok(vec![1, 3]));
        assert_eq!(shortest(&candidates, 60), Ok(vec![]));
        assert_eq!(shortest(&candidates, 10), Ok(vec![0, 1, 2, 3, 4]));
        assert!(shortest(&candidates, 9).is_err());
    }

    #[test]
    fn of_equal_choices_the_one_with_fewer_points_is_taken() {
        let candidates = Candidates::from_times(&[(10, 0), (20, 0), (30, 0)], 40);
        assert_eq!(shortest(&candidates, 20).unwrap().len(), 1);
    }
}
