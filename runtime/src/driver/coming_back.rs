//! Notes of a rank from which a later process of it can go on.

use std::{pin::pin, sync::Arc};

use everfold_protocol::{AgentId, ReductionId, ReductionSpec, message::News};
use everfold_worker::machine::{End, Event, Gone};

use super::{Driver, Inner, acting::Deed, answer};
use crate::{
    call::{Answer, Call, CallError, Completed},
    executor::{Returned, Share},
    result_log::{ResultLog, digest},
};

/// Values up to this length are noted on the thread that has heard of them: to wake up another one takes
/// longer. What comes of a call on the board is noted on the thread that has folded it.
const AT_ONCE_BYTES_MAX: u64 = 64 << 10;

impl Driver {
    /// Stands for what a reduction was called with, in the result log.
    pub(super) fn stands_for(&self, spec: &ReductionSpec) -> u64 {
        self.log.as_ref().map_or(0, |_| digest(spec))
    }

    /// The result log for later processes, where ranks come back.
    pub(crate) fn log(&self) -> Option<&ResultLog> {
        self.log.as_deref()
    }

    /// Answers a call that an earlier process of this rank has made, too, and seen the end of.
    ///
    /// # Errors
    /// Gives the call back if it is none.
    // What it gives back is no error.
    #[allow(clippy::result_large_err)]
    pub(crate) fn answer_from_log(self: &Arc<Self>, call: Call, to: Answer) -> Result<(), (Call, Answer)> {
        let Some(log) = &self.log else { return Err((call, to)) };
        let reduction = call.reduction;
        let printed = self.printed();
        let answered = log.answer(call);
        if let (Ok(_), Some(printed)) = (&answered, printed) {
            // It came to this call, too.
            self.drop_printed(printed);
        }
        if let Some(comeback) = log.caught_up() {
            self.take(Event::CaughtUp(comeback));
        }
        match answered {
            Ok(result) => {
                self.answer_once_it_counts(reduction, to, result);
                Ok(())
            }
            Err(call) => Err((call, to)),
        }
    }

    /// Answers a call from the log, as soon as its outcome there is in the replica, too.
    fn answer_once_it_counts(
        &self,
        reduction: ReductionId,
        to: Answer,
        result: Result<Completed, CallError>,
    ) {
        let mut inner = self.lock();
        if inner.part.machine().recalls(reduction) && !inner.over {
            inner.held_answers.push((reduction, to, result));
            return;
        }
        drop(inner);
        answer(to, result);
    }

    /// Takes in that what an earlier process has noted of a call counts.
    pub(super) fn answer_held(&self, inner: &mut Inner, reduction: ReductionId) {
        for (_, to, result) in inner.held_answers.extract_if(.., |(held, ..)| *held == reduction) {
            answer(to, result);
            self.ended.notify_waiters();
        }
    }

    /// Tells the master what earlier processes of this rank have noted: they may have died before they could
    /// say so.
    ///
    /// The one place where a checkpoint is told of, before the application asks for it. Of the calls before it
    /// only the latest are told, one by one, although all below [`Saved::calls`](crate::result_log::Saved) have
    /// been noted: there is no message for that yet.
    pub(super) fn recall(&self, inner: &mut Inner) {
        let Some(log) = &self.log else { return };
        for reduction in log.noted() {
            self.take_part(inner, |part, now, publish| part.hear(now, Event::Recalled(reduction), publish));
        }
    }

