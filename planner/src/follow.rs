//! Following a plan: at which of its points a running program takes a checkpoint.
//!
//! The program says which point it reaches. A point is told from other passes of it by how often the program
//! has passed it before, so the only thing to remember over a restart is [how often](Passed).
//!
//! An asynchronous plan has points for host and device. A process goes on from one point, so the program takes a
//! whole checkpoint at the points of either, and writes it while host and device go on.
//!
//! # Invariants
//! - A checkpoint is taken at each stop of the plan, and nowhere else, as long as the plan fits.
//! - Where a plan stops fitting depends on the plan and on the points that were reached, and on nothing else.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use crate::{
    course::Course,
    leveled::{Depth, LeveledPlan},
    machine::Part,
    plan::{Placement, Plan, Track},
};

/// How often a program has passed each of its points.
pub type Passed = BTreeMap<String, u64>;

/// How a checkpoint is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Save {
    /// The program waits until it is written.
    Waiting,
    /// The program waits until it is copied.
    Behind,
    /// The program waits until it is written, so deep and no deeper.
    UpTo(Depth),
}

/// A plan, and how far a program is in it.
#[derive(Clone, Debug)]
pub struct Follower {
    /// The points that the plan knows; empty if it does not say.
    points: Vec<String>,
    /// Where checkpoints are taken: one list, or one for the host and one for the device.
    courses: Vec<Course>,
    passed: Passed,
}

