//! One master, some workers, and the messages between them.
//!
//! This file has the world and its loop: the next event happens, and then the machines at its place act upon
//! it. What is plain data, or a type of its own, is outside of this folder, and knows no world.
//!
//! | module | says |
//! |---|---|
//! | `plan` | what is to happen: calls, and what goes wrong |
//! | `views` | what a world shows to tests and judges |
//! | `master` | what the master hears, and what it does |
//! | `workers` | what workers hear, and what they do |
//! | `agents` | what agents hear, see and say |
//! | `early` | processes that end before they join |
//! | `deputies` | what deputies of the master do, and what comes of attempts in teams |
//! | `board` | what ranks and the master do at the board |
//! | `folding` | how ranks read and fold |
//! | `collecting` | how a rank copies a result |
//! | `keeping` | how replicas are made and damaged |
//! | `lending` | who waits until a reader has given back what it was lent |
//! | `reach` | what can be read in spite of what goes wrong, and how it arrives |
//! | `deaths` | how processes end, stop and go on |
//! | `returning` | ranks that come back: their programs, their logs, the processes that they had before |
//! | `migrating` | where ranks that come back are, and the replicas of their vaults |
//! | `promoting` | processes that stand by, and take the places of others |
//! | `segments` | recovery segments, which ranks go through |
//! | `facts` | what is noted of what the master hears and says |
//! | `notes` | what is noted about replicas |
//! | `oracle` | what has to hold at each event |

mod agents;
mod board;
mod collecting;
mod deaths;
mod deputies;
mod early;
mod facts;
mod folding;
mod keeping;
mod lending;
mod located;
mod master;
mod migrating;
mod notes;
mod oracle;
mod plan;
mod promoting;
mod reach;
mod returning;
mod row;
mod segments;
mod views;
mod workers;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use everfold_master::Notice;
use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, Timestamp,
    board::PATIENCE,
    message::{Header, MASTER, Peer},
    watch::INTERVALS_MOST,
};
use everfold_worker::machine::Event;

pub(crate) use self::{agents::BRIEFLY, returning::AGAIN, segments::RoundCalls};
use self::{early::Early, located::Located, returning::Comebacks, segments::Segments};
use crate::{
    agenda::Agenda,
    agent::Agent,
    board::Shared,
    copies::Notes,
    courier::Courier,
    driver::MasterDriver,
    events::{End, Happening, Place},
    facts::Facts,
    faults::Disk,
    inbox::Inbox,
    outages::Outages,
    process::Process,
    settings::{JOB, Settings, Wakes},
    thrift::Copies,
    told::{Line, Teller},
    trace::Trace,
};

/// When nothing has happened for this long, nothing will: longer than any pause between two attempts.
const QUIET: Duration = Duration::from_millis(200);

/// A deterministic job.
pub struct World {
    /// Virtual time, and what is to happen.
    agenda: Agenda,
    /// Brings messages and work to where they go.
    courier: Courier,
    settings: Settings,
    /// The master, and the clerk of the board.
    driver: MasterDriver,
    /// The board, if there is one.
    shared: Option<Shared>,
    /// By rank.
    processes: Vec<Process>,
    /// By host: where there are no agents, only what the master is in.
    agents: BTreeMap<u64, Agent>,
    /// Processes that are frozen.
    frozen: usize,
    /// What the network does not carry.
    outages: Outages,
    /// What has come to the master, which takes it in later.
    inbox: Inbox,
    /// What is noted about copies.
    copying: Notes,
    /// Reads that were given up although the owner lives, and reads of what a living owner holds that were
    /// damaged.
    failed_reads: (u64, u64),
    /// Calls that have ended, or whose process has died before.
    calls_ended: u64,
    /// Folds that were done.
    folds: BTreeMap<ReductionId, u32>,
    /// Copies that were ordered.
    copies: Copies,
    /// Contributions that came back from teams.
    back: u64,
    /// How often what has happened that no fault tells.
    seen: BTreeMap<&'static str, u64>,
    /// Ranks for which the job has begun.
    met: Vec<Rank>,
    /// All processes of the job.
    peers: Arc<[Peer]>,
    /// Ranks that were told that there is no job, and who is missing.
    incomplete: BTreeMap<Rank, Path>,
    /// Ranks that have left in good order.
    closed: Vec<Rank>,
    /// What is recorded, for tests that follow the run.
    trace: Trace,
    /// What happened to processes.
    facts: Facts,
    /// Calls whose end waited for readers of a result that lies where a partial was.
    waits_for_partials: u64,
    /// Tells what happens in words, if somebody listens.
    teller: Teller,
    /// What the master told its watchers.
    notices: Vec<Notice>,
    /// Calls that were open when the master told that a rank is slow with one of their name.
    slow: BTreeSet<ReductionId>,
    /// What outlives the processes of ranks that come back.
    comebacks: Comebacks,
    /// What the master was told of located faults.
    located: Located,
    /// How ranks go through recovery segments.
    segments: Segments,
    /// What comes before there is a master.
    early: Early,
}

