//! What a program is like: its candidate points, with the bytes that are live there.
//!
//! Loops stay loops: a [`Section`] is a body of points that the program passes any number of times. Candidate
//! points are numbered as if all loops were unrolled.

use alloc::{collections::BTreeSet, string::String, vec::Vec};

use serde::{Deserialize, Serialize};

/// Candidate points that a profile has at most, with its loops unrolled.
pub const POINTS_MOST: u64 = 100_000_000;
/// Longest run of a program: 100 years.
pub const RUN_NS_MOST: u64 = 100 * 365 * 24 * 3600 * 1_000_000_000;
/// Most live bytes of a point on either side: 1 EiB.
pub const BYTES_MOST: u64 = 1 << 60;

/// A place in a program at which a checkpoint may be taken, such as between two kernels of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// How the program calls it. Points of one name are passes of the same place of the program.
    pub name: String,
    /// When a pass reaches it, from the beginning of the pass, without checkpoints.
    pub at_ns: u64,
    /// Live bytes in the host's memory.
    pub host_bytes: u64,
    /// Live bytes in the device's memory.
    pub device_bytes: u64,
}

/// A body of points, and how often the program passes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// What the section is.
    pub name: String,
    /// Number of passes.
    pub times: u64,
    /// How long one pass takes, without checkpoints.
    pub lasts_ns: u64,
    /// The points of the body, by time.
    pub points: Vec<Point>,
}

/// What a program is like. Its sections follow one another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    sections: Vec<Section>,
    /// Number of candidate points and time before each section, and of all together in the end.
    before: Vec<Before>,
}

/// What lies before a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Before {
    points: u64,
    run_ns: u64,
}

/// A candidate point: one pass of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit<'a> {
    /// Which point.
    pub point: &'a Point,
    /// In which section.
    pub section: &'a Section,
    /// In which pass, from 0.
    pub pass: u64,
    /// When the program reaches it, without checkpoints.
    pub at_ns: u64,
}

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// There is nothing to choose from.
    #[error("the profile has no points; name at least one place where a checkpoint may be taken")]
    NoPoints,
    /// A section without passes or time.
    #[error("section {section:?} takes no time; `times` and `lasts` have to be greater than 0")]
    NoTime {
        /// The section.
        section: String,
    },
    /// A point comes before the one that is written above it.
    #[error(
        "section {section:?}: point {point:?} is reached before the point above it; order points by time"
    )]
    Unsorted {
        /// The section.
        section: String,
        /// The point.
        point: String,
    },
    /// A point is reached after its pass has ended.
    #[error("section {section:?}: point {point:?} is reached after the pass has ended; make `lasts` longer")]
    AfterEnd {
        /// The section.
        section: String,
        /// The point.
        point: String,
    },
    /// More bytes than any memory has.
    #[error("point {point:?} has more than 1 EiB of live bytes")]
    TooManyBytes {
        /// The point.
        point: String,
    },
    /// Too long, or too many points.
    #[error(
        "section {section:?}: a profile has at most {POINTS_MOST} points with its loops unrolled, and takes at most 100 years"
    )]
    TooLong {
        /// The section with which it becomes too long.
        section: String,
    },
}

impl Section {
    fn check(&self) -> Result<(), ProfileError> {
        let (section, point) = (|| self.name.clone(), |point: &Point| point.name.clone());
        if self.times == 0 || self.lasts_ns == 0 {
            return Err(ProfileError::NoTime { section: section() });
        }
        let mut last_ns = 0;
        for each in &self.points {
            if each.at_ns < last_ns {
                return Err(ProfileError::Unsorted { section: section(), point: point(each) });
            }
            if each.at_ns > self.lasts_ns {
                return Err(ProfileError::AfterEnd { section: section(), point: point(each) });
            }
            if each.host_bytes.max(each.device_bytes) > BYTES_MOST {
                return Err(ProfileError::TooManyBytes { point: point(each) });
            }
            last_ns = each.at_ns;
        }
        Ok(())
    }
}

impl Profile {
    /// Puts sections one after the other.
    ///
    /// # Errors
    /// A [`ProfileError`] that names the section and the point.
    pub fn new(sections: Vec<Section>) -> Result<Self, ProfileError> {
        let mut before = Vec::with_capacity(sections.len() + 1);
        let mut sum = Before::default();
        for section in &sections {
            section.check()?;
            before.push(sum);
            let too_long = || ProfileError::TooLong { section: section.name.clone() };
            sum = sum.and(section).ok_or_else(too_long)?;
        }
        before.push(sum);
        if sum.points == 0 {
            return Err(ProfileError::NoPoints);
        }
        Ok(Self { sections, before })
    }

    /// The sections, in order.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The names of its points, each once.
    pub fn names(&self) -> Vec<String> {
        let names: BTreeSet<&String> =
            self.sections.iter().flat_map(|section| &section.points).map(|point| &point.name).collect();
        names.into_iter().cloned().collect()
    }

    /// How long the program runs without checkpoints.
    pub fn run_ns(&self) -> u64 {
        self.end().run_ns
    }

    /// Number of candidate points.
    pub fn len(&self) -> usize {
        self.end().points as usize
    }