/// Why a plan cannot be followed by any program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfollowable {
    /// Its lists are not those of its placement.
    #[error(
        "a synchronous plan has one list of checkpoints, of the part whole; an asynchronous one has those of host and device"
    )]
    Parts,
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
    /// It has a level that running programs do not have.
    #[error(
        "no running program has a level {level:?}; call the profile's levels {}, lowest first",
        Depth::NAMES
    )]
    Level {
        /// What it is called.
        level: String,
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
        let save = match (plan.placement, plan.tracks.as_slice()) {
            (_, []) => return Err(Unfollowable::Empty),
            (Placement::Synchronous, [Track { part: Part::Whole, .. }]) => Save::Waiting,
            (Placement::Asynchronous, [Track { part: Part::Host, .. }, Track { part: Part::Device, .. }]) => {
                Save::Behind
            }
            _ => return Err(Unfollowable::Parts),
        };
        let stops =
            |track: &Track| track.stops.iter().map(|stop| (stop.point.clone(), stop.pass, save)).collect();
        let courses = plan.tracks.iter().map(|track| Course::new(stops(track))).collect::<Result<_, _>>()?;
        Self::along(&plan.points, courses)
    }

    /// Begins to follow a plan with levels.
    ///
    /// # Errors
    /// No program can follow it.
    pub fn leveled(plan: &LeveledPlan) -> Result<Self, Unfollowable> {
        let stops = plan.stops.iter().map(|stop| {
            let level = || Unfollowable::Level { level: stop.level.clone() };
            let depth = Depth::of_level(&stop.level).ok_or_else(level)?;
            Ok((stop.point.clone(), stop.pass, Save::UpTo(depth)))
        });
        let course = Course::new(stops.collect::<Result<_, _>>()?)?;
        Self::along(&plan.points, [course].into())
    }

    fn along(points: &[String], courses: Vec<Course>) -> Result<Self, Unfollowable> {
        if courses.iter().all(Course::is_empty) {
            return Err(Unfollowable::Empty);
        }
        Ok(Self { points: points.to_vec(), courses, passed: Passed::new() })
    }

    /// How deep its deepest checkpoint goes, if the plan has levels.
    pub fn deepest(&self) -> Option<Depth> {
        let depth = |save| if let Save::UpTo(depth) = save { Some(depth) } else { None };
        self.courses.iter().flat_map(Course::saves).filter_map(depth).max()
    }

    /// Goes on where a checkpoint was taken.
    pub fn go_on(&mut self, passed: Passed) {
        self.courses.iter_mut().for_each(|course| course.go_on(&passed));
        self.passed = passed;
    }

    /// How often each point was passed.
    pub fn passed(&self) -> &Passed {
        &self.passed
    }

    /// The program reaches a point. Says how it takes a checkpoint there, if it does.
    ///
    /// # Errors
    /// The plan does not fit.
    pub fn reach(&mut self, point: &str) -> Result<Option<Save>, Misfit> {
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
        let mut save = None;
        // Of host and device, both may have one here.
        for course in &mut self.courses {
            save = course.reach(point, times)?.or(save);
        }
        Ok(save)
    }

    /// The program has ended.
    ///
    /// # Errors
    /// The plan does not fit: it has further checkpoints.
    pub fn end(&self) -> Result<(), Misfit> {
        let left = self.courses.iter().filter_map(Course::left).next();
        match left {
            None => Ok(()),
            Some((point, pass, _)) => {
                let left = self.courses.iter().filter_map(Course::left).map(|(_, _, left)| left).sum();
                Err(Misfit::Left { point: point.into(), pass, left })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        leveled::LeveledStop,
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
        (0..points.len()).filter(|&number| follower.reach(points[number]).unwrap().is_some()).collect()
    }

    #[test]
    fn checkpoints_are_taken_at_the_points_of_the_plan_and_nowhere_else() {
        let plan = plan(Placement::Synchronous);
        let (mut follower, program) = (Follower::new(&plan).unwrap(), program());
        let taken: Vec<u64> = saved(&mut follower, &program).into_iter().map(at_ns).collect();
        let planned: Vec<u64> = plan.tracks[0].stops.iter().map(|stop| stop.at_ns).collect();
        assert_eq!(taken, planned);
        assert_eq!(follower.end(), Ok(()));
    }

    /// When the program of that profile is at its point with this number.
    fn at_ns(number: usize) -> u64 {
        (number as u64 / 3 * 4 + number as u64 % 3 + 1) * SECOND
    }

    #[test]
    fn an_asynchronous_plan_saves_at_the_points_of_the_host_and_at_those_of_the_device() {
        let mut plan = plan(Placement::Asynchronous);
        // Two lists that differ, and have points in common.
        plan.tracks[0].stops.pop();
        plan.tracks[1].stops.remove(0);
        let stops: usize = plan.tracks.iter().map(|track| track.stops.len()).sum();
        let (mut follower, program) = (Follower::new(&plan).unwrap(), program());
        let taken: Vec<_> = program.iter().map(|point| follower.reach(point).unwrap()).collect();
        let mut planned: Vec<u64> =
            plan.tracks.iter().flat_map(|track| &track.stops).map(|stop| stop.at_ns).collect();
        planned.sort_unstable();
        planned.dedup();
        assert!(planned.len() < stops, "at some points there are both");
        let saved: Vec<u64> = (0..taken.len()).filter(|&at| taken[at].is_some()).map(at_ns).collect();
        assert_eq!(saved, planned);
        assert!(taken.into_iter().flatten().all(|save| save == Save::Behind));
        assert_eq!(follower.end(), Ok(()));
    }

    fn leveled(stops: &[(&str, u64, &str)]) -> Result<Follower, Unfollowable> {
        let stop = |&(point, pass, level): &(&str, u64, &str)| LeveledStop {
            point: point.to_owned(),
            pass,
            at_ns: 0,
            level: level.to_owned(),
            write_ns: 0,
        };
        let stops = stops.iter().map(stop).collect();
        let plan = LeveledPlan { title: String::new(), run_ns: 9, expected_s: 9.0, points: vec![], stops };
        Follower::leveled(&plan)
    }

    #[test]
    fn a_plan_with_levels_says_how_deep_each_checkpoint_goes() {
        let mut follower =
            leveled(&[("a", 0, "region"), ("b", 1, "disk"), ("a", 2, "replica"), ("a", 3, "memory")])
                .unwrap();
        assert_eq!(follower.deepest(), Some(Depth::Directory));
        let taken: Vec<_> = ["a", "b", "b", "a", "a", "a"].map(|point| follower.reach(point).unwrap()).into();
        let up_to = |depth| Some(Save::UpTo(depth));
        let expected = [
            up_to(Depth::Memory),
            None,
            up_to(Depth::Directory),
            None,
            up_to(Depth::Replica),
            up_to(Depth::Memory),
        ];
        assert_eq!(taken, expected);
        let told = leveled(&[("a", 0, "tape")]).unwrap_err();
        assert_eq!(told, Unfollowable::Level { level: "tape".to_owned() });
        assert!(told.to_string().contains("disk or directory"), "{told}");
        assert_eq!(leveled(&[]).unwrap_err(), Unfollowable::Empty);
        assert!(Follower::new(&plan(Placement::Synchronous)).unwrap().deepest().is_none());
    }

    #[test]
    fn a_program_that_comes_back_goes_on_in_the_middle_of_the_plan() {
        for placement in [Placement::Synchronous, Placement::Asynchronous] {
            comes_back(&plan(placement), &program());
        }
    }

    fn comes_back(plan: &Plan, program: &[&str]) {
        let all = saved(&mut Follower::new(plan).unwrap(), program);
        for death in 0..program.len() {
            let mut follower = Follower::new(plan).unwrap();
            let (mut taken, mut checkpoint) = (vec![], (0, Passed::new()));
            for (number, point) in program[..death].iter().enumerate() {
                if follower.reach(point).unwrap().is_some() {
                    taken.push(number);
                    checkpoint = (number + 1, follower.passed().clone());
                }
            }
            let (from, passed) = checkpoint;
            let mut later = Follower::new(plan).unwrap();
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
        for (placement, other) in [
            (Placement::Synchronous, Placement::Asynchronous),
            (Placement::Asynchronous, Placement::Synchronous),
        ] {
            let parts = Plan { placement: other, ..plan(placement) };
            assert_eq!(new(&parts), Err(Unfollowable::Parts));
        }
        let mut nothing = plan(Placement::Synchronous);
        nothing.tracks[0].stops.clear();
        assert_eq!(new(&nothing), Err(Unfollowable::Empty));
        let mut twice = plan(Placement::Synchronous);
        let stop = twice.tracks[0].stops[0].clone();
        twice.tracks[0].stops.push(stop);
        assert!(matches!(new(&twice), Err(Unfollowable::Twice { .. })));
    }
}
