//! A run from beginning to end.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use everfold_master::{
    Policy,
    located::{Fault as Located, Place},
    recovery::{Chain, LocatedFaults, Network, Recoveries, Recovery, Repeated, Restart},
};
use everfold_protocol::{AgentId, Rank, Timestamp, spec::Limits};
use everfold_segment::ledger::Rules;

use super::{
    judge::{self, Judgement},
    schedule::{Fault, Pacing, Remedy, Schedule, Trouble},
    segments::as_executed,
    suspects::Suspects,
    tally::Tally,
    violation::Violation,
};
use crate::{
    Call, Cut, Damage, Gap, Segment, Settings, World,
    settings::{Migrates, Returns, Standbys},
    told::Line,
};

/// Events after which a world that has not come to rest never will.
const EVENTS_MAX: u64 = 1_000_000;

/// What a located fault is called that has a recovery.
const NAMED: &str = "named";

/// What came of a run in which everything held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Events that were simulated.
    pub events: u64,
    /// See [`World::trace_hash`].
    pub trace_hash: u64,
    /// What was drawn, and what became of it.
    pub tally: Tally,
}

/// Executes `schedule` and judges what comes of it.
///
/// # Errors
/// The first thing that does not hold.
pub fn run(schedule: &Schedule) -> Result<Ran, Violation> {
    attempt(schedule, None)
}

/// As [`run`]; tells everything that happens as it happens.
///
/// # Errors
/// As [`run`].
pub fn run_told(schedule: &Schedule, tell: impl FnMut(Line) + 'static) -> Result<Ran, Violation> {
    attempt(schedule, Some(Box::new(tell)))
}

fn attempt(schedule: &Schedule, tell: Option<Box<dyn FnMut(Line)>>) -> Result<Ran, Violation> {
    if let Some(flaw) = schedule.flaw() {
        return Err(Violation::new("a schedule can be executed", flaw));
    }
    // An assertion may panic; the world is thrown away then.
    let result = catch_unwind(AssertUnwindSafe(|| execute(schedule, tell)));
    result.unwrap_or_else(|payload| Err(Violation::panicked(&*payload)))
}

fn execute(schedule: &Schedule, tell: Option<Box<dyn FnMut(Line)>>) -> Result<Ran, Violation> {
    let mut world = World::new(settings(schedule));
    if let Some(tell) = tell {
        world.tell(tell);
    }
    if !schedule.early_ends.is_empty() {
        return without_job(world, schedule);
    }
    while world.met().len() < schedule.hosts.len() && step(&mut world)? {}
    let began = world.now();
    let calls = call_all(&mut world, schedule);
    begin_segments(&mut world, schedule);
    for leave in &schedule.leaves {
        world.close(us(leave.at_us), Rank(leave.rank));
    }
    schedule.faults.iter().for_each(|fault| inject(&mut world, fault));
    // Until all faults are over and all futures have ended, or nothing happens any more.
    let is_over = |world: &World| {
        world.is_at_rest()
            && world.calls_ended() == calls + world.segment_calls()
            && world.segments_are_over()
    };
    while !is_over(&world) && step(&mut world)? {}
    let executed = as_executed(schedule, &world, began);
    judgement(&executed, &world, began, None).complete_reductions_have_ended()?;
    let closing = world.now();
    let leaves_early = |rank: &u32| executed.leaves.iter().any(|leave| leave.rank == *rank);
    let last = (0..schedule.ranks()).filter(|rank| !leaves_early(rank));
    last.for_each(|rank| world.close(Duration::from_micros(u64::from(rank) * 3), Rank(rank)));
    while step(&mut world)? {}
    let tally = judgement(&executed, &world, began, Some(closing)).verdict()?;
    Ok(Ran { events: world.events(), trace_hash: world.trace_hash(), tally })
}

/// Executes a schedule in which a process ends before it joins.
fn without_job(mut world: World, schedule: &Schedule) -> Result<Ran, Violation> {
    let began = world.now();
    schedule.faults.iter().for_each(|fault| inject(&mut world, fault));
    let mut over = None;
    while step(&mut world)? {
        if over.is_none() && world.is_dissolved() {
            over = Some(world.now());
        }
    }
    let tally = judgement(schedule, &world, began, None).there_is_no_job(over)?;
    Ok(Ran { events: world.events(), trace_hash: world.trace_hash(), tally })
}

fn judgement<'a>(
    schedule: &'a Schedule,
    world: &'a World,
    began: Timestamp,
    closing: Option<Timestamp>,
) -> Judgement<'a> {
    Judgement { schedule, world, suspects: Suspects { schedule, world, began, closing } }
}

