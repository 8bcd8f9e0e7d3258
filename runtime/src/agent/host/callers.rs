//! Serves the processes of this host.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use everfold_agent::{Connection, Event};
use everfold_protocol::{ProcessId, message::RegionRef};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot, watch},
};

use super::{AgentConfig, life::Life, thread::Input};
use crate::{
    agent::line::{Answer, Hail, Line, Serve},
    descriptors,
    memory::board::OwnBoard,
    transport::{
        control::is_own,
        handshake::{self, HandshakeError, Purpose},
    },
};

/// A process that wants to be taken in.
pub(super) struct Caller {
    pub(super) connection: Connection,
    pub(super) hail: Hail,
    pub(super) region: Option<(OwnedFd, RegionRef)>,
    /// Its process id.
    pub(super) pid: Option<i32>,
    pub(super) answer: oneshot::Sender<(Answer, Handed)>,
}

/// Descriptors that a process is handed with its welcome.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// The board, if the process is to show it to the others, or may need what earlier processes have left there.
    pub(super) board: Option<Arc<OwnBoard>>,
    /// The files of its rank's vault.
    pub(super) vault: Option<Arc<Vault>>,
}

/// The files of a rank's vault, which outlive its processes.
pub(super) type Vault = [OwnedFd; 2];

/// With what the processes of this host are served.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) config: Arc<AgentConfig>,
    pub(super) input: mpsc::UnboundedSender<Input>,
    /// Whether they are served no longer.
    pub(super) over: watch::Receiver<bool>,
}

/// Serves the processes of this host. As long as one is served, there is an `attending`.
pub(super) async fn accept(listener: UnixListener, serving: Serving, attending: mpsc::Sender<()>) {
    for number in 0.. {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (serving, attending) = (serving.clone(), attending.clone());
                tokio::spawn(async move {
                    let _attending: mpsc::Sender<()> = attending;
                    if let Err(error) = attend(stream, number, serving).await {
                        tracing::debug!(%error, "dropped a connection");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(descriptors::PAUSE).await;
            }
        }
    }
}

/// Serves one process of this host until it hangs up.
async fn attend(
    mut stream: UnixStream,
    number: u64,
    Serving { config, input, mut over }: Serving,
) -> Result<(), HandshakeError> {
    is_own(&stream)?;
    let (hello, seals) = handshake::accept(&mut stream, &config.key, config.job).await?;
    let process = hello.process;
    if hello.purpose != Purpose::Hail {
        return Err(io::Error::other(format!("{process} was led astray: {:?}", hello.purpose)).into());
    }
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    // The process that has started it sees it end.
    let life = if config.parent.is_some() { None } else { seen_life(&stream, process) };
    let mut line = Line::new(stream, seals);
    let hail: Hail = line.hear().await?;
    let region = match hail.region {
        Some(region) => Some((line.take().await?, region)),
        None => None,
    };
    let connection = Connection { process, number };
    let (answer, answered) = oneshot::channel();
    let _ = input.send(Input::Hailed(Box::new(Caller { connection, hail, region, pid, answer })));
    let Ok((answer, handed)) = answered.await else { return Ok(()) };
    if answer.is_err() {
        return line.tell(&answer).await;
    }
    let (open, closed) = oneshot::channel::<()>();
    if let Some(life) = life {
        tokio::spawn(watch(connection, life, closed, input.clone()));
    }
    let served = tokio::select! {
        served = serve_rank(line, answer, handed, &input) => served,
        // The process may wait for a master that only this agent knows to be gone.
        Ok(_) = over.wait_for(|over| *over) => Ok(()),
    };
    let _ = input.send(Input::Event(Event::HungUp(connection)));
    drop(open);
    served
}

/// Serves a process that was taken in, until it hangs up.
async fn serve_rank(
    mut line: Line,
    answer: Answer,
    Handed { board, vault }: Handed,
    input: &mpsc::UnboundedSender<Input>,
) -> Result<(), HandshakeError> {
    line.tell(&answer).await?;
    if let Some(board) = board {
        line.hand_over(board.file()).await?;
    }
    for file in vault.iter().flat_map(|files| files.iter()) {
        line.hand_over(file.as_fd()).await?;
    }
    while let Ok(Serve { ip }) = line.hear().await {
        let (answer, answered) = oneshot::channel();
        let _ = input.send(Input::Serve(ip, answer));
        if let Ok(serving) = answered.await {
            line.tell(&serving).await?;
        }
    }
    Ok(())
}

/// The life of a process that another one has started, if this one can see it.
fn seen_life(stream: &UnixStream, process: ProcessId) -> Option<Life> {
    let life = Life::behind(stream);
    life.inspect_err(|error| tracing::warn!(%process, %error, "this agent will not see the end of a process"))
        .ok()
}

/// Tells when the process behind a connection has ended. The connection has `closed` when its other half is dropped.
async fn watch(
    connection: Connection,
    life: Life,
    closed: oneshot::Receiver<()>,
    input: mpsc::UnboundedSender<Input>,
) {
    match life.outlast(closed).await {
        Ok(()) => drop(input.send(Input::Event(Event::Vanished(connection)))),
        Err(error) => {
            tracing::warn!(process = %connection.process, %error, "this agent cannot see the end of a process")
        }
    }
}
