//! Ranks of which a second process stands by on another host, and takes the place of the first when that dies.
//!
//! A standby is where the replica of its rank is, and follows that. So there is one as soon as a replica is
//! whole, and another one as soon as another replica is.

use alloc::{
    string::{String, ToString},
    sync::Arc,
};
use core::time::Duration;

use everfold_protocol::{
    AgentId, ProcessId, Rank,
    message::{Ending, News, NoReturn, Peer, ToAgent, ToWorker},
};

use super::Master;
use crate::{
    recovery::{Sign, Start},
    replicas::Replica,
    standbys::{Stage, Standby},
    timers::Timer,
};

impl Master {
    /// Has a process stand by where the replica of a rank is whole.
    pub(super) fn stand_by(&mut self, rank: Rank) {
        let Some(replica) = self.replicas.whole(rank) else { return };
        let is_there = self.standbys.of(rank).is_some_and(|standby| standby.follows == replica);
        if self.desk.policy.recoveries.ranks_stand_by() && !is_there {
            self.stand_down(rank);
            self.order_standby(replica);
        }
    }

    /// Has a standby started that follows this replica, after a pause if earlier ones did not last.
    fn order_standby(&mut self, follows: Replica) {
        let rank = follows.process.rank;
        match self.standbys.pause(rank, &self.desk.policy.recoveries.restart) {
            Ok(pause) => {
                let process = self.starts.name(follows.process);
                self.standbys.put(Standby { process, follows, stage: Stage::Paused });
                match pause.is_zero() {
                    true => self.start_standby(process),
                    false => self.desk.timers.set(self.desk.now + pause, Timer::StandBy(process)),
                }
            }
            Err(reason) => self.tell_no_standby(rank, reason.to_string()),
        }
    }

    /// Has a standby started, unless it is not needed any more.
    pub(super) fn start_standby(&mut self, process: ProcessId) {
        if let Some(Standby { follows, .. }) =
            self.standbys.of(process.rank).filter(|it| it.process == process)
            && let Some(origin) = self.origin(follows)
        {
            self.standbys.advance(process, Stage::Ordered);
            self.desk.outbox.send_agent(follows.agent, ToAgent::StandBy { process, origin });
        }
    }

    /// Takes in that a process follows its rank. It hears which processes are in the job.
    pub(super) fn hear_stands_by(&mut self, sender: ProcessId) {
        let Some(Standby { follows, .. }) = self.standbys.of(sender.rank).filter(|it| it.process == sender)
        else {
            // The rank was lost meanwhile, and is started elsewhere; or it needs no standby any more.
            let is_promoted = self.starts.of(sender.rank).is_some_and(|start| start.process == sender);
            return if is_promoted { self.introduce(sender) } else { self.desk.outbox.disconnect(sender) };
        };
        self.standbys.advance(sender, Stage::Ready(self.desk.now));
        self.introduce(sender);
        let at = self.address(follows.agent);
        self.desk.tell_all(News::StandsBy { rank: sender.rank, at });
    }

    fn introduce(&mut self, process: ProcessId) {
        let peers: Arc<[Peer]> = self.desk.members.firsts().cloned().collect();
        self.desk.outbox.send(process, ToWorker::Welcome { peers, limits: self.desk.policy.limits });
    }

    /// Takes in that a standby has ended. Another one is started in its place.
    pub(super) fn lose_standby(&mut self, process: ProcessId, ending: Ending) {
        let rank = process.rank;
        let restart = self.desk.policy.recoveries.restart;
        let Some(Standby { follows, .. }) = self.standbys.lose(self.desk.now, rank, &restart) else { return };
        self.tell_no_standby(rank, ending.to_string());
        if self.replicas.whole(rank) == Some(follows) {
            self.order_standby(follows);
        }
    }

    /// The standby of this rank, if there is one, is not needed any more.
    pub(super) fn stand_down(&mut self, rank: Rank) {
        if let Some(Standby { process, follows, stage }) = self.standbys.take(rank) {
            self.desk.timers.call_off_all(Timer::StandBy(process));
            if stage != Stage::Paused {
                self.end_needless(process, follows.agent);
            }
        }
    }

    /// Has a process ended that was to stand by, or to take a place.
    fn end_needless(&mut self, process: ProcessId, agent: AgentId) {
        if self.desk.members.agents().here().any(|here| here == agent) {
            self.desk.outbox.send_agent(agent, ToAgent::End { process });
        }
    }

    /// Takes in that an agent is lost, with all standbys there.
    pub(super) fn lose_standbys(&mut self, agent: AgentId) {
        for rank in self.standbys.lose_agent(agent) {
            self.tell_no_standby(rank, "its host is lost".into());
        }
    }

    pub(super) fn tell_no_standby(&mut self, rank: Rank, reason: String) {
        if self.desk.policy.recoveries.ranks_stand_by() {
            self.desk.tell_all(News::NoStandby { rank, reason });
        }
    }

    /// Whether the standby of a rank, which was on the host of `from`, can take its place.
    pub(super) fn can_promote(&self, rank: Rank, from: AgentId, sign: Sign) -> Result<(), NoReturn> {
        let whole = self.replicas.whole(rank).ok_or(NoReturn::NoReplica)?;
        let standby = self.standbys.of(rank).filter(|it| it.follows == whole && it.stage != Stage::Paused);
        let standby = standby.ok_or(NoReturn::NoStandby)?;
        let is_lost = self.is_lost_with(standby.follows.agent, from, sign);
        if is_lost { Err(NoReturn::NoHost) } else { Ok(()) }
    }

    /// Lets the standby of a rank take the place of `dead`, which was on the host of `from`.
    pub(super) fn promote(&mut self, dead: ProcessId, from: AgentId) {
        let Some(Standby { process, follows, stage }) = self.standbys.take(dead.rank) else {
            return self.give_up(dead.rank, NoReturn::NoStandby);
        };
        let at = self.address(follows.agent);
        self.desk.tell_all(News::Promoted { rank: dead.rank, at });
        if self.desk.members.agents().here().any(|here| here == from) {
            self.desk.outbox.send_agent(from, ToAgent::Moved { process: dead });
        }
        let start = Start { process, agent: follows.agent, origin: Some(follows), is_promotion: true };
        self.starts.order(self.desk.now, start);
        self.desk.outbox.send_agent(follows.agent, ToAgent::Promote { process });
        let patience = self.patience_with(stage);
        self.desk.timers.set(self.desk.now + patience, Timer::Return(process));
    }

    /// How long a standby has to join, from when it is to take a place. One that does nothing is frozen.
    fn patience_with(&self, stage: Stage) -> Duration {
        let join_timeout = self.desk.policy.recoveries.restart.join_timeout;
        let silence_max = self.desk.policy.limits.silence_max();
        match stage {
            // Without pings no process is ever silent.
            Stage::Ready(_) if !silence_max.is_zero() => silence_max.min(join_timeout),
            _ => join_timeout,
        }
    }

    /// Has the process ended that was to take the place of this rank's. If its agent has yet to start it, it
    /// does not start it.
    pub(super) fn end_start(&mut self, rank: Rank) {
        if let Some(Start { process, agent, .. }) = self.starts.of(rank) {
            self.end_needless(process, agent);
        }
    }

    fn address(&self, agent: AgentId) -> String {
        self.desk.members.agents().lodging(agent).map(|at| at.address).unwrap_or_default()
    }
}
