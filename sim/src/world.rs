//! One master, some workers, and the messages between them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use everfold_master::{self as master, coordinator::Coming};
use everfold_protocol::{
    Epoch, JobId, Path, ProcessId, Rank, ReductionId, ReductionSpec, Timestamp,
    board::{Clerk, PATIENCE},
    message::{Contribution, Header, MASTER_RANK, Peer, ToMaster},
    watch::INTERVALS_MOST,
};
use everfold_worker::machine::{Action, Collecting, Event, Gone};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::{
    board::{Shared, Words},
    copies::Notes,
    events::{Happening, Heap, Work},
    facts::Facts,
    faults::{Cut, Disk, Gap},
    process::{Process, Share},
    settings::{Settings, Wakes},
    thrift::Copies,
    timing::{Load, Timing},
    told::{Line, Teller},
    trace::{Step, Trace},
};

pub(crate) const JOB: JobId = JobId(1);
pub(crate) const MASTER: ProcessId =
    ProcessId { rank: MASTER_RANK, incarnation: everfold_protocol::Incarnation(0) };
/// When nothing has happened for this long, nothing will: longer than any pause between two attempts.
const QUIET: Duration = Duration::from_millis(200);

/// A rank's call of a reduction.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    /// Who calls.
    pub rank: Rank,
    /// The reduction's name.
    pub name: String,
    /// How often the rank called that name before.
    pub sequence: u64,
    /// What it believes that all agreed on.
    pub spec: ReductionSpec,
    /// Whether the body travels in the message.
    pub inline: bool,
}

/// The master, and the clerk of the board.
type Coordinator = master::Coordinator<Words>;

/// A deterministic job.
pub struct World {
    pub(crate) now: Timestamp,
    heap: Heap<Happening>,
    pub(crate) random: ChaCha8Rng,
    pub(crate) settings: Settings,
    pub(crate) timing: Timing,
    pub(crate) coordinator: Coordinator,
    master_due: Option<Timestamp>,
    /// The board, if there is one.
    pub(crate) shared: Option<Shared>,
    /// Whether the master died.
    master_lost: bool,
    /// By rank.
    pub(crate) processes: Vec<Process>,
    /// Happenings under way that are not idle.
    busy: usize,
    /// Processes that are frozen.
    pub(crate) frozen: usize,
    /// Where the network is cut.
    pub(crate) cuts: Vec<Cut>,
    /// Hosts that do not reach each other's memory.
    pub(crate) gaps: Vec<Gap>,
    /// What has come to the master, which takes it in later, and how often it has taken in several things.
    pub(crate) inbox: Vec<Happening>,
    pub(crate) batches: u64,
    /// What is noted about copies.
    pub(crate) copying: Notes,
    /// Reads that were given up although the owner lives, and reads of what a living owner holds that were damaged.
    pub(crate) failed_reads: (u64, u64),
    /// What does not get through.
    pub(crate) held_back: Vec<Happening>,
    progress: Timestamp,
    /// When nothing has happened for this long, nothing will.
    quiet: Duration,
    events: u64,
    /// What the stopwatch has measured of the master.
    master_time: Duration,
    /// Calls that have ended, or whose process has died before.
    pub(crate) calls_ended: u64,
    /// Folds that were done.
    pub(crate) folds: BTreeMap<ReductionId, u32>,
    /// Copies that were ordered.
    pub(crate) copies: Copies,
    /// Contributions that came back from teams.
    pub(crate) back: u64,
    /// When the master heard which contributions.
    pub(crate) heard: BTreeMap<(ReductionId, Rank), Timestamp>,
    /// How often what has happened that no fault tells.
    pub(crate) seen: BTreeMap<&'static str, u64>,
    met: Vec<Rank>,
    /// All processes of the job.
    pub(crate) peers: Arc<[Peer]>,
    incomplete: BTreeMap<Rank, Path>,
    closed: Vec<Rank>,
    done: bool,
    trace: Trace,
    pub(crate) facts: Facts,
    /// Calls whose end waited for readers of a result that lies where a partial was.
    pub(crate) waits_for_partials: u64,
    pub(crate) teller: Teller,
    pub(crate) notices: Vec<master::Notice>,
}

