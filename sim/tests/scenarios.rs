//! Runs that once went wrong, by name. Those in `scenarios/` are what `everfold sim check --shrink` left of
//! random worlds.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use everfold_master::Notice;
use everfold_protocol::{
    Path, Rank, ReductionSpec,
    message::{Evidence, News},
    spec::{BodyKind, Delivery, ElementType, Operation, Order, Protection},
};
use everfold_sim::{
    Call, Settings, World,
    check::{Schedule, run},
};
use everfold_worker::machine::End;

/// A test for each of the schedules in `scenarios/`.
macro_rules! scenarios {
    ($($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            let text = include_str!(concat!("scenarios/", stringify!($name), ".toml"));
            let schedule: Schedule = toml::from_str(text).unwrap();
            run(&schedule).unwrap_or_else(|violation| panic!("{violation}"));
        })+

        #[test]
        fn every_scenario_is_a_test() {
            assert_eq!(std::fs::read_dir("tests/scenarios").unwrap().count(), [$(stringify!($name)),+].len());
        }
    };
}

scenarios! {
    a_body_went_with_its_process,
    a_call_waits_until_the_master_knows_of_earlier_ones,
    a_contribution_arrives_damaged,
    a_contribution_beside_two_damaged_copies,
    a_contribution_is_half_overwritten_by_the_result,
    a_contribution_of_the_dead_completes_a_lost_result,
    a_contribution_of_the_dead_is_not_lost_with_another,
    a_contribution_stays_damaged_for_a_while,
    a_contribution_stays_damaged_for_every_reader,
    a_contribution_stays_damaged_for_one_reader,
    a_contribution_that_stays_damaged_does_not_come_again,
    a_copy_is_ready_while_the_result_is_handed_out,
    a_copy_of_a_vault_fails_as_its_process_dies,
    a_damaged_copy_beside_its_keepers_own_contribution,
    a_dead_rank_has_copied_the_result_over_its_partial,
    a_deadline_passes_beside_pieces_that_ranks_have,
    a_deadline_passes_while_its_result_is_copied,
    a_fold_fails_beside_a_result,
    a_fold_hangs_past_the_deadline,
    a_host_is_lost_before_its_ranks_join,
    a_host_is_lost_between_noting_and_leaving_a_round,
    a_host_is_lost_where_a_rank_was_to_come_back,
    a_host_is_lost_while_the_master_sleeps,
    a_host_is_lost_whose_ranks_work_for_their_team,
    a_host_is_lost_with_one_rank_that_is_to_come_again,
    a_host_is_lost_with_one_rank_that_returns_and_one_that_does_not,
    a_host_vanishes_before_its_ranks_join,
    a_keeper_dies_before_the_owners_host,
    a_keeper_never_hears_from_an_owner,
    a_keeper_never_reaches_an_owner,
    a_later_call_goes_in_a_message,
    a_later_call_is_in_the_log_and_an_earlier_one_is_open,
    a_later_process_has_left_what_an_earlier_one_took_along,
    a_lender_has_closed_its_windows,
    a_lender_whose_bytes_arrived_damaged_once_is_asked_again,
    a_long_body_on_the_board_is_not_folded_last,
    a_missing_rank_comes_back_and_calls,
    a_missing_rank_still_copies_as_another_one_dies,
    a_part_that_was_lost_with_its_owner_can_be_had_again,
    a_partial_is_read_where_an_earlier_process_of_its_rank_was,
    a_partial_outside_the_region_went_with_its_owner,
    a_process_ends_between_its_agent_and_the_master,
    a_process_is_started_too_late,
    a_process_lives_on_whose_rank_is_elsewhere,
    a_process_that_was_left_behind_never_ends,
    a_rank_calls_long_after_its_call_was_refused,
    a_rank_comes_back_while_what_it_has_left_is_damaged,
    a_rank_dies_before_it_has_noted_a_refusal,
    a_rank_dies_before_its_call_is_heard_again,
    a_rank_dies_between_its_note_and_leaving_the_round,
    a_rank_dies_while_its_result_is_handed_out,
    a_rank_has_noted_a_result_that_another_is_refused,
    a_rank_has_moved_to_the_only_host_before_another_contributes,
    a_rank_is_back_as_what_it_had_left_goes_with_its_host,
    a_rank_may_have_noted_what_others_cannot_have,
    a_rank_moves_after_its_contribution_counted_on_one_host,
    a_rank_notes_a_result_when_it_is_refused,
    a_rank_says_that_it_has_a_result_when_that_is_refused,
    a_rank_that_came_back_leaves_before_its_replica_is_whole,
    a_rank_that_is_missing_calls_again,
    a_rank_whose_bytes_stay_damaged_is_left_alone_in_a_segment,
    a_receiver_may_have_noted_what_is_given_up,
    a_refusal_is_told_again_when_its_rank_is_another_process,
    a_relay_is_cut_off_while_the_owner_is_reached_again,
    a_replica_arrives_damaged,
    a_replica_went_with_its_keeper,
    a_result_arrives_damaged,
    a_result_is_noted_and_its_rank_dies_before_it_says_so,
    a_result_stays_damaged_beside_hosts_that_are_apart,
    a_result_that_stays_damaged_is_made_of_bodies_that_the_master_has,
    a_result_waits_for_readers_of_the_body,
    a_root_and_its_neighbour_in_the_tree_are_apart,
    a_root_is_refused_by_one_owner,
    a_root_never_hears_from_one_owner,
    a_silent_process_is_ended_and_its_rank_does_not_come_back,
    a_silent_rank_takes_its_late_agent_along,
    a_slow_rank_dies_in_its_share,
    a_slow_rank_is_still_busy_when_the_result_is_lost,
    a_standby_that_takes_its_place_too_late_is_turned_away,
    all_but_the_masters_rank_have_the_result,
    all_end_on_all_hosts_before_they_join,
    an_agent_begins_late_to_look_for_a_master_that_does_not_come,
    an_exchange_is_copied_a_few_pieces_at_a_time,
    an_idle_worker_looks_beyond_what_an_earlier_process_owned,
    an_original_is_gone_when_it_is_to_be_copied,
    an_original_that_went_with_its_window,
    attempts_to_reach_two_processes_multiply,
    contributors_die_beside_a_rank_that_calls_nothing_more,
    copies_stay_damaged_for_every_reader,
    copies_stay_damaged_for_one_reader,
    late_tasks_find_in_vain_what_is_gone,
    neighbours_of_the_dead_meet_the_root_last,
    nobody_else_comes_to_the_host_of_a_process_that_never_joins,
    nobody_is_left_to_collect,
    nobody_is_left_to_fold_for,
    nobody_listens_who_has_given_the_master_up,
    other_hosts_hear_that_rank_0_never_comes,
    parts_of_a_lost_contribution_beside_one_that_came_again,
    pieces_that_came_in_a_message_take_no_pauses,
    rank_0_ends_between_its_agent_and_the_master,
    rank_0_leaves_long_before_the_others,
    ranks_call_what_others_were_refused,
    the_dead_owner_beside_a_reader_is_read_at_any_time,
    the_fenced_have_room,
    the_first_host_is_lost_before_there_is_a_master,
    the_first_host_vanishes_before_the_job_begins,
    the_first_who_have_the_result_are_on_one_host,
    the_keeper_of_a_dead_rank_shows_damaged_bytes,
    the_last_who_has_the_result_holds_it_damaged,
    the_last_who_lives_leaves_without_contributing,
    the_log_answers_before_the_replica_has_it,
    the_only_contributor_dies_when_it_has_the_result,
    the_only_keeper_has_noted_the_outcome,
    the_result_is_handed_over_as_its_lenders_leave,
    those_who_hear_that_there_is_no_job_are_the_last,
    two_hosts_cannot_read_each_others_results,
    two_ranks_overtake_each_other_in_vain,
    two_that_have_closed_wait_for_each_other,
    what_is_begun_afresh_in_vain,
    what_was_folded_of_a_contribution_that_is_to_come_again,
    whoever_leaves_has_put_something_on_the_board,
    whoever_still_waits_for_the_result_dies,
}

