//! What was drawn, and what became of it.

use std::{collections::BTreeMap, ops::AddAssign};

use everfold_protocol::{
    report::{Refusal, Report},
    spec::{Limits, Order},
};
use everfold_worker::machine::End;

use super::{
    judge::RULES,
    schedule::{BOARD_BYTES, Body, CallAt, Pieces, Schedule, Trouble},
};
use crate::{World, process::Process};

/// How far a length is from a limit at most that is near it: two elements.
const NEAR_BYTES: u64 = 16;

/// Counts over any number of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// What was drawn.
    pub drawn: BTreeMap<&'static str, u64>,
    /// How futures ended.
    pub ended: BTreeMap<&'static str, u64>,
    /// What those that ended well went through.
    pub met: BTreeMap<&'static str, u64>,
    /// How often each rule had something to judge.
    pub judged: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// What a schedule has in store.
    pub(crate) fn of(schedule: &Schedule) -> Self {
        let judged = RULES.into_iter().flatten().map(|rule| (*rule, 0)).collect();
        let mut tally = Self { judged, ..Self::default() };
        let mut count = |what, number| *tally.drawn.entry(what).or_default() += number;
        count("worlds", 1);
        count("ranks", u64::from(schedule.ranks()));
        count("reductions", schedule.reductions.len() as u64);
        count("worlds with domains", u64::from(schedule.domains > 0));
        count("worlds with agents", u64::from(schedule.agents));
        let has_parents = schedule.parents && schedule.returns.is_none() && schedule.early_ends.is_empty();
        count("worlds with parents whose ranks do not come back", u64::from(has_parents));
        count("worlds whose agents join late", u64::from(schedule.agents && schedule.agents_join_us > 0));
        count("worlds whose ranks come back", u64::from(schedule.returns.is_some()));
        let stands_by = schedule.returns.and_then(|it| it.migrates).is_some_and(|it| it.standbys.is_some());
        count("worlds with standbys", u64::from(stands_by));
        let meets = schedule.returns.is_some_and(|returns| returns.located.is_some());
        count("worlds with recoveries of located faults", u64::from(meets));
        let has_own = schedule.returns.is_some_and(|returns| returns.own_detectors);
        count("worlds with own detectors", u64::from(has_own));
        let has_full = schedule.returns.is_some_and(|returns| returns.note_failures_percent > 0);
        count("worlds whose logs have no room at times", u64::from(has_full));
        count("worlds with a board", u64::from(schedule.board && schedule.ranks() > 1));
        count(
            "worlds with a board whose ranks come back",
            u64::from(schedule.board && schedule.returns.is_some()),
        );
        count("worlds where results take long to be copied", u64::from(schedule.collect_us > 0));
        count("worlds where the master takes in batches", u64::from(schedule.batch_us > 0));
        count("worlds where results are copied bit by bit", u64::from(schedule.collect_segments > 0));
        count("ranks without room for a result at first", schedule.crowded.len() as u64);
        count("worlds with teams", u64::from(schedule.pacing.teams_from > 0));
        count("worlds of hundreds of segments", u64::from(schedule.pacing.segment_bytes < 1 << 13));
        count("worlds of many ranks in small groups", u64::from(schedule.has_small_groups()));
        count("worlds whose master forgets refusals", u64::from(schedule.pacing.refusals_max.is_some()));
        count("worlds without a job", u64::from(!schedule.early_ends.is_empty()));
        count("processes that end before they join", schedule.early_ends.len() as u64);
        let is_hit = !schedule.early_ends.is_empty() && !schedule.faults.is_empty();
        count("worlds without a job in which others die", u64::from(is_hit));
        count("early leaves", schedule.leaves.len() as u64);
        count("ranks whose bodies are in private memory", schedule.private.len() as u64);
        count("ranks whose regions are full", schedule.full.len() as u64);
        count("ranks without a window for partials", schedule.windowless.len() as u64);
        count("worlds with long bodies on a board", u64::from(schedule.board_bytes > BOARD_BYTES));
        count("deaths on the one host of bodies in private memory", deaths_of_private_bodies(schedule));
        for planned in &schedule.segments {
            count("recovery segments", 1);
            count("recovery segments in a fixed order", u64::from(planned.fixed));
            count("recovery segments that relieve slow ranks", u64::from(planned.balance));
            count("recovery segments with progress", u64::from(planned.progress.is_some()));
            count("recovery segments where ranks come back", u64::from(schedule.returns.is_some()));
        }
        for planned in &schedule.reductions {
            count("calls", planned.calls.len() as u64);
            count("late calls", u64::from(planned.sequence > 0) * planned.calls.len() as u64);
            count("calls that never come", planned.absent.len() as u64);
            count("reductions in a fixed order", u64::from(planned.order == Order::Fixed));
            count("disagreements", u64::from(planned.disagrees.is_some()));
            count("reductions with slow folds", u64::from(planned.fold_us > 0));
            count("deadlines", u64::from(planned.deadline_us.is_some()));
            if let Body::Array(length) = planned.body {
                let [inline, board, segment] = are_near_limits(schedule, 8 * length);
                let calls = planned.calls.len() as u64;
                count("calls about as long as what travels in messages", u64::from(inline) * calls);
                count("calls about as long as what lies on a board", u64::from(board) * calls);
                count("calls about as long as a segment or two", u64::from(segment) * calls);
            }
            let is_later = planned.sequence > 0;
            count("deadlines of later calls", u64::from(is_later && planned.deadline_us.is_some()));
            count("disagreements in later calls", u64::from(is_later && planned.disagrees.is_some()));
            let pieces = match planned.body {
                Body::Pieces(Pieces::Gather) => Some("gathers of pieces"),
                Body::Pieces(Pieces::Broadcast(_)) => Some("broadcasts"),
                Body::Pieces(Pieces::Scatter(_)) => Some("scatters"),
                Body::Pieces(Pieces::Exchange) => Some("exchanges"),
                Body::Array(_) | Body::Object => None,
            };
            pieces.into_iter().for_each(|pieces| count(pieces, 1));
            let slow_array = planned.fold_us > 0 && planned.body != Body::Object;
            count("reductions of arrays with slow folds", u64::from(slow_array));
            let is_long = |call: &&CallAt| planned.long.contains(&call.rank);
            let long = planned.calls.iter().filter(is_long).count();
            let mixed = planned.inline && long > 0 && long < planned.calls.len();
            count("reductions with bodies inline and not", u64::from(mixed));
        }
        for fault in &schedule.faults {
            count(
                match &fault.what {
                    Trouble::LoseHost(host) | Trouble::EndHost(host) if *host == schedule.hosts[0] => {
                        "hosts of masters lost"
                    }
                    Trouble::FreezeAgent(host) | Trouble::StarveAgent { host, .. }
                        if *host == schedule.hosts[0] =>
                    {
                        "freezes of masters"
                    }
                    Trouble::EndHost(_) => "hosts ended",
                    Trouble::Break(_) => "connections broken",
                    Trouble::FreezeAgent(_) | Trouble::StarveAgent { .. } => "freezes of agents",
                    Trouble::Kill(_) => "ranks killed",
                    Trouble::Crash { .. } => "deaths that lose messages",
                    Trouble::LetGo(_) => "deaths told by lifelines",
                    Trouble::Abandon(_) => "ranks that left without a word",
                    Trouble::LoseHost(_) => "hosts lost",
                    Trouble::Freeze(_) => "freezes",
                    Trouble::Starve { .. } => "starved ranks",
                    Trouble::Cut { both_ways: true, .. } => "cuts, both ways",
                    Trouble::Cut { .. } => "cuts, one way",
                    Trouble::Unreachable { .. } if fault.lasts_us > 0 => {
                        "hosts that lose each other's memory"
                    }
                    Trouble::Unreachable { .. } => "hosts that never reach each other's memory",
                    Trouble::Garble { .. } => "ranks whose bytes arrive damaged",
                    Trouble::Damage { copies: false, reader: None, .. } => "ranks whose bytes stay damaged",
                    Trouble::Damage { copies: false, .. } => "ranks whose bytes stay damaged for one reader",
                    Trouble::Damage { reader: None, .. } => "keepers whose copies stay damaged",
                    Trouble::Damage { .. } => "keepers whose copies stay damaged for one reader",
                    Trouble::Late { .. } => "late connections",
                    Trouble::Slow { .. } => "slow ranks",
                    Trouble::SlowDisk { .. } => "slow disks",
                    Trouble::FullDisk(_) => "full disks",
                    Trouble::SpoilCopies(_) => "keepers whose copies were damaged",
                    Trouble::Locate { .. } => "located faults of hosts",
                    Trouble::LocateLink { .. } => "located faults of links",
                },
                1,
            );
        }
        count("worlds where copies fail", u64::from(schedule.keep_failures_percent > 0));
        count("worlds with damage", u64::from(schedule.damage_percent > 0));
        tally
    }

    /// Takes in what was met with.
    pub(crate) fn meet(&mut self, what: &'static str, number: u64) {
        *self.met.entry(what).or_default() += number;
    }

    /// Takes in what has happened that no schedule tells.
    pub(crate) fn take_events(&mut self, seen: &BTreeMap<&'static str, u64>) {
        seen.iter().for_each(|(what, count)| *self.met.entry(what).or_default() += count);
    }

    /// Takes in what happened in a world, apart from how its calls ended.
    pub(crate) fn take_world(&mut self, world: &World) {
        let mut count = |what, number| *self.met.entry(what).or_default() += number;
        let (complete, taken) = world.board_counts();
        count("completed on a board", complete);
        count("taken from a board", taken);
        let (finished, back) = world.team_counts();
        count("finished in teams", finished);
        count("contributed again after teams", back);
        let processes = || world.processes().iter();
        count("messages lost with their senders", processes().map(|process| process.outbox.lost()).sum());
        let outside = |process: &&Process| process.is_full && !process.partials.is_empty();
        count("ranks with partials in private memory", processes().filter(outside).count() as u64);
        count("ends that waited for readers of partials", world.waits_for_partials());
        let (given_up, damaged) = world.read_counts();
        count("reads that were given up although the owner lives", given_up);
        count("reads of what a living owner holds that were damaged", damaged);
    }

    /// Counts that a rule has had something to judge.
    pub(crate) fn judge(&mut self, rule: &'static str) {
        self.judge_times(rule, 1);
    }

    pub(crate) fn judge_if(&mut self, rule: &'static str, applies: bool) {
        self.judge_times(rule, u64::from(applies));
    }

    /// Counts that a rule has had so much to judge.
    pub(crate) fn judge_times(&mut self, rule: &'static str, times: u64) {
        // One that is not listed might never judge anything, and nobody would see that.
        *self.judged.get_mut(rule).expect("every rule is listed") += times;
    }

    /// Takes in how a call ended: nothing if its process died before.
    pub(crate) fn take(&mut self, end: Option<&End>) {
        let name = match end {
            None => "process died",
            Some(End::Finished(report) | End::Received(report)) => {
                self.take_report(report);
                if matches!(end, Some(End::Received(_))) { "with the value" } else { "well" }
            }
            Some(End::Refused(refusal)) => match refusal {
                Refusal::ProcessFailed { .. } => "process failed",
                Refusal::ContributionLost { .. } => "contribution lost",
                Refusal::RanksLeft { .. } => "ranks left",
                Refusal::DeadlineExceeded { .. } => "deadline exceeded",
                Refusal::Mismatch { .. } => "mismatch",
                Refusal::ResultLost { .. } => "result lost",
                Refusal::Over => "told that it was over long ago",
                Refusal::FoldFailed { .. } => "fold failed",
                _ => "refused",
            },
            Some(End::MasterLost) => "master lost",
            Some(End::Fenced) => "fenced",
            Some(End::Closed) => "closed before",
            Some(End::ResultLost(_)) => "result unreadable",
        };
        *self.ended.entry(name).or_default() += 1;
    }

    fn take_report(&mut self, report: &Report) {
        let mut count = |what, number| *self.met.entry(what).or_default() += number;
        count("counting contributions of the dead", u64::from(!report.survived.is_empty()));
        count("without a contribution", u64::from(!report.missing.is_empty()));
        count("with folds done again", u64::from(report.folds_redone > 0));
        count("with tasks done twice", u64::from(report.tasks_doubled > 0));
    }

    /// One count.
    pub fn count(&self, what: &str) -> u64 {
        [&self.drawn, &self.ended, &self.met, &self.judged]
            .iter()
            .find_map(|counts| counts.get(what))
            .copied()
            .unwrap_or(0)
    }
}

