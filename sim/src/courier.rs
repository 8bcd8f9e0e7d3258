//! Brings messages and work to where they go, as late as the timing says.

use everfold_agent::Event as AgentEvent;
use everfold_protocol::{
    ProcessId, Rank,
    message::{FromAgent, Header, Task, ToMaster, ToWorker},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{
    agenda::Agenda,
    events::{Happening, Tick},
    faults::Limp,
    settings::Settings,
    timing::{Load, Timing},
    work::Work,
};

/// Puts on the agenda what is under way.
#[derive(Debug)]
pub(crate) struct Courier {
    timing: Timing,
    /// Everything that is drawn in a world.
    random: ChaCha8Rng,
    /// How often, in percent, a connection between a member and its deputy breaks, and takes a message with
    /// it.
    breaks: u32,
}

impl Courier {
    pub fn new(settings: &Settings) -> Self {
        Self {
            timing: Timing::new(settings),
            random: ChaCha8Rng::seed_from_u64(settings.seed),
            breaks: settings.damage,
        }
    }

    /// A process sends a message to the master.
    pub fn tell_master(&mut self, agenda: &mut Agenda, header: &Header, message: ToMaster) {
        let at = self.timing.tell_master(agenda.now(), &mut self.random, header, &message);
        agenda.schedule(at, Happening::ToMaster(header.sender, header.epoch, Box::new(message)));
    }

    /// The master sends a message to a process.
    pub fn tell_worker(&mut self, agenda: &mut Agenda, to: ProcessId, header: &Header, message: ToWorker) {
        let at = self.timing.tell_worker(agenda.now(), &mut self.random, to, header, &message);
        agenda.schedule(at, Happening::ToWorker(to, header.epoch, Box::new(message)));
    }

    /// The agent of a host sends a message to the master.
    pub fn agent_tells(&mut self, agenda: &mut Agenda, host: u64, said: FromAgent) {
        let at = self.timing.agent_tells(agenda.now(), &mut self.random, host);
        agenda.schedule(at, Happening::FromAgent(host, said));
    }

    /// What comes from the master reaches the agent of a host.
    pub fn tell_agent(&mut self, agenda: &mut Agenda, host: u64, event: AgentEvent) {
        let at = self.timing.tell_agent(agenda.now(), &mut self.random, host);
        agenda.schedule(at, Happening::AtAgent(host, event));
    }

    /// The master loses its connection to the agent of a host.
    pub fn lose_agent(&mut self, agenda: &mut Agenda, host: u64) {
        let at = self.timing.agent_tells(agenda.now(), &mut self.random, host);
        agenda.schedule(at, Happening::AgentLost(host));
    }

    /// A process sends a message to a deputy.
    pub fn tell_deputy(
        &mut self,
        agenda: &mut Agenda,
        deputy: ProcessId,
        header: &Header,
        message: ToMaster,
    ) {
        let at = self.timing.tell_deputy(agenda.now(), &mut self.random, deputy, header, &message);
        let what = match self.is_broken() {
            true => Happening::DeputyLost(header.sender.rank, deputy),
            false => Happening::ToDeputy(deputy.rank, header.sender, Box::new(message)),
        };
        agenda.schedule(at, what);
    }

    /// A deputy gives a process a task.
    pub fn give_task(&mut self, agenda: &mut Agenda, to: ProcessId, header: &Header, task: Task) {
        let message = ToWorker::Task(task);
        let at = self.timing.deputy_tells(agenda.now(), &mut self.random, to, header, &message);
        let ToWorker::Task(task) = message else { unreachable!("it is a task") };
        let what = match self.is_broken() {
            true => Happening::DeputyLost(to.rank, header.sender),
            false => Happening::OfDeputy(to.rank, header.sender, Box::new(task)),
        };
        agenda.schedule(at, what);
    }

    /// A process loses its connection to the master, which dies.
    pub fn lose_master(&mut self, agenda: &mut Agenda, process: ProcessId) {
        let at = self.timing.lose_master(agenda.now(), &mut self.random, process);
        agenda.schedule(at, Happening::MasterLost(process));
    }

    /// The master loses its connection to a process.
    pub fn hang_up(&mut self, agenda: &mut Agenda, process: ProcessId) {
        let at = self.timing.hang_up(agenda.now(), &mut self.random, process);
        agenda.schedule(at, Happening::Disconnected(process));
    }

    /// Everybody but `deputy` loses its connection to that.
    pub fn lose_deputy(&mut self, agenda: &mut Agenda, deputy: ProcessId, ranks: u32) {
        for rank in (0..ranks).map(Rank).filter(|rank| *rank != deputy.rank) {
            self.ring(agenda, Happening::DeputyLost(rank, deputy));
        }
    }

    /// Something wakes a process up.
    pub fn ring(&mut self, agenda: &mut Agenda, what: Happening) {
        let at = self.timing.bell(agenda.now(), &mut self.random);
        agenda.schedule(at, what);
    }

    /// A process begins with some work.
    pub fn begin(&mut self, agenda: &mut Agenda, process: ProcessId, work: Work) {
        let Self { timing, random, .. } = self;
        timing.begin(agenda.now(), random, process, work, &mut |at, what| agenda.schedule(at, what));
    }

    /// Something happens inside of a modelled cluster.
    pub fn happen(&mut self, agenda: &mut Agenda, tick: Tick) {
        self.timing.happen(agenda.now(), tick, &mut |at, what| agenda.schedule(at, what));
    }

    /// Slows a rank down, or lets it be as fast as it was.
    pub fn limp(&mut self, rank: Rank, limp: Limp) {
        self.timing.limp(rank, limp);
    }

    /// What the master was told and has said, in a modelled cluster.
    pub fn load(&self) -> Load {
        self.timing.load()
    }

    /// Draws something.
    pub fn random(&mut self) -> &mut impl Rng {
        &mut self.random
    }

    fn is_broken(&mut self) -> bool {
        self.breaks > 0 && self.random.random_ratio(self.breaks, 100)
    }
}
