use alloc::collections::BTreeMap;
use core::time::Duration;

use everfold_protocol::{
    Incarnation, JobId, Path,
    message::{Evidence, Peer},
};

use super::*;
use crate::membership::{Membership, Prospect};

const PATIENCE: Patience = Patience {
    call: Duration::from_millis(20),
    answer: Some(Duration::from_millis(100)),
    reach: Duration::from_millis(2200),
};

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

/// So many ranks, `per_host` on each host.
fn members(ranks: u32, per_host: u32) -> Membership {
    let mut members = Membership::new(JobId(1), ranks);
    for rank in (0..ranks).map(Rank) {
        members.join(Peer {
            process: ProcessId::first(rank),
            host: u64::from(rank.0 / per_host),
            pid: 0,
            region: None,
            bell: None,
            board: None,
            address: String::new(),
            domain: None,
            agent: None,
        });
    }
    members
}

fn keepers(owners: impl Iterator<Item = Rank>) -> Keepers {
    let mut keepers = Keepers::default();
    owners.for_each(|owner| keepers.add(at(0), owner, 4));
    keepers
}

#[test]
fn an_owner_waits_for_its_placed_keeper_for_a_while_and_then_for_nobody() {
    let members = members(4, 1);
    let (group, early, late) = (Path::range(0, 4), Path::range(0, 1), Path::range(0, 2));
    let mut keepers = keepers([Rank(0)].into_iter());
    let mut find = |ms, arrived| {
        let candidates = Candidates { group: &group, arrived, members: &members };
        keepers.find(at(ms), ProcessId::first(0), &candidates, &PATIENCE)
    };
    assert_eq!(find(0, &early), Found::Later(Some(at(20))));
    assert_eq!(find(20, &early), Found::Later(None), "nobody else has called");
    assert_eq!(find(21, &late), Found::Keeper(ProcessId::first(1)));
}

#[test]
fn a_placed_keeper_that_calls_nothing_more_is_not_waited_for() {
    let mut members = members(4, 1);
    members.close(Rank(1));
    let (group, arrived) = (Path::range(0, 4), [0, 2].into_iter().map(Rank).collect());
    let mut keepers = keepers([Rank(0)].into_iter());
    let candidates = Candidates { group: &group, arrived: &arrived, members: &members };
    let found = keepers.find(at(0), ProcessId::first(0), &candidates, &PATIENCE);
    assert_eq!(found, Found::Keeper(ProcessId::first(2)));
}

#[test]
fn however_many_are_late_no_other_keeps_more_than_one_copy() {
    let members = members(60, 4);
    let group = Path::range(0, 60);
    for step in 2..7 {
        let (late, arrived): (Vec<Rank>, Vec<Rank>) =
            (0..60).map(Rank).partition(|rank| rank.0 / 4 % step == 1 || rank.0 % 11 == step);
        let arrived: Path = arrived.into_iter().collect();
        let mut keepers = keepers(arrived.iter());
        let candidates = Candidates { group: &group, arrived: &arrived, members: &members };
        let mut loads = BTreeMap::new();
        for owner in arrived.iter() {
            let found = keepers.find(at(50), ProcessId::first(owner.0), &candidates, &PATIENCE);
            let Found::Keeper(keeper) = found else { panic!("{owner}: {found:?}") };
            assert!(
                candidates.are_apart(keeper.rank, ProcessId::first(owner.0)) && !late.contains(&keeper.rank)
            );
            *loads.entry(keeper).or_insert(0) += 1;
        }
        assert_eq!(loads.into_values().max(), Some(1), "{} are late", late.len());
    }
}

#[test]
fn the_keeper_of_what_a_dead_process_has_left_is_apart_from_the_host_of_that_process() {
    let mut members = members(4, 2);
    let group = Path::range(0, 4);
    let (dead, returned) =
        (ProcessId::first(0), ProcessId { incarnation: Incarnation(1), ..ProcessId::first(0) });
    members.stop_joining();
    members.fail(&[dead], Evidence::Disconnected, Prospect::Returns);
    let peer = Peer { process: returned, host: 1, ..members.alive(Rank(2)).expect("it lives").clone() };
    members.join(peer);
    assert_eq!(members.placement(&group).replica_of(Rank(0)), Some(Rank(1)), "the only one on another host");
    let candidates = Candidates { group: &group, arrived: &group, members: &members };
    let mut keepers = keepers([Rank(0)].into_iter());
    let found = keepers.find(at(0), dead, &candidates, &PATIENCE);
    let Found::Keeper(keeper) = found else { panic!("{found:?}") };
    assert!([2, 3].contains(&keeper.rank.0), "{keeper} is on the host of {dead}");
}