    /// Never: a profile has points.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The candidate point with this number.
    ///
    /// # Panics
    /// There are not so many.
    pub fn visit(&self, number: usize) -> Visit<'_> {
        let number = number as u64;
        assert!(number < self.end().points, "candidate point {number} of {}", self.len());
        let index = self.before.partition_point(|before| before.points <= number) - 1;
        let (section, before) = (&self.sections[index], self.before[index]);
        let each = section.points.len() as u64;
        let pass = (number - before.points) / each;
        let point = &section.points[((number - before.points) % each) as usize];
        Visit { point, section, pass, at_ns: before.run_ns + pass * section.lasts_ns + point.at_ns }
    }

    /// How often the program has passed a point of the same name before candidate point `number`: that is how
    /// it tells its passes apart.
    ///
    /// # Panics
    /// There are not so many candidate points.
    pub fn passed_before(&self, number: usize) -> u64 {
        let visit = self.visit(number);
        let of_name =
            |points: &[Point]| points.iter().filter(|point| point.name == visit.point.name).count() as u64;
        let earlier = self.sections.iter().take_while(|section| !core::ptr::eq(*section, visit.section));
        let before: u64 = earlier.map(|section| section.times * of_name(&section.points)).sum();
        let body = &visit.section.points;
        let above = body.iter().take_while(|point| !core::ptr::eq(*point, visit.point));
        let in_pass = above.filter(|point| point.name == visit.point.name).count() as u64;
        before + visit.pass * of_name(body) + in_pass
    }

    /// All candidate points, in order.
    pub fn visits(&self) -> impl Iterator<Item = Visit<'_>> {
        self.sections.iter().zip(&self.before).flat_map(|(section, before)| {
            (0..section.times).flat_map(move |pass| {
                let begin_ns = before.run_ns + pass * section.lasts_ns;
                let visit =
                    move |point| Visit { point, section, pass, at_ns: begin_ns + Point::at_ns(point) };
                section.points.iter().map(visit)
            })
        })
    }

    fn end(&self) -> Before {
        self.before.last().copied().unwrap_or_default()
    }
}

impl Point {
    fn at_ns(&self) -> u64 {
        self.at_ns
    }
}

impl Before {
    /// What lies before the section that follows `section`.
    fn and(self, section: &Section) -> Option<Self> {
        let points = (section.points.len() as u64).checked_mul(section.times)?.checked_add(self.points)?;
        let run_ns = section.lasts_ns.checked_mul(section.times)?.checked_add(self.run_ns)?;
        (points <= POINTS_MOST && run_ns <= RUN_NS_MOST).then_some(Self { points, run_ns })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn point(name: &str, at_ns: u64) -> Point {
        Point { name: name.to_string(), at_ns, host_bytes: 1, device_bytes: 2 }
    }

    fn section(name: &str, times: u64, lasts_ns: u64, points: Vec<Point>) -> Section {
        Section { name: name.to_string(), times, lasts_ns, points }
    }

    #[test]
    fn loops_are_numbered_as_if_they_were_unrolled() {
        let sections = vec![
            section("begin", 1, 5, vec![point("a", 5)]),
            section("quiet", 2, 10, vec![]),
            section("loop", 3, 4, vec![point("b", 0), point("c", 3)]),
        ];
        let profile = Profile::new(sections).unwrap();
        let told: Vec<_> = profile.visits().map(|v| (v.point.name.as_str(), v.pass, v.at_ns)).collect();
        let expected =
            [("a", 0, 5), ("b", 0, 25), ("c", 0, 28), ("b", 1, 29), ("c", 1, 32), ("b", 2, 33), ("c", 2, 36)];
        assert_eq!(told, expected);
        assert_eq!((profile.len(), profile.run_ns()), (7, 37));
        for (number, visit) in profile.visits().enumerate() {
            assert_eq!(profile.visit(number), visit);
        }
    }

    #[test]
    fn points_of_one_name_are_passes_of_one_place() {
        let sections = vec![
            section("first", 1, 5, vec![point("a", 1), point("b", 2)]),
            section("loop", 2, 5, vec![point("b", 1), point("a", 2), point("b", 3)]),
        ];
        let profile = Profile::new(sections).unwrap();
        let mut passed = std::collections::BTreeMap::<&str, u64>::new();
        for (number, visit) in profile.visits().enumerate() {
            let before = passed.entry(&visit.point.name).or_default();
            assert_eq!(profile.passed_before(number), *before);
            *before += 1;
        }
        assert_eq!(passed.into_iter().collect::<Vec<_>>(), [("a", 3), ("b", 5)]);
    }

    #[test]
    fn what_makes_no_sense_is_told_with_section_and_point() {
        let bad = |section| Profile::new(vec![section]).unwrap_err().to_string();
        for (section, words) in [
            (section("s", 1, 9, vec![]), "no points"),
            (section("s", 0, 9, vec![point("a", 1)]), "\"s\" takes no time"),
            (section("s", 1, 0, vec![point("a", 0)]), "\"s\" takes no time"),
            (section("s", 1, 9, vec![point("a", 5), point("b", 4)]), "\"b\" is reached before"),
            (section("s", 1, 9, vec![point("a", 10)]), "\"a\" is reached after"),
            (section("s", u64::MAX, 9, vec![point("a", 1)]), "at most"),
            (section("s", 1, u64::MAX, vec![point("a", 1)]), "100 years"),
        ] {
            let told = bad(section);
            assert!(told.contains(words), "{told}");
        }
        assert!(Profile::new(vec![]).is_err());
    }
}