/// All partials that were left had come inlined from processes that died. Rank 0 lived, but its contribution
/// was folded into one of them, so nobody could be given the task.
#[test]
fn inlined_partials_of_the_dead_bring_back_a_survivor() {
    let mut settings = Settings::new(3, 0);
    settings.latency = (Duration::from_micros(1), Duration::from_micros(1));
    settings.policy.hold_bytes = 1;
    settings.policy.spread_bytes = 0;
    let mut world = World::new(settings);
    world.run();
    let spec = ReductionSpec {
        group: Path::range(0, 3),
        delivery: Delivery::All,
        kind: BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length: 1 },
        order: Order::Arrival,
        deadline: None,
        protection: Protection::default(),
        allow_missing: false,
        // So that a rank does it, and not the master.
        trace: true,
    };
    for (at_us, rank) in [(0, 0), (10, 2), (1000, 1)] {
        let call = Call { rank: Rank(rank), name: "x".into(), sequence: 0, spec: spec.clone(), inline: true };
        world.call(Duration::from_micros(at_us), call);
    }
    world.kill(Duration::from_micros(900), Rank(2));
    world.kill(Duration::from_micros(1050), Rank(1));
    world.run();
    let ended = world.ended(Rank(0), "x", 0).unwrap();
    let End::Received(report) = &ended.end else { panic!("{ended:?}") };
    assert_eq!(report.survived, Path::range(1, 3));
    let mut counted = ended.value.clone().unwrap().remove(0);
    counted.sort_unstable();
    assert_eq!(counted, [0, 1, 2].map(Rank));
}

