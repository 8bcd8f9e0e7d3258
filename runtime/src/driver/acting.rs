//! Carries out the actions of the machine.

use std::sync::{Arc, MutexGuard};

use everfold_protocol::{Path, ProcessId, ReductionId, message::Peer, spec::Limits};
use everfold_worker::machine::{Action, End, Event, Gone};
use futures::{FutureExt, future::BoxFuture};

use super::{Driver, Inner, Joined, answer};
use crate::{
    call::{Answer, CallError, Completed, JoinError},
    replica::{Mirror, Partner},
    transport::control::LoopbackName,
};

/// A deed that follows once the machine is unlocked.
pub(super) enum Deed {
    /// Tells the application an outcome, which wakes it up.
    Answer(Answer, Box<Result<Completed, CallError>>),
    /// Begins with something, and goes on with it on the I/O thread.
    Begin(BoxFuture<'static, ()>),
    /// Hands a result back to the application, once no reader has its memory any more. The I/O thread lasts
    /// that long.
    HandBack(BoxFuture<'static, ()>),
}

impl Driver {
    /// Carries out the actions of the machine.
    pub(super) fn act(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) {
        let mut deeds = Vec::new();
        while let Some(action) = inner.part.poll_action() {
            deeds.extend(self.do_one(&mut inner, action));
        }
        // The I/O thread sends together what all its tasks have to say.
        if inner.outlet.has_messages() && std::thread::current().id() == self.thread {
            self.wake.notify_one();
        } else {
            self.send(&mut inner);
        }
        if !inner.part.machine().takes_part() {
            self.deputies.end();
        }
        if inner.over || self.due(&inner) != inner.due {
            self.wake.notify_one();
        }
        drop(inner);
        for deed in deeds {
            match deed {
                Deed::Answer(to, result) => answer(to, *result),
                Deed::Begin(mut future) => {
                    let _runtime = self.runtime.enter();
                    if (&mut future).now_or_never().is_none() {
                        self.runtime.spawn(future);
                    }
                }
                Deed::HandBack(mut future) => {
                    let _runtime = self.runtime.enter();
                    if (&mut future).now_or_never().is_none() {
                        let mut inner = self.lock();
                        while inner.handing_back.try_join_next().is_some() {}
                        inner.handing_back.spawn_on(future, &self.runtime);
                    }
                }
            }
        }
    }

    fn do_one(self: &Arc<Self>, inner: &mut Inner, action: Action) -> Option<Deed> {
        match action {
            Action::Send(message) => inner.outlet.push(message),
            Action::Tell(deputy, message) => self.say(deputy, message, inner.limits),
            Action::Over(attempt) => {
                let reports = self.deputies.tell(|deputy| deputy.forget(self.now(), attempt));
                reports.into_iter().for_each(|report| inner.outlet.push(report));
            }
            Action::GiveUp(reduction) => {
                inner.share(reduction).into_iter().for_each(|share| share.give_up());
            }
            Action::Renew(reduction) => {
                let (share, driver) = (inner.share(reduction)?, self.clone());
                return Some(Deed::Begin(Box::pin(async move {
                    if tokio::task::spawn_blocking(move || share.renew()).await.is_ok() {
                        driver.take(Event::Renewed(reduction));
                    }
                })));
            }
            Action::Meet { peers, limits } => self.meet(inner, peers.to_vec(), limits),
            Action::Unwelcome(reason) => {
                let address = self.config.rendezvous.clone();
                let (rank, size) = (self.config.process.rank, self.config.size);
                end(inner, JoinError::Unwelcome { address, rank, size, reason });
            }
            Action::Incomplete { missing } => {
                let timeout = self.config.join_timeout;
                let rendezvous = LoopbackName::of(&self.config.rendezvous);
                end(inner, JoinError::Incomplete { missing, timeout, rendezvous });
            }
            Action::Closed => {
                let gone = inner.part.machine().gone().unwrap_or(Gone::MasterLost);
                end(inner, JoinError::from(gone));
            }
            Action::Execute(task) => {
                let (share, driver) = (inner.share(task.segment.reduction.called())?, self.clone());
                return Some(Deed::Begin(Box::pin(async move {
                    let (peers, id) = (driver.peers.clone(), task.task);
                    let done = move |result| driver.take(Event::Executed { task: id, result });
                    share.execute(&peers, task, done).await;
                })));
            }
            Action::Prefetch { reduction, bytes, part } => {
                let (share, driver) = (inner.share(reduction)?, self.clone());
                return Some(Deed::Begin(Box::pin(async move {
                    let start = part.range.start;
                    let body = share.prefetch(&driver.peers, bytes, part).await.ok();
                    drop(share);
                    driver.take(Event::Prefetched { reduction, start, body });
                })));
            }
            Action::Collect { reduction, pieces, how } => {
                let (share, driver) = (inner.share(reduction)?, self.clone());
                return Some(Deed::Begin(Box::pin(async move {
                    let result = share.collect(&driver.peers, pieces, how).await;
                    drop(share);
                    driver.take(Event::Collected { reduction, result });
                })));
            }
            Action::Keep(keep) => {
                let (share, driver) = (inner.share(keep.reduction)?, self.clone());
                return Some(Deed::Begin(Box::pin(async move {
                    let kept = driver.copier.copy(&share, keep).await;
                    driver.take(Event::Kept(kept));
                })));
            }
            Action::Resolve { reduction, end } => {
                let deed = resolve(inner, reduction, end);
                self.ended.notify_waiters();
                return deed;
            }
            Action::Release(reduction) => self.release(inner, reduction),
            Action::Departed { process, evidence } => {
                self.failed.send_modify(|failed| {
                    *failed = failed.union(&Path::single(process.rank)).unwrap_or_default();
                });
                self.peers.forget(process, evidence.leaves_memory());
                self.server.depart(process);
                let reports = self.deputies.depart(self.now(), process, evidence);
                reports.into_iter().for_each(|report| inner.outlet.push(report));
            }
            Action::Returned(peer) => {
                self.failed.send_modify(|failed| {
                    failed.remove(peer.process.rank);
                });
                self.peers.take_back(peer);
            }
            Action::Counts(reduction) => self.answer_held(inner, reduction),
            Action::Note { reduction, end } => return self.note(inner, reduction, end),
            Action::Replicate(agent) => {
                let (key, job, me) = (self.config.key, self.config.job, self.config.process);
                let silence_max = self.config.policy.limits.silence_max();
                inner.mirror = Some(Mirror::new(Partner { key, job, me, agent, silence_max }));
            }
            Action::Copy { agent, number } => self.copy_vault(inner, agent, number),
            Action::Forget(process) => self.peers.forget_memory(process),
            Action::AgentLost(agent) => self.peers.forget_host(agent),
            Action::News(news) => {
                tracing::info!(%news);
                // The application may not listen.
                drop(inner.news.as_ref().map(|listeners| listeners.send(news)));
            }
        }
        None
    }

    fn meet(self: &Arc<Self>, inner: &mut Inner, peers: Vec<Peer>, limits: Limits) {
        inner.limits = limits;
        // Before anything of this process can be read: peers hear of windows from now on.
        self.peers.allow(&peers);
        self.peers.meet(peers.clone(), &limits);
        self.server.meet(limits.silence_max());
        self.deputies.meet(peers.clone().into(), limits);
        self.met.notify_one();
        if let Some(region) = self.windows.region() {
            let of_process =
                |of: ProcessId| peers.iter().find(|peer| peer.process == of).map(|peer| peer.host);
            let host = of_process(self.config.process);
            region.share_host(peers.iter().filter(|peer| Some(peer.host) == host).count());
        }
        if let Err(error) = self.open_board(inner, &peers, &limits) {
            return end(inner, error.into());
        }
        self.recall(inner);
        self.take_place(inner);
        if let Some(ready) = inner.ready.take() {
            let _ = ready.send(Ok(Joined { driver: self.clone(), peers, limits }));
        }
    }

    fn release(&self, inner: &mut Inner, reduction: ReductionId) {
        self.keeper.release(reduction);
        if let Some(call) = inner.calls.remove(&reduction) {
            call.share.release();
            if call.share.is_long_to_drop() {
                self.runtime.spawn_blocking(move || drop(call));
            }
        }
    }
}

/// Takes part no more; `error` is why, if the job has not begun.
fn end(inner: &mut Inner, error: JoinError) {
    if let Some(ready) = inner.ready.take() {
        let _ = ready.send(Err(error));
    }
    inner.over = true;
}

/// How a call ends for the application.
fn resolve(inner: &mut Inner, reduction: ReductionId, end: End) -> Option<Deed> {
    let call = inner.calls.get_mut(&reduction)?;
    let to = call.answer.take()?;
    let result = match end {
        End::Received(report) => {
            let share = call.share.clone();
            return Some(Deed::HandBack(Box::pin(async move {
                let value = share.take_body().await;
                let completed = value.map(|value| Completed { value: Some(value), report });
                answer(to, completed.map_err(CallError::ResultLost));
            })));
        }
        End::Finished(report) => Ok(Completed { value: None, report }),
        End::Fenced => Err(CallError::Fenced),
        End::Refused(refusal) => Err(CallError::Refused(refusal)),
        End::MasterLost => Err(CallError::MasterLost),
        End::Closed => Err(CallError::Closed),
        End::ResultLost(error) => Err(CallError::ResultLost(error)),
    };
    Some(Deed::Answer(to, Box::new(result)))
}
