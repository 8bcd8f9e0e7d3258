//! What comes of processes that end before they join.
//!
//! No job begins. Each process that has joined, or joins later, hears so as soon as the agent of a process
//! that has ended can have told the master: no process waits until the time is over in which all have to
//! join. Where rank 0 never comes there is no master: ranks of its host hear that from their parent, and those of other hosts
//! look for the master as long as they may.

use std::time::Duration;

use everfold_protocol::{Path, ProcessId, Rank, Timestamp};

use super::{judge::Judgement, schedule::EarlyEnd, tally::Tally, violation::Violation};

const NOT_AWAITED: &str = "nobody waits for a process that has ended before it joins";
const DISSOLVED: &str = "a job that does not begin is dissolved as soon as all know";

/// The rules that judge them.
pub(crate) const RULES_OF_EARLY_ENDS: [&str; 2] = [NOT_AWAITED, DISSOLVED];

/// Messages that it takes at most until everybody knows what one agent has seen.
const HOPS: u32 = 10;

impl Judgement<'_> {
    /// Whether no job has begun, and all that lived have heard so in time. `over` is when nothing was left.
    pub(super) fn there_is_no_job(&self, over: Option<Timestamp>) -> Result<Tally, Violation> {
        let mut tally = Tally::of(self.schedule);
        self.suspects.check(&mut tally)?;
        if let Some(rank) = self.world.met().first() {
            return Err(Violation::new(NOT_AWAITED, format!("for rank {rank} the job has begun")));
        }
        let early: Path = self.schedule.early_ends.iter().map(|early| Rank(early.rank)).collect();
        for rank in (0..self.schedule.ranks()).map(Rank).filter(|rank| !early.contains(*rank)) {
            tally.judge(NOT_AWAITED);
            self.judge_told(rank, &early)?;
        }
        let due = self.last_end().max(self.due()) + self.slack() * 2;
        let due = if self.is_led() { due } else { due.max(self.given_up()) + self.slack() };
        tally.judge(DISSOLVED);
        match over {
            Some(over) if over <= due => {}
            Some(over) => return Err(Violation::new(DISSOLVED, late(over, due))),
            None => return Err(Violation::new(DISSOLVED, "somebody is left")),
        }
        tally.take_events(self.world.seen());
        Ok(tally)
    }

    /// Judges what a rank has heard that was to be in the job, and when it has ended.
    fn judge_told(&self, rank: Rank, early: &Path) -> Result<(), Violation> {
        let is_here = self.world.settings().host(rank) == self.world.settings().master_host();
        let due = if self.is_led() || is_here { self.due() } else { self.given_up() + self.slack() };
        let ended = self.world.facts().ends.get(&ProcessId::first(rank)).copied();
        let told = self.world.incomplete().get(&rank);
        let is_true = |missing: &Path| !missing.is_empty() && missing.is_subset(early);
        match ended {
            Some(at) if at > due => {
                Err(Violation::new(NOT_AWAITED, format!("rank {rank} {}", late(at, due))))
            }
            Some(_) if !self.is_led() || told.is_some_and(is_true) => Ok(()),
            _ => Err(Violation::new(NOT_AWAITED, format!("rank {rank} was told {told:?}"))),
        }
    }

    /// Whether there is a master.
    fn is_led(&self) -> bool {
        self.world.settings().has_master()
    }

    /// When everybody that has joined has to have heard of the first end that an agent could tell of. One to
    /// which nobody comes that goes on waits for all processes of its host; without a master only the end of
    /// rank 0 is told.
    fn due(&self) -> Timestamp {
        let settings = self.world.settings();
        let counts = |early: &&EarlyEnd| self.is_led() || early.rank == 0;
        let told = self.schedule.early_ends.iter().filter(counts).map(|early| {
            let host = settings.host(Rank(early.rank));
            match settings.seeks_master(host) {
                true => self.at(early),
                false => self.ends_on(host),
            }
        });
        told.min().unwrap_or(self.suspects.began) + settings.agents_join + self.slack()
    }

    /// When the last process has ended of those on a host that never join.
    fn ends_on(&self, host: u64) -> Timestamp {
        let here = |early: &&EarlyEnd| self.world.settings().host(Rank(early.rank)) == host;
        let ends = self.schedule.early_ends.iter().filter(here).map(|early| self.at(early));
        ends.max().unwrap_or(self.suspects.began)
    }

    /// When the last process has ended of those that never join, and its agent has found the master.
    fn last_end(&self) -> Timestamp {
        let ends = self.schedule.early_ends.iter().map(|early| self.at(early));
        ends.max().unwrap_or(self.suspects.began) + self.world.settings().agents_join
    }

    /// When those give up who look for a master that does not come.
    fn given_up(&self) -> Timestamp {
        self.suspects.began + self.world.settings().policy.join_timeout
    }

    fn at(&self, early: &EarlyEnd) -> Timestamp {
        self.suspects.at(early.at_us)
    }

    fn slack(&self) -> Duration {
        Duration::from_micros(self.schedule.latency_us.1 + self.schedule.batch_us) * HOPS
    }
}

fn late(at: Timestamp, due: Timestamp) -> String {
    let [at, due] = [at, due].map(|at| at.as_nanos() as f64 / 1e6);
    format!("ended at {at} ms, {due} ms were expected")
}
