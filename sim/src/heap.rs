//! Events by due time.

use std::collections::VecDeque;

use everfold_protocol::Timestamp;

/// All that is going to happen, by due time and then in the order in which it was made.
///
/// A radix heap: nothing is due before what was taken last. An event lies in the bucket of the highest bit in
/// which its time differs from that one's, and moves down as time comes closer.
#[derive(Debug)]
pub(crate) struct Heap<T> {
    /// Those that are due at `last`.
    now: VecDeque<T>,
    /// By highest differing bit, each in the order in which they were made.
    later: [Vec<(Timestamp, T)>; 64],
    /// Bit by bit, whether there are some.
    filled: u64,
    last: Timestamp,
}

impl<T> Heap<T> {
    pub fn new() -> Self {
        Self { now: VecDeque::new(), later: [const { Vec::new() }; 64], filled: 0, last: Timestamp::ZERO }
    }

    /// Adds what happens `at` a time that is not before what was taken last.
    pub fn push(&mut self, at: Timestamp, what: T) {
        assert!(at >= self.last, "time never runs back");
        match (at.as_nanos() ^ self.last.as_nanos()).checked_ilog2() {
            None => self.now.push_back(what),
            Some(bit) => {
                self.later[bit as usize].push((at, what));
                self.filled |= 1 << bit;
            }
        }
    }

    pub fn pop(&mut self) -> Option<(Timestamp, T)> {
        if self.now.is_empty() {
            if self.filled == 0 {
                return None;
            }
            // All buckets below are empty: what moves there comes before what will be made.
            let lowest = self.filled.trailing_zeros();
            self.filled &= self.filled - 1;
            let mut nearest = std::mem::take(&mut self.later[lowest as usize]);
            self.last = nearest.iter().map(|(at, _)| *at).min()?;
            for (at, what) in nearest.drain(..) {
                self.push(at, what);
            }
            // Its memory is used again.
            self.later[lowest as usize] = nearest;
        }
        self.now.pop_front().map(|what| (self.last, what))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_in_which_they_were_made() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let (mut heap, mut sorted) = (Heap::new(), BTreeSet::new());
        let (mut made, mut now) = (0u64, 0);
        for _ in 0..10_000 {
            let far = random.random_range(0..63);
            for _ in 0..random.random_range(0..3) {
                let at = now + random.random_range(0..=u64::MAX >> (1 + far)) / 1000;
                heap.push(Timestamp::from_nanos(at), made);
                sorted.insert((at, made));
                made += 1;
            }
            let taken = heap.pop().map(|(at, what)| (at.as_nanos(), what));
            assert_eq!(taken, sorted.pop_first());
            now = taken.map_or(now, |(at, _)| at);
        }
        while let Some((at, what)) = heap.pop() {
            assert_eq!(Some((at.as_nanos(), what)), sorted.pop_first());
        }
        assert!(sorted.is_empty() && made > 5_000);
    }
}
