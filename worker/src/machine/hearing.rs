//! Taking in the messages of the master.

use everfold_protocol::{
    Timestamp,
    message::{News, ToMaster, ToWorker},
    watch::{Alarm, Watch},
};

use super::{Action, End, Gone, Phase, Worker, local::State};

impl Worker {
    pub(super) fn hear(&mut self, now: Timestamp, message: ToWorker) {
        match message {
            ToWorker::Ping { number } => self.send(ToMaster::Pong { number }),
            ToWorker::Fenced => self.end_all(Gone::Fenced),
            ToWorker::Keep(keep) => {
                if self.reductions.contains_key(&keep.reduction) {
                    self.actions.push_back(Action::Keep(keep));
                }
            }
            ToWorker::News(news) => self.actions.push_back(Action::News(news)),
            ToWorker::Forget { process } => self.actions.push_back(Action::Forget(process)),
            ToWorker::Welcome { peers, limits } => {
                self.limits = limits;
                let apart = peers.iter().any(|peer| peer.host != peers[0].host);
                self.peers = apart.then(|| peers.clone());
                let interval = limits.ping_interval;
                self.watch =
                    (!interval.is_zero()).then(|| (Watch::new(now, interval), Alarm::new(now, interval / 4)));
                self.actions.push_back(Action::Meet { peers, limits });
            }
            ToWorker::Unwelcome { reason } => self.actions.push_back(Action::Unwelcome(reason)),
            ToWorker::Incomplete { missing } => self.actions.push_back(Action::Incomplete { missing }),
            ToWorker::Task(task) => self.task(task, None),
            ToWorker::Dissolved { reduction } => {
                self.actions.push_back(Action::Over(reduction));
                self.dissolve(reduction.called());
            }
            ToWorker::Prefetch(prefetch) => self.prefetch(prefetch),
            ToWorker::Finished(finished) => self.finished(*finished),
            ToWorker::Refused { reduction, refusal } => self.end(reduction, End::Refused(refusal)),
            ToWorker::HandOver { reduction } => {
                if let Some(local) = self.reductions.get_mut(&reduction)
                    && let State::Lending { report } = &mut local.state
                {
                    let end = End::Received(*core::mem::take(report));
                    local.state = State::Serving;
                    self.actions.push_back(Action::Resolve { reduction, end });
                }
            }
            ToWorker::Release { reduction } => {
                let local = self.reductions.get(&reduction);
                if local.is_some_and(|local| matches!(local.state, State::Lending { .. } | State::Serving)) {
                    self.end(reduction, End::Closed);
                }
            }
            ToWorker::Departed { process, evidence } => {
                let rank = process.rank;
                if !self.dead.insert(process) {
                    // It was said before.
                    return;
                }
                self.failed.insert(rank).ok();
                self.go_back_without(rank);
                let news = News::Failed { rank, evidence };
                self.actions.extend([Action::Departed { process, evidence }, Action::News(news)]);
            }
            ToWorker::Returned { peer } => self.take_back(peer),
            ToWorker::AgentLost { agent } => {
                self.actions.push_back(Action::AgentLost(agent));
                let notes = self.mirror.lose(agent);
                self.count_all(notes);
            }
            ToWorker::Replicate { to } => {
                let ordered = self.mirror.order(to.id);
                self.actions.push_back(Action::Replicate(to));
                match ordered {
                    Ok(copy) => self.copy(copy),
                    Err(said) => self.send(said),
                }
            }
            ToWorker::Unreplicated { agent } => {
                let notes = self.mirror.go_without(agent);
                self.count_all(notes);
            }
            ToWorker::Farewell => {
                self.phase = Phase::Closed(Gone::Left);
                self.actions.push_back(Action::Closed);
            }
        }
    }
}
