//! The workers: what they hear, and what they do.

use std::{collections::BTreeMap, time::Duration};

use everfold_protocol::{
    Epoch, ProcessId, Rank, ReductionId,
    message::{Contribution, Ending, Header, ToMaster},
    pieces::Pattern,
};
use everfold_worker::machine::{Action, Collecting, Event, Gone};

use super::World;
use crate::{
    events::{Call, Happening},
    process::Share,
    settings::JOB,
    work::Work,
};

impl World {
    /// Lets a worker hear of something.
    pub(super) fn tell_worker(&mut self, rank: Rank, event: Event) {
        self.take_part(rank, |now, worker, publish| ((), worker.hear(now, event, publish)));
    }

    /// Lets a rank call a reduction.
    pub(super) fn happen_call(&mut self, call: Call) {
        let Call { rank, name, sequence, spec, inline } = call;
        let reduction = ReductionId::new(&name, sequence);
        self.agenda.be_patient(spec.deadline.map_or(Duration::ZERO, |deadline| deadline * 2));
        let is_crowded = self.settings.crowded.contains(&rank);
        let returns = self.settings.returns.is_some();
        let process = self.process_mut(rank);
        if process.worker.is_none() {
            self.calls_ended += 1;
            return;
        }
        // Who gives no piece says so in the message.
        let source = spec.kind.pattern().and_then(Pattern::source);
        let inline = inline || source.is_some_and(|source| source != rank);
        let process = self.process_mut(rank);
        // What it misses, it makes up for; what it has made up for, it does not do again.
        let is_made_up = returns && process.shares.contains_key(&reduction);
        if !process.plays || is_made_up {
            return;
        }
        if self.answer_from_log(rank, reduction) {
            return;
        }
        // A rank that has a result makes room.
        self.look(rank);
        let on_board = self.shows_on_board(rank, reduction, &spec, inline);
        let process = self.process_mut(rank);
        let data = process.original(reduction, &spec, inline || on_board);
        let share = Share {
            spec: spec.clone(),
            inline,
            collected: Vec::new(),
            row: Vec::new(),
            ahead: BTreeMap::new(),
            how: Collecting::default(),
            tried: false,
            shown: false,
            touched: 0,
            is_crowded,
            waits: None,
            told: None,
            is_refused: false,
            ended: None,
        };
        process.shares.insert(reduction, share);
        if let Err(mut contribution) = self.place(rank, Contribution { reduction, name, spec, data }) {
            self.show_off_board(rank, &mut contribution);
            self.tell_worker(rank, Event::Call(contribution));
        }
    }

    /// Lets `process` begin with `work`.
    pub(super) fn begin(&mut self, process: ProcessId, work: Work) {
        self.lend(process, &work);
        self.courier.begin(&mut self.agenda, process, work);
    }

    /// Lets a worker do what it has decided.
    pub(super) fn run_worker(&mut self, rank: Rank) {
        if !self.process(rank).joins {
            return;
        }
        while let Some(action) = self.process_mut(rank).worker.as_mut().and_then(|w| w.poll_action()) {
            self.act(rank, action);
        }
        let process = self.process_mut(rank);
        if let Some(due) = process.worker.as_ref().and_then(|worker| worker.machine().poll_timeout())
            && process.due.is_none_or(|scheduled| due < scheduled)
        {
            process.due = Some(due);
            self.schedule(due.max(self.agenda.now()), Happening::WorkerTimeout(rank));
        }
    }

    /// Lets a rank send a message to the master.
    pub(super) fn tell_master(&mut self, rank: Rank, message: ToMaster) {
        let process = self.process(rank);
        let (sender, Some(worker)) = (process.id, &process.worker) else { return };
        let header = Header { job: JOB, epoch: worker.machine().epoch(), sender };
        self.process_mut(rank).outbox.send();
        self.courier.tell_master(&mut self.agenda, &header, message);
    }

    fn act(&mut self, rank: Rank, action: Action) {
        let now = self.now();
        let process = self.process_mut(rank);
        let id = process.id;
        let Some(worker) = &process.worker else { return };
        match action {
            Action::Send(message) => {
                if let ToMaster::Contribute(contribution) = &message
                    && contribution.reduction.is_in_teams()
                {
                    self.try_in_teams(rank, contribution.reduction);
                }
                self.tell_master(rank, message);
            }
            Action::Tell(deputy, message) => {
                if let ToMaster::Contribute(contribution) = &message {
                    self.try_in_teams(rank, contribution.reduction);
                }
                let header = Header { job: JOB, epoch: Epoch(0), sender: id };
                self.courier.tell_deputy(&mut self.agenda, deputy, &header, message);
            }
            Action::GiveUp(reduction) => drop(process.given_back.insert(reduction.in_teams())),
            Action::Renew(reduction) => self.schedule(self.now(), Happening::Renew(id, reduction)),
            Action::Over(attempt) => {
                if let Some(deputy) = &mut process.deputy {
                    deputy.machine.forget(now, attempt);
                }
            }
            Action::Execute(task) => {
                // An array's first fold leaves the original alone; later ones grow the partial where it is.
                process.writing.insert(task.segment);
                self.begin(id, Work::Execute(task));
            }
            Action::Prefetch { reduction, bytes, part } => {
                self.begin(id, Work::Prefetch(reduction, bytes, part));
            }
            Action::Collect { reduction, pieces, how } => {
                self.begin(id, Work::Collect(reduction, pieces, how));
            }
            Action::Keep(keep) => self.begin(id, Work::Keep(keep)),
            Action::Resolve { reduction, end } => self.resolve(rank, reduction, end),
            Action::Closed => {
                let gone = worker.machine().gone().unwrap_or(Gone::Left);
                self.closed.push(rank);
                self.serve_nobody(rank);
                self.note_gone(rank, gone);
                self.forget_placed(rank, gone);
                self.end_held_answers(rank, gone);
                self.show_hang_up(id);
                match gone {
                    // It has nothing more to do.
                    Gone::Left => self.show_end(id, Ending::Code(0)),
                    Gone::MasterLost | Gone::Fenced => {
                        self.hang_up(id);
                        self.exit_later(id);
                    }
                }
            }
            Action::Meet { peers, .. } => {
                self.peers = peers;
                self.met.push(rank);
                self.meet(id);
            }
            Action::Incomplete { missing } => self.end_without_job(id, missing),
            Action::Departed { process: failed, evidence } => {
                process.departed.insert(failed, evidence);
                if let Some(deputy) = &mut process.deputy {
                    deputy.machine.depart(now, failed, evidence);
                }
                self.depart(rank, failed);
            }
            Action::Release(reduction) => process.release(reduction),
            Action::Forget(dead) => drop(process.forgotten.insert(dead)),
            Action::AgentLost(agent) => drop(process.hosts_lost.insert(agent.0)),
            Action::Counts(reduction) => self.answer_held(rank, reduction),
            Action::Note { reduction, end } => self.begin_note(id, reduction, end),
            Action::Replicate(to) => process.keeper = Some(to.id.0),
            Action::Copy { agent, number } => self.ask_for_copy(id, agent, number),
            Action::News(_) | Action::Unwelcome(_) | Action::Returned(_) => {}
        }
    }
}
