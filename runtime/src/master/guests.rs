//! Takes the connections of workers and agents in, and hears their messages.

use std::{io, net::Shutdown, os::fd::OwnedFd, sync::Arc};

use everfold_protocol::{
    AgentId, Epoch, ProcessId,
    message::{Header, MASTER, Peer, ToAgent, ToMaster, ToWorker},
    parcel::Carry,
    spec::Limits,
};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot, watch};

use super::{MasterConfig, Place, connection::ConnectionId, driver::Input};
use crate::{
    descriptors::patiently,
    memory::lifeline::{self, Ending},
    transport::{
        control::{BoxStream, Listener, bound_silence},
        handshake::{HandshakeError, Purpose},
        line::{Inlet, Outlet},
        lobby::{Guest, Lobby},
        shm,
    },
};

/// What the master must know of its job, once it is led.
pub(super) type Led = watch::Receiver<Option<Arc<MasterConfig>>>;

pub(super) async fn accept(listener: Listener, place: Place, led: Led, input: mpsc::UnboundedSender<Input>) {
    let lobby = Lobby::for_job(place.size);
    let mut number = ConnectionId::default();
    loop {
        let (stream, guest) = lobby.next(&listener).await;
        number = number.next();
        tokio::spawn(connection(stream, guest, number, (place.clone(), led.clone()), input.clone()));
    }
}

/// Serves one connection from handshake to hang-up.
async fn connection(
    mut stream: BoxStream,
    guest: Guest,
    number: ConnectionId,
    (place, led): (Place, Led),
    input: mpsc::UnboundedSender<Input>,
) {
    let is_admitted = |purpose| matches!(purpose, Purpose::Agent(_)) || led.borrow().is_some();
    let (hello, seals) = match guest.prove_if(&mut stream, &place.key, place.job, is_admitted).await {
        Ok(accepted) => accepted,
        Err(error) if led.borrow().is_none() => return tracing::debug!(%error, "no rank is let in yet"),
        Err(error) => return tracing::warn!(%error, "dropped a connection"),
    };
    if let Purpose::Agent(agent) = hello.purpose {
        return match hear_of_silence(stream, led.clone()) {
            Ok(socket) => {
                let outlet = Outlet::new(socket.clone(), seals.outward);
                attend_agent(agent, number, outlet, Inlet::new(socket, seals.inward), &input).await;
            }
            Err(error) => tracing::warn!(%error, "dropped a connection"),
        };
    }
    let Some(config) = led.borrow().clone() else { return };
    let socket = match stream.into_socket() {
        Ok(socket) => Arc::new(socket),
        Err(error) => return tracing::warn!(%error, "dropped a connection"),
    };
    let process = hello.process;
    let outlet = Outlet::new(socket.clone(), seals.outward);
    if hello.purpose != Purpose::Control || process.rank.0 >= config.size {
        let size = config.size;
        return turn_away(
            outlet,
            &config,
            format!(
                "rank 0 was started for a job of {size}, which has no rank {}; give all processes the same EVERFOLD_SIZE",
                process.rank
            ),
        );
    }
    let (answer, accepted) = oneshot::channel();
    if input.send(Input::Connected { number, process, outlet, answer }).is_err() {
        return;
    }
    // The driver gives back a connection that it does not take in.
    match accepted.await {
        Ok(Ok(())) => {}
        Ok(Err(outlet)) => {
            return turn_away(
                outlet,
                &config,
                format!(
                    "another process is {process} already. Give each process a rank of its own (EVERFOLD_RANK). If this \
                     one was started by a process of the job, it has inherited EVERFOLD_RENDEZVOUS, EVERFOLD_RANK and \
                     EVERFOLD_SIZE: unset them to start a job of its own"
                ),
            );
        }
        Err(_) => return,
    }
    let inlet = Arc::new(Inlet::new(socket, seals.inward));
    let voice =
        Voice { number, process, frame_bytes_max: config.policy.limits.frame_bytes_max, inlet, input };
    let frame = |header, messages: Vec<ToMaster>| {
        for message in &messages {
            if let ToMaster::Join { peer, .. } = message {
                voice.watch_life(peer);
            }
        }
        voice.says(header, messages);
    };
    let error = hear(&voice.inlet, process, voice.frame_bytes_max, frame).await;
    tracing::debug!(%process, %error, "connection ended");
    voice.falls_silent();
}

/// Breaks the connection of an agent that is silent for too long: before the job has begun nobody is pinged, and
/// a host that has vanished does not say so.
fn hear_of_silence(stream: BoxStream, mut led: Led) -> io::Result<Arc<OwnedFd>> {
    let is_far = stream.own_ip()?.is_some();
    stream.bound_silence(Limits::default().silence_max())?;
    let socket = Arc::new(stream.into_socket()?);
    let there = socket.clone();
    tokio::spawn(async move {
        let Ok(config) = led.wait_for(Option::is_some).await else { return };
        let silence_max = config.as_ref().map(|config| config.policy.limits.silence_max());
        let bounded = silence_max.filter(|_| is_far).map(|silence_max| bound_silence(&there, silence_max));
        if let Some(Err(error)) = bounded {
            tracing::debug!(%error, "the agent may be silent for as long as the system allows");
        }
    });
    Ok(socket)
}

