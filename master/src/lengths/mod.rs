//! How long segments between hosts should be, and whether bodies should come inlined, learnt from what
//! reductions took.
//!
//! Short segments keep slow links busy and balance well; long ones cost fewer messages, which matters most on
//! fast links. There it is quicker still to send a body of some ten kilobytes with the message, through the
//! master, than to have it read. The master does not know the links. So reductions of about the same size are
//! cut in different ways, *rungs* of a ladder: the lowest has the length that suits slow links
//! ([`Policy::segment_len`]), each of the next is four times as long, then the body is one piece, and on the
//! last it comes inlined. Where there are no more segments than ranks, one task folds all partials of each. A
//! class begins with the longest segments of up to 64 KiB that are still four for each rank: slow links
//! hardly notice them, and on fast links shorter ones take several times as long.
//!
//! Then it climbs, or goes down: its rung and a neighbour take turns, and it goes to the neighbour if that is
//! quicker. It takes fewer turns to give a neighbour up that is slower each time than to go there: a link
//! that lets more pass after a pause makes long segments look quick for a while. So it never tries a rung far
//! from the best, nor one that cannot pay ([`Rungs::may_pay`]): over a slow link a long body takes so much
//! time that fewer messages would save next to nothing of it. Once all neighbours have lost it rests, for
//! longer each time, and then tries them again, as links may change. Turns matter: both see the same load,
//! and a link that lets more pass after a pause does so for both.
//!
//! Only reductions count that had the master to themselves, and in which no rank died. Ranks tell the time of
//! one with their next call: the master hears of an inlined body only when all of it is there. The time
//! counts from the latest call on, so that it does not matter how long the other ranks had waited for that.
//! Times come in; there is no clock and no chance here.
//!
//! Ranks have to know before they call whether their bodies are to come inlined. They hear it with the
//! outcome of the reduction before, so the next rung is chosen when a reduction ends ([`Lengths::end`]). A
//! rank that has not heard it does as it did before; such a mixture is correct, and teaches nothing.

mod ladder;
mod rungs;
#[cfg(test)]
mod tests;
mod untold;

use alloc::collections::BTreeMap;
use core::time::Duration;

use everfold_protocol::{Rank, ReductionId, ReductionSpec, class::Class, message::Learning};

pub(crate) use self::untold::Ended;
use self::{
    ladder::Ladder,
    rungs::{Rungs, length},
    untold::Untold,
};
use crate::policy::Policy;

/// How a body is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Length of a segment in bytes; zero for objects.
    pub segment_bytes: u64,
    /// Whether one task folds all partials of a segment.
    pub in_one_go: bool,
    /// Whether bodies are to come inlined although they are long.
    pub inlined: bool,
    /// What its time tells of, if it tells anything.
    lesson: Option<Lesson>,
}

/// One rung of the ladder of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lesson {
    class: Class,
    rung: usize,
    rungs: Rungs,
}

impl Cut {
    /// Whether its time tells of anything.
    pub fn tells(&self) -> bool {
        self.lesson.is_some()
    }

    /// Segments of a given length, from which nothing is learnt.
    pub fn fixed(segment_bytes: u64) -> Self {
        Self { segment_bytes, in_one_go: false, inlined: false, lesson: None }
    }
}

/// The lessons of each class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths {
    ladders: BTreeMap<Class, Ladder>,
    /// The latest reduction of each class of which ranks have yet to tell how long it took.
    untold: BTreeMap<Class, Untold>,
}

impl Lengths {
    /// How the body of a reduction is to be cut.
    pub fn cut(&mut self, spec: &ReductionSpec, policy: &Policy, share_memory: bool) -> Cut {
        let ranks = spec.group.len();
        let first = policy.segment_len(&spec.kind, ranks, share_memory);
        let rungs = if share_memory { Rungs::ONE } else { Rungs::of(spec, first, policy) };
        let Some(class) = Class::of(spec).filter(|_| rungs.count() > 1) else { return Cut::fixed(first) };
        let ladder = self.ladders.entry(class).or_insert_with(|| Ladder::new(rungs.first(), rungs.count()));
        let rung = ladder.rung(rungs.count());
        let (inlined, in_one_go) = (rungs.is_inlined(rung), rungs.is_in_one_go(rung));
        let body = spec.kind.array_bytes().map_or(0, |(bytes, _)| bytes);
        let segment_bytes = if rungs.is_piece(rung) { body } else { length(first, rung) };
        Cut { segment_bytes, in_one_go, inlined, lesson: Some(Lesson { class, rung, rungs }) }
    }

    /// Takes the next turn when a reduction ends that was cut in this way, and perhaps tells something.
    pub fn end(&mut self, cut: &Cut, ended: Option<Ended>) -> Learning {
        let Some(lesson @ Lesson { class, rung, rungs }) = cut.lesson else { return Learning::default() };
        let ladder = self.ladders.entry(class).or_default();
        ladder.go_on(rungs.count());
        let ended = ended.filter(|_| ladder.awaits(rung));
        let asks = ended.is_some();
        match ended {
            Some(ended) => self.untold.insert(class, Untold::new(ended, lesson)),
            None => self.untold.remove(&class),
        };
        Learning { inlines: rungs.is_inlined(ladder.rung(rungs.count())), asks }
    }

    /// Takes in how long a reduction took at one of its ranks. Returns whether a lesson waits for that.
    pub fn hear(&mut self, id: ReductionId, rank: Rank, took: Duration) -> bool {
        let Some((&class, untold)) = self.untold.iter_mut().find(|(_, untold)| untold.is_of(id)) else {
            return false;
        };
        let is_news = untold.hear(rank, took);
        if let Some((Lesson { rung, rungs, .. }, took)) = untold.lesson() {
            let may_pay = |from, to| rungs.may_pay(from, to, took);
            self.ladders.entry(class).or_default().observe(rung, rungs.pace(took), may_pay);
            self.untold.remove(&class);
        }
        is_news
    }
}
