//! Work that a thread of its own does while the application computes on.

use std::{fmt, thread};

use tokio::sync::watch;

/// Work under way, or what has come of it.
#[derive(Clone)]
pub(super) struct Background {
    ended: watch::Receiver<Option<Result<(), String>>>,
}

impl Background {
    /// Begins it.
    pub fn start<E: fmt::Display>(work: impl FnOnce() -> Result<(), E> + Send + 'static) -> Self {
        let (end, ended) = watch::channel(None);
        let run = move || {
            let result = work().map_err(|error| error.to_string());
            end.send_replace(Some(result));
        };
        match thread::Builder::new().name("everfold-checkpoint".to_owned()).spawn(run) {
            Ok(_) => Self { ended },
            Err(error) => Self::failed(error.to_string()),
        }
    }

    /// What could not begin.
    pub fn failed(reason: String) -> Self {
        Self { ended: watch::channel(Some(Err(reason))).1 }
    }

    /// What has come of it, `None` as long as it is under way.
    pub fn result(&self) -> Option<Result<(), String>> {
        self.ended.borrow().clone()
    }

    /// Waits for its end.
    pub async fn wait(mut self) -> Result<(), String> {
        match self.ended.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())),
            Err(_) => Err("its thread has panicked".to_owned()),
        }
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.result())
    }
}
