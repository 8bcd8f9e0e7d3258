//! Hearing the master, on whichever thread listens.

use std::{io, os::fd::OwnedFd, sync::Arc};

use everfold_protocol::{message::ToWorker, spec::Limits};
use everfold_worker::machine::Event;
use futures::future::OptionFuture;
use tokio::io::unix::AsyncFd;

use super::{Driver, placed::Settled};
use crate::{descriptors::patiently, memory::board::Bell};

/// The descriptors on which a runtime hears the master and the bell.
struct Ears {
    line: AsyncFd<Arc<OwnedFd>>,
    bell: Option<AsyncFd<Arc<OwnedFd>>>,
}

impl Driver {
    /// Takes in the messages of the master. Returns false if it says nothing more.
    fn hear(self: &Arc<Self>) -> bool {
        let frame_bytes_max = Limits::default().frame_bytes_max;
        let frame = |header, messages: Vec<ToWorker>| {
            self.work(|part, now, publish| {
                let events = messages.into_iter().map(|message| Event::Master { header, message });
                let each = events.map(|event| part.hear(now, event, &mut *publish));
                each.fold(Settled::default(), Settled::and)
            });
        };
        loop {
            match self.inlet.hear(frame_bytes_max, frame) {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) => {
                    tracing::debug!(%error, "no connection to the master");
                    self.take(Event::MasterLost);
                    return false;
                }
            }
        }
    }

    /// Waits for a message of the master or for the bell, and takes it in. Returns false if the master says
    /// nothing more.
    async fn attend(self: &Arc<Self>, ears: &Ears) -> io::Result<bool> {
        tokio::select! {
            biased;
            Some(ready) = OptionFuture::from(ears.bell.as_ref().map(AsyncFd::readable)) => {
                ready?.clear_ready();
                self.bell.iter().for_each(Bell::silence);
                self.look();
                Ok(true)
            }
            ready = ears.line.readable() => {
                let mut ready = ready?;
                let goes_on = self.hear();
                ready.clear_ready();
                Ok(goes_on)
            }
        }
    }

    fn ears(&self) -> io::Result<Ears> {
        let bell = self.bell.as_ref().map(Bell::register).transpose()?;
        Ok(Ears { line: self.inlet.register()?, bell })
    }

    /// Hears the master on the I/O thread, whenever the application's thread does not.
    pub(super) async fn listen(self: &Arc<Self>) -> io::Result<()> {
        loop {
            let ears = patiently(|| self.ears()).await?;
            while !self.hearing.application_waits() {
                if !self.attend(&ears).await? {
                    return Ok(());
                }
            }
            drop(ears);
            self.hearing.rest().await?;
        }
    }

    /// Hears the master on the thread that runs this, while that waits.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) async fn listen_here(self: Arc<Self>) -> io::Result<()> {
        let ears = self.ears()?;
        let _listening = self.hearing.begin();
        while self.attend(&ears).await? {}
        Ok(())
    }
}
