//! Ranks that come back: their programs, their result logs, and the processes that they had before.
//!
//! A program makes its calls at their times. A process that comes back makes those again that it has missed,
//! from its beginning or from its last checkpoint on, in the order in which the first one made them. Of these
//! it hears from its log how they have ended that are in there; the others are for the board or the master. Only
//! in worlds where [`Returns`](crate::settings::Returns) says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use everfold_agent::Event as AgentEvent;
use everfold_protocol::{
    Epoch, ProcessId, Rank, ReductionId, Timestamp,
    message::{Ending, Header, Origin},
};
use everfold_worker::{
    machine::{Action, End, Event, Gone},
    participant::Participant,
};
use rand::Rng;

use super::{World, migrating::Copying, promoting::Standby};
use crate::{
    agent,
    board::Shared,
    events::{Call, Happening, Place},
    faults::Damage,
    process::{Ended, Outcome, Process},
    settings::JOB,
};

/// Something that a program does.
#[derive(Clone, Debug)]
enum Deed {
    Call(ReductionId, Call),
    /// A recovery segment, by its number.
    Segment(usize),
    Close,
}

/// How calls have ended.
type Log = BTreeMap<ReductionId, Outcome>;

/// What a process leaves to later ones of its rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Vault {
    /// How calls have ended, those before the checkpoint among them.
    pub log: Log,
    /// How calls have ended that could not be noted: no later process can go on from here.
    pub unnoted: Log,
    /// How many deeds of the program lie before the checkpoint.
    behind: usize,
    /// How many checkpoints there were.
    pub generation: u64,
}

impl Vault {
    /// How a call has ended, as is noted or was to be.
    fn outcome(&self, reduction: ReductionId) -> Option<&Outcome> {
        self.log.get(&reduction).or_else(|| self.unnoted.get(&reduction))
    }

    /// Whether a later process can go on from it.
    pub fn is_whole(&self) -> bool {
        self.unnoted.is_empty()
    }
}

/// What outlives the processes of ranks that come back.
#[derive(Debug, Default)]
pub(super) struct Comebacks {
    /// What each rank's program does, and when.
    programs: BTreeMap<Rank, Vec<(Timestamp, Deed)>>,
    /// The vaults of ranks where they are, or were last.
    pub(super) vaults: BTreeMap<Rank, Vault>,
    /// The vaults of ranks on hosts from which standbys have taken them away: one that is lost before it has
    /// joined is followed by a process there.
    pub(super) left: BTreeMap<(u64, Rank), Vault>,
    /// Replicas of vaults, by the host where they are.
    pub(super) replicas: BTreeMap<(u64, ProcessId), Vault>,
    /// Copies of vaults that are under way.
    pub(super) copying: BTreeMap<ProcessId, Copying>,
    /// Where the vaults of processes come from that are about to be started: whose, and at which host.
    pub(super) origins: BTreeMap<ProcessId, Option<(ProcessId, u64)>>,
    /// Hosts that were to start a process.
    pub(super) starters: BTreeSet<u64>,
    /// How futures have ended, whichever process of a rank it was.
    ended: BTreeMap<(Rank, ReductionId), Ended>,
    /// Processes that stand by, and those that have ended so.
    pub(super) standbys: BTreeMap<ProcessId, Standby>,
    /// Earlier processes: what they have left is read there.
    past: BTreeMap<ProcessId, Process>,
}

impl World {
    /// The process itself, whether it is still that of its rank or not.
    pub(super) fn of(&self, process: ProcessId) -> &Process {
        self.comebacks.past.get(&process).unwrap_or_else(|| self.process(process.rank))
    }

    /// Whether another process has come in its place.
    pub(super) fn was_replaced(&self, process: ProcessId) -> bool {
        self.comebacks.past.contains_key(&process)
    }

    /// All processes, also those in whose place others have come.
    pub(super) fn all(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().chain(self.comebacks.past.values())
    }

    /// The process itself, to change it.
    pub(super) fn of_mut(&mut self, process: ProcessId) -> &mut Process {
        let current = &mut self.processes[process.rank.index()];
        self.comebacks.past.get_mut(&process).unwrap_or(current)
    }

    /// Ends a damage of what a process of `rank` holds, or has left.
    pub(super) fn mend(&mut self, rank: Rank, damage: Damage) {
        let all = self.processes.iter_mut().chain(self.comebacks.past.values_mut());
        for process in all.filter(|process| process.id.rank == rank) {
            process.damage.retain(|other| *other != damage);
        }
    }

