//! What waits until the replica of this rank's vault has it.
//!
//! As long as there is a replica, or one is being made, the master hears that something is noted when the
//! replica has it, too. So the replica has all that the master counts as noted, whenever this host is lost.
//! If there is one no longer, it waits until the master knows that: a process that the master starts from a
//! replica with less would ask for results that this process has given away.

use alloc::{collections::VecDeque, string::String, vec::Vec};

use everfold_protocol::{AgentId, ReductionId, message::ToMaster};

/// The replica of this rank's vault.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// The agent that is to have the replica.
    agent: Option<AgentId>,
    state: State,
    /// Whether the vault lacks an outcome, so that a copy of it is of no use.
    is_vault_lacking: bool,
    /// Number of the latest copy that was asked for.
    copy: u64,
    /// Number of the copy with which the replica is begun. An earlier one may lack what was noted while there
    /// was no replica.
    begun: u64,
    /// What waits for which copy.
    waiting: VecDeque<(u64, Note)>,
}

/// How far the replica is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// There is none, and nothing waits for it.
    #[default]
    Lacking,
    /// It is being made.
    Begun,
    /// It has all that the master counts as noted.
    Whole,
    /// It is given up, and the master has yet to say that it knows.
    GivenUp,
}

/// Something that is in the vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// How a call of this process has ended.
    Noted(ReductionId),
    /// How a call of an earlier one had.
    Recalled(ReductionId),
}

/// A copy of the vault to an agent, of everything that is in the vault when the copy begins, or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    pub agent: AgentId,
    pub number: u64,
}

/// What follows from a copy, in this order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Followed {
    pub said: Option<ToMaster>,
    pub notes: Vec<Note>,
}

impl Mirror {
    /// Takes in the agent that is to have the replica from now on.
    ///
    /// # Errors
    /// None is made until the next checkpoint. The master is to hear that.
    // It is sent at once.
    #[allow(clippy::result_large_err)]
    pub fn order(&mut self, agent: AgentId) -> Result<Option<Copy>, ToMaster> {
        self.agent = Some(agent);
        self.begin();
        if self.is_vault_lacking {
            return Err(self.give_up("its vault lacks an outcome".into()));
        }
        Ok(self.ask())
    }

    /// Takes in that something is in the vault. Gives it back if nothing has to be waited for.
    pub fn note(&mut self, note: Note) -> Result<Option<Copy>, Note> {
        if self.state == State::Lacking {
            return Err(note);
        }
        let copy = self.ask();
        self.waiting.push_back((self.copy, note));
        Ok(copy)
    }

