//! The loop of the I/O thread, from the beginning to the end of the job.

use std::{io, mem, sync::Arc, time::Duration};

use everfold_protocol::{ProcessId, watch::INTERVALS_MOST};
use everfold_worker::machine::Event;
use futures::future::{OptionFuture, pending};
use tokio::{io::unix::AsyncFd, sync::mpsc as tokio_mpsc, time::sleep_until};

use super::Driver;
use crate::{
    descriptors,
    transport::{control::BoxStream, handshake::Seals},
};

impl Driver {
    /// Works on the I/O thread until all is over.
    pub(crate) async fn run(
        self: &Arc<Self>,
        members: tokio_mpsc::UnboundedReceiver<(ProcessId, BoxStream, Seals)>,
    ) {
        let leaving = Leaving(self);
        tokio::spawn(self.clone().host(members));
        self.act(self.lock());
        // If either cannot go on, neither can: the master sees the connection break.
        let ended = tokio::select! {
            driven = self.drive() => driven,
            Err(error) = self.listen() => Err(error),
        };
        if let Err(error) = ended {
            tracing::error!(%error, "the worker cannot go on");
        }
        drop(leaving);
        let handing_back = mem::take(&mut self.lock().handing_back);
        handing_back.join_all().await;
        self.keeper.close().await;
    }

    /// Sends what could not be sent at once, and lets time pass, until all is over.
    async fn drive(self: &Arc<Self>) -> io::Result<()> {
        // A master that is frozen takes nothing after a while; do not wait for it longer than a silence
        // lasts.
        let mut patience: Option<tokio::time::Instant> = None;
        loop {
            let (due, line, interval) = {
                let mut inner = self.lock();
                self.send(&mut inner);
                if inner.over {
                    return Ok(());
                }
                inner.due = self.due(&inner);
                let line = inner.outlet.is_blocked().then(|| inner.outlet.register());
                (inner.due, line, inner.limits.ping_interval)
            };
            let now = tokio::time::Instant::now;
            patience = line.is_some().then(|| patience.unwrap_or_else(|| now() + interval * INTERVALS_MOST));
            let (line, again) = match line.transpose() {
                Ok(line) => (line, None),
                Err(error) if descriptors::is_scarcity(&error) => (None, Some(now() + descriptors::PAUSE)),
                Err(error) => return Err(error),
            };
            let due = due.map(|due| self.origin + Duration::from_nanos(due.as_nanos()));
            tokio::select! {
                biased;
                Some(ready) = OptionFuture::from(line.as_ref().map(AsyncFd::writable)) => {
                    drop(ready?);
                    self.lock().outlet.go_on();
                    patience = None;
                }
                () = until(again) => self.lock().outlet.go_on(),
                () = until(due.map(Into::into)) => {
                    self.work(|part, now, publish| part.let_time_pass(now, publish));
                    self.report(self.deputies.tell(|deputy| deputy.handle_timeout(self.now())));
                }
                () = until(patience) => {
                    // A process that was stopped meanwhile cannot know that the master was not.
                    if patience.is_some_and(|end| end.elapsed() < interval) {
                        tracing::warn!("the master takes no messages");
                        self.take(Event::MasterLost);
                    }
                    patience = None;
                }
                () = self.wake.notified() => {}
            }
        }
    }
}

/// Leaves when it is dropped, however that comes about.
struct Leaving<'a>(&'a Arc<Driver>);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Waits until then, or for ever.
async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
