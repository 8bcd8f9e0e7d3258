//! Drives the master's machine, in the agent that rank 0 has come to.
//!
//! One thread accepts the workers' connections, feeds their messages to [`Master`](everfold_master::Master)
//! in batches, and sends out its decisions, one write per worker and batch. A worker that reads slowly delays
//! no other: bytes that its connection does not take wait by themselves.
//!
//! | module | holds |
//! |---|---|
//! | `driver` | feeds the machine and carries out its actions |
//! | `connection` | the way to one worker or agent |
//! | `guests` | takes connections in, and hears their messages |

use std::{io, sync::Arc, thread::JoinHandle};

use everfold_master::Policy;
use everfold_protocol::JobId;
use tokio::sync::{mpsc, oneshot, watch};

use self::driver::{Input, MasterDriver};
use crate::{
    agent::ToParent,
    components::Components,
    locating::Locator,
    memory::board::OwnBoard,
    transport::{
        control::{Address, Listener},
        handshake::Key,
    },
};

mod connection;
mod driver;
mod guests;

/// The master of a job and the thread it lives on.
#[derive(Debug)]
pub struct MasterThread {
    input: mpsc::UnboundedSender<Input>,
    /// Where to say what it must know, until it does.
    lead: Option<oneshot::Sender<MasterConfig>>,
    thread: Option<JoinHandle<()>>,
}

/// The configuration of a master.
#[derive(Clone, Debug)]
pub struct MasterConfig {
    /// Which job.
    pub job: JobId,
    /// Its secret.
    pub key: Key,
    /// Number of its processes.
    pub size: u32,
    /// Where to listen.
    pub rendezvous: Address,
    /// Sizes and depths that it schedules with, and the limits of the job.
    pub policy: Policy,
    /// The own detectors that it asks.
    pub components: Components,
    /// Where the ranks of this host put short contributions.
    pub board: Option<Arc<OwnBoard>>,
    /// The node of this host that locates faults.
    pub(crate) locator: Locator,
    /// The process that has started the ranks of this host, if that hears what the ranks are told.
    pub(crate) parent: Option<mpsc::UnboundedSender<ToParent>>,
}

impl MasterThread {
    /// Listens at the rendezvous. Of `config` only the job, its secret, its size and the rendezvous count yet:
    /// until the master is [led](Self::lead), agents are let in, and ranks are not.
    ///
    /// # Errors
    /// The address is taken, or not of this machine.
    pub fn open(config: &MasterConfig) -> io::Result<Self> {
        let (ready, listening) = std::sync::mpsc::channel();
        let (input, inputs) = mpsc::unbounded_channel();
        let (lead, led) = oneshot::channel();
        let (from_connections, place) = (input.clone(), Place::of(config));
        let thread = std::thread::Builder::new().name("everfold-master".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(host(place, ready, from_connections, inputs, led)),
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        listening.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { input, lead: Some(lead), thread: Some(thread) })
    }

    /// Lets there be a master.
    pub fn lead(mut self, config: MasterConfig) -> Self {
        if let Some(lead) = self.lead.take() {
            // Its thread has not ended before.
            let _ = lead.send(config);
        }
        self
    }

    /// Ends the master at once. Every worker learns it from its broken connection.
    pub fn abandon(&self) {
        let _ = self.input.send(Input::Abandon);
    }
}

impl Drop for MasterThread {
    /// Waits until the master has nothing more to do, if it was led; a panicking thread does not.
    fn drop(&mut self) {
        self.lead = None;
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            let _ = thread.join();
        }
    }
}

/// Where a master listens, and for which job.
#[derive(Clone, Debug)]
struct Place {
    job: JobId,
    key: Key,
    size: u32,
    rendezvous: Address,
}

impl Place {
    fn of(MasterConfig { job, key, size, rendezvous, .. }: &MasterConfig) -> Self {
        Self { job: *job, key: *key, size: *size, rendezvous: rendezvous.clone() }
    }
}

async fn host(
    place: Place,
    ready: std::sync::mpsc::Sender<io::Result<()>>,
    input: mpsc::UnboundedSender<Input>,
    inputs: mpsc::UnboundedReceiver<Input>,
    led: oneshot::Receiver<MasterConfig>,
) {
    let listener = match Listener::bind(&place.rendezvous).await {
        Ok(listener) => listener,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let _ = ready.send(Ok(()));
    let (lead, is_led) = watch::channel(None);
    let accepting = tokio::spawn(guests::accept(listener, place, is_led, input));
    let Ok(config) = led.await else { return accepting.abort() };
    let config = Arc::new(config);
    lead.send_replace(Some(config.clone()));
    let connections = MasterDriver::new(&config).drive(inputs).await;
    accepting.abort();
    // Farewells may still be on their way.
    let (ranks, agents) = connections;
    for connection in ranks.into_values() {
        connection.end().await;
    }
    for connection in agents.into_values() {
        connection.end().await;
    }
}