    /// Whether something happens to a process in whose place there is another one by now.
    pub(super) fn is_too_late(&self, what: &Happening) -> bool {
        let to = match what {
            Happening::ToWorker(to, ..) | Happening::Done(to, _) | Happening::MasterLost(to) => to,
            Happening::Renew(to, _) | Happening::Note(to, _) | Happening::Noted(to, _) => to,
            Happening::Copied(to, _) | Happening::Compute(to, _) => to,
            Happening::Joins(to) | Happening::Replay(to) | Happening::Saves(to) => to,
            _ => return false,
        };
        self.process(to.rank).id != *to
    }

    /// Notes what a program is to do.
    pub(super) fn plan_call(&mut self, at: Timestamp, call: &Call) {
        let id = ReductionId::new(&call.name, call.sequence);
        self.plan(at, call.rank, Deed::Call(id, call.clone()));
    }

    /// Notes when a program closes its session.
    pub(super) fn plan_close(&mut self, at: Timestamp, rank: Rank) {
        self.plan(at, rank, Deed::Close);
    }

    /// Notes when a program comes to a recovery segment.
    pub(super) fn plan_segment(&mut self, at: Timestamp, rank: Rank, segment: usize) {
        self.plan(at, rank, Deed::Segment(segment));
    }

    fn plan(&mut self, at: Timestamp, rank: Rank, deed: Deed) {
        if self.settings.returns.is_some() {
            let program = self.comebacks.programs.entry(rank).or_default();
            program.insert(program.partition_point(|(before, _)| *before <= at), (at, deed));
        }
    }

    /// Draws a time of up to `most`.
    pub(super) fn some_time(&mut self, most: Duration) -> Duration {
        self.courier.random().random_range(Duration::ZERO..=most)
    }

    /// Lets an agent be about to start a process, which takes a while and may fail.
    pub(super) fn order_start(&mut self, host: u64, process: ProcessId, origin: Option<Origin>) {
        self.comebacks.origins.insert(process, origin.map(|origin| (origin.process, origin.agent.id.0)));
        self.comebacks.starters.insert(host);
        let returns = self.settings.returns.expect("only where ranks come back are they started");
        let at = self.now() + self.some_time(returns.start_time);
        let fails = self.courier.random().random_ratio(returns.start_failures, 100);
        *self.seen.entry(STARTS).or_default() += 1;
        *self.seen.entry("processes that could not be started").or_default() += u64::from(fails);
        let what = match fails {
            true => Happening::AtAgent(host, AgentEvent::Ended(process, Ending::Code(127))),
            false => Happening::Start(host, process),
        };
        self.schedule(at, what);
    }

    /// Starts a process in place of one that has ended. It hails its agent and joins.
    pub(super) fn start(&mut self, host: u64, process: ProcessId) {
        let Some(agent) = self.agents.get(&host).filter(|agent| agent.lives()) else { return };
        let has_master = !agent.is_done() && !agent.has_lost_master;
        if self.stands_by(process) && has_master {
            return self.start_standby(host, process);
        }
        if !has_master || self.driver.is_done() || self.driver.is_lost() {
            // There is nobody to join any more.
            return self.schedule(self.now(), Happening::AtAgent(host, ended(process)));
        }
        let rank = process.rank;
        if self.process(rank).id > process {
            return self.start_too_late(host, process);
        }
        let goes_on = self.replace(host, process);
        self.tell_agent(host, AgentEvent::Hailed(agent::connection(process)));
        if !goes_on {
            return self.end_without_vault(host, process);
        }
        let returns = self.settings.returns.expect("only where ranks come back are they started");
        let at = self.now() + self.some_time(returns.start_time / 4);
        self.schedule(at, Happening::Joins(process));
    }

    /// Lets a process end that has come to its agent, and cannot go on from what earlier ones have left.
    pub(super) fn end_without_vault(&mut self, host: u64, process: ProcessId) {
        let hung_up = AgentEvent::HungUp(agent::connection(process));
        self.schedule(self.now(), Happening::AtAgent(host, hung_up));
        self.schedule(self.now(), Happening::AtAgent(host, ended(process)));
    }