/// Hears an agent. Until it says something, it may have given this connection up and come by another one.
async fn attend_agent(
    agent: AgentId,
    number: ConnectionId,
    outlet: Outlet<ToAgent>,
    inlet: Inlet,
    input: &mpsc::UnboundedSender<Input>,
) {
    let frame_bytes_max = Limits::default().frame_bytes_max;
    let mut unknown = Some(outlet);
    let frame = |_, messages| {
        if let Some(outlet) = unknown.take() {
            let _ = input.send(Input::AgentConnected(number, agent, outlet));
        }
        let _ = input.send(Input::FromAgent(number, agent, messages));
    };
    let error = hear(&inlet, MASTER, frame_bytes_max, frame).await;
    tracing::debug!(%agent, %error, "connection ended");
    if unknown.is_none() {
        let _ = input.send(Input::AgentGone(number, agent));
    }
}

/// Messages of a process over its connection. Any thread may pass them on to the driver.
#[derive(Clone)]
struct Voice {
    number: ConnectionId,
    process: ProcessId,
    frame_bytes_max: u64,
    inlet: Arc<Inlet>,
    /// A driver that has ended hears nothing; it ends the tasks of its connections, too.
    input: mpsc::UnboundedSender<Input>,
}

impl Voice {
    fn says(&self, header: Header, messages: Vec<ToMaster>) {
        let _ = self.input.send(Input::Messages(self.number, header, messages));
    }

    fn falls_silent(&self) {
        let _ = self.input.send(Input::Disconnected(self.number, self.process));
    }

    /// Hears of the death of a process on this host before its connection breaks.
    fn watch_life(&self, peer: &Peer) {
        let Some(region) = peer.region.filter(|_| shm::host_id().is_ok_and(|host| host == peer.host)) else {
            return;
        };
        let (voice, process, pid) = (self.clone(), self.process, peer.pid);
        let watch = move || match lifeline::outlive(pid, &region) {
            Ok(Ending::Death) => voice.ends(),
            Ok(Ending::Good) => {}
            Err(error) => tracing::debug!(%process, %error, "cannot watch its life"),
        };
        // It sleeps until that process ends. Without it the broken connection tells the same, later.
        let thread = std::thread::Builder::new().name("everfold-watch".to_owned()).stack_size(256 << 10);
        if let Err(error) = thread.spawn(watch) {
            tracing::debug!(%process, %error, "cannot watch its life");
        }
    }

    /// The process has died. Its messages before that are on its connection, and count.
    fn ends(&self) {
        let says = |header, messages| self.says(header, messages);
        while let Ok(true) = hear_now(&self.inlet, self.process, self.frame_bytes_max, says) {}
        self.falls_silent();
    }
}

/// Says why a process is not taken in, and hangs up.
fn turn_away(mut outlet: Outlet<ToWorker>, config: &MasterConfig, reason: String) {
    tracing::warn!(reason, "turned a process away");
    let header = Header { job: config.job, epoch: Epoch(0), sender: MASTER };
    outlet.push(ToWorker::Unwelcome { reason });
    // So short a message fits into any connection that has carried little so far.
    let _ = outlet.send(&header, config.policy.limits.frame_bytes_max);
    outlet.close(Shutdown::Write);
}

/// Tells `each` frame of `process` until the connection ends; returns why.
async fn hear<M: DeserializeOwned + Carry>(
    inlet: &Inlet,
    process: ProcessId,
    frame_bytes_max: u64,
    mut each: impl FnMut(Header, Vec<M>),
) -> HandshakeError {
    let line = match patiently(|| inlet.register()).await {
        Ok(line) => line,
        Err(error) => return error.into(),
    };
    loop {
        let mut ready = match line.readable().await {
            Ok(ready) => ready,
            Err(error) => return error.into(),
        };
        match hear_now(inlet, process, frame_bytes_max, &mut each) {
            // The others have their turn.
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => ready.clear_ready(),
            Err(error) => return error,
        }
    }
}

/// Tells `each` frame of `process` that has come. Returns whether there may be more.
///
/// # Errors
/// The connection broke, or the bytes are no frame of that process.
fn hear_now<M: DeserializeOwned + Carry>(
    inlet: &Inlet,
    process: ProcessId,
    frame_bytes_max: u64,
    mut each: impl FnMut(Header, Vec<M>),
) -> Result<bool, HandshakeError> {
    let mut stranger = None;
    let heard = inlet.hear(frame_bytes_max, |header, messages| match header.sender == process {
        true => each(header, messages),
        false => stranger = Some(header.sender),
    });
    match stranger {
        Some(stranger) => Err(io::Error::other(format!("it speaks for {stranger}")).into()),
        None => heard,
    }
}
