//! Work that a thread of its own does while the application computes on.

use std::{fmt, io, thread};

use tokio::sync::watch;

/// Work under way, or what has come of it.
#[derive(Clone)]
pub(super) struct Background {
    ended: watch::Receiver<Option<Result<(), String>>>,
}

impl Background {
    /// Begins it.
    ///
    /// # Errors
    /// There are no threads left, and the work is dropped.
    pub fn start<E: fmt::Display>(
        work: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> Result<Self, io::Error> {
        let (end, ended) = watch::channel(None);
        let run = move || {
            let result = work().map_err(|error| error.to_string());
            end.send_replace(Some(result));
        };
        thread::Builder::new().name("everfold-checkpoint".to_owned()).spawn(run)?;
        Ok(Self { ended })
    }

    /// What could not begin.
    pub fn failed(reason: String) -> Self {
        Self { ended: watch::channel(Some(Err(reason))).1 }
    }

    /// What has come of it, `None` as long as it is under way.
    pub fn result(&self) -> Option<Result<(), String>> {
        // Looked at first: a thread that ends well tells what came of it before.
        let is_over = self.ended.has_changed().is_err();
        let result = self.ended.borrow().clone();
        result.or_else(|| is_over.then(|| Err(PANICKED.to_owned())))
    }

    /// Waits for its end.
    pub async fn wait(mut self) -> Result<(), String> {
        match self.ended.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or_else(|| Err(PANICKED.to_owned())),
            Err(_) => Err(PANICKED.to_owned()),
        }
    }
}

const PANICKED: &str = "its thread has panicked";

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.result())
    }
}