    /// Whether something waits that the master is to hear of, before this rank leaves: it may hand out a result
    /// until it knows that this rank has it.
    pub fn holds_some(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes in that a checkpoint is in force. If there was no replica, another one is begun with it.
    pub fn save(&mut self) -> Option<Copy> {
        self.is_vault_lacking = false;
        if self.state == State::Lacking && self.agent.is_some() {
            self.begin();
        }
        self.ask()
    }

    /// Takes in the end of a copy.
    pub fn copied(&mut self, copy: Copy, result: Result<(), String>) -> Followed {
        if self.agent != Some(copy.agent) || !self.is_kept() {
            return Followed::default();
        }
        // It is about the replica before.
        if copy.number < self.begun {
            return Followed::default();
        }
        match result {
            Ok(()) => {
                let is_new = core::mem::replace(&mut self.state, State::Whole) != State::Whole;
                let said = is_new.then_some(ToMaster::Replicated { agent: copy.agent });
                let done = self.waiting.partition_point(|(number, _)| *number <= copy.number);
                Followed { said, notes: self.let_go(done) }
            }
            Err(reason) => Followed { said: Some(self.give_up(reason)), notes: Vec::new() },
        }
    }

    /// Keeps no replica until the next checkpoint: the vault lacks an outcome. Returns the message that the
    /// master is to hear.
    pub fn lack_outcome(&mut self, reason: String) -> Option<ToMaster> {
        self.is_vault_lacking = true;
        self.is_kept().then(|| self.give_up(reason))
    }

    /// Takes in that the master knows that this agent has no replica. Returns what need not wait any longer.
    pub fn go_without(&mut self, agent: AgentId) -> Vec<Note> {
        if self.agent != Some(agent) || self.is_kept() {
            return Vec::new();
        }
        self.let_go_all()
    }

    /// Takes in that an agent is lost with its replicas, as the master has said. Returns the notes that need
    /// not wait any longer.
    pub fn lose(&mut self, agent: AgentId) -> Vec<Note> {
        if self.agent != Some(agent) {
            return Vec::new();
        }
        self.agent = None;
        self.let_go_all()
    }

    /// Has a replica begun with the next copy.
    fn begin(&mut self) {
        self.state = State::Begun;
        self.begun = self.copy + 1;
    }

    /// Keeps no replica until the next checkpoint, or until another agent is to have it.
    fn give_up(&mut self, reason: String) -> ToMaster {
        self.state = State::GivenUp;
        let agent = self.agent.expect("one was to have it");
        ToMaster::NotReplicated { agent, reason }
    }

    /// Whether there is a replica, or one is being made.
    fn is_kept(&self) -> bool {
        matches!(self.state, State::Begun | State::Whole)
    }

    fn let_go_all(&mut self) -> Vec<Note> {
        self.state = State::Lacking;
        self.let_go(self.waiting.len())
    }

    fn let_go(&mut self, count: usize) -> Vec<Note> {
        self.waiting.drain(..count).map(|(_, note)| note).collect()
    }

    /// Whether what an earlier process has noted of this call waits for the replica.
    pub fn recalls(&self, id: ReductionId) -> bool {
        self.waiting.iter().any(|(_, note)| *note == Note::Recalled(id))
    }

    /// Whether the master has yet to hear of calls of that name that an earlier process had made.
    pub fn recalls_name_of(&self, id: ReductionId) -> bool {
        let name = |id: ReductionId| ReductionId { sequence: 0, ..id };
        self.waiting.iter().any(|(_, note)| matches!(note, Note::Recalled(of) if name(*of) == name(id)))
    }

    fn ask(&mut self) -> Option<Copy> {
        let agent = self.agent.filter(|_| self.is_kept())?;
        self.copy += 1;
        Some(Copy { agent, number: self.copy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: AgentId = AgentId(7);
    const B: AgentId = AgentId(8);

    fn note(number: u64) -> Note {
        Note::Noted(ReductionId::new("sum", number))
    }

    fn copy(agent: AgentId, number: u64) -> Copy {
        Copy { agent, number }
    }

    fn lacks(agent: AgentId, reason: &str) -> ToMaster {
        ToMaster::NotReplicated { agent, reason: reason.into() }
    }

    #[test]
    fn what_is_noted_counts_when_the_replica_has_it() {
        let mut mirror = Mirror::default();
        assert_eq!(mirror.note(note(0)), Err(note(0)), "there is no replica");
        assert_eq!((mirror.save(), mirror.order(A)), (None, Ok(Some(copy(A, 1)))));
        assert_eq!(mirror.note(note(1)), Ok(Some(copy(A, 2))));
        assert_eq!(mirror.note(note(2)), Ok(Some(copy(A, 3))));
        let said = Some(ToMaster::Replicated { agent: A });
        assert_eq!(mirror.copied(copy(A, 2), Ok(())), Followed { said, notes: vec![note(1)] });
        assert_eq!(mirror.save(), Some(copy(A, 4)));
        assert_eq!(mirror.copied(copy(A, 4), Ok(())), Followed { said: None, notes: vec![note(2)] });
    }

    #[test]
    fn what_is_noted_counts_without_a_replica_once_the_master_knows_that() {
        let mut mirror = Mirror::default();
        mirror.order(A).unwrap();
        mirror.note(note(1)).unwrap();
        let failed = mirror.copied(copy(A, 2), Err("full".into()));
        assert_eq!(failed, Followed { said: Some(lacks(A, "full")), notes: vec![] });
        assert_eq!(mirror.copied(copy(A, 2), Err("full".into())), Followed::default(), "that is known");
        assert_eq!((mirror.note(note(2)), mirror.holds_some()), (Ok(None), true));
        assert_eq!(mirror.go_without(B), [], "that was another one");
        assert_eq!(mirror.go_without(A), [note(1), note(2)]);
        assert_eq!(mirror.note(note(3)), Err(note(3)));
    }

    #[test]
    fn a_replica_is_begun_anew_with_the_next_checkpoint() {
        let mut mirror = Mirror::default();
        mirror.order(A).unwrap();
        mirror.copied(copy(A, 1), Err("full".into()));
        assert_eq!(mirror.save(), None, "the master would take what it hears of the last one for this one");
        mirror.go_without(A);
        assert_eq!(mirror.save(), Some(copy(A, 2)));
        assert_eq!(mirror.note(note(1)), Ok(Some(copy(A, 3))));
        assert_eq!(mirror.go_without(A), [], "that was the last one");
        assert_eq!(mirror.lose(A), [note(1)]);
        assert_eq!(mirror.save(), None, "nobody is to have one");
    }

    #[test]
    fn a_copy_from_before_a_replica_was_begun_does_not_make_it_whole() {
        let mut mirror = Mirror::default();
        mirror.order(A).unwrap();
        mirror.note(note(1)).unwrap();
        mirror.lack_outcome("full".into()).unwrap();
        assert_eq!(mirror.go_without(A), [note(1)]);
        assert_eq!(mirror.note(note(2)), Err(note(2)), "it counts without a replica");
        assert_eq!(mirror.save(), Some(copy(A, 3)));
        assert_eq!(mirror.copied(copy(A, 2), Ok(())), Followed::default());
        // Another agent has it for a while.
        assert_eq!(mirror.order(B), Ok(Some(copy(B, 4))));
        assert_eq!(mirror.lose(B), []);
        assert_eq!(mirror.note(note(3)), Err(note(3)));
        assert_eq!(mirror.order(A), Ok(Some(copy(A, 5))));
        assert_eq!(mirror.copied(copy(A, 3), Ok(())), Followed::default());
        assert_eq!(mirror.copied(copy(A, 3), Err("it holds no such replica".into())), Followed::default());
        let said = Some(ToMaster::Replicated { agent: A });
        assert_eq!(mirror.copied(copy(A, 5), Ok(())), Followed { said, notes: vec![] });
    }

    #[test]
    fn a_vault_that_lacks_an_outcome_is_not_copied_until_the_next_checkpoint() {
        let mut mirror = Mirror::default();
        mirror.order(A).unwrap();
        assert_eq!(mirror.lack_outcome("full".into()), Some(lacks(A, "full")));
        assert_eq!(mirror.lack_outcome("full".into()), None, "that is known");
        mirror.go_without(A);
        assert!(mirror.order(B).is_err_and(|said| matches!(said, ToMaster::NotReplicated { agent: B, .. })));
        mirror.go_without(B);
        assert_eq!(mirror.save(), Some(copy(B, 2)));
    }

    #[test]
    fn another_agent_gets_all_that_the_first_one_has_not() {
        let mut mirror = Mirror::default();
        mirror.order(A).unwrap();
        mirror.note(note(1)).unwrap();
        assert_eq!(mirror.order(B), Ok(Some(copy(B, 3))));
        assert_eq!(mirror.copied(copy(A, 2), Err("gone".into())), Followed::default());
        let said = Some(ToMaster::Replicated { agent: B });
        assert_eq!(mirror.copied(copy(B, 3), Ok(())), Followed { said, notes: vec![note(1)] });
    }
}