#[test]
fn what_a_dead_process_has_left_waits_a_while_for_a_keeper_on_another_host() {
    let mut members = members(4, 2);
    members.fail(&[ProcessId::first(0)], Evidence::Disconnected, Prospect::Gone);
    let (group, here, late) = (Path::range(0, 4), Path::range(0, 2), Path::range(0, 3));
    let find = |keepers: &mut Keepers, ms, arrived| {
        let candidates = Candidates { group: &group, arrived, members: &members };
        keepers.find(at(ms), ProcessId::first(0), &candidates, &PATIENCE)
    };
    let mut keepers = keepers([Rank(0)].into_iter());
    assert_eq!(find(&mut keepers, 0, &here), Found::Later(Some(at(20))));
    let mut patient = keepers.clone();
    assert!(
        keepers
            .concerned(Rank(2), &Candidates { group: &group, arrived: &late, members: &members })
            .contains(&Rank(0))
    );
    assert_eq!(find(&mut keepers, 10, &late), Found::Keeper(ProcessId::first(2)));
    assert_eq!(find(&mut patient, 20, &here), Found::Keeper(ProcessId::first(1)), "better than none");
}

#[test]
fn whoever_refuses_is_asked_no_more_and_a_few_refusals_end_the_search() {
    let members = members(6, 1);
    let group = Path::range(0, 6);
    let candidates = Candidates { group: &group, arrived: &group, members: &members };
    let mut keepers = keepers(group.iter());
    let mut asked = Vec::new();
    let mut next = Next::Ask;
    while next == Next::Ask {
        let found = keepers.find(at(1), ProcessId::first(0), &candidates, &PATIENCE);
        let Found::Keeper(keeper) = found else { panic!("{found:?}") };
        asked.push(keeper.rank.0);
        next = keepers.refused(at(1), keeper, Rank(0), 1, "full".to_owned());
    }
    assert_eq!((next, asked), (Next::GiveUp, vec![1, 2, 3]));
    assert!(keepers.give_up(Rank(0)) && !keepers.give_up(Rank(0)), "it is told once");
    assert_eq!(keepers.find(at(1), ProcessId::first(0), &candidates, &PATIENCE), Found::GivenUp);
}

#[test]
fn an_owner_that_nobody_reaches_is_given_up_after_a_silence_that_would_have_shown_its_death() {
    let members = members(3, 1);
    let group = Path::range(0, 3);
    let candidates = Candidates { group: &group, arrived: &group, members: &members };
    let mut keepers = keepers(group.iter());
    let mut asked = Vec::new();
    let mut ms = 0;
    loop {
        let found = keepers.find(at(ms), ProcessId::first(0), &candidates, &PATIENCE);
        let Found::Keeper(keeper) = found else { panic!("{found:?}") };
        asked.push(keeper.rank.0);
        if keepers.not_reached(at(ms), keeper, Rank(0), 1, &PATIENCE) == Next::GiveUp {
            break;
        }
        ms += 20;
    }
    assert_eq!(ms, 2200);
    assert_eq!(asked[..5], [1, 2, 1, 2, 1]);
}

#[test]
fn a_keeper_that_does_not_answer_is_not_waited_for_but_its_answer_counts() {
    let members = members(3, 1);
    let group = Path::range(0, 3);
    let candidates = Candidates { group: &group, arrived: &group, members: &members };
    let mut keepers = keepers(group.iter());
    let mut asked = Vec::new();
    let (mut next, mut now) = (Next::Ask, at(0));
    while next == Next::Ask {
        let found = keepers.find(now, ProcessId::first(0), &candidates, &PATIENCE);
        let Found::Keeper(keeper) = found else { panic!("{found:?}") };
        asked.push((keeper.rank.0, now.since(at(0)).as_millis()));
        keepers.get_mut(Rank(0)).expect("it has contributed").order(now, &(0..4));
        now = keepers.watch(Rank(0), &PATIENCE).expect("it is watched");
        next = keepers.look(now, Rank(0), &PATIENCE);
    }
    assert_eq!(asked, [(1, 0), (2, 100), (1, 300), (2, 700), (1, 1500)]);
    assert_eq!((next, now), (Next::GiveUp, at(2200)));
    keepers.kept(now, ProcessId::first(1), Rank(0), 4, 4);
    assert_eq!(keepers.get_mut(Rank(0)).map(|charge| charge.kept()), Some(4));
}