impl World {
    /// A job whose processes are about to join.
    pub fn new(settings: Settings) -> Self {
        let now = Timestamp::ZERO;
        let ranks = (0..settings.ranks).map(Rank);
        let master = master::Master::new(now, JOB, settings.ranks, settings.policy);
        let (shared, board) = Shared::new(&settings).unzip();
        let clerk = board.clone().map(Clerk::new);
        let mut world = Self {
            now,
            heap: Heap::new(),
            random: ChaCha8Rng::seed_from_u64(settings.seed),
            timing: Timing::new(&settings),
            master_due: None,
            coordinator: master::Coordinator::new(JOB, master, clerk),
            shared,
            master_lost: false,
            processes: ranks.clone().map(|rank| Process::new(rank, &settings, board.as_ref())).collect(),
            busy: 0,
            frozen: 0,
            cuts: Vec::new(),
            gaps: Vec::new(),
            inbox: Vec::new(),
            batches: 0,
            copying: Notes::default(),
            failed_reads: (0, 0),
            held_back: Vec::new(),
            progress: now,
            quiet: QUIET + PATIENCE * 3 + settings.policy.limits.ping_interval * (INTERVALS_MOST + 2),
            events: 0,
            master_time: Duration::ZERO,
            calls_ended: 0,
            folds: BTreeMap::new(),
            copies: Copies::default(),
            back: 0,
            heard: BTreeMap::new(),
            seen: BTreeMap::new(),
            met: Vec::new(),
            peers: Arc::new([]),
            incomplete: BTreeMap::new(),
            closed: Vec::new(),
            done: false,
            trace: Trace::default(),
            facts: Facts::default(),
            waits_for_partials: 0,
            teller: Teller::default(),
            notices: Vec::new(),
            settings,
        };
        ranks.for_each(|rank| world.run_worker(rank));
        world.look_later();
        world
    }

    /// Virtual time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The master, to look at.
    pub fn master(&self) -> &master::Master {
        self.coordinator.master()
    }

    /// What was decided so far, if the run is followed.
    pub fn steps(&self) -> &[Step] {
        &self.trace.steps
    }

    /// xxh3 of everything that has happened, and when, if the run is followed: two runs with one hash are the same run.
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    /// What the master was told and has said so far, in a modelled cluster.
    pub fn load(&self) -> Load {
        self.timing.load()
    }

    /// What the master told its watchers.
    pub fn notices(&self) -> &[master::Notice] {
        &self.notices
    }

    /// Whether the master has nothing more to do.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Events that have happened.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Real time that the master's machine has taken, if there is a stopwatch.
    pub fn master_time(&self) -> Duration {
        self.master_time
    }

    /// Calls that have ended, or whose process died before.
    pub fn calls_ended(&self) -> u64 {
        self.calls_ended
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

    /// Lets a rank call a reduction `after` now.
    pub fn call(&mut self, after: Duration, call: Call) {
        self.schedule(self.now + after, Happening::Call(Box::new(call)));
    }

    /// Lets a rank close its session `after` now.
    pub fn close(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now + after, Happening::Close(rank));
    }

    /// Tells everything that happens from now on to `listener`, in words.
    pub fn tell(&mut self, listener: Box<dyn FnMut(Line)>) {
        self.teller.listen(listener);
    }

    /// Runs until nothing is under way any more. Checks the invariants after every event.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Lets the next thing happen. Returns false if nothing more will, except that time passes.
    pub fn step(&mut self) -> bool {
        let waiting = self.busy > 0 || self.frozen > 0;
        if !waiting && self.now.since(self.progress) > self.quiet {
            return false;
        }
        let Some((at, what)) = self.heap.pop() else { return false };
        assert!(at >= self.now, "time never runs back");
        self.now = at;
        self.events += 1;
        if !what.is_idle() {
            self.busy -= 1;
            self.progress = self.now;
        }
        match what.way() {
            Some((from, to)) if self.is_severed(from, to) => self.held_back.push(what),
            _ => self.take(what),
        }
        true
    }

    /// Lets something happen and everyone act upon it, or keeps it for a process that does not run.
    fn take(&mut self, what: Happening) {
        let place = what.place();
        match place.and_then(|rank| self.process_mut(rank).frozen.as_mut()) {
            Some(waiting) => waiting.push(what),
            None => {
                self.happen(what);
                self.act_upon(place);
            }
        }
    }

    /// Lets the master and the worker at `place` act upon what has happened.
    fn act_upon(&mut self, place: Option<Rank>) {
        self.run_master();
        if let Some(rank) = place {
            self.run_worker(rank);
            self.run_deputy(rank);
        }
        if self.settings.follow {
            self.master().check();
        }
    }

