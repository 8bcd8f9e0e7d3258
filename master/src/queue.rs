//! Partials of one segment that wait for a partner.
//!
//! Commutative bodies meet in order of arrival (DR-6). Others meet only the partial that holds the ranks right before
//! or after theirs in the group, so that the operands keep their order. Neither way looks at more than the partials it
//! takes: the cost does not grow with the queue.

use std::collections::{BTreeMap, VecDeque};

use everfold_protocol::{Path, ProcessId, message::Data};

/// "A partial with this path is readable here" (DR §2 def. 4).
#[derive(Clone, Debug, PartialEq)]
pub struct Ready {
    /// Whose window.
    pub process: ProcessId,
    /// What is folded into it.
    pub path: Path,
    /// Where it is readable.
    pub data: Data,
}

impl Ready {
    /// Whether it can be read although its process may have died: what came inlined is in the master's hands.
    pub fn is_inline(&self) -> bool {
        matches!(self.data, Data::Inline(_))
    }
}

/// The waiting partials of one segment.
#[derive(Clone, Debug)]
pub enum Queue {
    /// Any two may meet; first come, first served.
    Arrival(VecDeque<Ready>),
    /// Only neighbours may meet.
    Neighbours(Neighbours),
}

/// Partials by their position in the group.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    /// By the group index of a path's first rank; a path is contiguous within the group.
    by_start: BTreeMap<usize, Ready>,
    /// Starts of partials that had a right neighbour when it came, in that order. An entry may be out of date.
    joints: VecDeque<usize>,
}

impl Queue {
    /// An empty queue.
    pub fn new(commutative: bool) -> Self {
        if commutative { Self::Arrival(VecDeque::new()) } else { Self::Neighbours(Neighbours::default()) }
    }

    /// Adds a partial. `group` gives the order of neighbours.
    pub fn push(&mut self, ready: Ready, group: &Path) {
        match self {
            Self::Arrival(queue) => queue.push_back(ready),
            Self::Neighbours(queue) => queue.push(ready, group),
        }
    }

    /// Number of waiting partials.
    pub fn len(&self) -> usize {
        match self {
            Self::Arrival(queue) => queue.len(),
            Self::Neighbours(queue) => queue.by_start.len(),
        }
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All waiting partials.
    pub fn iter(&self) -> Box<dyn Iterator<Item = &Ready> + '_> {
        match self {
            Self::Arrival(queue) => Box::new(queue.iter()),
            Self::Neighbours(queue) => Box::new(queue.by_start.values()),
        }
    }

    /// All waiting partials, in order.
    pub fn into_vec(self) -> Vec<Ready> {
        match self {
            Self::Arrival(queue) => queue.into(),
            Self::Neighbours(queue) => queue.by_start.into_values().collect(),
        }
    }

    /// Takes between two and `most` partials that may meet, in the order of their operands.
    pub fn take(&mut self, most: usize) -> Option<Vec<Ready>> {
        match self {
            Self::Arrival(queue) if queue.len() < 2 => None,
            Self::Arrival(queue) => Some(queue.drain(..most.min(queue.len())).collect()),
            Self::Neighbours(queue) => queue.take(most),
        }
    }

    /// Adds to `partials` what may meet them, up to `most` in all.
    ///
    /// `partials` came from [`take`](Self::take) on this queue.
    pub fn top_up(&mut self, partials: &mut Vec<Ready>, most: usize, group: &Path) {
        match self {
            Self::Arrival(queue) => {
                let more = most.saturating_sub(partials.len()).min(queue.len());
                partials.extend(queue.drain(..more));
            }
            Self::Neighbours(queue) => {
                while partials.len() < most {
                    let next =
                        partials.last().and_then(|last| queue.by_start.remove(&end(&last.path, group)));
                    let Some(next) = next else { break };
                    partials.push(next);
                }
            }
        }
    }

