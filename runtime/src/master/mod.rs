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
use tokio::sync::mpsc;

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
    /// Listens at the rendezvous.
    ///
    /// # Errors
    /// The address is taken, or not of this machine.
    pub fn start(config: MasterConfig) -> io::Result<Self> {
        let (ready, listening) = std::sync::mpsc::channel();
        let (input, inputs) = mpsc::unbounded_channel();
        let from_connections = input.clone();
        let thread = std::thread::Builder::new().name("everfold-master".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(host(config, ready, from_connections, inputs)),
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        listening.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { input, thread: Some(thread) })
    }

    /// Ends the master at once. Every worker learns it from its broken connection.
    pub fn abandon(&self) {
        let _ = self.input.send(Input::Abandon);
    }
}

impl Drop for MasterThread {
    /// Waits until the master has nothing more to do; a panicking thread does not.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            let _ = thread.join();
        }
    }
}

async fn host(
    config: MasterConfig,
    ready: std::sync::mpsc::Sender<io::Result<()>>,
    input: mpsc::UnboundedSender<Input>,
    inputs: mpsc::UnboundedReceiver<Input>,
) {
    let listener = match Listener::bind(&config.rendezvous).await {
        Ok(listener) => listener,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let _ = ready.send(Ok(()));
    let config = Arc::new(config);
    let accepting = tokio::spawn(guests::accept(listener, config.clone(), input));
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