    /// Lets a process take in what came while it did not run.
    fn wake(&mut self, rank: Rank) {
        let mut waiting = self.thaw(rank);
        match self.settings.wakes {
            Wakes::InOrder => {}
            Wakes::ByItsClock => waiting.sort_by_key(|what| !what.is_alarm()),
            Wakes::InOneGo => {
                waiting.into_iter().for_each(|what| self.happen(what));
                return self.act_upon(Some(rank));
            }
        }
        waiting.into_iter().for_each(|what| self.take(what));
    }

    /// Whether nothing is under way but the passing of time.
    pub fn is_at_rest(&self) -> bool {
        self.busy == 0
    }

    pub(crate) fn process(&self, rank: Rank) -> &Process {
        &self.processes[rank.index()]
    }

    pub(crate) fn process_mut(&mut self, rank: Rank) -> &mut Process {
        &mut self.processes[rank.index()]
    }

    pub(crate) fn schedule(&mut self, at: Timestamp, what: Happening) {
        self.busy += usize::from(!what.is_idle());
        self.heap.push(at, what);
    }

    /// Breaks a process's connection to the master.
    pub(crate) fn hang_up(&mut self, process: ProcessId) {
        let at = self.timing.hang_up(self.now, &mut self.random, process);
        self.schedule(at, Happening::Disconnected(process));
    }

    /// Breaks everyone's connection to the master, which is no more.
    pub(crate) fn lose_master(&mut self) {
        self.master_lost = true;
        for rank in (0..self.settings.ranks).map(Rank).filter(|rank| *rank != MASTER_RANK) {
            let process = ProcessId::first(rank);
            let at = self.timing.lose_master(self.now, &mut self.random, process);
            self.schedule(at, Happening::MasterLost(process));
        }
    }

    /// Lets `process` begin with `work`.
    pub(crate) fn begin(&mut self, process: ProcessId, work: Work) {
        self.lend(process, &work);
        let Self { now, heap, busy, random, timing, .. } = self;
        timing.begin(*now, random, process, work, &mut |at, what| {
            *busy += usize::from(!what.is_idle());
            heap.push(at, what);
        });
    }

    fn happen(&mut self, what: Happening) {
        if self.settings.follow {
            self.trace.happens(self.now, &what);
        }
        if self.teller.is_heard() {
            self.teller.happens(self.now, &what);
        }
        match what {
            Happening::Call(call) => self.happen_call(*call),
            Happening::ToMaster(..) | Happening::Disconnected(_) if self.master_lost => {}
            Happening::Timeout | Happening::Look | Happening::Turn if self.master_lost => {}
            what @ (Happening::ToMaster(..) | Happening::Disconnected(_)) => {
                if let Some(what) = self.put_off(what) {
                    self.hear(what);
                }
            }
            Happening::Turn => self.take_in(),
            Happening::ToWorker(to, epoch, message) => {
                let header = Header { job: JOB, epoch, sender: MASTER };
                self.tell_worker(to.rank, Event::Master { header, message: *message });
            }
            Happening::ToDeputy(rank, sender, message) => self.tell_deputy(rank, sender, *message),
            Happening::OfDeputy(rank, deputy, task) => self.tell_worker(rank, Event::Deputy(deputy, *task)),
            Happening::DeputyLost(rank, deputy) => self.tell_worker(rank, Event::DeputyLost(deputy)),
            Happening::Renew(process, reduction) => self.renew(process, reduction),
            Happening::DeputyTimeout(rank) => self.wake_deputy(rank),
            Happening::Done(process, done) => {
                let (work, spent) = *done;
                self.work(process, work, spent);
            }
            Happening::Tick(tick) => {
                let Self { now, heap, busy, timing, .. } = self;
                timing.happen(*now, tick, &mut |at, what| {
                    *busy += usize::from(!what.is_idle());
                    heap.push(at, what);
                });
            }
            Happening::Die(process) => self.die(process),
            Happening::Crash(process, arrive) => self.crash(process, arrive),
            Happening::LetGo(process) => self.let_go(process),
            Happening::Abandon(process) => self.abandon(process),
            Happening::Freeze(rank) => self.stop(rank),
            Happening::Thaw(rank) => self.wake(rank),
            Happening::LoseHost(host) => self.lost_host(host),
            Happening::Cut(cut) => {
                self.facts.cut(self.now, (*cut).clone());
                self.cuts.push(*cut);
            }
            Happening::Heal(cut) => self.heal(&cut).into_iter().for_each(|what| self.take(what)),
            Happening::Part(gap) => self.gaps.push(gap),
            Happening::Meet(gap) => self.meet(&gap),
            Happening::Garble(rank, reads) => self.process_mut(rank).garbled += reads,
            Happening::Limp(rank, limp) => {
                if let Some(time) = limp.message_time {
                    self.facts.delay(rank, time);
                }
                self.timing.limp(rank, limp);
            }
            Happening::Spoil(rank) => self.damage_copies(rank),
            Happening::Disk(rank, disk) => self.process_mut(rank).disk_full = disk == Disk::Full,
            Happening::MasterLost(process) => {
                self.tell_worker(process.rank, Event::MasterLost);
            }
            Happening::Ring(from, next) => {
                if self.process(from).worker.is_some() {
                    self.ring(from, next);
                }
            }
            Happening::Bell(rank) => self.look(rank),
            Happening::Look => {
                self.coordinator.look();
                self.run_coordinator();
                self.look_later();
            }
            Happening::Close(rank) => self.tell_worker(rank, Event::Close),
            // Something else was due before, and this was scheduled once more after that.
            Happening::Timeout if self.master_due.is_none_or(|due| due > self.now) => {}
            Happening::Timeout => {
                self.master_due = None;
                // What has come before it is taken in before.
                self.take_in();
                self.coordinator.let_time_pass();
                self.run_coordinator();
            }
            Happening::WorkerTimeout(rank) => {
                self.process_mut(rank).due = None;
                self.take_part(rank, |now, worker, publish| ((), worker.let_time_pass(now, publish)));
            }
        }
    }

