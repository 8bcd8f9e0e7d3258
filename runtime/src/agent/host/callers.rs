//! Serves the processes of this host, and sees them end.

use std::{
    io,
    os::fd::{AsFd, FromRawFd, OwnedFd},
    sync::Arc,
};

use everfold_agent::Event;
use everfold_protocol::{
    ProcessId,
    message::{Ending, RegionRef},
};
use nix::libc;
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot},
};

use super::{AgentConfig, thread::Input};
use crate::{
    agent::line::{Answer, Hail, Line, Serve},
    descriptors::{self, patiently},
    memory::board::OwnBoard,
    transport::{
        control::is_own,
        handshake::{self, HandshakeError, Purpose},
        line::register,
    },
};

/// A process that wants to be taken in.
pub(super) struct Caller {
    pub(super) process: ProcessId,
    pub(super) hail: Hail,
    pub(super) region: Option<(OwnedFd, RegionRef)>,
    /// Its process id, and what tells when it has ended.
    pub(super) pid: Option<i32>,
    pub(super) end: Option<OwnedFd>,
    pub(super) answer: oneshot::Sender<(Answer, Handed)>,
}

/// Descriptors that a process is handed with its welcome.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// The board, if the process is to show it to the others.
    pub(super) board: Option<Arc<OwnBoard>>,
    /// The files of its rank's vault.
    pub(super) vault: Option<Arc<Vault>>,
}

/// The files of a rank's vault, which outlive its processes.
pub(super) type Vault = [OwnedFd; 2];

/// Serves the processes of this host. As long as one is served, there is an `attending`.
pub(super) async fn accept(
    listener: UnixListener,
    config: Arc<AgentConfig>,
    input: mpsc::UnboundedSender<Input>,
    attending: mpsc::Sender<()>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (config, input, attending) = (config.clone(), input.clone(), attending.clone());
                tokio::spawn(async move {
                    let _attending: mpsc::Sender<()> = attending;
                    if let Err(error) = attend(stream, &config, &input).await {
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
    config: &AgentConfig,
    input: &mpsc::UnboundedSender<Input>,
) -> Result<(), HandshakeError> {
    is_own(&stream)?;
    let (hello, seals) = handshake::accept(&mut stream, &config.key, config.job).await?;
    let process = hello.process;
    if hello.purpose != Purpose::Hail {
        return Err(io::Error::other(format!("{process} was led astray: {:?}", hello.purpose)).into());
    }
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let end = if config.starts.is_some() { None } else { seen_end(&stream, process) };
    let mut line = Line::new(stream, seals);
    let hail: Hail = line.hear().await?;
    let region = match hail.region {
        Some(region) => Some((line.take().await?, region)),
        None => None,
    };
    let (answer, answered) = oneshot::channel();
    let _ = input.send(Input::Hailed(Box::new(Caller { process, hail, region, pid, end, answer })));
    let Ok((answer, handed)) = answered.await else { return Ok(()) };
    if answer.is_err() {
        return line.tell(&answer).await;
    }
    let served = serve_rank(line, answer, handed, input).await;
    let _ = input.send(Input::Event(Event::HungUp(process)));
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

/// Waits until a process has ended.
pub(super) async fn watch(process: ProcessId, end: OwnedFd, input: mpsc::UnboundedSender<Input>) {
    let end = Arc::new(end);
    let watched = patiently(|| register(&end, Interest::READABLE)).await;
    match watched {
        Ok(watched) => {
            let ended: io::Result<_> = AsyncFd::readable(&watched).await.map(drop);
            if ended.is_ok() {
                let _ = input.send(Input::Event(Event::Ended(process, Ending::Unknown)));
            }
        }
        Err(error) => tracing::warn!(%process, %error, "cannot see its end"),
    }
}

/// The same, if the system can tell.
fn seen_end(stream: &UnixStream, process: ProcessId) -> Option<OwnedFd> {
    let end = end_of(stream);
    end.inspect_err(|error| tracing::warn!(%process, %error, "its end will not be seen")).ok()
}

/// What becomes readable when the process at the other end of `stream` has ended.
fn end_of(stream: &UnixStream) -> io::Result<OwnedFd> {
    let pid = stream.peer_cred()?.pid().ok_or(io::ErrorKind::NotFound)?;
    // SAFETY: this call takes plain integers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
    match descriptor {
        // SAFETY: the system has just opened it for this process, and nobody else knows of it.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}
