//! One long job under seeded faults: what each choice of recoveries makes of it, in hours of virtual time.
//!
//! What is done about a fault is decided by the detectors that decide in real jobs ([`Detectors`]). What it costs is what
//! the paper on selectable recoveries says (FR, §3.2.2):
//!
//! - All ranks are saved together, after each interval of computing.
//! - A fault is seen at the next of the detector's looks. All ranks then wait until the rank that was hit has done again
//!   what it had done since the checkpoint, after it has loaded that, and on another node after it was transferred there.
//!   So T_recovery = T_elapsed + T_transfer + T_load.
//! - No fault comes while the ranks wait, and only a node with a rank fails.
//!
//! Deliberately absent: what it costs to save, networks, messages. [`World`](crate::World) has these.

use std::{collections::BTreeMap, time::Duration};

use everfold_master::recovery::{Detectors, Elsewhere, Recoveries, Sign, Verdict};
use everfold_protocol::{AgentId, Rank, Timestamp, message::NoReturn};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::model::Failures;

/// A job, and what its recoveries cost. Times are in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Processes, one on each node.
    pub ranks: u32,
    /// What it takes to compute without faults.
    pub work_s: f64,
    /// What is computed between two checkpoints.
    pub interval_s: f64,
    /// From one look of the detectors to the next.
    pub look_s: f64,
    /// What it takes to transfer a checkpoint to another node.
    pub transfer_s: f64,
    /// What it takes to load one.
    pub load_s: f64,
    /// A job that takes longer is ended.
    pub limit_s: f64,
}

/// The nodes: those of a group that fails, in which all ranks begin, and those of another one that does not.
#[derive(Clone, Copy, Debug)]
pub struct Nodes {
    /// Nodes behind the switch of the first group.
    pub bad: u32,
    /// Nodes behind another switch.
    pub good: u32,
    /// Process faults of a bad node.
    pub process: Option<Failures>,
    /// Losses of a bad node.
    pub physical: Option<Failures>,
}

/// What came of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Course {
    /// Whether it has come to its end: no rank was given up, and it took no longer than its limit.
    pub has_ended: bool,
    /// Time to its end.
    pub time_s: f64,
    /// For how long was computed again what had been computed before.
    pub again_s: f64,
    /// Faults that have hit a rank.
    pub faults: u32,
    /// Recoveries on the same node.
    pub restarts: u32,
    /// Recoveries on another node.
    pub migrations: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Process,
    Physical,
}

/// A node as it is now.
struct Node {
    agent: AgentId,
    is_bad: bool,
    is_lost: bool,
}

/// Runs the job under a choice. The same seed gives a rank on the same node the same faults, whatever the choice.
pub fn run(job: &Job, nodes: &Nodes, choice: &Recoveries, seed: u64) -> Course {
    Run::new(job, nodes, choice, seed).go_on()
}

struct Run<'a> {
    job: &'a Job,
    nodes: &'a Nodes,
    choice: &'a Recoveries,
    seed: u64,
    detectors: Detectors,
    all: Vec<Node>,
    /// Of each rank its node.
    places: Vec<usize>,
    /// What was computed when each node with a rank fails next.
    next: BTreeMap<(usize, Kind), f64>,
    drawn: BTreeMap<(usize, Kind), ChaCha8Rng>,
    computed_s: f64,
    course: Course,
}

impl<'a> Run<'a> {
    fn new(job: &'a Job, nodes: &'a Nodes, choice: &'a Recoveries, seed: u64) -> Self {
        let count = nodes.bad + nodes.good;
        // Of nodes with as many ranks the one with the least number is taken, and agents draw their numbers.
        let mut numbers: Vec<u64> = (0..u64::from(count)).collect();
        numbers.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let node =
            |(index, number)| Node { agent: AgentId(number), is_bad: index < nodes.bad, is_lost: false };
        let mut run = Self {
            job,
            nodes,
            choice,
            seed,
            detectors: Detectors::default(),
            all: (0..).zip(numbers).map(node).collect(),
            places: (0..job.ranks as usize).collect(),
            next: BTreeMap::new(),
            drawn: BTreeMap::new(),
            computed_s: 0.0,
            course: Course::default(),
        };
        (0..job.ranks as usize).for_each(|node| run.expect_faults(node));
        run
    }