    /// Waits until all calls have ended that this rank has made.
    ///
    /// # Errors
    /// This process takes part no more.
    pub(crate) async fn all_ended(&self) -> Result<(), Gone> {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if !self.has_open_calls()? {
                return Ok(());
            }
            ended.await;
        }
    }

    /// Whether a call has not ended.
    ///
    /// # Errors
    /// This process takes part no more.
    pub(crate) fn has_open_calls(&self) -> Result<bool, Gone> {
        let inner = self.lock();
        if inner.over {
            return Err(inner.part.machine().gone().unwrap_or(Gone::Left));
        }
        let is_open = inner.calls.values().any(|call| call.answer.is_some());
        Ok(is_open || inner.part.has_placed() || !inner.held_answers.is_empty())
    }

    /// Notes how a call has ended.
    pub(super) fn note(self: &Arc<Self>, inner: &Inner, reduction: ReductionId, end: End) -> Option<Deed> {
        let call = inner.calls.get(&reduction)?;
        let (share, spec, driver) = (call.share.clone(), call.spec, self.clone());
        Some(Deed::Begin(Box::pin(async move {
            let Some(log) = driver.log.clone() else { return driver.take(Event::Noted(reduction)) };
            let is_short = !matches!(end, End::Received(_))
                || share.array_bytes().is_some_and(|bytes| bytes <= AT_ONCE_BYTES_MAX);
            let note = move || write(&log, &share, reduction, spec, &end);
            let noted = if is_short {
                note()
            } else {
                let noted = tokio::task::spawn_blocking(note).await;
                noted.unwrap_or_else(|error| Err(error.to_string()))
            };
            if noted.map_or_else(|reason| driver.go_on_unnoted(reason), |()| true) {
                driver.take(Event::Noted(reduction));
            }
        })))
    }

    /// Notes how a call on the board has ended. Returns whether the program may hear of that.
    pub(super) fn note_placed(
        self: &Arc<Self>,
        reduction: ReductionId,
        spec: u64,
        result: &Result<Completed, CallError>,
    ) -> bool {
        let noted = self.log.as_ref().map_or(Ok(()), |log| write_placed(log, reduction, spec, result));
        let may_hear = noted.map_or_else(|reason| self.go_on_unnoted(reason), |()| true);
        self.lock().part.noted();
        may_hear
    }

    /// Brings the replica of the vault up to date.
    pub(super) fn copy_vault(self: &Arc<Self>, inner: &mut Inner, agent: AgentId, number: u64) {
        let (Some(mirror), Some(log)) = (&mut inner.mirror, &self.log) else { return };
        let driver = Arc::downgrade(self);
        let _runtime = self.runtime.enter();
        mirror.copy(number, log, move |number, result| {
            if let Some(driver) = driver.upgrade() {
                driver.take(Event::Copied { agent, number, result });
            }
        });
    }

    /// Takes in that a checkpoint is in force.
    pub(crate) fn saved(self: &Arc<Self>) {
        self.take(Event::Saved);
    }

    /// Tells those who listen at this process.
    pub(crate) fn publish(&self, news: News) {
        // The application may not listen.
        drop(self.lock().news.as_ref().map(|listeners| listeners.send(news)));
    }

    /// Goes on although an outcome cannot be noted. Returns false if the program must not hear of the
    /// outcome.
    fn go_on_unnoted(self: &Arc<Self>, reason: String) -> bool {
        let forbidden = self.log.as_ref().map_or(Ok(false), |log| log.forbid());
        match forbidden {
            Ok(true) => {
                self.take(Event::Unnoted { reason: reason.clone() });
                let news = News::CannotReturn { rank: self.process().rank, reason };
                tracing::warn!(%news);
                self.publish(news);
                true
            }
            Ok(false) => true,
            Err(error) => {
                tracing::error!(%error, reason, "this process ends, so that a later one is not answered wrongly");
                self.abandon();
                false
            }
        }
    }
}

/// Writes the end of a call on the board, and its result, into the log.
fn write_placed(
    log: &ResultLog,
    reduction: ReductionId,
    spec: u64,
    result: &Result<Completed, CallError>,
) -> Result<(), String> {
    let end = match result {
        Ok(Completed { value: Some(_), report }) => End::Received(report.clone()),
        Ok(Completed { value: None, report }) => End::Finished(report.clone()),
        Err(CallError::ResultLost(error)) => End::ResultLost(error.clone()),
        // It is not over for this rank.
        Err(_) => return Ok(()),
    };
    let value = result.as_ref().ok().and_then(|completed| completed.value.as_ref()).map(Returned::noted);
    log.note(reduction, spec, &end, value.as_deref().unwrap_or_default()).map_err(|error| error.to_string())
}

/// Writes the end of a call, and its result, into the log.
fn write(log: &ResultLog, share: &Share, reduction: ReductionId, spec: u64, end: &End) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let is_received = matches!(end, End::Received(_));
    let value = is_received.then(|| share.value()).transpose().map_err(|error| told(&error))?;
    let value = value.as_ref().map_or(&[][..], |value| value.bytes());
    log.note(reduction, spec, end, value).map_err(|error| told(&error))
}
