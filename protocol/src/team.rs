//! How a large group is divided, so that its reduction does not take one master's time for each of its ranks.
//!
//! All ranks but the root are in teams of neighbours, about as many teams as ranks in a team. The first rank
//! of a team hosts its *deputy*: a master that knows the team only. Members contribute to it and do its
//! tasks; it tells the job's master which segments of the team are folded, and where they lie, and there
//! these meet as if each were one rank's.
//!
//! That is an *attempt*, with an id of its own ([`ReductionId::in_teams`](crate::ReductionId::in_teams)):
//! nothing comes in between, or it is *dissolved* and all ranks contribute to the master as usual. Nobody but
//! the master finishes or dissolves an attempt, so that all hear the same. A process that dies in an attempt
//! takes its contribution along, although others may have folded it: so only what asks for no protection is
//! tried in teams.

use crate::{
    Path, Rank,
    spec::{BodyKind, Delivery, Order, Protection, ReductionSpec},
};

/// Whether a reduction like this is tried in teams; `from` is the least number of ranks, 0 for never.
pub fn suits(spec: &ReductionSpec, from: u32) -> bool {
    from > 0
        && spec.group.len() >= from.max(3) as usize
        && matches!(spec.delivery, Delivery::Root(_))
        && matches!(spec.kind, BodyKind::Array { .. })
        && spec.order == Order::Arrival
        && spec.protection == Protection::None
        && (spec.deadline, spec.allow_missing, spec.trace) == (None, false, false)
}

/// Whether the call makes sense, as far as that can be seen from it alone. Where it does not, teams would not
/// tell why.
pub fn is_sound(spec: &ReductionSpec, body_bytes_max: u64) -> bool {
    let bytes = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
    spec.delivery.root().is_some_and(|root| spec.group.contains(root))
        && (1..=body_bytes_max).contains(&bytes)
}

/// How many teams `others` ranks beside the root make.
fn count(others: usize) -> usize {
    others.isqrt().max(1)
}

/// The team of `rank`; none for the root, whose contribution nobody else reads.
pub fn of(spec: &ReductionSpec, rank: Rank) -> Option<Path> {
    let others = spec.group.difference(&Path::single(spec.delivery.root()?));
    let (ranks, position) = (others.len(), others.position(rank)?);
    let teams = count(ranks);
    let index = position * teams / ranks;
    let [start, end] = [index, index + 1].map(|index| (index * ranks).div_ceil(teams));
    Some(others.iter().skip(start).take(end - start).collect())
}

/// How many partials of a segment meet at most, in a team or those of all teams and of the root.
pub fn width(spec: &ReductionSpec) -> usize {
    let others = spec.group.len().saturating_sub(1).max(1);
    others.div_ceil(count(others)).max(count(others) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ElementType, Operation};

    fn spec(group: Path, root: u32) -> ReductionSpec {
        ReductionSpec {
            group,
            delivery: Delivery::Root(Rank(root)),
            kind: BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length: 1 },
            order: Order::Arrival,
            deadline: None,
            protection: Protection::None,
            allow_missing: false,
            trace: false,
        }
    }

    #[test]
    fn everyone_but_the_root_is_in_one_team() {
        for ranks in 3..200 {
            let group: Path = (0..ranks).map(|rank| Rank(rank * 3 / 2)).collect();
            let root = group.iter().nth(ranks as usize / 3).unwrap();
            let spec = spec(group.clone(), root.0);
            let mut all = Path::single(root);
            let mut teams = Vec::new();
            for rank in group.iter().filter(|rank| *rank != root) {
                let team = of(&spec, rank).unwrap();
                assert!(team.contains(rank));
                if team.first() == Some(rank) {
                    all = all.union(&team).unwrap();
                    teams.push(team.len());
                }
            }
            assert_eq!(all, group);
            assert_eq!(of(&spec, root), None);
            let (least, most) = (teams.iter().min().unwrap(), teams.iter().max().unwrap());
            assert!(most - least <= 1 && *most <= width(&spec) && teams.len() < width(&spec), "{teams:?}");
        }
    }

    #[test]
    fn what_waits_or_fails_or_tells_is_not_for_teams() {
        let good = spec(Path::range(0, 9), 4);
        assert!(suits(&good, 9) && !suits(&good, 10) && !suits(&good, 0));
        assert!(!suits(&ReductionSpec { order: Order::Fixed, ..good.clone() }, 3));
        assert!(!suits(&ReductionSpec { delivery: Delivery::All, ..good.clone() }, 3));
        assert!(!suits(&ReductionSpec { protection: Protection::Memory, ..good }, 3));
    }
}
