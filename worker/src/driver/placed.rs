//! Calls on the board: the machine hears only of those that are taken off it for the master.

use std::sync::{Arc, MutexGuard};

use everfold_protocol::{
    ReductionId,
    board::{self, Fate},
    message::Contribution,
    spec::Limits,
};

use super::{Driver, Inner, Local, answer};
use crate::{
    executor::Share,
    handle::{Answer, Call},
    machine::Event,
    placing::{self, Placed, Placing, Round},
};

/// A call whose round on the board is complete.
pub(super) type Complete = (Placed, Round);

/// Calls that were taken off the board.
#[derive(Default)]
pub(super) struct Settled {
    pub complete: Vec<Complete>,
    /// Whether the machine was told of others.
    pub has_told: bool,
}

impl Settled {
    fn add(&mut self, other: Self) {
        self.complete.extend(other.complete);
        self.has_told |= other.has_told;
    }
}

impl Driver {
    /// Makes a call on the board.
    ///
    /// # Errors
    /// Gives the call back if it is for the master.
    // What it gives back is no error.
    #[allow(clippy::result_large_err)]
    pub(crate) fn place(self: &Arc<Self>, call: Call, to: Answer) -> Result<(), (Call, Answer)> {
        let name = call.reduction.name;
        let mut inner = self.lock();
        // Whoever has its result makes room.
        let mut settled = self.settle(&mut inner, |_| false);
        let placed = inner.place(call, to);
        settled.add(match placed {
            Ok(true) => self.settle(&mut inner, |_| false),
            Ok(false) => Settled::default(),
            // The master hears those of one name in order.
            Err(_) => self.settle(&mut inner, |other| other.name == name),
        });
        self.go_on(inner, settled);
        placed.map(drop)
    }

    /// Takes in what has become of the calls that are on the board.
    pub(super) fn look(self: &Arc<Self>) {
        let mut inner = self.lock();
        let settled = self.settle(&mut inner, |_| false);
        self.go_on(inner, settled);
    }

    /// Waits for the latest call for a short while, if it is on the board.
    pub(crate) fn watch(self: &Arc<Self>) {
        let watch = self.lock().placing.as_mut().and_then(Placing::watch);
        if let Some(watch) = watch {
            let in_vain = watch.wait();
            self.lock().placing.as_mut().into_iter().for_each(|placing| placing.has_watched(in_vain));
            self.look();
        }
    }

    /// Takes calls off the board: those that do not wait there any more, and those that are to be withdrawn.
    pub(super) fn settle(&self, inner: &mut Inner, withdraw: impl Fn(&ReductionId) -> bool) -> Settled {
        let mut settled = Settled::default();
        let off = inner.placing.as_mut().map(|placing| placing.settle(withdraw)).unwrap_or_default();
        for (placed, fate) in off {
            match fate {
                Fate::Complete(round) => settled.complete.push((placed, round)),
                Fate::Taken | Fate::Withdrawn => {
                    self.take_off_board(inner, placed, matches!(fate, Fate::Taken));
                    settled.has_told = true;
                }
            }
        }
        settled
    }

    /// Does what follows when calls were taken off the board.
    pub(super) fn go_on(
        self: &Arc<Self>,
        inner: MutexGuard<'_, Inner>,
        Settled { complete, has_told }: Settled,
    ) {
        if has_told {
            self.act(inner);
        } else {
            drop(inner);
        }
        self.end(complete);
    }

    /// Makes a call that was on the board one for the master.
    fn take_off_board(&self, inner: &mut Inner, placed: Placed, taken: bool) {
        let Placed { reduction, name, spec, with: (body, to) } = placed;
        // What lies on the board the master takes from there as it is.
        let limits = Limits { inline_bytes_max: board::BODY_BYTES_MAX, ..inner.limits };
        match Share::new(self.config.process, &spec, body, &self.windows, &limits, false) {
            Err(error) => answer(to, Err(error.into())),
            Ok((share, data)) => {
                inner.locals.insert(reduction, Local { share: Arc::new(share), answer: Some(to) });
                let contribution = Contribution { reduction, name, spec, data };
                inner.machine.handle_event(self.now(), Event::OffBoard { contribution, taken });
            }
        }
    }

    /// Ends calls whose rounds are complete. To be called when nothing is locked: whoever waits is woken up.
    pub(super) fn end(&self, complete: Vec<Complete>) {
        for (placed, round) in complete {
            let (to, result) = placing::end(self.config.process.rank, placed, round);
            answer(to, result);
        }
    }
}

impl Inner {
    /// Puts a call on the board. Returns whether that completes its round.
    // What it gives back is no error.
    #[allow(clippy::result_large_err)]
    fn place(&mut self, call: Call, to: Answer) -> Result<bool, (Call, Answer)> {
        match self {
            Self { machine, placing: Some(placing), over: false, .. }
                if machine.may_place(call.reduction) =>
            {
                placing.place(call, to)
            }
            _ => Err((call, to)),
        }
    }
}
