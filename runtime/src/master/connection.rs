//! The way to one worker or agent.

use std::{
    net::Shutdown,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use everfold_protocol::{frame::FrameError, message::Header, parcel::Carry};
use serde::Serialize;

use crate::{descriptors, transport::line::Outlet};

/// How long last messages to a worker may take.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of a connection. A process that was turned away may be followed by another in its place, of
/// which it must not say or end anything, and an agent may come anew when its first connection has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionId(u64);

impl ConnectionId {
    /// That of the next connection.
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The way to one worker or agent.
pub(super) struct Connection<M> {
    pub(super) number: ConnectionId,
    outlet: Arc<Mutex<Outlet<M>>>,
    /// Held by the one that waits for the other side to take more.
    flushing: Arc<tokio::sync::Mutex<()>>,
}

impl<M> Clone for Connection<M> {
    fn clone(&self) -> Self {
        Self { number: self.number, outlet: self.outlet.clone(), flushing: self.flushing.clone() }
    }
}

impl<M: Serialize + Carry + Send + 'static> Connection<M> {
    pub(super) fn new(number: ConnectionId, outlet: Outlet<M>) -> Self {
        Self { number, outlet: Arc::new(Mutex::new(outlet)), flushing: Arc::default() }
    }

    fn outlet(&self) -> MutexGuard<'_, Outlet<M>> {
        self.outlet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `messages` as far as the other side takes them now, the rest behind them as soon as it does.
    pub(super) fn send(
        &self,
        header: &Header,
        messages: Vec<M>,
        frame_bytes_max: u64,
    ) -> Result<(), FrameError> {
        let mut outlet = self.outlet();
        let was_blocked = outlet.is_blocked();
        messages.into_iter().for_each(|message| outlet.push(message));
        outlet.send(header, frame_bytes_max)?;
        if outlet.is_blocked() && !was_blocked {
            tokio::spawn(self.clone().flush());
        }
        Ok(())
    }

    /// Sends the frames that the other side has not taken yet.
    async fn flush(self) {
        let _turn = self.flushing.lock().await;
        while self.outlet().is_blocked() {
            let line = self.outlet().register();
            match line {
                Ok(line) => drop(line.writable().await),
                // Out of descriptors or memory, most likely.
                Err(_) => tokio::time::sleep(descriptors::PAUSE).await,
            }
            self.outlet().go_on();
        }
    }

    /// Sends the remaining frames, as far as the worker takes them in time, and hangs up.
    pub(super) async fn end(self) {
        let _ = tokio::time::timeout(FAREWELL_TIMEOUT, self.clone().flush()).await;
        self.outlet().close(Shutdown::Write);
    }
}