impl AddAssign<&Tally> for Tally {
    fn add_assign(&mut self, other: &Self) {
        let pairs = [
            (&mut self.drawn, &other.drawn),
            (&mut self.ended, &other.ended),
            (&mut self.met, &other.met),
            (&mut self.judged, &other.judged),
        ];
        for (mine, others) in pairs {
            for (what, count) in others {
                *mine.entry(what).or_default() += count;
            }
        }
    }
}

/// Whether so many bytes are about as many as travel in messages, as lie on the board if there is one, and as
/// are in one segment or two.
fn are_near_limits(schedule: &Schedule, bytes: u64) -> [bool; 3] {
    let is_near = |limit: u64| bytes.abs_diff(limit) <= NEAR_BYTES;
    let segment_bytes = schedule.pacing.segment_bytes;
    [
        is_near(Limits::default().inline_bytes_max),
        schedule.board && is_near(schedule.board_bytes),
        is_near(segment_bytes) || is_near(2 * segment_bytes),
    ]
}

/// Deaths of ranks whose bodies go with them, where all ranks share memory.
fn deaths_of_private_bodies(schedule: &Schedule) -> u64 {
    let shares = schedule.hosts.iter().all(|host| *host == schedule.hosts[0]) && schedule.ranks() > 1;
    let dies = |what: &Trouble| match what {
        Trouble::Kill(rank) | Trouble::LetGo(rank) | Trouble::Abandon(rank) => Some(*rank),
        Trouble::Crash { rank, .. } => Some(*rank),
        _ => None,
    };
    let dead = schedule.faults.iter().filter_map(|fault| dies(&fault.what));
    dead.filter(|rank| shares && schedule.private.contains(rank)).count() as u64
}