impl World {
    /// A job whose processes are about to join.
    pub fn new(settings: Settings) -> Self {
        let mut quiet = QUIET + PATIENCE * 3 + settings.policy.limits.ping_interval * (INTERVALS_MOST + 2);
        if settings.returns.is_some() {
            let restart = settings.policy.recoveries.restart;
            quiet += restart.join_timeout + restart.pause_max;
        }
        let ranks = (0..settings.ranks).map(Rank);
        let (shared, board) = Shared::new(&settings).unzip();
        let mut world = Self {
            agenda: Agenda::new(quiet),
            courier: Courier::new(&settings),
            driver: MasterDriver::new(Timestamp::ZERO, &settings, board.clone()),
            shared,
            processes: ranks
                .clone()
                .map(|rank| Process::new(ProcessId::first(rank), &settings, board.as_ref()))
                .collect(),
            agents: agents(&settings),
            frozen: 0,
            outages: Outages::default(),
            inbox: Inbox::default(),
            copying: Notes::default(),
            failed_reads: (0, 0),
            calls_ended: 0,
            folds: BTreeMap::new(),
            copies: Copies::default(),
            back: 0,
            seen: BTreeMap::new(),
            met: Vec::new(),
            peers: Arc::new([]),
            incomplete: BTreeMap::new(),
            closed: Vec::new(),
            trace: Trace::default(),
            facts: Facts::default(),
            waits_for_partials: 0,
            teller: Teller::default(),
            notices: Vec::new(),
            slow: BTreeSet::new(),
            comebacks: Comebacks::default(),
            located: Located::default(),
            segments: Segments::default(),
            early: Early::new(settings.has_master() || !settings.has_several_hosts()),
            settings,
        };
        world.plan_early_ends();
        ranks.for_each(|rank| world.run_worker(rank));
        world.join_agents();
        world.tell_late_starts();
        world.look_later();
        world
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
        if self.frozen == 0 && self.agenda.is_quiet() {
            return false;
        }
        let Some(what) = self.agenda.next() else { return false };
        self.carry(what);
        true
    }

    /// Lets something get to where it goes, unless the network is cut there.
    fn carry(&mut self, what: Happening) {
        let host = |end| match end {
            End::Process(process) => self.host_of(process),
            End::Rank(rank) => self.home(rank),
            End::Host(host) => host,
            End::Master => self.settings.master_host(),
        };
        match what.way().is_some_and(|(from, to)| self.outages.severs(host(from), host(to))) {
            true => self.outages.hold_back(what),
            false => self.take(what),
        }
    }

    /// Lets something happen and everyone act upon it, or keeps it for a process that does not run.
    fn take(&mut self, what: Happening) {
        // A standby, and an earlier process that lives on, are others than the one that may be frozen.
        let is_of_another = match &what {
            Happening::ToWorker(to, ..) => self.stands_by(*to),
            Happening::Exit(process) => self.was_replaced(*process),
            _ => false,
        };
        let place = what.place().filter(|_| !is_of_another);
        match place.and_then(|place| self.frozen_at(place).as_mut()) {
            Some(waiting) => waiting.push(what),
            None => {
                self.happen(what);
                self.act_upon(place);
            }
        }
    }

    /// What waits for a process, if that is frozen. The master and the agent of its host are one.
    fn frozen_at(&mut self, place: Place) -> &mut Option<Vec<Happening>> {
        let host = match place {
            Place::Rank(rank) => return &mut self.process_mut(rank).frozen,
            Place::Agent(host) => host,
            Place::Master => self.settings.master_host(),
        };
        &mut self.agents.get_mut(&host).expect("only hosts that have one have something happen there").frozen
    }

    /// Lets the master and the worker at `place` act upon what has happened.
    fn act_upon(&mut self, place: Option<Place>) {
        self.run_master();
        if let Some(Place::Rank(rank)) = place {
            self.run_worker(rank);
            self.run_deputy(rank);
        }
        if self.settings.follow {
            self.driver.check();
        }
    }

    /// Lets a process take in what came while it did not run.
    fn wake(&mut self, place: Place) {
        let mut waiting = self.thaw(place);
        match self.settings.wakes {
            Wakes::InOrder => {}
            Wakes::ByItsClock => waiting.sort_by_key(|what| !what.is_alarm()),
            Wakes::InOneGo => {
                waiting.into_iter().for_each(|what| self.happen(what));
                return self.act_upon(Some(place));
            }
        }
        waiting.into_iter().for_each(|what| self.take(what));
    }

    fn process(&self, rank: Rank) -> &Process {
        &self.processes[rank.index()]
    }

    /// The process that a fault hits which is planned for its rank.
    fn current(&self, process: ProcessId) -> ProcessId {
        self.process(process.rank).id
    }

    fn process_mut(&mut self, rank: Rank) -> &mut Process {
        &mut self.processes[rank.index()]
    }

    /// Lets something happen `at` a time that is not over.
    fn schedule(&mut self, at: Timestamp, what: Happening) {
        self.agenda.schedule(at, what);
    }