fn step(world: &mut World) -> Result<bool, Violation> {
    if world.events() > EVENTS_MAX {
        return Err(Violation::new(judge::AT_REST, format!("it did not within {EVENTS_MAX} events")));
    }
    Ok(world.step())
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn settings(schedule: &Schedule) -> Settings {
    let Pacing {
        segment_bytes,
        fan_in_max,
        copy_bytes,
        lane_reads_min,
        lane_bytes,
        hold_bytes,
        task_bytes_per_rank,
        gather_us,
        spread_bytes,
        teams_from,
        crowd_from,
        refusals_max,
    } = schedule.pacing;
    let limits = Limits {
        ping_interval: us(schedule.ping_interval_us),
        board_bytes_max: schedule.board_bytes,
        teams_from,
        ranks_return: schedule.returns.is_some(),
        ..Limits::default()
    };
    let mut settings = Settings::new(schedule.ranks(), schedule.seed);
    settings.hosts = schedule.hosts.iter().copied().map(u64::from).collect();
    settings.domains = u64::from(schedule.domains);
    settings.agents = schedule.agents;
    settings.parents = schedule.parents;
    settings.agents_join = us(schedule.agents_join_us);
    settings.returns = schedule.returns.map(|returns| Returns {
        start_time: us(returns.start_us),
        start_failures: returns.start_failures_percent,
        hang: returns.hang_percent,
        note_time: us(returns.note_us),
        note_failures: returns.note_failures_percent,
        checkpoints: returns.checkpoints_percent,
        own_detectors: returns.own_detectors,
        migrates: returns.migrates.map(|migrates| Migrates {
            spares: migrates.spares,
            copy_time: us(migrates.copy_us),
            copy_failures: migrates.copy_failures_percent,
            standbys: migrates
                .standbys
                .map(|it| Standbys { deaths: it.deaths_percent, frozen: it.frozen_percent }),
        }),
    });
    let early_ends = schedule.early_ends.iter();
    settings.early_ends =
        early_ends.map(|early| (Rank(early.rank), (us(early.at_us), early.stage))).collect();
    settings.board = schedule.board;
    settings.boardless = schedule.boardless.iter().copied().map(Rank).collect();
    settings.private = schedule.private.iter().copied().map(Rank).collect();
    settings.full = schedule.full.iter().copied().map(Rank).collect();
    settings.windowless = schedule.windowless.iter().copied().map(Rank).collect();
    settings.latency = (us(schedule.latency_us.0), us(schedule.latency_us.1));
    settings.task_time = (0..).map(Rank).zip(schedule.task_us.iter().copied().map(us)).collect();
    settings.collect_time = us(schedule.collect_us);
    settings.collect_segments = schedule.collect_segments as usize;
    settings.halves = schedule.halves;
    settings.crowded = schedule.crowded.iter().copied().map(Rank).collect();
    let slow = schedule.reductions.iter().filter(|planned| planned.fold_us > 0);
    settings.fold_time = slow.map(|planned| (planned.name.clone(), us(planned.fold_us))).collect();
    settings.keep_failures = schedule.keep_failures_percent;
    settings.damage = schedule.damage_percent;
    settings.batch = us(schedule.batch_us);
    settings.wakes = schedule.wakes;
    settings.policy = Policy {
        limits,
        segment_bytes,
        // In every other world segments become longer as the master learns.
        segment_bytes_min: if schedule.seed.is_multiple_of(2) { segment_bytes } else { segment_bytes / 4 },
        fan_in_max,
        copy_bytes,
        lane_reads_min,
        lane_bytes,
        // Some are slow beside others.
        read_time: us(10),
        hold_bytes,
        task_bytes_per_rank,
        gather_time: us(gather_us),
        spread_bytes,
        // Mostly there are few reductions.
        crowd_from: crowd_from.unwrap_or([0, 2, usize::MAX, usize::MAX][(schedule.seed % 4) as usize]),
        ..Policy::default()
    };
    settings.policy.refusals_max = refusals_max.unwrap_or(settings.policy.refusals_max);
    if let Some(returns) = schedule.returns {
        if returns.migrates.is_some() {
            settings.policy.limits.board_bytes_max = 0;
            settings.policy.limits.replica_bytes_max = 1 << 30;
        }
        let stand_by = returns.migrates.is_some_and(|migrates| migrates.standbys.is_some());
        let first_promote = |then| if stand_by { Chain::then(Recovery::Promote, then) } else { then.into() };
        settings.policy.recoveries = Recoveries {
            process: first_promote(Recovery::Restart),
            located: returns.located.map(|remedy| LocatedFaults {
                faults: vec![NAMED.to_owned()],
                recovery: match remedy {
                    Remedy::Restart => Recovery::Restart.into(),
                    Remedy::Migrate if returns.migrates.is_some() => first_promote(Recovery::Migrate),
                    Remedy::Migrate | Remedy::Ignore => Recovery::Ignore.into(),
                },
            }),
            repeated: returns.repeated.map(|(faults, within_us)| Repeated {
                faults,
                within: us(within_us),
                recovery: match returns.migrates {
                    Some(migrates) if migrates.from_repeated => first_promote(Recovery::Migrate),
                    _ => Recovery::Ignore.into(),
                },
            }),
            physical: match returns.migrates {
                Some(_) => first_promote(Recovery::Migrate),
                None => Recovery::Ignore.into(),
            },
            network: returns
                .migrates
                .and_then(|migrates| migrates.network_percent)
                .map(|share_percent| Network { share_percent, recovery: first_promote(Recovery::Migrate) }),
            restart: Restart {
                starts_max: returns.returns_max,
                fruitless_max: returns.fruitless_max,
                pause: us(returns.pause_us),
                pause_max: us(returns.pause_us * 16),
                join_timeout: us(returns.return_us),
            },
            ..Recoveries::RESTART
        };
    }
    settings
}

/// Lets everyone call; tells how many calls there are.
fn call_all(world: &mut World, schedule: &Schedule) -> u64 {
    for planned in &schedule.reductions {
        for call in &planned.calls {
            let rank = Rank(call.rank);
            let (name, sequence) = (planned.name.clone(), planned.sequence);
            let inline = planned.inline && !planned.long.contains(&call.rank);
            world.call(us(call.at_us), Call { rank, name, sequence, spec: planned.spec(rank), inline });
        }
    }
    schedule.reductions.iter().map(|planned| planned.calls.len() as u64).sum()
}

/// Lets ranks call recovery segments.
fn begin_segments(world: &mut World, schedule: &Schedule) {
    for planned in &schedule.segments {
        let segment = Segment {
            name: planned.name.clone(),
            times: planned.times,
            group: planned.group(),
            grains: planned.grains(),
            rules: Rules {
                is_fixed: planned.fixed,
                balance: planned.balance,
                progress: planned.progress,
                ranks_return: schedule.returns.is_some(),
            },
            grain_time: us(planned.grain_us),
            slow: planned.slow.iter().copied().map(Rank).collect(),
            protection: planned.protection,
            deadline: planned.deadline_us.map(us),
            inline: planned.inline,
        };
        let calls: Vec<_> = planned.calls.iter().map(|call| (Rank(call.rank), us(call.at_us))).collect();
        world.segment(segment, &calls);
    }
}

fn inject(world: &mut World, fault: &Fault) {
    let (at, lasts) = (us(fault.at_us), us(fault.lasts_us));
    let for_a_time = (!lasts.is_zero()).then_some(lasts);
    let agent = |host: u32| AgentId(host.into());
    let hosts = |hosts: &[u32]| hosts.iter().copied().map(u64::from).collect();
    match &fault.what {
        Trouble::Kill(rank) => world.kill(at, Rank(*rank)),
        Trouble::Crash { rank, arrive } => world.crash_after(at, Rank(*rank), *arrive),
        Trouble::LetGo(rank) => world.kill_beside_the_master(at, Rank(*rank)),
        Trouble::Abandon(rank) => world.let_abandon(at, Rank(*rank)),
        Trouble::Break(rank) => world.break_connection_after(at, Rank(*rank)),
        Trouble::LoseHost(host) => world.lose_host(at, u64::from(*host)),
        Trouble::EndHost(host) => world.end_agent_of(at, u64::from(*host)),
        Trouble::FreezeAgent(host) => world.freeze_agent(at, u64::from(*host), lasts),
        Trouble::StarveAgent { host, every_us, runs_us } => {
            world.starve_agent(at, u64::from(*host), lasts, us(*every_us), us(*runs_us));
        }
        Trouble::Freeze(rank) => world.freeze(at, Rank(*rank), lasts),
        Trouble::Starve { rank, every_us, runs_us } => {
            world.starve(at, Rank(*rank), lasts, us(*every_us), us(*runs_us));
        }
        Trouble::Cut { from, to, both_ways } => {
            world.cut(at, Cut { from: hosts(from), to: hosts(to), both_ways: *both_ways }, lasts);
        }
        Trouble::Unreachable { a, b, at_once } => {
            let gap = Gap { hosts: [u64::from(*a), u64::from(*b)], at_once: *at_once };
            world.part(at, gap, for_a_time);
        }
        Trouble::Garble { rank, reads } => world.garble(at, Rank(*rank), *reads),
        Trouble::Damage { rank, copies, reader } => {
            world.damage(at, Rank(*rank), Damage { copies: *copies, reader: reader.map(Rank) }, for_a_time);
        }
        Trouble::Late { rank, by_us } => world.delay(at, Rank(*rank), us(*by_us), lasts),
        Trouble::Slow { rank, task_us } => world.slow_down(at, Rank(*rank), us(*task_us), lasts),
        Trouble::SlowDisk { rank, write_us } => world.slow_disk(at, Rank(*rank), us(*write_us), lasts),
        Trouble::FullDisk(rank) => world.fill_disk(at, Rank(*rank), lasts),
        Trouble::SpoilCopies(rank) => world.spoil_copies(at, Rank(*rank)),
        Trouble::Locate { hosts, named } => {
            let place = Place::Hosts(hosts.iter().copied().map(agent).collect());
            let name = if *named { NAMED } else { "not_named" };
            world.locate(at, Located { name: name.to_owned(), place, harmless: false }, for_a_time);
        }
        Trouble::LocateLink { from, to } => {
            let place = Place::Link { from: agent(*from), to: agent(*to) };
            let located = Located { name: "link_slow".to_owned(), place, harmless: false };
            world.locate(at, located, for_a_time);
        }
    }
}
