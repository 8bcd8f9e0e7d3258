//! Partials of one segment that wait for a partner.
//!
//! Commutative bodies meet in order of arrival (DR-6). Others meet only the partial that holds the ranks right before
//! or after theirs in the group, so that the operands keep their order.

use std::collections::{BTreeMap, BTreeSet};

use everfold_protocol::{Path, ProcessId, Rank, message::Data};

/// Near partners are looked for among so many of the oldest: of thousands that wait, mostly none is near.
const NEAR_AMONG: usize = 128;

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
    /// Any may meet; first come, first served.
    Arrival(Arrivals),
    /// Only neighbours may meet.
    Neighbours(Neighbours),
}

/// Partials in order of arrival.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    partials: BTreeMap<u64, Ready>,
    /// The same by whose they are.
    places: BTreeSet<(Rank, u64)>,
    next: u64,
}

/// Partials by their position in the group.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    /// By the group index of a path's first rank; a path is contiguous within the group.
    by_start: BTreeMap<usize, Ready>,
    /// Whose they are.
    places: BTreeSet<(Rank, usize)>,
    /// Starts of partials whose right neighbour waits, too.
    joints: BTreeSet<usize>,
}

impl Queue {
    /// An empty queue.
    pub fn new(commutative: bool) -> Self {
        if commutative { Self::Arrival(Arrivals::default()) } else { Self::Neighbours(Neighbours::default()) }
    }

    /// Adds a partial. `group` gives the order of neighbours.
    pub fn push(&mut self, ready: Ready, group: &Path) {
        match self {
            Self::Arrival(queue) => queue.push(ready),
            Self::Neighbours(queue) => queue.push(ready, group),
        }
    }

    /// Number of waiting partials.
    pub fn len(&self) -> usize {
        match self {
            Self::Arrival(queue) => queue.partials.len(),
            Self::Neighbours(queue) => queue.by_start.len(),
        }
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether some of them may meet.
    pub fn has_partners(&self) -> bool {
        match self {
            Self::Arrival(queue) => queue.partials.len() > 1,
            Self::Neighbours(queue) => !queue.joints.is_empty(),
        }
    }

    /// Whether `ready`, which waits here, may meet another one.
    pub fn meets(&self, ready: &Ready, group: &Path) -> bool {
        match self {
            Self::Arrival(queue) => queue.partials.len() > 1,
            Self::Neighbours(queue) => queue.meets(start(&ready.path, group)),
        }
    }

    /// All waiting partials, in order.
    pub fn iter(&self) -> Box<dyn DoubleEndedIterator<Item = &Ready> + '_> {
        match self {
            Self::Arrival(queue) => Box::new(queue.partials.values()),
            Self::Neighbours(queue) => Box::new(queue.by_start.values()),
        }
    }

    /// The waiting partials at `rank`.
    pub fn of(&self, rank: Rank) -> Box<dyn Iterator<Item = &Ready> + '_> {
        match self {
            Self::Arrival(queue) => {
                Box::new(queue.places.range((rank, 0)..=(rank, u64::MAX)).map(|(_, at)| &queue.partials[at]))
            }
            Self::Neighbours(queue) => Box::new(
                queue.places.range((rank, 0)..=(rank, usize::MAX)).map(|(_, at)| &queue.by_start[at]),
            ),
        }
    }

    /// All waiting partials, in order.
    pub fn into_vec(self) -> Vec<Ready> {
        match self {
            Self::Arrival(queue) => queue.partials.into_values().collect(),
            Self::Neighbours(queue) => queue.by_start.into_values().collect(),
        }
    }

    /// Takes `ready`, or whatever comes first, with partners: between two and `most` partials in the order of their
    /// operands. Partners that `near` accepts are preferred where any may meet.
    pub fn take(
        &mut self,
        ready: Option<&Ready>,
        most: usize,
        near: impl Fn(&Ready) -> bool,
    ) -> Option<Vec<Ready>> {
        match self {
            Self::Arrival(queue) => queue.take(ready, most, near),
            Self::Neighbours(queue) => queue.take(ready, most),
        }
    }

    /// Takes the first partial that `which` accepts. Looks at every partial.
    pub fn remove(&mut self, which: impl Fn(&Ready) -> bool) -> Option<Ready> {
        match self {
            Self::Arrival(queue) => {
                let at = *queue.partials.iter().find(|(_, ready)| which(ready))?.0;
                queue.remove(at)
            }
            Self::Neighbours(queue) => {
                let at = *queue.by_start.iter().find(|(_, ready)| which(ready))?.0;
                queue.remove(at)
            }
        }
    }
}

impl Arrivals {
    fn push(&mut self, ready: Ready) {
        self.places.insert((ready.process.rank, self.next));
        self.partials.insert(self.next, ready);
        self.next += 1;
    }

    fn remove(&mut self, at: u64) -> Option<Ready> {
        let ready = self.partials.remove(&at)?;
        self.places.remove(&(ready.process.rank, at));
        Some(ready)
    }

