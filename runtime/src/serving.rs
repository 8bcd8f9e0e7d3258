//! Answers peers that read this process's windows, until they hang up or are declared failed, or this process
//! takes part no more.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use everfold_protocol::ProcessId;
use everfold_worker::readers::{NotAdmitted, Readers};
use tokio::sync::oneshot;

use crate::{
    memory::window::Windows,
    transport::{
        control::BoxStream,
        handshake::{HandshakeError, Seals},
        tcp,
    },
};

/// The server of this process's windows.
#[derive(Debug)]
pub struct Server {
    windows: Arc<Windows>,
    /// Dropping what is bound to a connection ends the task that serves it, and gives back what that has
    /// leased.
    readers: Mutex<Readers<oneshot::Sender<()>>>,
    silence_max: OnceLock<Duration>,
}

/// Why a connection was not served to its end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// See [`NotAdmitted`].
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    /// The connection broke, or the peer does not keep to the protocol.
    #[error(transparent)]
    Broken(#[from] HandshakeError),
}

impl Server {
    /// Serves `windows`.
    pub fn new(windows: Arc<Windows>) -> Self {
        Self { windows, readers: Mutex::default(), silence_max: OnceLock::new() }
    }

    /// What it serves.
    pub fn windows(&self) -> &Arc<Windows> {
        &self.windows
    }

    fn readers(&self) -> MutexGuard<'_, Readers<oneshot::Sender<()>>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns how long a process may be silent in this job. Readers come later: they are told of windows that
    /// are not there yet.
    pub fn meet(&self, silence_max: Duration) {
        let _ = self.silence_max.set(silence_max);
    }

    /// Answers `reader`, who has connected over `stream`.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub async fn serve(&self, reader: ProcessId, stream: BoxStream, seals: Seals) -> Result<(), ServeError> {
        if let Some(silence_max) = self.silence_max.get() {
            stream.bound_silence(*silence_max).map_err(HandshakeError::from)?;
        }
        let (cut, is_cut) = oneshot::channel();
        let admission = self.readers().admit(reader, cut)?;
        let served = tokio::select! {
            biased;
            _ = is_cut => Err(NotAdmitted::HasDeparted(reader).into()),
            served = tcp::serve(stream, seals, self.windows.clone()) => served.map_err(ServeError::from),
        };
        self.readers().close(reader, admission);
        served
    }

    /// Serves a process that was declared failed no more: the owner of what it has leased goes on.
    pub fn depart(&self, reader: ProcessId) {
        let cut = self.readers().depart(reader);
        drop(cut);
    }

    /// Serves nobody any more.
    pub fn close(&self) {
        self.readers().close_all();
    }
}