    /// Lets a process be the one of its rank, in place of one that has ended, or is left behind on another
    /// host. Returns false if what it is to go on from is not there any more, or lacks an outcome.
    pub(super) fn replace(&mut self, host: u64, process: ProcessId) -> bool {
        let rank = process.rank;
        drop(self.thaw(Place::Rank(rank)));
        if !self.take_vault(host, process) {
            return false;
        }
        if self.home(rank) != host {
            self.leave_behind(self.process(rank).id);
        }
        let board = self.shared.as_ref().map(Shared::board);
        let new = Process::at(host, process, &self.settings, board);
        let old = std::mem::replace(self.process_mut(rank), new);
        let has_ended = old.worker.is_none() && !old.lives_on;
        assert!(has_ended || old.host != host, "a process is started once the earlier one there has ended");
        self.comebacks.past.insert(old.id, old);
        self.closed.retain(|other| *other != rank);
        true
    }

    /// Starts a process in whose place the master has had another one started meanwhile, on another host. It
    /// hails its agent and joins, is turned away, and its program fails. The later one goes on.
    fn start_too_late(&mut self, host: u64, process: ProcessId) {
        *self.seen.entry("processes started too late").or_default() += 1;
        let mut late = Process::at(host, process, &self.settings, None);
        late.lives_on = true;
        let worker = late.worker.take();
        self.comebacks.past.insert(process, late);
        self.tell_agent(host, AgentEvent::Hailed(agent::connection(process)));
        if let Some(Action::Send(join)) = worker.and_then(|mut worker| worker.poll_action()) {
            let header = Header { job: JOB, epoch: Epoch(0), sender: process };
            self.courier.tell_master(&mut self.agenda, &header, join);
        }
        self.hang_up_later(process);
        self.exit_later(process);
    }

    /// Lets a process that takes part no more close its connection to its agent, once it hears that it is
    /// fenced, or finds that its connection to the master is no more.
    fn hang_up_later(&mut self, process: ProcessId) {
        let returns = self.settings.returns.expect("only where ranks come back are others in their place");
        let (at, host) = (self.now() + self.some_time(returns.start_time), self.host_of(process));
        self.schedule(at, Happening::AtAgent(host, AgentEvent::HungUp(agent::connection(process))));
    }

    /// Lets a process take part no more whose rank is started on another host. Its program ends later.
    fn leave_behind(&mut self, process: ProcessId) {
        if self.process(process.rank).worker.is_some() {
            *self.seen.entry("processes that live on while their rank is elsewhere").or_default() += 1;
            self.end_process(process);
            self.process_mut(process.rank).lives_on = true;
            self.hang_up_later(process);
            self.exit_later(process);
        }
    }

    /// Lets a process join that has hailed its agent.
    pub(super) fn join(&mut self, process: ProcessId) {
        self.process_mut(process.rank).joins = true;
        self.run_worker(process.rank);
    }

    /// Lets a process that takes part no more end after a while, mostly, as its program fails.
    pub(super) fn exit_later(&mut self, process: ProcessId) {
        if !self.settings.early_ends.is_empty() {
            return self.schedule(self.now(), Happening::Exit(process));
        }
        let Some(returns) = self.settings.returns else { return };
        if self.courier.random().random_ratio(returns.hang, 100) {
            *self.seen.entry(HUNG).or_default() += 1;
            return;
        }
        let at = self.now() + self.some_time(returns.start_time);
        self.schedule(at, Happening::Exit(process));
    }

    /// Ends a process whose program has failed, unless it has ended before.
    pub(super) fn exit(&mut self, process: ProcessId) {
        let there = self.of(process);
        if there.worker.is_none() && !there.lives_on {
            return;
        }
        if self.process(process.rank).id == process {
            self.end_process(process);
        }
        self.of_mut(process).lives_on = false;
        self.show_end(process, Ending::Code(1));
    }

    /// Takes in that a process is taken in that has come in place of another one: its program begins.
    pub(super) fn meet(&mut self, process: ProcessId) {
        let Some(returns) = self.settings.returns.filter(|_| !self.process(process.rank).plays) else {
            return;
        };
        let at = self.now() + self.some_time(returns.note_time);
        self.schedule(at, Happening::Replay(process));
    }

    /// Lets the program of a process make those calls again that it has missed.
    pub(super) fn replay(&mut self, process: ProcessId) {
        let rank = process.rank;
        if self.process(rank).worker.is_none() {
            return;
        }
        self.process_mut(rank).plays = true;
        let now = self.now();
        let missed = |(at, _): &&(Timestamp, Deed)| *at <= now;
        let program = self.comebacks.programs.get(&rank).into_iter().flatten();
        let missed: Vec<Deed> = program.take_while(missed).map(|(_, deed)| deed.clone()).collect();
        let log = self.comebacks.vaults.get(&rank).into_iter().flat_map(|vault| vault.log.keys());
        let log: Vec<ReductionId> = log.copied().collect();
        for reduction in log {
            self.tell_worker(rank, Event::Recalled(reduction));
        }
        let skipped = self.checkpoint(rank, &missed);
        self.forget_segments(rank);
        for deed in missed.into_iter().skip(skipped) {
            match deed {
                Deed::Call(_, call) => self.happen_call(call),
                Deed::Segment(segment) => self.begin_segment(rank, segment),
                Deed::Close => self.tell_worker(rank, Event::Close),
            }
        }
    }