    fn take(
        &mut self,
        ready: Option<&Ready>,
        most: usize,
        near: impl Fn(&Ready) -> bool,
    ) -> Option<Vec<Ready>> {
        if self.partials.len() < 2 {
            return None;
        }
        let first = match ready {
            Some(ready) => {
                let mut places = self.places.range((ready.process.rank, 0)..=(ready.process.rank, u64::MAX));
                places.find(|(_, at)| self.partials[at] == *ready)?.1
            }
            None => *self.partials.first_key_value()?.0,
        };
        let mut taken = vec![self.remove(first)?];
        let others = || self.partials.iter();
        let oldest = others().take(NEAR_AMONG);
        let nearby: Vec<u64> =
            oldest.filter(|(_, other)| near(other)).map(|(at, _)| *at).take(most - 1).collect();
        let partners = match nearby.is_empty() {
            true => others().map(|(at, _)| *at).take(most - 1).collect(),
            false => nearby,
        };
        taken.extend(partners.into_iter().filter_map(|at| self.remove(at)));
        Some(taken)
    }
}

impl Neighbours {
    fn push(&mut self, ready: Ready, group: &Path) {
        let (start, end) = (start(&ready.path, group), end(&ready.path, group));
        if let Some((&left, other)) = self.by_start.range(..start).next_back()
            && left + other.path.len() == start
        {
            self.joints.insert(left);
        }
        if self.by_start.contains_key(&end) {
            self.joints.insert(start);
        }
        self.places.insert((ready.process.rank, start));
        self.by_start.insert(start, ready);
    }

    fn meets(&self, start: usize) -> bool {
        self.joints.contains(&start) || self.left_of(start).is_some()
    }

    fn left_of(&self, start: usize) -> Option<usize> {
        let (&left, other) = self.by_start.range(..start).next_back()?;
        (left + other.path.len() == start).then_some(left)
    }

    fn remove(&mut self, at: usize) -> Option<Ready> {
        let left = self.left_of(at);
        let ready = self.by_start.remove(&at)?;
        self.places.remove(&(ready.process.rank, at));
        self.joints.remove(&at);
        left.map(|left| self.joints.remove(&left));
        Some(ready)
    }

    fn take(&mut self, ready: Option<&Ready>, most: usize) -> Option<Vec<Ready>> {
        let mut first = match ready {
            Some(ready) => {
                let mut places =
                    self.places.range((ready.process.rank, 0)..=(ready.process.rank, usize::MAX));
                places.find(|(_, at)| self.by_start[at] == *ready)?.1
            }
            None => *self.joints.first()?,
        };
        if !self.meets(first) {
            return None;
        }
        let mut count = 1;
        let mut end = first + self.by_start[&first].path.len();
        while count < most
            && let Some(next) = self.by_start.get(&end)
        {
            end += next.path.len();
            count += 1;
        }
        while count < most
            && let Some(left) = self.left_of(first)
        {
            first = left;
            count += 1;
        }
        let starts: Vec<usize> = self.by_start.range(first..end).map(|(start, _)| *start).collect();
        Some(starts.into_iter().filter_map(|start| self.remove(start)).collect())
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
        let ranks = |taken: &[Ready]| taken.iter().map(|ready| ready.process.rank.0).collect::<Vec<_>>();
        let own = ready(Path::single(Rank(4)));
        let near = |other: &Ready| other.process.rank == 0;
        assert_eq!(ranks(&queue.clone().take(Some(&own), 3, near).unwrap()), [4, 0], "only those nearby");
        assert_eq!(ranks(&queue.clone().take(Some(&own), 2, |_| false).unwrap()), [4, 3]);
        assert_eq!(ranks(&queue.take(None, 2, |_| false).unwrap()), [3, 0]);
        assert!(queue.take(None, 2, |_| true).is_none(), "one alone has no partner");
        assert_eq!(queue.of(Rank(4)).count(), 1);
        assert_eq!(queue.of(Rank(3)).count(), 0);
    }

    proptest! {
        /// Whatever the order of arrival, neighbours fold to the whole group and nothing else ever meets.
        #[test]
        fn neighbours_fold_to_the_group(
            order in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(),
            gaps in prop::collection::vec(1u32..4, 12),
            most in 2usize..5,
            named: bool,
        ) {
            let ranks: Vec<Rank> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(Rank(*at)) }).collect();
            let group: Path = ranks.iter().copied().collect();
            let mut queue = Queue::new(false);
            for index in order {
                queue.push(ready(Path::single(ranks[index])), &group);
                while queue.has_partners() {
                    let has_partner = |ready: &&Ready| {
                        queue.clone().take(Some(ready), most, |_| true).is_some()
                    };
                    let last = queue.iter().rev().find(has_partner).cloned();
                    prop_assert!(last.is_some());
                    let partials = queue.take(last.as_ref().filter(|_| named), most, |_| true).unwrap();
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
