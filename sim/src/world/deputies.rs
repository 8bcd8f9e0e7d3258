//! Deputies of the master, and what comes of attempts in teams.

use everfold_master as master;
use everfold_protocol::{
    Epoch, ProcessId, Rank, ReductionId,
    message::{Header, ToMaster, ToWorker},
};
use everfold_worker::machine::Event;

use super::World;
use crate::{events::Happening, process::Deputy, settings::JOB};

impl World {
    /// A rank contributes to an attempt.
    pub(super) fn try_in_teams(&mut self, rank: Rank, attempt: ReductionId) {
        let share = self.process_mut(rank).shares.get_mut(&attempt.called()).expect("it was called here");
        share.tried = true;
    }

    /// Lets the deputy at `rank` take in a message. It begins with the first.
    pub(super) fn tell_deputy(&mut self, rank: Rank, sender: ProcessId, message: ToMaster) {
        let now = self.now();
        let Self { settings, peers, .. } = self;
        let process = &mut self.processes[rank.index()];
        if !process.worker.as_ref().is_some_and(|worker| worker.machine().takes_part()) {
            if !process.vanished {
                // There is nobody to connect to.
                self.schedule(now, Happening::DeputyLost(sender.rank, ProcessId::first(rank)));
            }
            return;
        }
        let departed = &process.departed;
        let deputy = process.deputy.get_or_insert_with(|| {
            let mut machine = master::Deputy::new(now, JOB, rank, peers.clone(), settings.policy.clone());
            for (failed, evidence) in departed {
                machine.depart(now, *failed, *evidence);
            }
            Deputy { machine, due: None }
        });
        deputy.machine.hear(now, sender, message);
    }

    /// Lets the deputy at `rank` see that time has passed.
    pub(super) fn wake_deputy(&mut self, rank: Rank) {
        let now = self.now();
        if let Some(deputy) = &mut self.process_mut(rank).deputy {
            deputy.due = None;
            deputy.machine.handle_timeout(now);
        }
    }

    /// Lets the deputy at `rank` act upon what has happened.
    pub(super) fn run_deputy(&mut self, rank: Rank) {
        if !self.process(rank).worker.as_ref().is_some_and(|worker| worker.machine().takes_part()) {
            self.end_deputy(self.process(rank).id);
        }
        while let Some(action) =
            self.process_mut(rank).deputy.as_mut().and_then(|it| it.machine.poll_action())
        {
            let me = self.process(rank).id;
            match action {
                master::Action::Send { to, message: ToWorker::Task(task) } => {
                    let header = Header { job: JOB, epoch: Epoch(0), sender: me };
                    self.give_up(to, &ToWorker::Task(task.clone()));
                    self.courier.give_task(&mut self.agenda, to, &header, task);
                }
                master::Action::Report(message) => self.tell_master(rank, message),
                master::Action::Notice(_) => {}
                other => unreachable!("a deputy gives tasks and reports: {other:?}"),
            }
        }
        let follow = self.settings.follow;
        let Some(deputy) = &mut self.process_mut(rank).deputy else { return };
        if follow {
            deputy.machine.check();
        }
        if let Some(due) = deputy.machine.poll_timeout()
            && deputy.due.is_none_or(|scheduled| due < scheduled)
        {
            deputy.due = Some(due);
            self.schedule(due.max(self.agenda.now()), Happening::DeputyTimeout(rank));
        }
    }

    /// Makes a body an original again.
    pub(super) fn renew(&mut self, process: ProcessId, reduction: ReductionId) {
        let me = self.process_mut(process.rank);
        let attempt = reduction.in_teams();
        let works = me.writing.iter().any(|segment| segment.reduction == attempt);
        assert!(!works, "nobody works with what comes back");
        self.back += 1;
        let me = self.process_mut(process.rank);
        me.released.insert(attempt);
        let share = me.shares.get_mut(&reduction).expect("it was called here");
        share.tried = false;
        self.tell_worker(process.rank, Event::Renewed(reduction));
    }

    /// Ends the deputy at a process that is gone, if there is one: everybody sees that its connections break.
    pub(super) fn end_deputy(&mut self, deputy: ProcessId) {
        if self.process_mut(deputy.rank).deputy.take().is_some() {
            self.courier.lose_deputy(&mut self.agenda, deputy, self.settings.ranks);
        }
    }
}
