//! Following a plan: at which of its points a running program takes a checkpoint.
//!
//! The program says which point it reaches. A point is told from other passes of it by how often the program
//! has passed it before, so the only thing to remember over a restart is [how often](Passed).
//!
//! # Invariants
//! - A checkpoint is taken at each stop of the plan, and nowhere else, as long as the plan fits.
//! - Where a plan stops fitting depends on the plan and on the points that were reached, and on nothing else.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use crate::{
    machine::Part,
    plan::{Placement, Plan},
};

/// How often a program has passed each of its points.
pub type Passed = BTreeMap<String, u64>;

/// A plan, and how far a program is in it.
#[derive(Clone, Debug)]
pub struct Follower {
    /// The points that the plan knows; empty if it does not say.
    points: Vec<String>,
    /// Where checkpoints are taken, in order: a point, and how often it was passed before.
    stops: Vec<(String, u64)>,
    /// Which stop is which.
    index: BTreeMap<String, BTreeMap<u64, usize>>,
    passed: Passed,
    /// The first stop that was not reached.
    next: usize,
}

/// Why a plan cannot be followed by any program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfollowable {
    /// It saves host and device at different points.
    #[error(
        "it saves host and device at different points, and a program goes on from one point: make it with --sync. To write \
         while the device computes, see Checkpoint::start"
    )]
    Asynchronous,
    /// It has no checkpoints.
    #[error("it has no checkpoints")]
    Empty,
    /// A checkpoint is there twice.
    #[error("point {point:?} is there twice in pass {pass}")]
    Twice {
        /// The point.
        point: String,
        /// How often the program has passed it before.
        pass: u64,
    },
}

/// How a plan does not fit the program that follows it. Passes count from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The plan was made for a program without this point.
    #[error("the program reaches point {point:?}, which the plan does not know")]
    Unknown {
        /// The point.
        point: String,
    },
    /// The program has come to a later checkpoint first.
    #[error("pass {pass} of point {point:?} should have come before pass {met_pass} of point {met:?}")]
    Missed {
        /// The point that has not come.
        point: String,
        /// How often it was to be passed before.
        pass: u64,
        /// The point that has come.
        met: String,
        /// How often it was passed before.
        met_pass: u64,
    },
    /// The program has ended before.
    #[error(
        "the program has ended before pass {pass} of point {point:?}; {left} checkpoints of the plan are left"
    )]
    Left {
        /// The point that has not come.
        point: String,
        /// How often it was to be passed before.
        pass: u64,
        /// Number of checkpoints that were not reached.
        left: u64,
    },
}

impl Follower {
    /// Begins to follow `plan`.
    ///
    /// # Errors
    /// No program can follow it.
    pub fn new(plan: &Plan) -> Result<Self, Unfollowable> {
        let whole = match (plan.placement, plan.tracks.as_slice()) {
            (Placement::Synchronous, [track]) if track.part == Part::Whole => track,
            (Placement::Synchronous, []) => return Err(Unfollowable::Empty),
            _ => return Err(Unfollowable::Asynchronous),
        };
        let stops: Vec<_> = whole.stops.iter().map(|stop| (stop.point.clone(), stop.pass)).collect();
        if stops.is_empty() {
            return Err(Unfollowable::Empty);
        }
        let mut index = BTreeMap::<String, BTreeMap<u64, usize>>::new();
        for (number, (point, pass)) in stops.iter().enumerate() {
            if index.entry(point.clone()).or_default().insert(*pass, number).is_some() {
                return Err(Unfollowable::Twice { point: point.clone(), pass: *pass });
            }
        }
        Ok(Self { points: plan.points.clone(), stops, index, passed: Passed::new(), next: 0 })
    }

    /// Goes on where a checkpoint was taken.
    pub fn go_on(&mut self, passed: Passed) {
        let is_over = |(point, pass): &(String, u64)| passed.get(point).is_some_and(|times| times > pass);
        self.next = self.stops.iter().take_while(|stop| is_over(stop)).count();
        self.passed = passed;
    }

    /// How often each point was passed.
    pub fn passed(&self) -> &Passed {
        &self.passed
    }

    /// The program reaches a point. Says whether it takes a checkpoint there.
    ///
    /// # Errors
    /// The plan does not fit.
    pub fn reach(&mut self, point: &str) -> Result<bool, Misfit> {
        let times = match self.passed.get_mut(point) {
            Some(times) => {
                *times += 1;
                *times - 1
            }
            None => {
                self.passed.insert(point.into(), 1);
                0
            }
        };
        if !self.points.is_empty() && !self.points.iter().any(|known| known == point) {
            return Err(Misfit::Unknown { point: point.into() });
        }
        match self.index.get(point).and_then(|passes| passes.get(&times)) {
            None => Ok(false),
            Some(&stop) if stop == self.next => {
                self.next += 1;
                Ok(true)
            }
            Some(_) => {
                let (point_missed, pass) = self.stops[self.next].clone();
                Err(Misfit::Missed { point: point_missed, pass, met: point.into(), met_pass: times })
            }
        }
    }

