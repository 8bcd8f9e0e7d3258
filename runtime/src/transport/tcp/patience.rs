//! When a connection that brings nothing is given up.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures::future;

use super::pending::Pending;

/// What a slow disk reads in a millisecond, in bytes. What lies on one is read as a whole before the first
/// byte is sent.
const DISK_BYTES_PER_MS: u64 = 32 << 10;

/// How often in the time for which a connection may bring nothing that is looked at.
const LOOKS: u32 = 4;

/// Whether a connection that somebody waits for still brings bytes. Looks are counted, and not time: a
/// process that is stopped and goes on has looked once.
#[derive(Debug, Default)]
struct Progress {
    bytes: u64,
    in_vain: u32,
}

impl Progress {
    /// Takes in how many bytes have come so far, and whether somebody waits for some. Returns whether there
    /// is no use in waiting.
    fn look(&mut self, bytes: u64, waits: bool) -> bool {
        let is_still = waits && bytes == self.bytes;
        self.in_vain = if is_still { self.in_vain + 1 } else { 0 };
        self.bytes = bytes;
        self.in_vain > LOOKS
    }
}

/// Ends once nothing has come for too long although somebody waits.
pub(super) async fn lose_patience(patience: Option<Duration>, bytes: &AtomicU64, pending: &Pending) {
    let Some(patience) = patience else { return future::pending().await };
    let mut progress = Progress::default();
    loop {
        let reading = Duration::from_millis(pending.some().await / DISK_BYTES_PER_MS);
        tokio::time::sleep((patience + reading) / LOOKS).await;
        if progress.look(bytes.load(Ordering::Relaxed), pending.longest().is_some()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::message::ByteRange;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn what_brings_nothing_is_given_up_only_if_somebody_waits() {
        let mut progress = Progress::default();
        let mut looks = |count: u32, bytes: u64, waits| (0..count).any(|_| progress.look(bytes, waits));
        assert!(!looks(100, 0, false), "nobody waits");
        assert!(!looks(LOOKS, 0, true));
        assert!(!looks(1, 1, true), "something has come");
        assert!(!looks(LOOKS, 1, true));
        assert!(looks(1, 1, true));
    }

    /// An owner that takes requests and never answers: whoever waits hears that, and nobody waits for the
    /// system.
    #[tokio::test]
    async fn who_never_answers_is_given_up() {
        let (bytes, pending) = (AtomicU64::new(0), Pending::default());
        let (answer, answered) = oneshot::channel();
        let range = ByteRange { start: 0, len: 1 };
        pending.add(0, (range, answer));
        lose_patience(Some(Duration::from_nanos(1)), &bytes, &pending).await;
        drop(pending);
        assert!(answered.await.is_err());
    }
}
