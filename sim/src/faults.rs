//! What goes wrong, and what can be reached in spite of it.

use std::time::Duration;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, ReductionSpec,
    message::{Data, Fault, Source, Task},
};
use everfold_worker::machine::ExecutionError;
use rand::Rng;
use serde::Serialize;

use crate::{
    events::Happening,
    evidence::NONSENSE,
    process::{is_copy, is_in_region, shows_copy},
    world::{MASTER, World},
};

/// How often a reader looks whether a frozen process is back.
pub(crate) const RETRY: Duration = Duration::from_millis(20);

/// Whether memory can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    Now,
    Later,
    Never,
}

/// Hosts whose messages do not get through to others. Connections do not break: what is under way arrives when the
/// network heals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Hosts on one side.
    pub from: Vec<u64>,
    /// Hosts on the other side.
    pub to: Vec<u64>,
    /// Whether nothing comes back either.
    pub both_ways: bool,
}

impl Cut {
    pub(crate) fn severs(&self, from: u64, to: u64) -> bool {
        let severs = |from, to| self.from.contains(&from) && self.to.contains(&to);
        from != to && (severs(from, to) || (self.both_ways && severs(to, from)))
    }
}

/// Two hosts that do not reach each other's memory. Messages get through, and both reach all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The two.
    pub hosts: [u64; 2],
    /// Whether a read fails at once. If not, nothing answers it.
    pub at_once: bool,
}

impl Gap {
    fn parts(&self, reader: u64, owner: u64) -> bool {
        self.hosts == [reader, owner] || self.hosts == [owner, reader]
    }
}

/// How slow a rank is, where it is slower than usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Limp {
    pub task_time: Option<Duration>,
    pub write_time: Option<Duration>,
    /// How much longer its messages to and from the master take at most.
    pub message_time: Option<Duration>,
}

/// Whether a rank's disk takes copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Disk {
    Free,
    Full,
}