/// A host goes without a word while its rank reads what others have contributed. They have their bodies back,
/// and with them the result, once they hear that it is declared failed: at whatever moment it goes.
#[test]
fn whoever_is_read_by_a_rank_that_vanishes_goes_on() {
    let survivors = [0, 1, 3].map(Rank);
    let spec = ReductionSpec {
        group: Path::range(0, 4),
        delivery: Delivery::All,
        kind: BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length: 500_000 },
        order: Order::Arrival,
        deadline: None,
        protection: Protection::default(),
        allow_missing: true,
        trace: false,
    };
    for lost_us in (0..2000).step_by(100) {
        let mut settings = Settings::new(4, 0);
        settings.hosts = vec![0, 1, 2, 3];
        settings.policy.limits.ping_interval = Duration::from_millis(10);
        let mut world = World::new(settings);
        while world.met().len() < 4 {
            assert!(world.step());
        }
        for rank in (0..4).map(Rank) {
            let call = Call { rank, name: "x".into(), sequence: 0, spec: spec.clone(), inline: false };
            world.call(Duration::ZERO, call);
        }
        world.lose_host(Duration::from_micros(lost_us), 2);
        let lost_at = world.now();
        while !survivors.iter().all(|rank| world.ended(*rank, "x", 0).is_some()) {
            assert!(world.step());
            assert!(
                world.now().since(lost_at) < Duration::from_secs(5),
                "lost after {lost_us} µs: they wait for it"
            );
        }
    }
}

/// The agent of its host tells of the end of a process before what that has said last has come to the master:
/// it counts all the same, as the connection of the process has not broken yet.
#[test]
fn the_end_of_a_process_does_not_overtake_what_it_has_said() {
    let spec = ReductionSpec {
        group: Path::range(0, 3),
        delivery: Delivery::All,
        kind: BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length: 1 },
        order: Order::Arrival,
        deadline: None,
        protection: Protection::default(),
        allow_missing: true,
        trace: false,
    };
    let mut overtaken = 0;
    for seed in 0..50 {
        let mut settings = Settings::new(3, seed);
        settings.hosts = vec![0, 1, 2];
        settings.agents = true;
        settings.latency = (Duration::from_micros(1), Duration::from_micros(500));
        let mut world = World::new(settings);
        while world.met().len() < 3 {
            assert!(world.step());
        }
        for rank in (0..3).map(Rank) {
            let call = Call { rank, name: "x".into(), sequence: 0, spec: spec.clone(), inline: true };
            world.call(Duration::ZERO, call);
        }
        world.kill(Duration::from_micros(1), Rank(2));
        world.run();
        let ended = world.ended(Rank(0), "x", 0).unwrap();
        let End::Received(report) = &ended.end else { panic!("seed {seed}: {ended:?}") };
        assert_eq!(report.contributors, Path::range(0, 3), "seed {seed}");
        let is_told = |notice: &Notice| matches!(notice, Notice::Failed { evidence: Evidence::Ended(_), .. });
        overtaken += u32::from(world.notices().iter().any(is_told));
    }
    assert!(overtaken > 10, "the agent was often the first to tell: {overtaken}");
}

/// The disk of one rank is full. Whose copy it was to keep finds another keeper.
#[test]
fn one_keeper_that_refuses_does_not_leave_an_owner_without_a_copy() {
    let spec = ReductionSpec {
        group: Path::range(0, 4),
        delivery: Delivery::All,
        kind: BodyKind::Array { element: ElementType::F64, operation: Operation::Sum, length: 10_000 },
        order: Order::Arrival,
        deadline: None,
        protection: Protection::CommitFirst,
        allow_missing: false,
        trace: false,
    };
    for refuses in (0..4).map(Rank) {
        let mut settings = Settings::new(4, 0);
        settings.hosts = vec![0, 1, 2, 3];
        settings.policy.limits.ping_interval = Duration::from_millis(10);
        let mut world = World::new(settings);
        while world.met().len() < 4 {
            assert!(world.step());
        }
        world.fill_disk(Duration::ZERO, refuses, Duration::from_secs(60));
        for rank in (0..4).map(Rank) {
            let call = Call { rank, name: "x".into(), sequence: 0, spec: spec.clone(), inline: false };
            world.call(Duration::ZERO, call);
        }
        while world.ended(Rank(0), "x", 0).is_none() {
            assert!(world.step());
        }
        let asked = world.copies_ordered().iter().filter(|order| order.keeper == refuses).count();
        assert!(asked > 0, "rank {refuses} is asked");
        let ended = world.ended(Rank(0), "x", 0).unwrap();
        let End::Received(report) = &ended.end else { panic!("rank {refuses} refuses: {ended:?}") };
        assert_eq!(report.protected, Path::range(0, 4), "rank {refuses} refuses");
        let is_told = |notice: &Notice| matches!(notice, Notice::News(News::Unprotected { .. }));
        assert!(!world.notices().iter().any(is_told), "rank {refuses} refuses");
    }
}
