//! Calls on the board: the machine hears only of those that are taken off it for the master.

use std::{
    io,
    sync::{Arc, MutexGuard},
};

use everfold_protocol::{
    ProcessId, Timestamp,
    board::{self, Ticket},
    message::{Contribution, Peer},
    report::Refusal,
    spec::Limits,
};

use super::{Driver, Inner, OpenCall, answer};
use everfold_worker::participant::Participant;

use crate::{
    body::Body,
    call::{Answer, Call},
    executor::{Prospects, Share},
    memory::board::{SharedWords, now},
    placing::{self, Placed, Placing},
};

/// The machine of this rank, and its calls on the board.
pub(super) type Part = Participant<SharedWords, (Body, Answer)>;

/// Calls that have left the board, and how they ended.
pub(super) type Settled = everfold_worker::participant::Settled<SharedWords, (Body, Answer)>;

/// Makes a call that was on the board one for the master.
pub(super) type Publish<'a> = &'a mut dyn FnMut(Placed, bool) -> Option<Contribution>;

impl Driver {
    /// Makes a call on the board.
    ///
    /// # Errors
    /// Gives the call back if it is for the master.
    // What it gives back is no error.
    #[allow(clippy::result_large_err)]
    pub(crate) fn place(self: &Arc<Self>, call: Call, to: Answer) -> Result<(), (Call, Answer)> {
        let mut inner = self.lock();
        if inner.over || !inner.part.has_board() {
            return Err((call, to));
        }
        // One look at the clock does for all that happens at once.
        let at = self.now();
        let mut settled = self.settle_at(&mut inner, at);
        let Inner { placing, part, .. } = &mut *inner;
        if part.accepts(call.reduction, &call.spec, call.body.bytes().len() as u64)
            && let Some(placing) = placing
        {
            placing.wait_for_room(call.reduction);
        }
        let Call { reduction, name, spec, body } = call;
        let ticket = Ticket { reduction, name, spec, with: (body, to) };
        let (placed, later) = self.lend(&mut inner, |part, publish| {
            part.place(at, now(), ticket, |(body, _)| body.bytes(), publish)
        });
        settled = settled.and(later);
        if matches!(placed, Ok(true)) {
            inner.placing.iter().for_each(placing::Placing::wake_others);
            settled = settled.and(self.settle_at(&mut inner, at));
        }
        self.go_on(inner, settled);
        let back =
            |Ticket { reduction, name, spec, with: (body, to) }| (Call { reduction, name, spec, body }, to);
        placed.map(drop).map_err(back)
    }

    /// Takes in the ends of calls that are on the board.
    pub(super) fn look(self: &Arc<Self>) {
        let mut inner = self.lock();
        let settled = self.settle(&mut inner);
        self.go_on(inner, settled);
    }

    /// Waits for the latest call for a short while, if it is on the board.
    pub(crate) fn watch(self: &Arc<Self>) {
        let watch = {
            let Inner { placing, part, .. } = &mut *self.lock();
            placing.as_mut().zip(part.latest()).and_then(|(placing, latest)| placing.watch(latest))
        };
        if let Some(watch) = watch {
            let watched = watch.wait();
            self.lock().placing.as_mut().into_iter().for_each(|placing| placing.has_watched(watched));
            self.look();
        }
    }

    /// Lets this rank hear of something, or call something.
    pub(super) fn take_part<R>(
        &self,
        inner: &mut Inner,
        how: impl FnOnce(&mut Part, Timestamp, Publish<'_>) -> R,
    ) -> R {
        let at = self.now();
        self.lend(inner, |part, publish| how(part, at, publish))
    }

    /// Lends the machine of this rank with its calls on the board, and the way to publish such a call.
    fn lend<R>(&self, inner: &mut Inner, how: impl FnOnce(&mut Part, Publish<'_>) -> R) -> R {
        let Inner { part, calls, limits, .. } = inner;
        // The master takes a contribution from the board as it is.
        let limits = Limits { inline_bytes_max: board::BODY_BYTES_MAX, ..*limits };
        how(part, &mut |Placed { reduction, name, spec, with: (body, to) }, _| match Share::new(
            self.config.process,
            &spec,
            body,
            &self.windows,
            &limits,
            Prospects::default(),
        ) {
            Err(error) => {
                answer(to, Err(error.into()));
                None
            }
            Ok((share, data)) => {
                calls.insert(
                    reduction,
                    OpenCall { share: Arc::new(share), spec: self.stands_for(&spec), answer: Some(to) },
                );
                Some(Contribution { reduction, name, spec, data })
            }
        })
    }

    /// Takes calls off the board that do not wait there any more.
    pub(super) fn settle(&self, inner: &mut Inner) -> Settled {
        self.settle_at(inner, self.now())
    }

    /// The same, at that time.
    fn settle_at(&self, inner: &mut Inner, at: Timestamp) -> Settled {
        self.lend(inner, |part, publish| part.settle(at, publish))
    }

    /// Does what follows when this rank has heard of something.
    pub(super) fn go_on(self: &Arc<Self>, inner: MutexGuard<'_, Inner>, settled: Settled) {
        if settled.has_told {
            self.act(inner);
        } else {
            drop(inner);
        }
        self.end(settled);
    }

    /// Ends calls that have left the board. To be called when nothing is locked: threads that wait for them are
    /// woken up.
    pub(super) fn end(self: &Arc<Self>, settled: Settled) {
        let me = self.config.process.rank;
        for (placed, round) in settled.complete {
            let noting = settled.are_noted.then(|| (placed.reduction, self.stands_for(&placed.spec)));
            let (to, result) = placing::end(me, placed, &round);
            // A later process goes on from the round, or from the note.
            if noting.is_none_or(|(reduction, spec)| self.note_placed(reduction, spec, &result)) {
                round.leave();
                answer(to, result);
            }
        }
        for Ticket { reduction, name, with: (_, to), .. } in settled.diverged {
            let refusal = Refusal::Diverged { rank: me, name, sequence: reduction.sequence };
            answer(to, Err(refusal.into()));
        }
        if self.log.is_some() {
            self.ended.notify_waiters();
        }
    }

    /// Finds the board, if the job has one, or what earlier processes of this rank have left there.
    ///
    /// # Errors
    /// It cannot be mapped, and may have outcomes that this process needs.
    pub(super) fn open_board(&self, inner: &mut Inner, peers: &[Peer], limits: &Limits) -> io::Result<()> {
        let ProcessId { rank, incarnation } = self.config.process;
        let (placing, calls) = match incarnation.0 {
            0 => Placing::open(rank, peers, limits).unzip(),
            _ => (None, placing::reopen(rank, peers, limits, self.board.as_ref())?),
        };
        inner.placing = placing;
        calls.into_iter().for_each(|calls| inner.part.share_board(calls));
        Ok(())
    }
}