    /// Takes the first partial that `which` accepts. Looks at every partial.
    pub fn remove(&mut self, which: impl Fn(&Ready) -> bool) -> Option<Ready> {
        match self {
            Self::Arrival(queue) => queue.iter().position(which).and_then(|position| queue.remove(position)),
            Self::Neighbours(queue) => {
                let start = *queue.by_start.iter().find(|(_, ready)| which(ready))?.0;
                queue.by_start.remove(&start)
            }
        }
    }
}

impl Neighbours {
    fn push(&mut self, ready: Ready, group: &Path) {
        let (start, end) = (start(&ready.path, group), end(&ready.path, group));
        if let Some((&left, other)) = self.by_start.range(..start).next_back()
            && left + other.path.len() == start
        {
            self.joints.push_back(left);
        }
        if self.by_start.contains_key(&end) {
            self.joints.push_back(start);
        }
        self.by_start.insert(start, ready);
    }

    fn take(&mut self, most: usize) -> Option<Vec<Ready>> {
        while let Some(start) = self.joints.pop_front() {
            let Some(left) = self.by_start.get(&start) else {
                continue;
            };
            let mut next = start + left.path.len();
            if !self.by_start.contains_key(&next) {
                continue;
            }
            let mut taken = VecDeque::with_capacity(2);
            taken.extend(self.by_start.remove(&start));
            while taken.len() < most
                && let Some(ready) = self.by_start.remove(&next)
            {
                next += ready.path.len();
                taken.push_back(ready);
            }
            let mut first = start;
            while taken.len() < most
                && let Some((&left, other)) = self.by_start.range(..first).next_back()
                && left + other.path.len() == first
            {
                first = left;
                taken.push_front(self.by_start.remove(&left)?);
            }
            return Some(taken.into());
        }
        None
    }
}

/// Group index of the first rank of `path`.
fn start(path: &Path, group: &Path) -> usize {
    path.first().and_then(|rank| group.position(rank)).expect("a path is a non-empty part of its group")
}

/// Group index after the last rank of `path`.
fn end(path: &Path, group: &Path) -> usize {
    let start = start(path, group);
    debug_assert_eq!(path.last().and_then(|rank| group.position(rank)), Some(start + path.len() - 1));
    start + path.len()
}

#[cfg(test)]
mod tests {
    use everfold_protocol::Rank;
    use proptest::prelude::*;

    use super::*;

    fn ready(path: Path) -> Ready {
        Ready { process: ProcessId::first(path.first().unwrap()), path, data: Data::Private }
    }

    #[test]
    fn in_order_of_arrival() {
        let group = Path::range(0, 5);
        let mut queue = Queue::new(true);
        for rank in [3, 0, 4] {
            queue.push(ready(Path::single(Rank(rank))), &group);
        }
        let taken = queue.take(2).unwrap();
        assert_eq!(taken.iter().map(|r| r.process.rank.0).collect::<Vec<_>>(), [3, 0]);
        assert!(queue.take(2).is_none(), "one alone has no partner");
    }

    proptest! {
        /// Whatever the order of arrival, neighbours fold to the whole group and nothing else ever meets.
        #[test]
        fn neighbours_fold_to_the_group(
            order in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(),
            gaps in prop::collection::vec(1u32..4, 12),
            most in 2usize..5,
        ) {
            let ranks: Vec<Rank> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(Rank(*at)) }).collect();
            let group: Path = ranks.iter().copied().collect();
            let mut queue = Queue::new(false);
            for index in order {
                queue.push(ready(Path::single(ranks[index])), &group);
                while let Some(partials) = queue.take(most) {
                    prop_assert!((2..=most).contains(&partials.len()));
                    let mut path = Path::empty();
                    for pair in partials.windows(2) {
                        prop_assert_eq!(end(&pair[0].path, &group), start(&pair[1].path, &group));
                    }
                    for partial in &partials {
                        path = path.union(&partial.path).unwrap();
                    }
                    queue.push(ready(path), &group);
                }
            }
            prop_assert_eq!(queue.iter().cloned().collect::<Vec<_>>(), vec![ready(group)]);
        }
    }
}