    pub(crate) fn tell_worker(&mut self, rank: Rank, event: Event) {
        self.take_part(rank, |now, worker, publish| ((), worker.hear(now, event, publish)));
    }

    fn happen_call(&mut self, call: Call) {
        let Call { rank, name, sequence, spec, inline } = call;
        let reduction = ReductionId::new(&name, sequence);
        self.quiet = self.quiet.max(spec.deadline.map_or(Duration::ZERO, |deadline| deadline * 2));
        let is_crowded = self.settings.crowded.contains(&rank);
        let process = self.process_mut(rank);
        if process.worker.is_none() {
            self.calls_ended += 1;
            return;
        }
        // A rank that has a result makes room.
        self.look(rank);
        let on_board = self.shows_on_board(rank, reduction, &spec);
        let process = self.process_mut(rank);
        let data = process.original(reduction, &spec, inline || on_board);
        let share = Share {
            spec: spec.clone(),
            inline,
            collected: Vec::new(),
            how: Collecting::default(),
            tried: false,
            shown: false,
            touched: 0,
            is_crowded,
            waits: None,
            told: None,
            ended: None,
        };
        process.shares.insert(reduction, share);
        if let Err(mut contribution) = self.place(rank, Contribution { reduction, name, spec, data }) {
            self.show_off_board(rank, &mut contribution);
            self.tell_worker(rank, Event::Call(contribution));
        }
    }

    fn time_master<T>(&mut self, ask: impl FnOnce(&mut Coordinator, Timestamp) -> T) -> T {
        let started = self.settings.stopwatch.map(|read| read());
        let answer = ask(&mut self.coordinator, self.now);
        if let Some((started, read)) = started.zip(self.settings.stopwatch) {
            self.master_time += Duration::from_nanos(read().saturating_sub(started));
        }
        answer
    }

    /// Lets the master hear of what comes, and those wake up who may have slept too long.
    pub(crate) fn run_coordinator(&mut self) {
        while let Some(coming) = self.coordinator.poll_coming() {
            let call = match &coming {
                Coming::Event(master::Event::Message { header, message }) => {
                    self.note_coming(header.sender, message)
                }
                _ => None,
            };
            self.time_master(|coordinator, now| coordinator.take_in(now, coming));
            call.into_iter().for_each(|call| self.note_heard(call));
        }
        let late = self.coordinator.take_late();
        self.wake_late(late);
    }

