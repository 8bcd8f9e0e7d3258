//! What a world shows to tests and judges.

use std::{collections::BTreeMap, time::Duration};

use everfold_master::{Master, Notice, reduction::Reduction};
use everfold_protocol::{Path, Rank, ReductionId, Timestamp, message::News};

use super::{
    World,
    promoting::FROZEN,
    returning::{HUNG, STARTS},
};
use crate::{
    board::Shared,
    copies::{Counted, Lost, Ordered, Protected},
    facts::Facts,
    process::{Ended, Process},
    settings::Settings,
    timing::Load,
    trace::Step,
};

impl World {
    /// Virtual time.
    pub fn now(&self) -> Timestamp {
        self.agenda.now()
    }

    /// The master, to look at.
    pub fn master(&self) -> &Master {
        self.driver.master()
    }

    /// What was decided so far, if the run is followed.
    pub fn steps(&self) -> &[Step] {
        &self.trace.steps
    }

    /// xxh3 of everything that has happened, and when, if the run is followed: two runs with one hash are the
    /// same run.
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    /// What the master was told and has said so far, in a modelled cluster.
    pub fn load(&self) -> Load {
        self.courier.load()
    }

    /// What the master told its watchers.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// How often a process was to be started in place of one that had ended.
    pub(crate) fn starts(&self) -> u64 {
        self.seen.get(STARTS).copied().unwrap_or_default()
    }

    /// Ranks that the master does not expect back any more.
    pub(crate) fn given_up(&self) -> usize {
        let is_given_up = |notice: &&Notice| matches!(notice, Notice::News(News::NotReturned { .. }));
        self.notices.iter().filter(is_given_up).count()
    }

    /// Standbys that did nothing when they were to take a place.
    pub(crate) fn frozen_standbys(&self) -> u64 {
        self.seen.get(FROZEN).copied().unwrap_or_default()
    }

    /// Processes that have failed and live on, until they are ended.
    pub(crate) fn hung(&self) -> u64 {
        self.seen.get(HUNG).copied().unwrap_or_default()
    }

    /// Whether the master has nothing more to do.
    pub fn is_done(&self) -> bool {
        self.driver.is_done()
    }

    /// Whether nothing is left of a job: no process, no agent, and no master.
    pub(crate) fn is_dissolved(&self) -> bool {
        let lives = |process: &Process| process.worker.is_some();
        let is_led = !self.driver.is_done() && !self.driver.is_lost();
        !is_led && !self.processes.iter().any(lives) && self.needless_agents().next().is_none()
    }

    /// Events that have happened.
    pub fn events(&self) -> u64 {
        self.agenda.events()
    }

    /// Real time that the master's machine has taken, if there is a stopwatch.
    pub fn master_time(&self) -> Duration {
        self.driver.time()
    }

    /// Calls that have ended, or whose process died before.
    pub fn calls_ended(&self) -> u64 {
        match self.settings.returns {
            Some(_) => self.calls_over(),
            None => self.calls_ended,
        }
    }

    /// Ranks for which the job has begun.
    pub fn met(&self) -> &[Rank] {
        &self.met
    }

    /// Ranks that were told that there is no job, and who is missing.
    pub fn incomplete(&self) -> &BTreeMap<Rank, Path> {
        &self.incomplete
    }

    /// Ranks that have left in good order.
    pub fn closed(&self) -> &[Rank] {
        &self.closed
    }

    /// Whether nothing is under way but the passing of time.
    pub fn is_at_rest(&self) -> bool {
        self.agenda.is_at_rest()
    }

    /// How many reads were given up although the owner lives, and how many of what a living owner holds were
    /// damaged.
    pub fn read_counts(&self) -> (u64, u64) {
        self.failed_reads
    }

    /// Batches of several messages that the master has taken in.
    pub fn batches(&self) -> u64 {
        self.inbox.batches()
    }

    /// Orders for copies, if the run is followed.
    pub fn copies_ordered(&self) -> &[Ordered] {
        &self.copying.ordered
    }

    /// What was called lost or left out, if the run is followed.
    pub fn contributions_lost(&self) -> &[Lost] {
        &self.copying.lost
    }

    /// What reports have said about protection, if the run is followed.
    pub fn contributions_protected(&self) -> &[Protected] {
        &self.copying.protected
    }

    /// Contributions that began to count where a replica is to be there first, if the run is followed.
    pub fn contributions_counted(&self) -> &[Counted] {
        &self.copying.counted
    }

    /// How often something kept a copy from being made or read.
    pub fn copies_met(&self) -> &BTreeMap<&'static str, u64> {
        &self.copying.met
    }

    /// Segments of originals that were to be copied, and of these those that were in other hands before.
    pub fn copies(&self, name: &str, sequence: u64) -> (u64, u64) {
        self.copies.of(ReductionId::new(name, sequence))
    }

    /// Folds of two partials that were done in a reduction, also in vain.
    pub fn folds(&self, name: &str, sequence: u64) -> u32 {
        self.folds.get(&ReductionId::new(name, sequence)).copied().unwrap_or(0)
    }

    /// How `rank`'s call ended, if it has.
    pub fn ended(&self, rank: Rank, name: &str, sequence: u64) -> Option<&Ended> {
        let id = ReductionId::new(name, sequence);
        match self.settings.returns {
            Some(_) => self.ended_before(rank, id),
            None => self.process(rank).shares.get(&id)?.ended.as_ref(),
        }
    }

    /// Reductions that `rank` called and whose windows it still serves.
    pub fn unreleased(&self, rank: Rank) -> impl Iterator<Item = ReductionId> {
        let process = self.process(rank);
        process.shares.keys().copied().filter(|id| !process.released.contains(id))
    }

    /// An attempt that a deputy has not seen the end of.
    pub fn tried(&self) -> Option<&Reduction> {
        let living = self.processes.iter().filter(|process| process.worker.is_some());
        let deputies = living.filter_map(|process| process.deputy.as_ref());
        deputies.flat_map(|deputy| deputy.machine.reductions()).map(|(_, reduction)| reduction).next()
    }

    /// Reductions that teams have finished, and contributions that came back from them.
    pub(crate) fn team_counts(&self) -> (u64, u64) {
        let finished = |notice: &&Notice| matches!(notice, Notice::Finished(id) if id.is_in_teams());
        (self.notices.iter().filter(finished).count() as u64, self.back)
    }

    /// Whether something of `rank` lies on the board, or lay there until the master took it.
    pub(crate) fn has_placed(&self, rank: Rank, reduction: ReductionId) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.has(rank, reduction))
    }

    /// Rounds that were completed on the board, and contributions that the master has taken from it.
    pub(crate) fn board_counts(&self) -> (u64, u64) {
        self.shared.as_ref().map_or((0, 0), Shared::counts)
    }

    /// What a world is made of.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What happened to processes, and when.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// All processes, by rank.
    pub(crate) fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// How often what has happened that no fault tells.
    pub(crate) fn seen(&self) -> &BTreeMap<&'static str, u64> {
        &self.seen
    }

    /// Calls whose end waited for readers of a result that lies where a partial was.
    pub(crate) fn waits_for_partials(&self) -> u64 {
        self.waits_for_partials
    }
}