    /// How many of these calls the last checkpoint of a rank has behind it: it was saved before, or could
    /// have been, as all of them have ended, and the log that its process has, which may be that of an
    /// earlier replica, says how.
    fn checkpoint(&mut self, rank: Rank, deeds: &[Deed]) -> usize {
        let has_ended = |deed: &&Deed| match deed {
            Deed::Call(id, _) => self.noted(rank, *id).is_some() && self.has_ended_before(rank, *id),
            // Its checkpoints lie before a segment.
            Deed::Segment(_) | Deed::Close => false,
        };
        let ended = deeds.iter().take_while(has_ended).count();
        let behind = self.comebacks.vaults.get(&rank).map_or(0, |vault| vault.behind);
        let skipped = self.courier.random().random_range(0..=2 * ended).saturating_sub(ended).max(behind);
        *self.seen.entry("calls behind a checkpoint").or_default() += skipped as u64;
        skipped
    }

    /// Whether the program of a rank makes its calls as they come. What is missed is made up for.
    pub(super) fn plays(&self, rank: Rank) -> bool {
        self.process(rank).plays
    }

    /// How a call has ended, as its rank has noted.
    fn noted(&self, rank: Rank, reduction: ReductionId) -> Option<&Outcome> {
        self.comebacks.vaults.get(&rank)?.log.get(&reduction)
    }

    /// How a call has ended, as its rank has noted or was to note.
    fn outcome(&self, rank: Rank, reduction: ReductionId) -> Option<&Outcome> {
        self.comebacks.vaults.get(&rank)?.outcome(reduction)
    }

    /// Answers a call from the result log, if it is in there, once it counts. Returns whether it is.
    pub(super) fn answer_from_log(&mut self, rank: Rank, reduction: ReductionId) -> bool {
        let Some(outcome) = self.noted(rank, reduction).cloned() else { return false };
        if self.process(rank).worker.as_ref().is_some_and(|worker| worker.machine().recalls(reduction)) {
            self.process_mut(rank).held_answers.insert(reduction);
            *self.seen.entry("answers from a log that wait for the replica").or_default() += 1;
            return true;
        }
        *self.seen.entry("calls answered from a log").or_default() += 1;
        let at = self.now();
        let Outcome { end, value } = outcome;
        if self.teller.is_heard() {
            self.teller.resolved(at, rank, reduction, &end);
        }
        self.end_call(rank, reduction, &Ended { end, value, at, told: at, was_refused: false });
        true
    }

    /// Takes in that what an earlier process of a rank has noted of a call counts.
    pub(super) fn answer_held(&mut self, rank: Rank, reduction: ReductionId) {
        if self.process_mut(rank).held_answers.remove(&reduction) {
            self.answer_from_log(rank, reduction);
        }
    }

    /// Ends the calls that wait for answers from the log of a process which takes part no more.
    pub(super) fn end_held_answers(&mut self, rank: Rank, gone: Gone) {
        let at = self.now();
        for reduction in std::mem::take(&mut self.process_mut(rank).held_answers) {
            let end = End::from(gone);
            self.end_call(rank, reduction, &Ended { end, value: None, at, told: at, was_refused: false });
        }
    }

    /// Lets a process begin to note how a call has ended.
    pub(super) fn begin_note(&mut self, process: ProcessId, reduction: ReductionId, end: End) {
        let value = self.value(process.rank, reduction, &end);
        self.process_mut(process.rank).noting.insert(reduction, Outcome { end, value });
        let at = self.now() + self.note_time();
        self.schedule(at, Happening::Note(process, reduction));
    }

    fn note_time(&mut self) -> Duration {
        let returns = self.settings.returns.expect("only where ranks come back is anything noted");
        self.some_time(returns.note_time)
    }

