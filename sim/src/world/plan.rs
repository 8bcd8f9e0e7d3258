//! What is to happen: calls, and what goes wrong.

use std::time::Duration;

use everfold_master::located::Fault;
use everfold_protocol::{ProcessId, Rank};

use super::World;
use crate::{
    events::{Call, Happening, Place},
    faults::{Cut, Damage, Disk, Gap, Limp},
};

impl World {
    /// Lets a rank call a reduction `after` now.
    pub fn call(&mut self, after: Duration, call: Call) {
        self.plan_call(self.now() + after, &call);
        self.schedule(self.now() + after, Happening::Call(Box::new(call)));
    }

    /// Lets a rank close its session `after` now.
    pub fn close(&mut self, after: Duration, rank: Rank) {
        self.plan_close(self.now() + after, rank);
        self.schedule(self.now() + after, Happening::Close(rank));
    }

    /// Kills a process `after` now; its connections break.
    pub fn kill(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now() + after, Happening::Die(ProcessId::first(rank)));
    }

    /// Kills a process `after` now. Of what it has sent to the master and is under way, only the first
    /// `arrive` messages arrive before its connection breaks.
    pub fn crash_after(&mut self, after: Duration, rank: Rank, arrive: u64) {
        self.schedule(self.now() + after, Happening::Crash(ProcessId::first(rank), arrive));
    }

    /// Kills a process on the master's host `after` now. As its lifeline tells of its end, the master hears
    /// of it before what it had sent, and again when the connection breaks.
    pub fn kill_beside_the_master(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now() + after, Happening::LetGo(ProcessId::first(rank)));
    }

    /// Lets a process leave its job without a word `after` now, as when its program fails or panics. It lives
    /// on, and gives its memory back.
    pub fn let_abandon(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now() + after, Happening::Abandon(ProcessId::first(rank)));
    }

    /// Breaks the connection between a rank and the master `after` now; both live.
    pub fn break_connection_after(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now() + after, Happening::Break(ProcessId::first(rank)));
    }

    /// Stops a process `after` now, for `time`; messages to it wait.
    pub fn freeze(&mut self, after: Duration, rank: Rank, time: Duration) {
        self.halt(after, Place::Rank(rank), time);
    }

    /// Stops the agent of a host `after` now, for `time`; the ranks there go on. On the host of rank 0 the
    /// master is in it. Where there are no agents, only the master stops.
    pub fn freeze_agent(&mut self, after: Duration, host: u64, time: Duration) {
        self.halt(after, Place::Agent(host), time);
    }

    fn halt(&mut self, after: Duration, place: Place, time: Duration) {
        self.schedule(self.now() + after, Happening::Freeze(place));
        self.schedule(self.now() + after + time, Happening::Thaw(place));
    }

    /// Takes a host and all its processes away `after` now. Nobody hears of it: it is silent. With the host
    /// of rank 0 the master is gone.
    pub fn lose_host(&mut self, after: Duration, host: u64) {
        self.schedule(self.now() + after, Happening::LoseHost(host));
    }

    /// Kills the agent of a rank's host `after` now, and with it all ranks there; see
    /// [`end_agent_of`](Self::end_agent_of).
    pub fn end_host_of(&mut self, after: Duration, rank: Rank) {
        self.end_agent_of(after, self.settings.host(rank));
    }

    /// Kills the agent of a host `after` now, and with it all ranks there; their connections break. With the
    /// host of rank 0 the master is gone.
    pub fn end_agent_of(&mut self, after: Duration, host: u64) {
        self.schedule(self.now() + after, Happening::EndHost(host));
    }

    /// Cuts the network `after` now, for `time`.
    pub fn cut(&mut self, after: Duration, cut: Cut, time: Duration) {
        self.schedule(self.now() + after, Happening::Cut(Box::new(cut.clone())));
        self.schedule(self.now() + after + time, Happening::Heal(Box::new(cut)));
    }

    /// Lets two hosts not reach each other's memory any more `after` now, for `time` if that is given.
    pub fn part(&mut self, after: Duration, gap: Gap, time: Option<Duration>) {
        self.schedule(self.now() + after, Happening::Part(gap));
        if let Some(time) = time {
            self.schedule(self.now() + after + time, Happening::Meet(gap));
        }
    }

    /// Lets so many reads from other hosts of what a rank holds in its memory arrive damaged, from `after`
    /// now on.
    pub fn garble(&mut self, after: Duration, rank: Rank, reads: u32) {
        self.schedule(self.now() + after, Happening::Garble(rank, reads));
    }

    /// Lets what a rank holds, or keeps of others, arrive damaged however often it is read, from `after` now
    /// on, for `time` if that is given.
    pub fn damage(&mut self, after: Duration, rank: Rank, damage: Damage, time: Option<Duration>) {
        self.schedule(self.now() + after, Happening::Damage(rank, damage));
        if let Some(time) = time {
            self.schedule(self.now() + after + time, Happening::Mend(rank, damage));
        }
    }

    /// Gives a process so little of its processor `after` now, for `time`, that it runs only once in `every`
    /// and only for `runs` of it.
    pub fn starve(&mut self, after: Duration, rank: Rank, time: Duration, every: Duration, runs: Duration) {
        self.halt_often(after, Place::Rank(rank), time, (every, runs));
    }

    /// The same of the agent of a host.
    pub fn starve_agent(
        &mut self,
        after: Duration,
        host: u64,
        time: Duration,
        every: Duration,
        runs: Duration,
    ) {
        self.halt_often(after, Place::Agent(host), time, (every, runs));
    }

    fn halt_often(
        &mut self,
        after: Duration,
        place: Place,
        time: Duration,
        (every, runs): (Duration, Duration),
    ) {
        let mut at = Duration::ZERO;
        while at < time {
            self.halt(after + at, place, every.saturating_sub(runs));
            at += every.max(Duration::from_micros(1));
        }
    }

    /// Lets a rank take `task_time` for each task from `after` now on, for `time`.
    pub fn slow_down(&mut self, after: Duration, rank: Rank, task_time: Duration, time: Duration) {
        let limp = Limp { task_time: Some(task_time), ..Limp::default() };
        self.schedule(self.now() + after, Happening::Limp(rank, limp));
        self.schedule(self.now() + after + time, Happening::Limp(rank, Limp::default()));
    }

    /// Lets messages between the master and a rank take up to `time` longer from `after` now on, while it
    /// `lasts`.
    pub fn delay(&mut self, after: Duration, rank: Rank, time: Duration, lasts: Duration) {
        let limp = Limp { message_time: Some(time), ..Limp::default() };
        self.schedule(self.now() + after, Happening::Limp(rank, limp));
        self.schedule(self.now() + after + lasts, Happening::Limp(rank, Limp::default()));
    }

    /// Lets the master hear `after` now that a fault was located, rightly or not, and that it is over after a
    /// `time`, if that is given.
    pub fn locate(&mut self, after: Duration, fault: Fault, time: Option<Duration>) {
        self.schedule(self.now() + after, Happening::Located(Box::new(fault.clone()), false));
        if let Some(time) = time {
            self.schedule(self.now() + after + time, Happening::Located(Box::new(fault), true));
        }
    }

    /// Lets a rank's disk take `write_time` more for each copy that is written before it is acknowledged,
    /// from `after` now on, for `time`.
    pub fn slow_disk(&mut self, after: Duration, rank: Rank, write_time: Duration, time: Duration) {
        let limp = Limp { write_time: Some(write_time), ..Limp::default() };
        self.schedule(self.now() + after, Happening::Limp(rank, limp));
        self.schedule(self.now() + after + time, Happening::Limp(rank, Limp::default()));
    }

    /// Fills a rank's disk `after` now, for `time`: it keeps no copies but in memory.
    pub fn fill_disk(&mut self, after: Duration, rank: Rank, time: Duration) {
        self.schedule(self.now() + after, Happening::Disk(rank, Disk::Full));
        self.schedule(self.now() + after + time, Happening::Disk(rank, Disk::Free));
    }

    /// Damages all copies that a rank keeps `after` now.
    pub fn spoil_copies(&mut self, after: Duration, rank: Rank) {
        self.schedule(self.now() + after, Happening::Spoil(rank));
    }
}