    /// The program has ended.
    ///
    /// # Errors
    /// The plan does not fit: it has further checkpoints.
    pub fn end(&self) -> Result<(), Misfit> {
        match self.stops.get(self.next) {
            None => Ok(()),
            Some((point, pass)) => {
                let left = (self.stops.len() - self.next) as u64;
                Err(Misfit::Left { point: point.clone(), pass: *pass, left })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        machine::Machine,
        plan::{Planner, Rule, Wish},
        profile::{Point, Profile, Section},
    };

    const SECOND: u64 = 1_000_000_000;

    fn plan(placement: Placement) -> Plan {
        let point = |name: &str, at_s: u64| Point {
            name: name.to_owned(),
            at_ns: at_s * SECOND,
            host_bytes: 1,
            device_bytes: 1,
        };
        let points = vec![point("a", 1), point("b", 2), point("b", 3)];
        let section = Section { name: "loop".to_owned(), times: 8, lasts_ns: 4 * SECOND, points };
        let machine = Machine {
            storage_bytes_per_s: 100.0,
            bus_bytes_per_s: 100.0,
            mtbf_host_s: 100.0,
            mtbf_device_s: 100.0,
            restart_s: 0.0,
            reread: 1.0,
        };
        let profile = Profile::new(vec![section]).unwrap();
        let wish = Wish { placement, rule: Rule::Every, apart_ns: Some(7 * SECOND), offset_ns: 0 };
        Planner::new(&profile, &machine).unwrap().place(&wish).unwrap()
    }

    /// What the program of that profile does, up to some points before its end.
    fn program() -> Vec<&'static str> {
        (0..8).flat_map(|_| ["a", "b", "b"]).collect()
    }

    fn saved(follower: &mut Follower, points: &[&str]) -> Vec<usize> {
        (0..points.len()).filter(|&number| follower.reach(points[number]).unwrap()).collect()
    }

    #[test]
    fn checkpoints_are_taken_at_the_points_of_the_plan_and_nowhere_else() {
        let plan = plan(Placement::Synchronous);
        let (mut follower, program) = (Follower::new(&plan).unwrap(), program());
        let at_ns = |number: usize| (number as u64 / 3 * 4 + number as u64 % 3 + 1) * SECOND;
        let taken: Vec<u64> = saved(&mut follower, &program).into_iter().map(at_ns).collect();
        let planned: Vec<u64> = plan.tracks[0].stops.iter().map(|stop| stop.at_ns).collect();
        assert_eq!(taken, planned);
        assert_eq!(follower.end(), Ok(()));
    }

    #[test]
    fn a_program_that_comes_back_goes_on_in_the_middle_of_the_plan() {
        let (plan, program) = (plan(Placement::Synchronous), program());
        let all = saved(&mut Follower::new(&plan).unwrap(), &program);
        for death in 0..program.len() {
            let mut follower = Follower::new(&plan).unwrap();
            let (mut taken, mut checkpoint) = (vec![], (0, Passed::new()));
            for (number, point) in program[..death].iter().enumerate() {
                if follower.reach(point).unwrap() {
                    taken.push(number);
                    checkpoint = (number + 1, follower.passed().clone());
                }
            }
            let (from, passed) = checkpoint;
            let mut later = Follower::new(&plan).unwrap();
            later.go_on(passed);
            taken.extend(saved(&mut later, &program[from..]).into_iter().map(|number| number + from));
            assert_eq!(taken, all);
            assert_eq!(later.end(), Ok(()));
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let plan = plan(Placement::Synchronous);
        let begin = || Follower::new(&plan).unwrap();
        assert_eq!(begin().reach("c"), Err(Misfit::Unknown { point: "c".to_owned() }));
        let told = begin().end().unwrap_err().to_string();
        assert!(told.contains("4 checkpoints of the plan are left"), "{told}");
        // It never comes to a point of the first stop.
        let first = plan.tracks[0].stops[0].point.as_str();
        let other = program().into_iter().filter(|point| *point != first);
        let mut follower = begin();
        let missed = other.map(|point| follower.reach(point)).find_map(Result::err).unwrap();
        assert!(matches!(&missed, Misfit::Missed { point, .. } if point == first), "{missed}");
    }

    #[test]
    fn what_nobody_can_follow_is_refused() {
        let new = |plan: &Plan| Follower::new(plan).map(drop);
        assert_eq!(new(&plan(Placement::Asynchronous)), Err(Unfollowable::Asynchronous));
        let mut nothing = plan(Placement::Synchronous);
        nothing.tracks[0].stops.clear();
        assert_eq!(new(&nothing), Err(Unfollowable::Empty));
        let mut twice = plan(Placement::Synchronous);
        let stop = twice.tracks[0].stops[0].clone();
        twice.tracks[0].stops.push(stop);
        assert!(matches!(new(&twice), Err(Unfollowable::Twice { .. })));
    }
}
