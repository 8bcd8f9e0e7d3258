//! How long things take: the only place in the world that knows.

mod drawn;
mod modelled;

use everfold_protocol::{
    ProcessId, Rank, Timestamp, codec,
    frame::PRELUDE_BYTES,
    message::{Header, ToMaster, ToWorker},
};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

pub use self::modelled::Load;
use self::{drawn::Drawn, modelled::Modelled};
use crate::{
    events::{Happening, Place, Tick},
    faults::Limp,
    settings::Settings,
    work::Work,
};

/// Answers how long things take.
#[derive(Debug)]
pub(crate) enum Timing {
    /// Order and delays as the seed says, such as no network would have.
    Drawn(Drawn),
    /// As in a cluster.
    Modelled(Box<Modelled>, Wire),
}

impl Timing {
    pub fn new(settings: &Settings) -> Self {
        match &settings.cluster {
            None => Self::Drawn(Drawn::new(settings)),
            Some(cluster) => Self::Modelled(Box::new(Modelled::new(settings, cluster)), Wire::default()),
        }
    }

    /// When a message that a process sends now reaches the master. Messages between two processes keep their
    /// order.
    pub fn tell_master(
        &mut self,
        now: Timestamp,
        random: &mut ChaCha8Rng,
        header: &Header,
        message: &ToMaster,
    ) -> Timestamp {
        match self {
            Self::Drawn(drawn) => drawn.message(now, random, at(header.sender), Place::Master),
            Self::Modelled(..) if matches!(message, ToMaster::Join { .. }) => now,
            Self::Modelled(modelled, wire) => {
                modelled.tell_master(now, header.sender, wire.bytes(header, message))
            }
        }
    }

    /// When a message that the master sends now reaches a process.
    pub fn tell_worker(
        &mut self,
        now: Timestamp,
        random: &mut ChaCha8Rng,
        to: ProcessId,
        header: &Header,
        message: &ToWorker,
    ) -> Timestamp {
        match self {
            Self::Drawn(drawn) => drawn.message(now, random, Place::Master, at(to)),
            // A modelled job is complete when its time begins.
            Self::Modelled(..) if matches!(message, ToWorker::Welcome { .. }) => now,
            Self::Modelled(modelled, wire) => modelled.tell_worker(now, to, wire.bytes(header, message)),
        }
    }

    /// When a message that a process sends now reaches a deputy.
    pub fn tell_deputy(
        &mut self,
        now: Timestamp,
        random: &mut ChaCha8Rng,
        deputy: ProcessId,
        header: &Header,
        message: &ToMaster,
    ) -> Timestamp {
        match self {
            Self::Drawn(drawn) => drawn.message(now, random, at(header.sender), at(deputy)),
            Self::Modelled(modelled, wire) => {
                modelled.tell(now, deputy.rank, header.sender, wire.bytes(header, message))
            }
        }
    }

    /// When a message that a deputy sends now reaches a process.
    pub fn deputy_tells(
        &mut self,
        now: Timestamp,
        random: &mut ChaCha8Rng,
        to: ProcessId,
        header: &Header,
        message: &ToWorker,
    ) -> Timestamp {
        match self {
            Self::Drawn(drawn) => drawn.message(now, random, at(header.sender), at(to)),
            Self::Modelled(modelled, wire) => {
                modelled.is_told(now, header.sender.rank, to, wire.bytes(header, message))
            }
        }
    }

    /// When a process hears that its connection to the master breaks now, which dies.
    pub fn lose_master(&mut self, now: Timestamp, random: &mut ChaCha8Rng, process: ProcessId) -> Timestamp {
        match self {
            Self::Drawn(drawn) => drawn.message(now, random, Place::Master, at(process)),
            Self::Modelled(modelled, _) => modelled.tell_worker(now, process, 0),
        }
    }

    /// When the master hears that the connection of a process breaks now.
    pub fn hang_up(&mut self, now: Timestamp, random: &mut ChaCha8Rng, process: ProcessId) -> Timestamp {
        match self {
            Self::Drawn(drawn) => drawn.message(now, random, at(process), Place::Master),
            Self::Modelled(modelled, _) => modelled.tell_master(now, process, 0),
        }
    }

    /// When a message that the agent of a host sends now reaches the master.
    pub fn agent_tells(&mut self, now: Timestamp, random: &mut ChaCha8Rng, host: u64) -> Timestamp {
        match self {
            Self::Drawn(drawn) => drawn.message(now, random, Place::Agent(host), Place::Master),
            Self::Modelled(..) => now,
        }
    }

    /// When a message that the master sends now reaches the agent of a host.
    pub fn tell_agent(&mut self, now: Timestamp, random: &mut ChaCha8Rng, host: u64) -> Timestamp {
        match self {
            Self::Drawn(drawn) => drawn.message(now, random, Place::Master, Place::Agent(host)),
            Self::Modelled(..) => now,
        }
    }

    /// When a process takes in that it is woken up now.
    pub fn bell(&mut self, now: Timestamp, random: &mut ChaCha8Rng) -> Timestamp {
        match self {
            Self::Drawn(drawn) => drawn.bell(now, random),
            Self::Modelled(..) => now,
        }
    }

    /// Lets `process` begin with `work`; what will happen then goes to `schedule`.
    pub fn begin(
        &mut self,
        now: Timestamp,
        random: &mut ChaCha8Rng,
        process: ProcessId,
        work: Work,
        schedule: &mut impl FnMut(Timestamp, Happening),
    ) {
        match self {
            Self::Drawn(drawn) => {
                let spent = drawn.work(random, process, &work);
                schedule(now + spent.all, Happening::Done(process, Box::new((work, spent))));
            }
            Self::Modelled(modelled, _) => modelled.begin(now, process, work, schedule),
        }
    }

    /// Takes in that something happens inside a modelled cluster.
    pub fn happen(&mut self, now: Timestamp, tick: Tick, schedule: &mut impl FnMut(Timestamp, Happening)) {
        if let Self::Modelled(modelled, _) = self {
            modelled.happen(now, tick, schedule);
        }
    }

    /// Slows a rank down, or lets it be as fast as it was. Modelled clusters have slow nodes of their own.
    pub fn limp(&mut self, rank: Rank, limp: Limp) {
        if let Self::Drawn(drawn) = self {
            drawn.limp(rank, limp);
        }
    }

    /// What the master was told and has said, in a modelled cluster.
    pub fn load(&self) -> Load {
        match self {
            Self::Drawn(_) => Load::default(),
            Self::Modelled(modelled, _) => modelled.load,
        }
    }
}

fn at(process: ProcessId) -> Place {
    Place::Rank(process.rank)
}

/// Measures messages as they are on the wire.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// Reused from message to message.
    bytes: Vec<u8>,
}

impl Wire {
    /// Bytes of a frame with one message.
    fn bytes<T: Serialize>(&mut self, header: &Header, message: &T) -> u64 {
        self.bytes.clear();
        codec::encode_into(&(header, [message]), &mut self.bytes).expect("messages can be encoded");
        (PRELUDE_BYTES + self.bytes.len()) as u64
    }
}
