//! Two neighbouring points that are too far apart.

use crate::candidates::Candidates;

/// Two neighbouring points of which the distance is too great, so that there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no plan: from {} s to {} s there is no candidate point, and neighbours may be {} s apart; \
     add a point between them, or allow {} s",
    *from_ns as f64 / 1e9, *to_ns as f64 / 1e9, *apart_ns as f64 / 1e9, *needed_ns as f64 / 1e9
)]
pub struct Gap {
    /// The point before the gap; none is the beginning of the program.
    pub from: Option<usize>,
    /// The point behind the gap; none is the end of the program.
    pub to: Option<usize>,
    /// When the gap begins.
    pub from_ns: u64,
    /// When it ends.
    pub to_ns: u64,
    /// The distance that was allowed.
    pub apart_ns: u64,
    /// The least distance for which there is a plan: the widest gap of all.
    pub needed_ns: u64,
}

impl Gap {
    /// The first gap that cannot be bridged, if there is one.
    pub fn find(candidates: &Candidates, apart_ns: u64) -> Option<Self> {
        let mut found: Option<Self> = None;
        let mut from_ns = 0;
        for to in 0..=candidates.len() {
            let to_ns = if to < candidates.len() { candidates.at_ns(to) } else { candidates.end_ns() };
            if to_ns - from_ns > apart_ns {
                let needed_ns = found.map_or(0, |gap| gap.needed_ns).max(to_ns - from_ns);
                let here = Self {
                    from: to.checked_sub(1),
                    to: (to < candidates.len()).then_some(to),
                    from_ns,
                    to_ns,
                    apart_ns,
                    needed_ns,
                };
                found = Some(Self { needed_ns, ..found.unwrap_or(here) });
            }
            from_ns = to_ns;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_gap_is_named_and_the_widest_told() {
        let candidates = Candidates::from_times(&[(10, 1), (25, 1), (30, 1)], 60);
        let gap = Gap::find(&candidates, 14).unwrap();
        assert_eq!((gap.from, gap.to, gap.from_ns, gap.to_ns, gap.needed_ns), (Some(0), Some(1), 10, 25, 30));
        let gap = Gap::find(&candidates, 15).unwrap();
        assert_eq!((gap.from, gap.to, gap.from_ns, gap.to_ns), (Some(2), None, 30, 60));
        let gap = Gap::find(&candidates, 9).unwrap();
        assert_eq!((gap.from, gap.to), (None, Some(0)));
        assert_eq!(Gap::find(&candidates, 30), None);
    }
}
