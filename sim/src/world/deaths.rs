//! How processes end, stop and go on.

use everfold_protocol::{ProcessId, message::Ending};

use super::World;
use crate::{
    agent::Standing,
    events::{Happening, Place},
};

/// How the system ends what a schedule kills.
const KILLED: Ending = Ending::Signal(9);

impl World {
    /// Lets a process die.
    pub(super) fn die(&mut self, process: ProcessId) {
        self.end_process(process);
        self.hang_up_reads(process);
        // What it had sent still arrives, and then the end of the connection.
        self.hang_up(process);
        self.show_hang_up(process);
        if !self.process(process.rank).lives_on {
            self.show_end(process, KILLED);
        }
    }

    /// Lets a process be killed, also one that has failed and lives on.
    pub(super) fn be_killed(&mut self, process: ProcessId) {
        self.process_mut(process.rank).lives_on = false;
        self.die(process);
    }

    /// Lets a process die of whose messages to the master only the first `arrive` that are under way still
    /// arrive.
    pub(super) fn crash(&mut self, process: ProcessId, arrive: u64) {
        let dead = self.process_mut(process.rank);
        if dead.worker.is_some() {
            dead.outbox.cut_off(arrive);
        }
        self.be_killed(process);
    }

    /// Lets a process die beside the master, which hears of it at once.
    pub(super) fn let_go(&mut self, process: ProcessId) {
        self.be_killed(process);
        self.schedule(self.now(), Happening::Disconnected(process));
    }

    /// Lets a process leave its job without a word.
    pub(super) fn abandon(&mut self, process: ProcessId) {
        let leaver = self.process_mut(process.rank);
        if leaver.worker.is_some() {
            leaver.windows.leave(|_| {});
            leaver.lives_on = true;
            self.take_progress_back(process);
            self.exit_later(process);
        }
        self.die(process);
    }

    /// Breaks the connection between the master and a process, which both live.
    pub(super) fn break_connection(&mut self, process: ProcessId) {
        let now = self.now();
        let there = self.process_mut(process.rank);
        if there.worker.is_some() {
            there.outbox.hang_up();
            self.facts.break_connection(now, process);
            self.hang_up(process);
            self.courier.lose_master(&mut self.agenda, process);
        }
    }

    /// Takes a host away with all its processes.
    pub(super) fn lost_host(&mut self, host: u64) {
        for rank in self.ranks_at(host) {
            self.end_process(self.process(rank).id);
            self.process_mut(rank).vanished = true;
        }
        self.end_agent(host, Standing::Vanished);
    }

    /// Lets the agent of a host die, and all ranks there with it.
    pub(super) fn end_host(&mut self, host: u64) {
        self.end_agent(host, Standing::Ended);
        for rank in self.ranks_at(host) {
            self.be_killed(self.process(rank).id);
        }
    }

    pub(super) fn end_process(&mut self, process: ProcessId) {
        let dead = self.process_mut(process.rank);
        let open = dead.shares.values().filter(|share| share.ended.is_none()).count() as u64;
        let lived = dead.worker.take().is_some();
        dead.shares.values_mut().for_each(|share| share.waits = None);
        if lived {
            self.calls_ended += open;
            self.facts.end(self.agenda.now(), process);
        }
        drop(self.thaw(Place::Rank(process.rank)));
        self.end_deputy(process);
    }

    /// Begins a freeze.
    pub(super) fn stop(&mut self, place: Place) {
        let waiting = self.frozen_at(place);
        if waiting.is_none() {
            *waiting = Some(Vec::new());
            self.frozen += 1;
            self.facts.stop(self.agenda.now(), place);
        }
    }

    /// Ends a freeze; tells what waited for it.
    pub(super) fn thaw(&mut self, place: Place) -> Vec<Happening> {
        let waiting = self.frozen_at(place).take();
        self.facts.thaw(self.agenda.now(), place);
        self.frozen -= usize::from(waiting.is_some());
        waiting.unwrap_or_default()
    }

    /// Breaks a process's connection to the master.
    pub(super) fn hang_up(&mut self, process: ProcessId) {
        self.courier.hang_up(&mut self.agenda, process);
    }
}
