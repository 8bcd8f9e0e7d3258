//! Standing by: a process follows an earlier one of its rank, which lives, and takes its place when that one
//! has died.
//!
//! Its program runs meanwhile, and its calls are answered with the outcomes that the earlier process notes.
//! The machine hears nothing of that: it begins when this process joins.

use std::sync::Arc;

use everfold_protocol::{
    message::{ToMaster, ToWorker},
    spec::Limits,
};
use everfold_worker::machine::{Event, Gone};
use tokio::io::unix::AsyncFd;

use super::{Driver, Inner, Joined};
use crate::{
    call::JoinError,
    descriptors::patiently,
    launch::held::{Held, Printed},
    replica::{Followed, Next},
    result_log::LogError,
};

/// What waits until this process has joined.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Events of the application, for the machine.
    early: Vec<Event>,
    held: Option<Held>,
    /// Whether this process ends because of itself.
    has_failed: bool,
}

impl Standing {
    /// Takes in that the program has failed.
    pub fn fail(&mut self) {
        self.has_failed = true;
    }

    /// Takes in that this process takes no place. If it is only not needed, it ends silently.
    pub fn end(self) {
        self.held.filter(|_| self.has_failed).into_iter().for_each(Held::show_errors);
    }
}

impl Driver {
    /// Stands by until this process takes the place of the one that it follows. Returns false if it never will.
    pub(crate) async fn stand_by(self: &Arc<Self>, followed: Followed, held: Option<Held>) -> bool {
        self.lock().standing = Some(Standing { held, ..Standing::default() });
        match self.follow(followed).await {
            Ok(()) => {
                self.log.iter().for_each(|log| log.take_place());
                // Before it says anything new.
                let held = self.lock().standing.as_mut().and_then(|standing| standing.held.take());
                held.into_iter().for_each(Held::show);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "this process stands by no longer");
                let is_ended =
                    matches!(&error, JoinError::MasterLost | JoinError::Log(LogError::Replica { .. }));
                if !is_ended {
                    self.lock().standing.iter_mut().for_each(Standing::fail);
                }
                if let Some(ready) = self.lock().ready.take() {
                    let _ = ready.send(Err(error));
                }
                self.leave();
                false
            }
        }
    }

    async fn follow(self: &Arc<Self>, mut followed: Followed) -> Result<(), JoinError> {
        self.meet_as_standby().await?;
        loop {
            let next = tokio::select! {
                next = followed.next() => next?,
                () = self.wake.notified() => match self.gone() {
                    Some(gone) => return Err(gone.into()),
                    None => continue,
                }
            };
            match (next, &self.log) {
                (Next::Outcomes(behind, outcomes), Some(log)) => {
                    outcomes.into_iter().try_for_each(|outcome| log.take_over(behind, outcome))?;
                }
                (Next::Outcomes(..), None) => {}
                (Next::Promoted, _) => return Ok(()),
            }
        }
    }

    /// Tells the master that this process stands by, and hears the peers of the job: the program can begin.
    async fn meet_as_standby(self: &Arc<Self>) -> Result<(), JoinError> {
        {
            let mut inner = self.lock();
            inner.outlet.push(ToMaster::StandsBy);
            self.send(&mut inner);
        }
        let line = patiently(|| self.inlet.register()).await?;
        let mut welcome = None;
        while welcome.is_none() {
            let mut ready = AsyncFd::readable(&line).await?;
            let frame = |_, messages: Vec<ToWorker>| {
                welcome = messages.into_iter().find_map(|message| match message {
                    ToWorker::Welcome { peers, limits } => Some((peers.to_vec(), limits)),
                    _ => None,
                });
            };
            match self.inlet.hear(Limits::default().frame_bytes_max, frame) {
                // There may be more: the peers of many ranks come in several parts.
                Ok(true) => {}
                Ok(false) => ready.clear_ready(),
                // The master has hung up: this standby is not needed.
                Err(_) => return Err(Gone::MasterLost.into()),
            }
        }
        if let Some((peers, limits)) = welcome {
            let mut inner = self.lock();
            inner.limits = limits;
            if let Some(ready) = inner.ready.take() {
                let _ = ready.send(Ok(Joined { driver: self.clone(), peers, limits }));
            }
        }
        Ok(())
    }

    /// Keeps an event of the application until this process has joined, if it has yet to.
    pub(super) fn keep(&self, event: Event) -> Option<Event> {
        let mut inner = self.lock();
        match (&mut inner.standing, event) {
            // It may be that nothing comes after it.
            (None, event) | (_, event @ Event::MasterLost) => Some(event),
            // The replica begins with all that is in the vault.
            (Some(_), Event::Saved) => None,
            (Some(standing), event) => {
                standing.early.push(event);
                None
            }
        }
    }

    /// Goes on as any process that has come in place of another one, once the master knows the notes of that
    /// one.
    pub(super) fn take_place(self: &Arc<Self>, inner: &mut Inner) {
        let (Some(standing), Some(log)) = (inner.standing.take(), self.log.clone()) else { return };
        let caught_up = log.caught_up().map(Event::CaughtUp);
        for event in caught_up.into_iter().chain(standing.early) {
            self.take_part(inner, |part, now, publish| part.hear(now, event, publish));
        }
        log.stand_by_no_more();
    }

    /// How much this process has printed, if that is held back.
    pub(super) fn printed(&self) -> Option<Printed> {
        Some(self.lock().standing.as_ref()?.held.as_ref()?.printed())
    }

    /// Takes in that the process which this one follows has printed as much.
    pub(super) fn drop_printed(&self, printed: Printed) {
        let inner = self.lock();
        let held = inner.standing.as_ref().and_then(|standing| standing.held.as_ref());
        held.into_iter().for_each(|held| held.drop_before(printed));
    }
}
