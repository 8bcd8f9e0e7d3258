//! The signals that end a job, and their consequences.

use std::{future::poll_fn, io, mem::MaybeUninit, pin::pin, ptr, task::Poll};

use nix::{errno::Errno, libc, sys::signal::Signal};
use tokio::{
    signal::unix,
    sync::watch,
    time::{Instant, sleep_until},
};

use super::GRACE;
use crate::launch::output::Sink;

/// Waits for the `job` to end. If a signal comes first, has the processes end and gives that signal.
pub(super) async fn outlast(
    job: impl Future<Output = ()>,
    mut signals: Signals,
    orders: watch::Sender<Option<Signal>>,
    notices: Option<Sink>,
) -> Option<Signal> {
    let mut job = pin!(job);
    let mut ended_by = None;
    let mut deadline = None;
    let mut ordered = None;
    loop {
        let reason = tokio::select! {
            biased;
            signal = signals.next() => match ended_by.replace(ended_by.unwrap_or(signal)) {
                None => signal.as_str(),
                Some(_) if signal == Signal::SIGINT && ordered == Some(Signal::SIGTERM) => "SIGINT again",
                Some(_) => continue,
            },
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => "not ended in time",
            () = &mut job => break ended_by,
        };
        let (order, what) = match ordered {
            None => (Signal::SIGTERM, "the processes are asked to end"),
            Some(Signal::SIGTERM) => (Signal::SIGKILL, "the processes are killed"),
            // They are dead. Only output is left that cannot be written.
            Some(_) => break ended_by,
        };
        if let Some(notices) = &notices {
            notices.try_send(format!("everfold: {reason}: {what}\n"));
        }
        ordered = Some(order);
        orders.send_replace(ordered);
        deadline = Some(Instant::now() + GRACE);
    }
}

/// The signals that end a job.
pub(super) struct Signals {
    listened: Vec<(Signal, unix::Signal)>,
    _ended_children: unix::Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let mut listened = Vec::new();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            if !is_ignored(signal)? {
                listened.push((signal, unix::signal(unix::SignalKind::from_raw(signal as i32))?));
            }
        }
        // If SIGCHLD were ignored, which is inherited, the ends of children would be lost.
        Ok(Self { listened, _ended_children: unix::signal(unix::SignalKind::child())? })
    }

    async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let came = self.listened.iter_mut().find_map(|(signal, stream)| {
                let is_ready = stream.poll_recv(context).is_ready();
                is_ready.then_some(*signal)
            });
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

fn is_ignored(signal: Signal) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action nothing is changed; the current one is written to where there is room for
    // it.
    Errno::result(unsafe { libc::sigaction(signal as i32, ptr::null(), action.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded, so the action was written.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}
