//! What ranks and the master do at the board.

use std::time::Duration;

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, ReductionSpec, SegmentId, SegmentIndex, TaskId, Timestamp,
    board::{PATIENCE, Round, Ticket},
    message::{ByteRange, Contribution, Data, Source, Task},
};
use everfold_worker::{
    machine::{End, Gone},
    participant::{Participant, Settled},
};

use super::World;
use crate::{
    board::Words,
    events::Happening,
    evidence::{self, NONSENSE},
};

/// Length of a piece that is too long for a board.
const LONG_PIECE_BYTES: u64 = 100_000;

fn inlined(data: &Data) -> &[u8] {
    match data {
        Data::Inline(bytes) => bytes,
        Data::Private | Data::Window(_) => &[],
    }
}

fn time(at: Timestamp) -> Duration {
    Duration::from_nanos(at.as_nanos())
}

impl World {
    /// Whether a contribution goes to the board first, if there is room for it.
    pub(super) fn shows_on_board(
        &self,
        rank: Rank,
        id: ReductionId,
        spec: &ReductionSpec,
        inline: bool,
    ) -> bool {
        // Evidence of pieces is as long as they are said to be.
        let bytes = if inline { inlined(&evidence::inlined(&[rank])).len() as u64 } else { LONG_PIECE_BYTES };
        self.process(rank).worker.as_ref().is_some_and(|worker| worker.accepts(id, spec, bytes))
    }

    /// Shows what was to lie on the board, or has lain there, to the readers of a message: long bodies in a
    /// window.
    pub(super) fn show_off_board(&mut self, rank: Rank, contribution: &mut Contribution) {
        let Contribution { reduction, spec, data, .. } = contribution;
        let process = self.process_mut(rank);
        let inline = process.shares.get(reduction).is_none_or(|share| share.inline);
        if !inline && matches!(data, Data::Inline(_)) {
            *data = process.original(*reduction, spec, false);
        }
    }