    /// Puts how a call has ended into the log of its rank, if that has room for it, and lacks nothing. Its
    /// process hears later that it is there, or goes on without.
    pub(super) fn note(&mut self, process: ProcessId, reduction: ReductionId) {
        let me = self.process_mut(process.rank);
        let Some(outcome) = me.noting.remove(&reduction).filter(|_| me.worker.is_some()) else { return };
        let failures = self.settings.returns.map_or(0, |returns| returns.note_failures);
        let fails = failures > 0 && self.courier.random().random_ratio(failures, 100);
        let vault = self.comebacks.vaults.entry(process.rank).or_default();
        let is_whole = vault.is_whole();
        let log = if is_whole && !fails { &mut vault.log } else { &mut vault.unnoted };
        let before = log.insert(reduction, outcome);
        assert!(before.is_none(), "I9: what is in the log is not called again");
        if is_whole && fails {
            *self.seen.entry("outcomes that could not be noted").or_default() += 1;
            self.tell_worker(process.rank, Event::Unnoted { reason: "the log is full".to_owned() });
        }
        let at = self.now() + self.note_time();
        self.schedule(at, Happening::Noted(process, reduction));
    }

    /// Lets a program be about to save a checkpoint, at times.
    fn save_later(&mut self, process: ProcessId) {
        let Some(returns) = self.settings.returns.filter(|returns| returns.checkpoints > 0) else { return };
        if self.courier.random().random_ratio(returns.checkpoints, 100) {
            let at = self.now() + self.some_time(returns.note_time * 4);
            self.schedule(at, Happening::Saves(process));
        }
    }

    /// Lets a program save a checkpoint, if it can: all of its calls have ended.
    pub(super) fn save_checkpoint(&mut self, process: ProcessId) {
        let rank = process.rank;
        let me = self.process(rank);
        let takes_part = me.worker.as_ref().is_some_and(|worker| worker.machine().takes_part());
        let is_open = me.shares.values().any(|share| share.ended.is_none()) || !me.held_answers.is_empty();
        if !takes_part || !me.plays || is_open {
            return;
        }
        let has_ended = |(_, deed): &&(Timestamp, Deed)| match deed {
            Deed::Call(id, _) => self.ended_before(rank, *id).is_some(),
            Deed::Segment(_) | Deed::Close => false,
        };
        let program = self.comebacks.programs.get(&rank).into_iter().flatten();
        let behind = program.take_while(has_ended).count();
        let vault = self.comebacks.vaults.entry(rank).or_default();
        let makes_up = !vault.is_whole();
        vault.log.append(&mut vault.unnoted);
        (vault.behind, vault.generation) = (behind, vault.generation + 1);
        *self.seen.entry("checkpoints").or_default() += 1;
        *self.seen.entry("checkpoints after which the vault lacks nothing more").or_default() +=
            u64::from(makes_up);
        self.tell_worker(rank, Event::Saved);
    }

    /// Lets a process go on that has noted how a call of its has ended.
    pub(super) fn go_on_noted(&mut self, process: ProcessId, reduction: ReductionId) {
        if !self.leave_noted(process, reduction) {
            self.tell_worker(process.rank, Event::Noted(reduction));
        }
    }

    /// Lets a process leave the round of a call on the board whose outcome it has noted. Returns whether it was in
    /// one.
    pub(super) fn leave_noted(&mut self, process: ProcessId, reduction: ReductionId) -> bool {
        let rank = process.rank;
        let Some(round) = self.process_mut(rank).rounds.remove(&reduction) else { return false };
        // Its log went with the host, and so does the process.
        let Some(end) = self.outcome(rank, reduction).map(|outcome| outcome.end.clone()) else { return true };
        self.process_mut(rank).worker.iter_mut().for_each(Participant::noted);
        self.leave_round(rank, reduction, round, end);
        true
    }

    /// Takes the logs away that went with a host.
    pub(super) fn lose_logs(&mut self, host: u64) {
        let there = self.ranks_at(host);
        self.comebacks.vaults.retain(|rank, _| !there.contains(rank));
        self.comebacks.left.retain(|(at, _), _| *at != host);
    }

    /// Takes in that a future ends: later processes of the rank end as it does, and a segment goes on with it.
    pub(super) fn end_call(&mut self, rank: Rank, reduction: ReductionId, ended: &Ended) {
        self.keep_end(rank, reduction, ended);
        self.end_round(rank, reduction, ended);
    }