    /// Lets something happen.
    fn happen(&mut self, what: Happening) {
        if self.is_too_late(&what) {
            if let Happening::ToWorker(to, _, message) = &what {
                self.tell_standby(*to, message);
            }
            return;
        }
        if self.settings.follow {
            self.trace.happens(self.agenda.now(), &what);
        }
        if self.teller.is_heard() {
            self.teller.happens(self.agenda.now(), &what);
        }
        match what {
            Happening::Call(call) => self.happen_call(*call),
            what if what.is_for_master() && self.driver.is_lost() => {}
            Happening::Timeout | Happening::Look | Happening::Turn if self.driver.is_lost() => {}
            what if what.is_for_master() => {
                if let Some(what) = self.early.hold(what).and_then(|what| self.put_off(what)) {
                    self.hear(what);
                }
            }
            Happening::Turn => self.take_in(),
            Happening::ToWorker(to, epoch, message) => {
                self.note_refused(to.rank, &message);
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
                self.courier.happen(&mut self.agenda, tick);
            }
            Happening::Die(process) => self.be_killed(self.current(process)),
            Happening::Crash(process, arrive) => self.crash(self.current(process), arrive),
            Happening::LetGo(process) => self.let_go(self.current(process)),
            Happening::Abandon(process) => self.abandon(self.current(process)),
            Happening::Freeze(place) => self.stop(place),
            Happening::Thaw(place) => self.wake(place),
            Happening::LoseHost(host) => self.lost_host(host),
            Happening::Break(process) => self.break_connection(self.current(process)),
            Happening::EndHost(host) => self.end_host(host),
            Happening::AtAgent(host, event) => self.tell_agent(host, event),
            Happening::Cut(cut) => {
                self.facts.cut(self.agenda.now(), (*cut).clone());
                self.outages.cut(*cut);
            }
            Happening::Heal(cut) => {
                self.facts.heal(self.agenda.now(), &cut);
                self.outages.heal(&cut).into_iter().for_each(|what| self.carry(what));
            }
            Happening::Part(gap) => self.outages.part(gap),
            Happening::Meet(gap) => self.outages.meet(&gap),
            Happening::Garble(rank, reads) => self.process_mut(rank).garbled += reads,
            Happening::Damage(rank, damage) => self.process_mut(rank).damage.push(damage),
            Happening::Mend(rank, damage) => self.mend(rank, damage),
            Happening::Limp(rank, limp) => {
                if let Some(time) = limp.message_time {
                    self.facts.delay(rank, time);
                }
                self.courier.limp(rank, limp);
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
                self.driver.look();
                self.run_coordinator();
                self.look_later();
            }
            Happening::Close(rank) => {
                if self.plays(rank) {
                    self.tell_worker(rank, Event::Close);
                }
            }
            Happening::Timeout => {
                if self.driver.wake(self.agenda.now()) {
                    // What has come before it is taken in before.
                    self.take_in();
                    self.driver.let_time_pass();
                    self.run_coordinator();
                }
            }
            Happening::ToMaster(..) | Happening::Disconnected(_) => unreachable!("the master hears it"),
            Happening::FromAgent(..) | Happening::AgentLost(_) | Happening::Located(..) => {
                unreachable!("the master hears it");
            }
            Happening::WorkerTimeout(rank) => {
                self.process_mut(rank).due = None;
                self.take_part(rank, |now, worker, publish| ((), worker.let_time_pass(now, publish)));
            }
            Happening::Start(host, process) => self.start(host, process),
            Happening::Joins(process) => self.join(process),
            Happening::Replay(process) => self.replay(process),
            Happening::Exit(process) => self.exit(process),
            Happening::Note(process, reduction) => self.note(process, reduction),
            Happening::Noted(process, reduction) => self.go_on_noted(process, reduction),
            Happening::Saves(process) => self.save_checkpoint(process),
            Happening::Copied(process, number) => self.copied(process, number),
            Happening::Begins(rank, segment) => {
                if self.plays(rank) {
                    self.begin_segment(rank, segment as usize);
                }
            }
            Happening::Compute(process, segment) => self.compute(process, segment),
            Happening::EndsEarly(process) => self.end_early(process),
            Happening::GivesUp(host) => self.give_up_seeking(host),
            Happening::Follows(process) => self.follow(process),
            Happening::Falls(process) => self.fall(process),
            Happening::Takes(process) => {
                self.take_place(process);
                self.run_worker(process.rank);
            }
        }
    }
}

/// The agents of all hosts to whom their ranks have come; where there are none, what the master is in.
fn agents(settings: &Settings) -> BTreeMap<u64, Agent> {
    let of = |host| settings.ranks_on(host).filter(|_| settings.agents).map(ProcessId::first);
    let ranks = (0..settings.ranks).map(Rank).filter(|rank| settings.agents || rank.0 == 0);
    let hosts = ranks.map(|rank| settings.host(rank)).chain(settings.spares());
    let agent = |host| match settings.early_ends.is_empty() {
        true => Agent::of(of(host), settings.has_parents(), settings.has_several_hosts()),
        false => early::agent(settings, host),
    };
    hosts.map(|host| (host, agent(host))).collect()
}
