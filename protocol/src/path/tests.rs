use alloc::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::codec;

fn ranks() -> impl Strategy<Value = BTreeSet<u32>> {
    prop::collection::btree_set(0u32..60, 0..40)
}

fn path(set: &BTreeSet<u32>) -> Path {
    set.iter().copied().map(Rank).collect()
}

proptest! {
    #[test]
    fn a_path_is_the_set_it_was_made_from(a in ranks()) {
        let p = path(&a);
        prop_assert_eq!(p.iter().map(|r| r.0).collect::<BTreeSet<_>>(), a.clone());
        prop_assert_eq!(p.len(), a.len());
        for r in 0..60 {
            prop_assert_eq!(p.position(Rank(r)), a.contains(&r).then(|| a.range(..r).count()));
            prop_assert_eq!(p.contains(Rank(r)), a.contains(&r));
            prop_assert_eq!(p.before(Rank(r)), a.range(..r).next_back().copied().map(Rank));
            prop_assert_eq!(p.after(Rank(r)), a.range(r + 1..).next().copied().map(Rank));
        }
    }

    #[test]
    fn union_refuses_exactly_the_overlapping(a in ranks(), b in ranks()) {
        let union = path(&a).union(&path(&b));
        match a.intersection(&b).next() {
            Some(smallest) => prop_assert_eq!(union, Err(Overlap(Rank(*smallest)))),
            None => prop_assert_eq!(union, Ok(path(&a.union(&b).copied().collect()))),
        }
    }

    #[test]
    fn a_union_of_many_is_that_of_two_again_and_again(sets in prop::collection::vec(ranks(), 0..5)) {
        let paths: Vec<Path> = sets.iter().map(path).collect();
        let sum: usize = sets.iter().map(BTreeSet::len).sum();
        let all: BTreeSet<u32> = sets.into_iter().flatten().collect();
        let union = Path::union_of(&paths);
        prop_assert_eq!(union.is_ok(), sum == all.len());
        if let Ok(union) = &union {
            prop_assert_eq!(union, &path(&all));
        }
        let several = |rank: &u32| paths.iter().filter(|path| path.contains(Rank(*rank))).count() > 1;
        if let Err(Overlap(rank)) = union {
            prop_assert_eq!(Some(rank.0), all.iter().copied().find(several));
        }
        let in_turn = paths.iter().try_fold(Path::empty(), |all, path| all.union(path));
        prop_assert_eq!(Path::union_of(&paths).is_ok(), in_turn.is_ok());
    }

    #[test]
    fn any_of_others_is_a_union_of_sets(sets in prop::collection::vec((ranks(), 0u32..60), 0..5)) {
        let others = |(set, beside): &(BTreeSet<u32>, u32)| { let mut set = set.clone(); set.remove(beside); set };
        let any: BTreeSet<u32> = sets.iter().flat_map(others).collect();
        let paths: Vec<_> = sets.iter().map(|(set, beside)| (path(set), Rank(*beside))).collect();
        let paths = paths.iter().map(|(path, beside)| (path, *beside));
        prop_assert_eq!(Path::any_of_others(paths), path(&any));
    }

    #[test]
    fn ranks_come_and_go_in_place(a in ranks(), rank in 0u32..60) {
        let (mut more, mut less) = (path(&a), path(&a));
        let (mut with, mut without) = (a.clone(), a.clone());
        prop_assert_eq!(more.insert(Rank(rank)).is_ok(), with.insert(rank));
        prop_assert_eq!(less.remove(Rank(rank)), without.remove(&rank));
        prop_assert_eq!(more, path(&with));
        prop_assert_eq!(less, path(&without));
    }

    #[test]
    fn intersection_is_set_intersection(a in ranks(), b in ranks()) {
        let both: BTreeSet<u32> = a.intersection(&b).copied().collect();
        prop_assert_eq!(path(&a).is_disjoint(&path(&b)), both.is_empty());
        prop_assert_eq!(path(&a).intersection(&path(&b)), path(&both));
    }

    #[test]
    fn difference_is_set_difference(a in ranks(), b in ranks()) {
        prop_assert_eq!(path(&a).difference(&path(&b)), path(&a.difference(&b).copied().collect()));
        prop_assert_eq!(path(&a).is_subset(&path(&b)), a.is_subset(&b));
    }

    #[test]
    fn paths_survive_the_wire(a in ranks()) {
        let bytes = codec::encode(&path(&a)).unwrap();
        prop_assert_eq!(codec::decode::<Path>(&bytes).unwrap(), path(&a));
    }
}

#[test]
fn a_path_that_is_not_in_normal_form_is_refused() {
    let touching = [Interval { start: 0, end: 2 }, Interval { start: 2, end: 3 }];
    let bytes = codec::encode(&touching.to_vec()).unwrap();
    assert!(codec::decode::<Path>(&bytes).is_err());
}

#[test]
fn paths_print_as_intervals() {
    let path: Path = [0, 1, 2, 5, 9, 10].into_iter().map(Rank).collect();
    assert_eq!(path.to_string(), "{0-2,5,9-10}");
}