    /// Takes in how a future ends, which is as it has ended before (I9), and as it stands in the log.
    fn keep_end(&mut self, rank: Rank, reduction: ReductionId, ended: &Ended) {
        if self.settings.returns.is_none() {
            return;
        }
        if !is_noted(&ended.end) {
            // An earlier process of this rank, or a later one, may hear more.
            self.comebacks.ended.entry((rank, reduction)).or_insert_with(|| ended.clone());
            return;
        }
        let noted = self.outcome(rank, reduction);
        assert!(
            noted.is_some_and(|noted| is_same((&noted.end, &noted.value), (&ended.end, &ended.value))),
            "I9: a future of rank {rank} ends before that is noted: {ended:?}"
        );
        self.save_later(self.process(rank).id);
        match self.comebacks.ended.get(&(rank, reduction)).filter(|before| is_noted(&before.end)) {
            None => drop(self.comebacks.ended.insert((rank, reduction), ended.clone())),
            Some(before) => {
                *self.seen.entry(AGAIN).or_default() += 1;
                assert!(
                    is_same((&before.end, &before.value), (&ended.end, &ended.value)),
                    "I9: a call of rank {rank} ends otherwise than before: {ended:?}, and not {before:?}"
                );
            }
        }
    }

    /// How `rank`'s call ended, whichever of its processes has heard it first.
    pub(super) fn ended_before(&self, rank: Rank, reduction: ReductionId) -> Option<&Ended> {
        self.comebacks.ended.get(&(rank, reduction))
    }

    /// Whether a program of `rank` has heard how its call ended.
    fn has_ended_before(&self, rank: Rank, reduction: ReductionId) -> bool {
        self.ended_before(rank, reduction).is_some_and(|ended| is_noted(&ended.end))
    }

    /// Calls that have ended, and those of ranks that do not come back.
    pub(super) fn calls_over(&self) -> u64 {
        let is_over = |rank: Rank, id: ReductionId| {
            let ended = self.comebacks.ended.get(&(rank, id));
            match self.comes_back(rank) {
                true => ended.is_some_and(|ended| is_noted(&ended.end)),
                false => ended.is_some() || self.is_gone_for_good(rank),
            }
        };
        let all = self.comebacks.programs.iter();
        let deeds = all.flat_map(|(rank, deeds)| deeds.iter().map(move |(_, deed)| (*rank, deed)));
        let calls = deeds.filter_map(|(rank, deed)| match deed {
            Deed::Call(id, _) => Some((rank, *id)),
            Deed::Segment(_) | Deed::Close => None,
        });
        calls.chain(self.round_calls()).filter(|(rank, id)| is_over(*rank, *id)).count() as u64
    }

    /// Whether a process of `rank` is on its way, or the master has yet to hear that the last one has died.
    pub(super) fn comes_back(&self, rank: Rank) -> bool {
        let process = self.process(rank);
        let is_there = process.worker.as_ref().is_some_and(|worker| worker.machine().gone().is_none());
        let hosts_lives =
            self.migrates() || self.agents.get(&self.home(rank)).is_some_and(|agent| agent.lives());
        let master_lives = !self.driver.is_done() && !self.driver.is_lost();
        let is_known = self.facts.failed.contains_key(&rank);
        let is_joining = is_there && !process.plays;
        hosts_lives
            && master_lives
            && (is_joining || (!is_there && (!is_known || self.master().awaits(rank))))
    }

    fn is_gone_for_good(&self, rank: Rank) -> bool {
        let process = self.process(rank);
        process.worker.as_ref().is_none_or(|worker| worker.machine().gone().is_some() && !process.plays)
    }
}

/// How often a process was to be started in place of one that had ended.
pub(super) const STARTS: &str = "processes started in place of others";

/// Processes that have failed and live on, until they are ended.
pub(super) const HUNG: &str = "processes that failed and live on";

/// How often a call was made again that had ended before.
pub(crate) const AGAIN: &str = "calls that ended as they had ended before";

fn ended(process: ProcessId) -> AgentEvent {
    AgentEvent::Ended(process, Ending::Code(1))
}

/// Whether an end stands in a log.
fn is_noted(end: &End) -> bool {
    matches!(end, End::Finished(_) | End::Received(_) | End::Refused(_))
}

/// What a future brings.
type Brought<'a> = (&'a End, &'a Option<Vec<Vec<Rank>>>);

/// Whether an application sees no difference.
fn is_same((one, value): Brought, (other, other_value): Brought) -> bool {
    let is_same_end = match (one, other) {
        (End::Finished(one), End::Finished(other)) | (End::Received(one), End::Received(other)) => {
            (&one.contributors, &one.missing) == (&other.contributors, &other.missing)
        }
        (End::Refused(one), End::Refused(other)) => one == other,
        _ => false,
    };
    is_same_end && value == other_value
}
