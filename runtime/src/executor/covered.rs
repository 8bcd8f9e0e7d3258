//! Which bytes have come, where they come in any order.

use std::collections::BTreeMap;

use everfold_protocol::message::ByteRange;

/// Ranges of bytes that are there: where each ends, by where it begins. No two touch each other.
#[derive(Debug, Default)]
pub(super) struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Takes in that these bytes are there.
    pub fn insert(&mut self, range: ByteRange) {
        let (mut start, mut end) = (range.start, range.end());
        let touches = |(&first, &last): (&u64, &u64)| (last >= range.start).then_some((first, last));
        while let Some((first, last)) = self.0.range(..=range.end()).next_back().and_then(touches) {
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
    }

    /// What of `range` is not there, in order.
    pub fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        let mut next = range.start;
        for (&start, &end) in self.0.range(..range.end()) {
            if start > next {
                gaps.push(ByteRange { start: next, len: start - next });
            }
            next = next.max(end);
        }
        if next < range.end() {
            gaps.push(ByteRange { start: next, len: range.end() - next });
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ranges within this many bytes.
    fn ranges(bytes: u64) -> impl Iterator<Item = ByteRange> {
        (0..bytes).flat_map(move |start| (1..=bytes - start).map(move |len| ByteRange { start, len }))
    }

    #[test]
    fn gaps_are_what_was_not_put_in() {
        let all: Vec<_> = ranges(6).collect();
        for (a, b, c) in all.iter().flat_map(|a| all.iter().flat_map(|b| all.iter().map(|c| (*a, *b, *c)))) {
            let mut covered = Covered::default();
            [a, b, c].into_iter().for_each(|range| covered.insert(range));
            let is_there = |byte| [a, b, c].iter().any(|range| (range.start..range.end()).contains(&byte));
            for asked in [ByteRange { start: 0, len: 6 }, ByteRange { start: 2, len: 3 }] {
                let missing: Vec<u64> = (asked.start..asked.end()).filter(|byte| !is_there(*byte)).collect();
                let gaps = covered.gaps(asked);
                let told: Vec<u64> = gaps.iter().flat_map(|gap| gap.start..gap.end()).collect();
                assert_eq!(told, missing, "{a:?} {b:?} {c:?}");
                assert!(gaps.windows(2).all(|pair| pair[0].end() < pair[1].start), "gaps are whole");
            }
        }
    }
}