    /// A node with a rank may fail from now on.
    fn expect_faults(&mut self, node: usize) {
        let laws = [(Kind::Process, self.nodes.process), (Kind::Physical, self.nodes.physical)];
        for (kind, law) in laws.into_iter().filter(|_| self.all[node].is_bad) {
            let Some(law) = law else { continue };
            let seed = self.seed;
            let random = self.drawn.entry((node, kind)).or_insert_with(|| {
                let mut random = ChaCha8Rng::seed_from_u64(seed);
                random.set_stream((node as u64 + 1) << 1 | kind as u64);
                random
            });
            self.next.insert((node, kind), self.computed_s + law.gap_s(1, random));
        }
    }

    fn go_on(mut self) -> Course {
        loop {
            let earliest =
                self.next.iter().min_by(|a, b| a.1.total_cmp(b.1)).map(|(what, at_s)| (*what, *at_s));
            let until_s = earliest.map_or(self.job.work_s, |(_, at_s)| at_s.min(self.job.work_s));
            self.course.time_s += until_s - self.computed_s;
            self.computed_s = until_s;
            let is_over = self.course.time_s > self.job.limit_s;
            let Some(((node, kind), _)) = earliest.filter(|(_, at_s)| *at_s < self.job.work_s && !is_over)
            else {
                self.course.has_ended = !is_over;
                return self.course;
            };
            self.next.remove(&(node, kind));
            if !self.meet(node, kind) {
                return self.course;
            }
        }
    }

    /// Does about a fault what is chosen. Says whether all ranks are there again.
    fn meet(&mut self, node: usize, kind: Kind) -> bool {
        // It is seen at the next look.
        self.course.time_s = (self.course.time_s / self.job.look_s).ceil() * self.job.look_s;
        let mut hit: Vec<usize> = (0..self.places.len()).filter(|rank| self.places[*rank] == node).collect();
        match kind {
            Kind::Process => hit.truncate(1),
            Kind::Physical => {
                self.all[node].is_lost = true;
                self.next.retain(|(other, _), _| *other != node);
            }
        }
        self.course.faults += 1;
        // Ranks are recovered at the same time.
        let mut before_s = 0.0f64;
        for rank in hit {
            match self.place(rank, node, kind) {
                Some(rank_s) => before_s = before_s.max(rank_s),
                None => return false,
            }
        }
        let elapsed_s = self.computed_s % self.job.interval_s;
        self.course.again_s += elapsed_s;
        self.course.time_s += before_s + self.job.load_s + elapsed_s;
        true
    }

    /// Has a rank recovered as is chosen. Gives what that takes before its checkpoint is loaded.
    fn place(&mut self, rank: usize, node: usize, kind: Kind) -> Option<f64> {
        let sign = self.sign(node, kind);
        let now = Timestamp::default() + Duration::from_secs_f64(self.course.time_s);
        let target = self.find_host(now, node, sign);
        let migrate = target.map(drop).ok_or(NoReturn::NoHost);
        // In this model nobody stands by.
        let elsewhere = Elsewhere { migrate, promote: Err(NoReturn::NoStandby) };
        let id = Rank(rank as u32);
        let judged = self.detectors.judge(now, id, sign, self.choice, elsewhere);
        // It will get on: no fault comes before it does.
        self.detectors.see_progress(id);
        match (judged.verdict, target) {
            (Verdict::Restart(pause), _) => {
                self.course.restarts += 1;
                self.expect_faults(node);
                Some(pause.as_secs_f64())
            }
            (Verdict::Migrate, Some(target)) => {
                self.course.migrations += 1;
                self.places[rank] = target;
                if !self.places.contains(&node) {
                    self.next.retain(|(other, _), _| *other != node);
                } else if kind == Kind::Process {
                    self.expect_faults(node);
                }
                if self.places.iter().filter(|place| **place == target).count() == 1 {
                    self.expect_faults(target);
                }
                Some(self.job.transfer_s)
            }
            _ => None,
        }
    }

    fn sign(&self, node: usize, kind: Kind) -> Sign {
        if kind == Kind::Process {
            return Sign::Process(self.all[node].agent);
        }
        let around = self.all.iter().filter(|other| other.is_bad == self.all[node].is_bad);
        let lost = around.clone().filter(|other| other.is_lost).count();
        Sign::of_loss(self.choice, lost, around.count())
    }

    /// A node that is not lost, and in the other group if this one is.
    fn find_host(&self, now: Timestamp, from: usize, sign: Sign) -> Option<usize> {
        let is_lost =
            |node: &Node| node.is_lost || (sign == Sign::Domain && node.is_bad == self.all[from].is_bad);
        let ranks = |node: usize| self.places.iter().filter(|place| **place == node).count();
        let fits = |index: &usize| *index != from && !is_lost(&self.all[*index]);
        let hosts = (0..self.all.len()).filter(fits).map(|index| (self.all[index].agent, ranks(index)));
        let agent = self.detectors.choose_host(now, self.choice, hosts)?;
        self.all.iter().position(|node| node.agent == agent)
    }
}