    fn run_master(&mut self) {
        while let Some(action) = self.time_master(|coordinator, _| coordinator.poll_action()) {
            match action {
                master::Action::Send { to, message } => {
                    if self.settings.follow {
                        self.trace.said(to, &message);
                    }
                    self.note_said(to, &message);
                    self.give_up(to.rank, &message);
                    self.copies.order(&message);
                    let header = Header { job: JOB, epoch: self.master().epoch(), sender: MASTER };
                    let at = self.timing.tell_worker(self.now, &mut self.random, to, &header, &message);
                    self.schedule(at, Happening::ToWorker(to, header.epoch, Box::new(message)));
                }
                master::Action::Report(_) => unreachable!("it is no deputy"),
                master::Action::Disconnect(_) => {}
                master::Action::Notice(notice) => {
                    self.hear_notice(notice);
                    self.run_coordinator();
                }
                master::Action::Done => self.done = true,
            }
        }
        if let Some(due) = self.master().poll_timeout()
            && !self.done
            && !self.master_lost
            && self.master_due.is_none_or(|scheduled| due < scheduled)
        {
            // An early wake-up is harmless.
            self.master_due = Some(due);
            self.schedule(due.max(self.now), Happening::Timeout);
        }
    }

    fn run_worker(&mut self, rank: Rank) {
        while let Some(action) = self.process_mut(rank).worker.as_mut().and_then(|w| w.poll_action()) {
            self.act(rank, action);
        }
        let process = self.process_mut(rank);
        if let Some(due) = process.worker.as_ref().and_then(|worker| worker.machine().poll_timeout())
            && process.due.is_none_or(|scheduled| due < scheduled)
        {
            process.due = Some(due);
            self.schedule(due.max(self.now), Happening::WorkerTimeout(rank));
        }
    }

    pub(crate) fn tell_master(&mut self, rank: Rank, message: ToMaster) {
        let process = self.process(rank);
        let (sender, Some(worker)) = (process.id, &process.worker) else { return };
        let header = Header { job: JOB, epoch: worker.machine().epoch(), sender };
        self.process_mut(rank).sent += 1;
        let at = self.timing.tell_master(self.now, &mut self.random, &header, &message);
        self.schedule(at, Happening::ToMaster(sender, header.epoch, Box::new(message)));
    }

    fn act(&mut self, rank: Rank, action: Action) {
        let now = self.now;
        let process = self.process_mut(rank);
        let id = process.id;
        let Some(worker) = &process.worker else { return };
        match action {
            Action::Send(message) => {
                if let ToMaster::Contribute(contribution) = &message
                    && contribution.reduction.is_in_teams()
                {
                    self.try_in_teams(rank, contribution.reduction);
                }
                self.tell_master(rank, message);
            }
            Action::Tell(deputy, message) => {
                if let ToMaster::Contribute(contribution) = &message {
                    self.try_in_teams(rank, contribution.reduction);
                }
                let header = Header { job: JOB, epoch: Epoch(0), sender: id };
                let at = self.timing.tell_deputy(self.now, &mut self.random, deputy, &header, &message);
                let happening = match self.breaks() {
                    true => Happening::DeputyLost(rank, deputy),
                    false => Happening::ToDeputy(deputy.rank, id, Box::new(message)),
                };
                self.schedule(at, happening);
            }
            Action::GiveUp(reduction) => drop(process.given_back.insert(reduction.in_teams())),
            Action::Renew(reduction) => self.schedule(self.now, Happening::Renew(id, reduction)),
            Action::Over(attempt) => {
                if let Some(deputy) = &mut process.deputy {
                    deputy.machine.forget(now, attempt);
                }
            }
            Action::Execute(task) => {
                // An array's first fold leaves the original alone; later ones grow the partial where it is.
                process.writing.insert(task.segment);
                self.begin(id, Work::Execute(task));
            }
            Action::Collect { reduction, pieces, how } => {
                self.begin(id, Work::Collect(reduction, pieces, how));
            }
            Action::Keep(keep) => self.begin(id, Work::Keep(keep)),
            Action::Resolve { reduction, end } => self.resolve(rank, reduction, end),
            Action::Closed => {
                let gone = worker.machine().gone().unwrap_or(Gone::Left);
                self.closed.push(rank);
                self.note_gone(rank, gone);
                self.forget_placed(rank, gone);
                if gone != Gone::Left {
                    self.hang_up(id);
                }
            }
            Action::Meet { peers, .. } => {
                self.peers = peers;
                self.met.push(rank);
            }
            Action::Incomplete { missing } => drop(self.incomplete.insert(rank, missing)),
            Action::Departed { process: failed, evidence } => {
                process.departed.insert(failed.rank);
                if let Some(deputy) = &mut process.deputy {
                    deputy.machine.depart(now, failed, evidence);
                }
                self.depart(rank, failed);
            }
            Action::Release(reduction) => process.release(reduction),
            Action::Forget(dead) => drop(process.forgotten.insert(dead.rank)),
            Action::News(_) | Action::Unwelcome(_) => {}
        }
    }
}
