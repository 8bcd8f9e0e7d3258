//! The way to other hosts' nodes: a connection for each direction, made when there is something to say.
//!
//! What cannot be said is lost. The machines say it again, or to somebody else, if nobody acknowledges it.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use everfold_locate::{message::Message, place::Host};
use everfold_protocol::{AgentId, locating::HostRef, message::MASTER};
use tokio::sync::mpsc::{self, error::TrySendError};

use super::{Input, Locator};
use crate::{
    agent::AgentConfig,
    transport::{
        control::{Address, BoxStream, connect, read_frame, write_frame},
        handshake::{self, HandshakeError, Purpose, Seals},
    },
};

/// How many messages to one host wait at most.
const WAITING_MAX: usize = 256;
/// How long a connection may take to be made, and how long its peer may be silent.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest message between nodes, in bytes.
const FRAME_BYTES_MAX: u64 = 64 << 10;

/// Ways to all hosts to which there was something to say.
pub(super) struct Links {
    config: Arc<AgentConfig>,
    me: Host,
    hosts: Arc<[HostRef]>,
    ways: BTreeMap<Host, mpsc::Sender<Message>>,
}

impl Links {
    pub fn new(config: Arc<AgentConfig>, me: Host, hosts: Arc<[HostRef]>) -> Self {
        Self { config, me, hosts, ways: BTreeMap::new() }
    }

    /// Says something to the node of a host, if there is room.
    pub fn send(&mut self, to: Host, message: Message) {
        let message = match self.ways.get(&to) {
            Some(way) => match way.try_send(message) {
                Ok(()) | Err(TrySendError::Full(_)) => return,
                Err(TrySendError::Closed(message)) => message,
            },
            None => message,
        };
        let Some(host) = self.hosts.get(to.0 as usize).cloned() else { return };
        let (way, messages) = mpsc::channel(WAITING_MAX);
        let _ = way.try_send(message);
        self.ways.insert(to, way);
        let (config, me) = (self.config.clone(), self.me);
        tokio::spawn(async move {
            if let Err(error) = talk(&config, me, &host, messages).await {
                tracing::debug!(host = %host.agent.address, %error, "cannot reach a node");
            }
        });
    }
}

/// Connects to the agent of a host for this purpose.
pub(super) async fn reach(
    config: &AgentConfig,
    host: &HostRef,
    purpose: fn(AgentId) -> Purpose,
) -> Result<(BoxStream, Seals), HandshakeError> {
    let mut stream = connect(&Address::Tcp(host.agent.address.clone())).await?;
    let seals =
        handshake::connect(&mut stream, &config.key, config.job, MASTER, purpose(host.agent.id)).await?;
    Ok((stream, seals))
}

async fn talk(
    config: &AgentConfig,
    me: Host,
    host: &HostRef,
    mut messages: mpsc::Receiver<Message>,
) -> Result<(), HandshakeError> {
    let reached = tokio::time::timeout(PATIENCE, reach(config, host, Purpose::Locate)).await;
    let (mut stream, mut seals) = reached.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    stream.bound_silence(PATIENCE)?;
    while let Some(message) = messages.recv().await {
        write_frame(&mut stream, &(me, message), FRAME_BYTES_MAX, &mut seals.outward).await?;
    }
    Ok(())
}

/// Hears the node of another host until it hangs up.
pub(crate) async fn listen(
    mut stream: BoxStream,
    mut seals: Seals,
    locator: Locator,
) -> Result<(), HandshakeError> {
    loop {
        let (from, message) = read_frame(&mut stream, FRAME_BYTES_MAX, &mut seals.inward).await?;
        locator.tell(Input::Said(from, message));
    }
}
