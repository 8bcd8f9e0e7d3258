//! Finds the master, and hears it.

use std::{future::pending, io, sync::Arc, time::Duration};

use everfold_agent::Event;
use everfold_protocol::{
    AgentId,
    message::{Header, MASTER, ToAgent},
    spec::Limits,
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};

use super::{AgentConfig, thread::Input};
use crate::{
    descriptors::patiently,
    transport::{
        control::{BoxStream, bound_silence},
        handshake::{HandshakeError, Purpose, Seals},
        line::{Inlet, Outlet},
        lobby,
    },
};

/// How long one try to find the master takes at most, and how long it is before the next one.
const TRY: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// How long the master is looked for, and how long it may be silent. Both may change meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Until when it is looked for, if that ends.
    pub(super) until: Option<Instant>,
    pub(super) silence_max: Duration,
}

/// Finds the master, and hears it until it says nothing more.
pub(super) async fn attend(
    id: AgentId,
    config: Arc<AgentConfig>,
    terms: watch::Receiver<Terms>,
    input: mpsc::UnboundedSender<Input>,
) {
    if let Err(error) = hear(id, &config, terms, &input).await {
        tracing::debug!(%error, "no connection to the master");
    }
    let _ = input.send(Input::Event(Event::MasterLost));
}

async fn hear(
    id: AgentId,
    config: &AgentConfig,
    mut terms: watch::Receiver<Terms>,
    input: &mpsc::UnboundedSender<Input>,
) -> Result<(), HandshakeError> {
    let (stream, seals) = loop {
        let until = terms.borrow_and_update().until;
        tokio::select! {
            found = find(id, config) => break found,
            () = reach(until) => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            // A process may have found it: it is there now.
            Ok(()) = terms.changed() => {}
        }
    };
    // A master whose host has vanished does not say so.
    stream.bound_silence(terms.borrow_and_update().silence_max)?;
    let own_ip = stream.own_ip()?;
    let socket = Arc::new(stream.into_socket()?);
    let inlet = Inlet::new(socket.clone(), seals.inward);
    let _ = input.send(Input::MasterFound(Outlet::new(socket.clone(), seals.outward), own_ip));
    let line = patiently(|| inlet.register()).await?;
    loop {
        let mut ready = tokio::select! {
            ready = line.readable() => ready?,
            Ok(()) = terms.changed() => {
                if own_ip.is_some() {
                    bound_silence(&socket, terms.borrow_and_update().silence_max)?;
                }
                continue;
            }
        };
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

/// Tries until the master of this job is there. Where it is to be, that of an earlier run may still be.
async fn find(id: AgentId, config: &AgentConfig) -> (BoxStream, Seals) {
    let AgentConfig { rendezvous, key, job, .. } = config;
    loop {
        let (deadline, purpose) = (Instant::now() + TRY, Purpose::Agent(id));
        match lobby::knock_until(rendezvous, deadline, (key, *job, MASTER), purpose).await {
            Ok(found) => return found,
            Err(error) => tracing::debug!(%error, "no master yet"),
        }
        sleep(PAUSE).await;
    }
}

/// Waits until then, or for ever.
async fn reach(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
