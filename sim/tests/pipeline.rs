//! A broadcast between hosts, and something that goes wrong at every moment of it.

#![allow(clippy::unwrap_used)]

use everfold_sim::check::{Schedule, Tally, run};

/// Two ranks on each of four hosts; rank 1 gives the piece. They call within 200 µs; the whole takes about a millisecond.
const BROADCAST: &str = r#"
seed = 1
hosts = [0, 0, 1, 1, 2, 2, 3, 3]
agents = true
task_us = [10, 10, 10, 10, 10, 10, 10, 10]
ping_interval_us = 30000
latency_us = [10, 60]

[pacing]
segment_bytes = 65536
fan_in_max = 4
copy_bytes = 4194304
lane_reads_min = 4
lane_bytes = 2097152
hold_bytes = 1048576

[[reductions]]
name = "piece"
receiver = "all"
order = "Arrival"
inline = false
protection = "None"
body = { pieces = { broadcast = 1 } }
calls = [
  { rank = 0, at_us = 100 }, { rank = 1, at_us = 150 }, { rank = 2, at_us = 100 }, { rank = 3, at_us = 300 },
  { rank = 4, at_us = 120 }, { rank = 5, at_us = 130 }, { rank = 6, at_us = 140 }, { rank = 7, at_us = 110 },
]
"#;

/// What becomes of the broadcast if `what` begins at each moment.
fn disturbed(what: impl Fn(u32) -> String) -> Tally {
    let mut tally = Tally::default();
    for rank in 0..8 {
        for at_us in (200..2200).step_by(20) {
            let fault =
                format!("[[faults]]\nat_us = {at_us}\nlasts_us = 500000\nwhat = {{ {} }}\n", what(rank));
            let schedule: Schedule = toml::from_str(&format!("{BROADCAST}{fault}")).unwrap();
            let ran = run(&schedule).unwrap_or_else(|violation| panic!("{fault}{violation}"));
            tally += &ran.tally;
        }
    }
    tally
}

fn assert_in_parts(tally: &Tally) {
    let parts = tally.count("parts of a piece read where they were copied beforehand");
    assert!(parts > 1000, "{tally:#?}");
}

#[test]
fn nobody_reads_the_owner_for_what_a_neighbour_has() {
    let schedule: Schedule = toml::from_str(BROADCAST).unwrap();
    let tally = run(&schedule).unwrap().tally;
    // Four parts to six ranks, each of which reads one part from the owner at most.
    assert_eq!(
        tally.count("parts of a piece read where they were copied beforehand"),
        4 * 6 - 4,
        "{tally:#?}"
    );
    assert_eq!(tally.count("with the value"), 8, "{tally:#?}");
}

#[test]
fn whoever_dies_at_any_moment_the_others_have_the_piece() {
    let tally = disturbed(|rank| format!("kill = {rank}"));
    assert_in_parts(&tally);
    assert_eq!(tally.count("result lost"), 0, "{tally:#?}");
}

#[test]
fn whichever_host_is_lost_at_any_moment_every_call_ends() {
    assert_in_parts(&disturbed(|rank| format!("end-host = {}", rank / 2)));
}

#[test]
fn whoever_freezes_at_any_moment_the_others_have_the_piece() {
    assert_in_parts(&disturbed(|rank| format!("freeze = {rank}")));
}

#[test]
fn hosts_that_never_reach_each_other_have_the_piece_from_others() {
    assert_in_parts(&disturbed(|rank| {
        format!("unreachable = {{ a = {}, b = {}, at_once = true }}", rank / 2, (rank / 2 + 1) % 4)
    }));
}