#[cfg(test)]
mod tests {
    use everfold_master::recovery::{Network, Recovery, Repeated};

    use super::*;

    const JOB: Job = Job {
        ranks: 4,
        work_s: 7200.0,
        interval_s: 900.0,
        look_s: 10.0,
        transfer_s: 12.0,
        load_s: 35.0,
        limit_s: 54_000.0,
    };

    fn every(seconds: f64) -> Option<Failures> {
        Some(Failures { node_mtbf_hours: seconds / 3600.0, shape: 1.0 })
    }

    fn nodes(process: Option<Failures>, physical: Option<Failures>) -> Nodes {
        Nodes { bad: 5, good: 5, process, physical }
    }

    #[test]
    fn without_faults_it_takes_what_it_computes() {
        let course = run(&JOB, &nodes(None, None), &Recoveries::RESTART, 1);
        assert_eq!(course, Course { has_ended: true, time_s: 7200.0, ..Course::default() });
    }

    /// T_recovery = T_elapsed + T_transfer + T_load, and the time until the fault is seen.
    #[test]
    fn a_recovery_costs_what_the_paper_says() {
        for seed in 0..50 {
            let restarted = run(&JOB, &nodes(every(4000.0), None), &Recoveries::RESTART, seed);
            let known_s = JOB.work_s + restarted.again_s + f64::from(restarted.restarts) * JOB.load_s;
            let seen_s = restarted.time_s - known_s;
            assert!(restarted.has_ended && restarted.migrations == 0);
            assert!((0.0..=10.0 * f64::from(restarted.faults)).contains(&seen_s), "{restarted:?}");
            assert!(restarted.again_s <= 900.0 * f64::from(restarted.faults));

            let migrated = run(&JOB, &nodes(None, every(4000.0)), &Recoveries::MIGRATE, seed);
            let each_s = JOB.load_s + JOB.transfer_s;
            let seen_s =
                migrated.time_s - JOB.work_s - migrated.again_s - f64::from(migrated.migrations) * each_s;
            assert!((0.0..=10.0 * f64::from(migrated.faults)).contains(&seen_s), "{migrated:?}");
        }
    }

    #[test]
    fn what_is_not_recovered_does_not_end() {
        let course = run(&JOB, &nodes(every(600.0), None), &Recoveries::IGNORE, 1);
        assert!(!course.has_ended && course.faults == 1);
        let course = run(&JOB, &nodes(every(60.0), None), &Recoveries::RESTART, 1);
        assert!(!course.has_ended && course.time_s > JOB.limit_s, "{course:?}");
    }

    #[test]
    fn ranks_leave_nodes_whose_processes_die_again_and_again() {
        let within = Duration::from_secs(36_000);
        let repeated = Some(Repeated { faults: 1, within, recovery: Recovery::Migrate.into() });
        let choice = Recoveries { repeated, ..Recoveries::MIGRATE };
        let mut shorter = 0;
        for seed in 0..50 {
            let without = run(&JOB, &nodes(every(1800.0), None), &Recoveries::MIGRATE, seed);
            let with = run(&JOB, &nodes(every(1800.0), None), &choice, seed);
            assert_eq!(with, run(&JOB, &nodes(every(1800.0), None), &choice, seed), "the same seed");
            assert!(with.migrations > 0 && without.migrations == 0);
            // Each bad node is left once for each rank there, and not filled again.
            assert!(with.migrations <= JOB.ranks + 5, "{with:?}");
            shorter += u32::from(with.time_s < without.time_s);
        }
        assert!(shorter > 45, "{shorter} of 50");
    }

    #[test]
    fn ranks_leave_a_domain_of_which_enough_is_lost() {
        let network = Some(Network { share_percent: 20, recovery: Recovery::Migrate.into() });
        let choice = Recoveries { network, ..Recoveries::MIGRATE };
        let nodes = Nodes { bad: 16, good: 4, ..nodes(None, every(1800.0)) };
        let migrations = |choice: &Recoveries| -> u32 {
            (0..50).map(|seed| run(&JOB, &nodes, choice, seed).migrations).sum()
        };
        assert!(migrations(&choice) < migrations(&Recoveries::MIGRATE));
    }
}