impl World {
    /// Kills a process `after` now; its connections break. The master dies with rank 0.
    pub fn kill(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now + after, Happening::Die(ProcessId::first(rank)));
    }

    /// Kills a process `after` now. Of what it has sent to the master and is under way, only the first `arrive` messages arrive
    /// before its connection breaks.
    pub fn crash_after(&mut self, after: Duration, rank: Rank, arrive: u64) {
        self.schedule(self.now + after, Happening::Crash(ProcessId::first(rank), arrive));
    }

    /// Kills a process on the master's host `after` now. As its lifeline tells of its end, the master hears of it before what
    /// it had sent, and again when the connection breaks.
    pub fn kill_beside_the_master(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now + after, Happening::LetGo(ProcessId::first(rank)));
    }

    /// Lets a process leave its job without a word `after` now, as when its program fails or panics. It lives on, and gives its
    /// memory back.
    pub fn let_abandon(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now + after, Happening::Abandon(ProcessId::first(rank)));
    }

    /// Stops a process `after` now, for `time`; messages to it wait.
    pub fn freeze(&mut self, after: Duration, rank: Rank, time: Duration) {
        self.schedule(self.now + after, Happening::Freeze(rank));
        self.schedule(self.now + after + time, Happening::Thaw(rank));
    }

    /// Takes a host and all its processes away `after` now. Nobody hears of it: it is silent. The master is not to be
    /// on it.
    pub fn lose_host(&mut self, after: Duration, host: u64) {
        self.schedule(self.now + after, Happening::LoseHost(host));
    }

    /// Cuts the network `after` now, for `time`.
    pub fn cut(&mut self, after: Duration, cut: Cut, time: Duration) {
        self.schedule(self.now + after, Happening::Cut(Box::new(cut.clone())));
        self.schedule(self.now + after + time, Happening::Heal(Box::new(cut)));
    }

    /// Lets two hosts not reach each other's memory any more `after` now, for `time` if that is given.
    pub fn part(&mut self, after: Duration, gap: Gap, time: Option<Duration>) {
        self.schedule(self.now + after, Happening::Part(gap));
        if let Some(time) = time {
            self.schedule(self.now + after + time, Happening::Meet(gap));
        }
    }

    /// Lets so many reads from other hosts of what a rank holds in its memory arrive damaged, from `after` now on.
    pub fn garble(&mut self, after: Duration, rank: Rank, reads: u32) {
        self.schedule(self.now + after, Happening::Garble(rank, reads));
    }

    /// How many reads were given up although the owner lives, and how many of what a living owner holds were damaged.
    pub fn read_counts(&self) -> (u64, u64) {
        self.failed_reads
    }

    /// Gives a process so little of its processor `after` now, for `time`, that it runs only once in `every` and only for
    /// `runs` of it.
    pub fn starve(&mut self, after: Duration, rank: Rank, time: Duration, every: Duration, runs: Duration) {
        let mut at = Duration::ZERO;
        while at < time {
            self.freeze(after + at, rank, every.saturating_sub(runs));
            at += every.max(Duration::from_micros(1));
        }
    }

    /// Lets a rank take `task_time` for each task from `after` now on, for `time`.
    pub fn slow_down(&mut self, after: Duration, rank: Rank, task_time: Duration, time: Duration) {
        let limp = Limp { task_time: Some(task_time), ..Limp::default() };
        self.schedule(self.now + after, Happening::Limp(rank, limp));
        self.schedule(self.now + after + time, Happening::Limp(rank, Limp::default()));
    }

    /// Lets messages between the master and a rank take up to `time` longer from `after` now on, while it `lasts`.
    pub fn delay(&mut self, after: Duration, rank: Rank, time: Duration, lasts: Duration) {
        let limp = Limp { message_time: Some(time), ..Limp::default() };
        self.schedule(self.now + after, Happening::Limp(rank, limp));
        self.schedule(self.now + after + lasts, Happening::Limp(rank, Limp::default()));
    }

    /// Lets a rank's disk take `write_time` more for each copy that is written before it is acknowledged, from `after`
    /// now on, for `time`.
    pub fn slow_disk(&mut self, after: Duration, rank: Rank, write_time: Duration, time: Duration) {
        let limp = Limp { write_time: Some(write_time), ..Limp::default() };
        self.schedule(self.now + after, Happening::Limp(rank, limp));
        self.schedule(self.now + after + time, Happening::Limp(rank, Limp::default()));
    }

    /// Fills a rank's disk `after` now, for `time`: it keeps no copies but in memory.
    pub fn fill_disk(&mut self, after: Duration, rank: Rank, time: Duration) {
        self.schedule(self.now + after, Happening::Disk(rank, Disk::Full));
        self.schedule(self.now + after + time, Happening::Disk(rank, Disk::Free));
    }

    /// Damages all copies that a rank keeps `after` now.
    pub fn spoil_copies(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now() + after, Happening::Spoil(rank));
    }

    pub(crate) fn die(&mut self, process: ProcessId) {
        self.end_process(process);
        self.hang_up_reads(process);
        if process == MASTER {
            self.lose_master();
        } else {
            // What it had sent still arrives, and then the end of the connection.
            self.hang_up(process);
        }
    }

    /// Lets a process die of whose messages to the master only the first `arrive` that are under way still arrive.
    pub(crate) fn crash(&mut self, process: ProcessId, arrive: u64) {
        let dead = self.process_mut(process.rank);
        if dead.worker.is_some() {
            dead.arrive_max = Some(dead.arrived + arrive);
            dead.lost = dead.sent.saturating_sub(dead.arrived + arrive);
        }
        self.die(process);
    }

    /// Takes in that a message of `sender` is about to reach the master. Returns whether it went with its sender instead.
    pub(crate) fn loses(&mut self, sender: ProcessId) -> bool {
        let process = self.process_mut(sender.rank);
        process.arrived += 1;
        process.arrive_max.is_some_and(|most| process.arrived > most)
    }

    pub(crate) fn let_go(&mut self, process: ProcessId) {
        self.die(process);
        self.schedule(self.now, Happening::Disconnected(process));
    }

    pub(crate) fn abandon(&mut self, process: ProcessId) {
        let leaver = self.process_mut(process.rank);
        if leaver.worker.is_some() {
            leaver.windows.leave(|_| {});
            leaver.lives_on = true;
        }
        self.die(process);
    }

    pub(crate) fn lost_host(&mut self, host: u64) {
        let ranks = (0..self.settings.ranks).map(Rank);
        let lost: Vec<Rank> = ranks.filter(|rank| self.settings.host(*rank) == host).collect();
        assert!(!lost.contains(&MASTER.rank), "the master's host stays");
        for rank in lost {
            self.end_process(ProcessId::first(rank));
            self.process_mut(rank).vanished = true;
        }
    }

    fn end_process(&mut self, process: ProcessId) {
        let dead = self.process_mut(process.rank);
        let open = dead.shares.values().filter(|share| share.ended.is_none()).count() as u64;
        let lived = dead.worker.take().is_some();
        dead.shares.values_mut().for_each(|share| share.waits = None);
        if lived {
            self.calls_ended += open;
            self.facts.ended.insert(process.rank, self.now);
        }
        drop(self.thaw(process.rank));
        self.end_deputy(process);
    }

    pub(crate) fn stop(&mut self, rank: Rank) {
        let process = self.process_mut(rank);
        if process.frozen.is_none() {
            process.frozen = Some(Vec::new());
            self.frozen += 1;
            self.facts.stop(self.now, rank);
        }
    }

    /// Ends a freeze; tells what waited for it.
    pub(crate) fn thaw(&mut self, rank: Rank) -> Vec<Happening> {
        let waiting = self.process_mut(rank).frozen.take();
        self.facts.thaw(self.now, rank);
        self.frozen -= usize::from(waiting.is_some());
        waiting.unwrap_or_default()
    }

    /// Whether messages from one host to another are held back.
    pub(crate) fn is_severed(&self, from: Rank, to: Rank) -> bool {
        if self.cuts.is_empty() {
            return false;
        }
        let (from, to) = (self.settings.host(from), self.settings.host(to));
        self.cuts.iter().any(|cut| cut.severs(from, to))
    }

    /// What keeps `reader` from the memory of `owner`, although messages get through.
    pub(crate) fn gap(&self, reader: Rank, owner: Rank) -> Option<&Gap> {
        let mut gaps = self.gaps.iter();
        gaps.find(|gap| gap.parts(self.settings.host(reader), self.settings.host(owner)))
    }

    /// Lets two hosts reach each other's memory again.
    pub(crate) fn meet(&mut self, gap: &Gap) {
        if let Some(position) = self.gaps.iter().position(|other| other == gap) {
            self.gaps.swap_remove(position);
        }
    }

    /// Ends a cut; tells what gets through now.
    pub(crate) fn heal(&mut self, cut: &Cut) -> Vec<Happening> {
        if let Some(position) = self.cuts.iter().position(|other| other == cut) {
            self.cuts.remove(position);
            self.facts.heal(self.now, cut);
        }
        let held = std::mem::take(&mut self.held_back);
        let (held, free) = held.into_iter().partition(|what| {
            let (from, to) = what.way().expect("only what travels is held back");
            self.is_severed(from, to)
        });
        self.held_back = held;
        free
    }

    /// Whether `reader` gets at data of `owner`: it lives, or it died and shares memory.
    pub(crate) fn reaches(
        &self,
        reader: Rank,
        owner: ProcessId,
        data: &Data,
        reduction: ReductionId,
    ) -> Reach {
        let Data::Window(window) = data else { return Reach::Now };
        let process = self.process(owner.rank);
        let is_copy = shows_copy(window);
        let shares = self.settings.host(reader) == self.settings.host(owner.rank) && !is_copy;
        // Who ends takes its own memory along; its region stays mapped until nobody needs it.
        let is_there = process.worker.is_some()
            || process.lives_on
            || (is_in_region(window) && !self.process(reader).forgotten.contains(&owner.rank));
        match () {
            () if [reduction, reduction.called()].iter().any(|id| process.released.contains(id)) => {
                Reach::Never
            }
            () if !is_copy && process.windows.find(window.window, window.generation).is_none() => {
                Reach::Never
            }
            () if shares && is_there => Reach::Now,
            () if self.process(reader).departed.contains(&owner.rank) => Reach::Never,
            () if self.is_severed(reader, owner.rank) || self.is_severed(owner.rank, reader) => Reach::Later,
            () if let Some(gap) = self.gap(reader, owner.rank) => {
                if gap.at_once {
                    Reach::Never
                } else {
                    Reach::Later
                }
            }
            // Whether it is only slow to answer shows when it is declared failed.
            () if process.vanished => Reach::Later,
            () if process.worker.is_none() => Reach::Never,
            () if process.frozen.is_some() => Reach::Later,
            () => Reach::Now,
        }
    }

    /// Where a process has no window for its partial, a task comes to nothing.
    pub(crate) fn has_no_window(
        &self,
        spec: &ReductionSpec,
        process: ProcessId,
        task: &Task,
    ) -> Option<ExecutionError> {
        let executor = self.process(process.rank);
        let reduction = task.segment.reduction;
        let stays = spec.delivery.root() == Some(process.rank) || executor.shares[&reduction.called()].inline;
        if stays || !executor.is_windowless || executor.has_partial(reduction) {
            return None;
        }
        let reason = "there is no window left for another one".to_owned();
        let (suspects, fault) = (Path::empty(), Fault::Unfit);
        Some(ExecutionError { culprit: process, suspects, fault, reason })
    }

    /// Whether what `reader` reads of what lies in another process's own memory arrives damaged.
    pub(crate) fn is_garbled(&mut self, reader: Rank, owner: ProcessId, data: &Data) -> bool {
        let Data::Window(window) = data else { return false };
        let is_far = self.settings.host(reader) != self.settings.host(owner.rank);
        let owner = self.process_mut(owner.rank);
        let is_damaged = is_far && !shows_copy(window) && owner.garbled > 0;
        owner.garbled -= u32::from(is_damaged);
        self.failed_reads.1 += u64::from(is_damaged);
        is_damaged
    }

    /// What goes wrong with a task although everybody lives.
    pub(crate) fn mishap(
        &mut self,
        spec: &ReductionSpec,
        process: ProcessId,
        task: &Task,
    ) -> Option<ExecutionError> {
        for source in &task.sources {
            if self.is_garbled(process.rank, source.process, &source.data) {
                return Some(damaged(source.process));
            }
        }
        let is_damaged = |source: &&Source| {
            let copy = (source.path.first().unwrap_or(NONSENSE), task.segment);
            is_copy(source) && self.process(source.process.rank).damaged.contains(&copy)
        };
        if let Some(culprit) = task.sources.iter().find(is_damaged).map(|source| source.process) {
            self.meet_with_copies("copies that were found to be damaged");
            self.damage_sources(culprit, task);
            return Some(damaged(culprit));
        }
        if self.settings.damage == 0 || !self.random.random_ratio(self.settings.damage, 100) {
            return None;
        }
        let rank = process.rank;
        if let Some(copy) = task.sources.iter().find(|source| is_copy(source)) {
            let culprit = copy.process;
            self.damage_sources(culprit, task);
            return Some(damaged(culprit));
        }
        // What the root and inlined bodies spoil is in place of the original, and ends the reduction.
        let executor = self.process(rank);
        let in_place =
            spec.delivery.root() == Some(rank) || executor.shares[&task.segment.reduction.called()].inline;
        let grows = executor.partials.contains_key(&task.segment);
        let source = task.sources.first().filter(|_| !in_place && grows)?;
        self.process_mut(rank).torn.insert(task.segment);
        let reason = "it changed".to_owned();
        Some(ExecutionError { culprit: source.process, suspects: Path::empty(), fault: Fault::Torn, reason })
    }
}

/// What lies at `culprit` arrived damaged.
pub(crate) fn damaged(culprit: ProcessId) -> ExecutionError {
    let (suspects, reason) = (Path::empty(), "it is damaged".to_owned());
    ExecutionError { culprit, suspects, fault: Fault::Damaged, reason }
}