    /// Puts a contribution on the board.
    ///
    /// # Errors
    /// Gives it back if it is for the master.
    // What it gives back is no error.
    #[allow(clippy::result_large_err)]
    pub(super) fn place(&mut self, rank: Rank, contribution: Contribution) -> Result<(), Contribution> {
        let Contribution { reduction, name, spec, data } = contribution;
        let ticket = Ticket { reduction, name, spec, with: data };
        let placed = self
            .take_part(rank, |now, worker, publish| worker.place(now, time(now), ticket, inlined, publish));
        match placed {
            Some(Err(Ticket { reduction, name, spec, with: data })) => {
                Err(Contribution { reduction, name, spec, data })
            }
            Some(Ok(completes)) => {
                if let Some(shared) = &mut self.shared {
                    shared.place(rank, reduction, completes);
                }
                if completes {
                    self.look(rank);
                    self.schedule(self.now(), Happening::Ring(rank, Rank(0)));
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Lets a rank that lives hear of something, or call something, and ends its calls whose rounds are
    /// complete.
    pub(super) fn take_part<R>(
        &mut self,
        rank: Rank,
        how: impl FnOnce(
            Timestamp,
            &mut Participant<Words, Data>,
            &mut dyn FnMut(Ticket<Data>, bool) -> Option<Contribution>,
        ) -> (R, Settled<Words, Data>),
    ) -> Option<R> {
        let mut worker = self.process_mut(rank).worker.take()?;
        let now = self.now();
        let (result, settled) =
            how(now, &mut worker, &mut |ticket, taken| Some(self.take_off_board(rank, ticket, taken)));
        self.process_mut(rank).worker = Some(worker);
        settled.complete.into_iter().for_each(|(ticket, round)| self.complete(rank, ticket, round));
        assert!(settled.diverged.is_empty(), "programs that come back make the same calls again");
        Some(result)
    }

    /// Makes a call that was on the board one for the master.
    fn take_off_board(&mut self, rank: Rank, ticket: Ticket<Data>, taken: bool) -> Contribution {
        let Ticket { reduction, name, spec, with: data } = ticket;
        match &mut self.shared {
            Some(shared) if taken => shared.take(),
            Some(shared) => shared.withdraw(rank, reduction),
            None => {}
        }
        let mut contribution = Contribution { reduction, name, spec, data };
        self.show_off_board(rank, &mut contribution);
        contribution
    }

    /// Ends the calls of a rank that takes part no more. What it has put on the board stays there.
    pub(super) fn forget_placed(&mut self, rank: Rank, gone: Gone) {
        let process = self.process(rank);
        let (id, noting) = (process.id, process.rounds.keys().copied().collect::<Vec<_>>());
        for reduction in noting {
            self.note(id, reduction);
            self.leave_noted(id, reduction);
        }
        let forgotten = self.process_mut(rank).worker.as_mut().map(Participant::forget).unwrap_or_default();
        for Ticket { reduction, .. } in forgotten {
            self.resolve(rank, reduction, gone.into());
            self.process_mut(rank).release(reduction);
        }
    }

    /// Ends a call whose round is complete.
    fn complete(&mut self, rank: Rank, ticket: Ticket<Data>, round: Round<Words>) {
        let Ticket { reduction, spec, .. } = ticket;
        let report = round.report(time(self.agenda.now()), &spec);
        let mut end = End::Finished(report.clone());
        if self.process(rank).id.incarnation.0 > 0 {
            *self.seen.entry("complete rounds that a later process has found").or_default() += 1;
        }
        let receives = spec.delivery.receiver().is_none_or(|receiver| receiver == rank);
        if let Some(pattern) = spec.kind.pattern().filter(|_| receives) {
            let givers =
                spec.group.iter().filter(|rank| pattern.source().is_none_or(|source| source == *rank));
            let found = |rank: Rank| {
                let mut bytes = vec![0; round.len_of(rank).unwrap_or_default()];
                round.read(rank, 0, &mut bytes);
                evidence::ranks_in(&bytes).first().copied().unwrap_or(NONSENSE)
            };
            let row: Vec<Rank> = givers.map(found).collect();
            *self.seen.entry("pieces on a board").or_default() += row.len() as u64;
            let share = self.process_mut(rank).shares.get_mut(&reduction).expect("it was called here");
            share.collected = vec![row];
            end = End::Received(report);
        } else if receives {
            let segment = SegmentId { reduction, index: SegmentIndex(0) };
            let own = spec.delivery.root().map(Path::single).unwrap_or_default();
            let source = |rank: Rank| {
                let read = |len| {
                    let mut bytes = vec![0; len];
                    round.read(rank, 0, &mut bytes);
                    Data::Inline(bytes.into())
                };
                let data = round.len_of(rank).map_or(Data::Private, read);
                Source { process: ProcessId::first(rank), path: Path::single(rank), data }
            };
            let sources = spec.group.difference(&own).iter().map(source).collect();
            let (len, _) = spec.kind.array_bytes().unwrap_or_default();
            let range = ByteRange { start: 0, len };
            let task = Task { task: TaskId(0), segment, range, own, sources };
            let process = self.process(rank).id;
            let folded = self.fold(process, &spec, &task);
            self.process_mut(rank).partials.insert(segment, folded);
            end = End::Received(report);
        }
        let process = self.process_mut(rank);
        if process.worker.as_ref().is_some_and(|worker| worker.machine().notes()) {
            let id = process.id;
            process.rounds.insert(reduction, round);
            return self.begin_note(id, reduction, end);
        }
        self.leave_round(rank, reduction, round, end);
    }

    /// Ends a call whose outcome the rank has, and has noted where ranks come back.
    pub(super) fn leave_round(&mut self, rank: Rank, reduction: ReductionId, round: Round<Words>, end: End) {
        round.leave();
        self.resolve(rank, reduction, end);
        self.process_mut(rank).release(reduction);
    }

    /// Lets `from` wake up `next` and those behind it, one after the other.
    pub(super) fn ring(&mut self, from: Rank, next: Rank) {
        if next.0 < self.settings.ranks {
            self.wake_up(next);
            self.courier.ring(&mut self.agenda, Happening::Ring(from, Rank(next.0 + 1)));
        }
    }

    fn wake_up(&mut self, rank: Rank) {
        self.courier.ring(&mut self.agenda, Happening::Bell(rank));
    }

    /// Lets a rank take in what has become of what it has put there.
    pub(super) fn look(&mut self, rank: Rank) {
        self.take_part(rank, |now, worker, publish| ((), worker.settle(now, publish)));
    }

    /// Lets the master see what waits on the board, again and again.
    pub(super) fn look_later(&mut self) {
        if self.shared.is_some() && !self.is_done() {
            self.schedule(self.now() + PATIENCE, Happening::Look);
        }
    }

    /// Wakes ranks up whose rounds may have been complete for long.
    pub(super) fn wake_late(&mut self, late: Vec<Rank>) {
        // Those who take part no more would be woken up for ever.
        let takes_part = |worker: &Participant<Words, Data>| worker.machine().gone().is_none();
        let late =
            late.into_iter().filter(|rank| self.process(*rank).worker.as_ref().is_some_and(takes_part));
        late.collect::<Vec<_>>().into_iter().for_each(|rank| self.wake_up(rank));
    }
}
