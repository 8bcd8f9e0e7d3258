//! Which way a contribution takes, and attempts in teams as a member sees them (see [`team`]).

use alloc::{boxed::Box, vec::Vec};

use everfold_protocol::{
    ProcessId, Rank, ReductionId, ReductionSpec, SegmentIndex,
    message::{Contribution, Data, ToMaster},
    team,
};

use super::{
    Action, Worker,
    local::{Local, State},
};

/// Dissolved attempts that are remembered until this rank calls them. One that is forgotten is dissolved
/// again.
const DISSOLVED_MAX: usize = 256;

/// Where a contribution is.
#[derive(Debug)]
pub(super) enum Way {
    /// With the master.
    Master,
    /// In an attempt in teams: with this deputy, or the root's with the master.
    Teams(Option<ProcessId>, Data),
    /// The attempt was dissolved, and the body is being made the original again that it was.
    Back(Data),
    /// Here, behind one of the same name that is in an attempt or comes back, or that an earlier process of this
    /// rank had called: the master hears them in order.
    Waiting(Data),
}

impl Local {
    pub(super) fn is_in_teams(&self) -> bool {
        matches!(self.way, Way::Teams(..))
    }

    /// Whether tasks of `reduction` come from this deputy, or from the master.
    pub(super) fn expects(&self, reduction: ReductionId, deputy: Option<ProcessId>) -> bool {
        let is_mine = |deputy| matches!(self.way, Way::Teams(mine, _) if mine == Some(deputy));
        reduction.is_in_teams() == self.is_in_teams() && deputy.is_none_or(is_mine)
    }
}

impl Worker {
    /// Sends a contribution on its way.
    pub(super) fn set_out(&mut self, contribution: Contribution) -> Way {
        let id = contribution.reduction;
        let came_late = self.dissolved.iter().position(|dissolved| *dissolved == id);
        came_late.map(|position| self.dissolved.remove(position));
        if let Some(deputy) = self.deputy_for(&contribution.spec).filter(|_| came_late.is_none()) {
            let data = contribution.data.clone();
            let attempt = Contribution { reduction: id.in_teams(), ..contribution };
            self.answer(deputy, ToMaster::Contribute(Box::new(attempt)));
            return Way::Teams(deputy, data);
        }
        if !self.is_next(id) {
            return Way::Waiting(contribution.data);
        }
        self.send(ToMaster::Contribute(Box::new(contribution)));
        Way::Master
    }

    /// Whether a call like this is tried in teams, and with which deputy: that of this rank's team, or none
    /// at the root.
    #[allow(clippy::option_option)]
    fn deputy_for(&self, spec: &ReductionSpec) -> Option<Option<ProcessId>> {
        let peers = self.peers.as_ref()?;
        let is_sound = team::is_sound(spec, self.limits.body_bytes_max)
            && spec.group.contains(self.process.rank)
            && spec.group.last().is_some_and(|last| last.index() < peers.len())
            && spec.group.is_disjoint(&self.failed);
        let suits = is_sound && team::suits(spec, self.limits.teams_from);
        let deputy = || team::of(spec, self.process.rank).and_then(|team| team.first());
        suits.then(|| deputy().map(|deputy| peers[deputy.index()].process))
    }

    /// Whether the master knows of all earlier calls of that name. Those that it does not know of are the latest.
    fn is_next(&self, id: ReductionId) -> bool {
        if self.mirror.recalls_name_of(id) {
            return false;
        }
        let first = ReductionId { sequence: 0, ..id };
        let before = self.reductions.range(first..id).next_back();
        before.is_none_or(|(_, local)| matches!(local.way, Way::Master))
    }

    /// Contributes to the reductions of `id`'s name whose turn it is, whether they were called before that or after.
    pub(super) fn contribute_all_of_name(&mut self, id: ReductionId) {
        let [first, last] = [0, u64::MAX].map(|sequence| ReductionId { sequence, ..id }.called());
        let waits = |(_, local): &(&ReductionId, &Local)| matches!(local.way, Way::Waiting(_));
        if let Some(from) = self.reductions.range(first..=last).find(waits).map(|(id, _)| *id) {
            self.contribute_in_order(from);
        }
    }

    /// Contributes to the reductions of `from`'s name, from that on, whose turn it is.
    pub(super) fn contribute_in_order(&mut self, from: ReductionId) {
        if !self.is_next(from) {
            return;
        }
        let last = ReductionId { sequence: u64::MAX, ..from }.called();
        for (&reduction, local) in self.reductions.range_mut(from..=last) {
            match core::mem::replace(&mut local.way, Way::Master) {
                Way::Waiting(data) => {
                    let (name, spec) = (local.name.clone(), local.spec.clone());
                    let contribution = Box::new(Contribution { reduction, name, spec, data });
                    self.actions.push_back(Action::Send(ToMaster::Contribute(contribution)));
                }
                // Those behind it have to wait.
                way => {
                    local.way = way;
                    return;
                }
            }
        }
    }

    /// Takes in that an attempt was dissolved.
    pub(super) fn dissolve(&mut self, id: ReductionId) {
        if self.reductions.contains_key(&id) {
            return self.go_back(id);
        }
        self.dissolved.push_back(id);
        if self.dissolved.len() > DISSOLVED_MAX {
            self.dissolved.pop_front();
        }
    }

    /// Gives up the attempts that `dead` takes part in.
    pub(super) fn go_back_without(&mut self, dead: Rank) {
        let is_hit =
            |(_, local): &(&ReductionId, &Local)| local.is_in_teams() && local.spec.group.contains(dead);
        let hit: Vec<ReductionId> = self.reductions.iter().filter(is_hit).map(|(id, _)| *id).collect();
        hit.into_iter().for_each(|id| self.go_back(id));
    }

    /// Gives up an attempt: the body is to be contributed as usual.
    fn go_back(&mut self, id: ReductionId) {
        let Some(local) = self.reductions.get_mut(&id) else { return };
        let Local { way: Way::Teams(_, data), state: State::Running, held, .. } = local else { return };
        held.clear();
        local.way = Way::Back(data.clone());
        // However long an owner does not answer: the call goes on.
        self.actions.push_back(Action::GiveUp(id));
        self.renew_if_idle(id);
    }

    /// Has a body that comes back made an original again, once no task of the attempt works on it.
    pub(super) fn renew_if_idle(&mut self, id: ReductionId) {
        let comes_back = |local: &Local| matches!(local.way, Way::Back(_));
        let [first, last] = [0, u32::MAX].map(|index| (id.in_teams(), SegmentIndex(index)));
        let is_idle = self.busy.range(first..=last).next().is_none();
        if is_idle && self.reductions.get(&id).is_some_and(comes_back) {
            self.actions.push_back(Action::Renew(id));
        }
    }

    /// Takes in that a body is an original again.
    pub(super) fn renewed(&mut self, id: ReductionId) {
        let Some(local) = self.reductions.get_mut(&id) else { return };
        if let Way::Back(data) = &local.way {
            local.way = Way::Waiting(data.clone());
        }
        self.contribute_in_order(id);
    }

    /// Asks the master to dissolve the attempts of a lost deputy. The answer is the same for all ranks.
    pub(super) fn lose_deputy(&mut self, lost: ProcessId) {
        let is_hit = |local: &Local| matches!(local.way, Way::Teams(Some(deputy), _) if deputy == lost);
        for (id, local) in self.reductions.iter().filter(|(_, local)| is_hit(local)) {
            let (reduction, group) = (id.in_teams(), local.spec.group.clone());
            self.actions.push_back(Action::Send(ToMaster::Dissolve { reduction, group }));
        }
    }
}
