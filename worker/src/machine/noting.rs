//! Outcomes that are noted before they count, where ranks come back.

use alloc::{boxed::Box, vec::Vec};

use everfold_protocol::{ReductionId, message::ToMaster};

use super::{
    Action, End, Worker,
    local::{Noting, State},
    mirror::{Copy, Followed, Note},
};

impl Worker {
    /// Has it noted how a call has ended before the application hears that.
    pub(super) fn note(&mut self, reduction: ReductionId, end: End, said: Option<ToMaster>) {
        let Some(local) = self.reductions.get_mut(&reduction) else { return };
        local.state = State::Noting(Box::new(Noting { end: end.clone(), said }));
        self.actions.push_back(Action::Note { reduction, end });
    }

    /// Takes in that it is noted how a call has ended.
    pub(super) fn noted(&mut self, reduction: ReductionId) {
        let Some(local) = self.reductions.get_mut(&reduction) else { return };
        let State::Noting(noting) = core::mem::replace(&mut local.state, State::Serving) else {
            unreachable!("only what ends is noted");
        };
        let Noting { end, said } = *noting;
        let is_served = matches!(said, Some(ToMaster::Collected { .. }));
        match end {
            End::Received(report) if is_served && local.lends => {
                local.state = State::Lending { report: Box::new(report) };
            }
            end => self.actions.push_back(Action::Resolve { reduction, end }),
        }
        said.into_iter().for_each(|message| self.send(message));
        if !is_served {
            self.release(reduction);
        }
    }

    /// Takes in that something is in the vault. It counts once it is in the replica, too, if there is one.
    pub(super) fn wait_for_copy(&mut self, note: Note) {
        match self.mirror.note(note) {
            Ok(copy) => self.copy(copy),
            Err(note) => self.count(note),
        }
    }

    pub(super) fn copy(&mut self, copy: Option<Copy>) {
        self.actions.extend(copy.map(|Copy { agent, number }| Action::Copy { agent, number }));
    }

    pub(super) fn follow(&mut self, Followed { said, notes }: Followed) {
        said.into_iter().for_each(|message| self.send(message));
        self.count_all(notes);
    }

    /// Takes in that all of this counts.
    pub(super) fn count_all(&mut self, notes: Vec<Note>) {
        let recalled = notes.iter().filter_map(|note| match note {
            Note::Recalled(reduction) => Some(*reduction),
            Note::Noted(_) => None,
        });
        let recalled: Vec<_> = recalled.collect();
        notes.into_iter().for_each(|note| self.count(note));
        // Calls may have waited until the master knows of those.
        recalled.into_iter().for_each(|reduction| self.contribute_all_of_name(reduction));
    }

    pub(super) fn count(&mut self, note: Note) {
        match note {
            Note::Noted(reduction) => self.noted(reduction),
            Note::Recalled(reduction) => {
                self.send(ToMaster::Noted { reduction });
                self.actions.push_back(Action::Counts(reduction));
            }
        }
    }
}
