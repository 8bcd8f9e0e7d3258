//! Finds the master, and hears it.

use std::{sync::Arc, time::Duration};

use everfold_agent::Event;
use everfold_protocol::{
    AgentId,
    message::{Header, MASTER, ToAgent},
    spec::Limits,
};
use tokio::{sync::mpsc, time::Instant};

use super::{AgentConfig, thread::Input};
use crate::{
    descriptors::patiently,
    transport::{
        control::connect_until,
        handshake::{HandshakeError, Purpose},
        line::{Inlet, Outlet},
        lobby,
    },
};

/// Finds the master, for which it looks for `patience` at most, and hears it until it says nothing more.
pub(super) async fn attend(
    id: AgentId,
    config: Arc<AgentConfig>,
    patience: Duration,
    silence_max: Duration,
    input: mpsc::UnboundedSender<Input>,
) {
    if let Err(error) = hear(id, &config, patience, silence_max, &input).await {
        tracing::debug!(%error, "no connection to the master");
    }
    let _ = input.send(Input::Event(Event::MasterLost));
}

async fn hear(
    id: AgentId,
    config: &AgentConfig,
    patience: Duration,
    silence_max: Duration,
    input: &mpsc::UnboundedSender<Input>,
) -> Result<(), HandshakeError> {
    let AgentConfig { rendezvous, key, job, .. } = config;
    let deadline = Instant::now() + patience;
    let knock = || connect_until(rendezvous, deadline);
    let (stream, seals) = lobby::knock(knock, key, *job, MASTER, Purpose::Agent(id)).await?;
    // A master whose host has vanished does not say so.
    stream.bound_silence(silence_max)?;
    let own_ip = stream.own_ip()?;
    let socket = Arc::new(stream.into_socket()?);
    let inlet = Inlet::new(socket.clone(), seals.inward);
    let _ = input.send(Input::MasterFound(Outlet::new(socket, seals.outward), own_ip));
    let line = patiently(|| inlet.register()).await?;
    loop {
        let mut ready = line.readable().await?;
        let frame = |_: Header, messages: Vec<ToAgent>| {
            for message in messages {
                let _ = input.send(Input::Event(Event::Master(message)));
            }
        };
        match inlet.hear(Limits::default().frame_bytes_max, frame) {
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => ready.clear_ready(),
            Err(error) => return Err(error),
        }
    }
}
