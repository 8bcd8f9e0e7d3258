//! What happened in one reduction, as a picture: who folded what, when, and how much was in it then; who
//! died, and whose copies took the place of what was lost.
//!
//! ```no_run
//! # async fn example(session: everfold::Session, mine: everfold::Sum<Vec<f64>>) -> everfold::Result<()> {
//! use everfold_timeline::Timeline;
//!
//! let outcome = session.reduce("sum", mine).trace().await?;
//! if outcome.value.is_some() {
//!     Timeline::new("my sum", session.size(), &outcome.report).write("sum.svg".as_ref())?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `lanes` | places for tasks that one rank did at the same time, and for labels |
//! | `axis` | where the marks of a time axis stand |
//! | `svg` | shapes and text |
//! | `picture` | what is drawn where |

mod axis;
mod lanes;
mod picture;
mod svg;

use std::{collections::BTreeMap, io, path::Path as FilePath, time::Duration};

use everfold::{FailureRecord, Path, Rank, Report, TaskRecord};
use serde::{Deserialize, Serialize};

/// What happened in one reduction, ready to be drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    title: String,
    summary: String,
    ranks: u32,
    arrivals: Vec<Arrival>,
    missing: Path,
    bars: Vec<Bar>,
    deaths: Vec<Death>,
}

/// A contribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Arrival {
    rank: u32,
    at_ms: f64,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Bar {
    rank: u32,
    start_ms: f64,
    end_ms: f64,
    /// Ranks in the executor's partial after the task.
    held: usize,
    /// Whether it folded copies that had taken the place of what was lost.
    repairs: bool,
    /// What it did, for people who point at it.
    words: String,
}

/// A process died.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Death {
    rank: u32,
    at_ms: f64,
    /// What spoke for it.
    why: String,
    /// By their holder, the paths of the copies that took the place of what was lost.
    copies: BTreeMap<u32, Vec<Copied>>,
}

/// Copies of one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Copied {
    path: Path,
    segments: usize,
}

impl Timeline {
    /// What `report` tells about a reduction in a job of `ranks`. It needs a trace: see
    /// [`Reduction::trace`](everfold::Reduction::trace).
    pub fn new(title: impl Into<String>, ranks: u32, report: &Report) -> Self {
        let arrivals = report.arrivals.iter().map(|(rank, at)| Arrival { rank: rank.0, at_ms: ms(*at) });
        Self {
            title: title.into(),
            summary: report.to_string(),
            ranks,
            arrivals: arrivals.collect(),
            missing: report.missing.clone(),
            bars: report.trace.iter().map(|task| Bar::new(task, &report.failures)).collect(),
            deaths: report.failures.iter().map(Death::new).collect(),
        }
    }

    /// The picture, as SVG. A reader who points at a task in it is told what the task did.
    pub fn svg(&self) -> String {
        picture::draw(self)
    }

    /// Writes the picture to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &FilePath) -> io::Result<()> {
        std::fs::write(file, self.svg())
    }
}

impl Bar {
    fn new(task: &TaskRecord, failures: &[FailureRecord]) -> Self {
        let TaskRecord { executor, segment, own, sources, start, end, .. } = task;
        let read: Vec<String> = sources.iter().map(|(rank, path)| format!("{path} of rank {rank}")).collect();
        let taken = || sources.iter().map(|(rank, path)| (*rank, path)).chain([(*executor, own)]);
        let is_copy = |(rank, path): (Rank, &Path)| {
            let before = failures.iter().filter(|failure| failure.at <= *end);
            let mut restored = before.flat_map(|failure| &failure.restored);
            restored.any(|restored| {
                restored.segment == *segment
                    && restored.copies.iter().any(|(holder, copy)| (*holder, copy) == (rank, path))
            })
        };
        Self {
            rank: executor.0,
            start_ms: ms(*start),
            end_ms: ms(*end),
            held: taken().map(|(_, path)| path.len()).sum(),
            repairs: taken().any(is_copy),
            words: format!(
                "segment {segment}: rank {executor} folds {} into {own}, {:.2} to {:.2} ms",
                read.join(", "),
                ms(*start),
                ms(*end)
            ),
        }
    }
}

impl Death {
    fn new(failure: &FailureRecord) -> Self {
        let mut copies: BTreeMap<u32, Vec<Copied>> = BTreeMap::new();
        for (holder, path) in failure.restored.iter().flat_map(|restored| &restored.copies) {
            let of_holder = copies.entry(holder.0).or_default();
            match of_holder.iter_mut().find(|copied| copied.path == *path) {
                Some(copied) => copied.segments += 1,
                None => of_holder.push(Copied { path: path.clone(), segments: 1 }),
            }
        }
        let why = failure.evidence.to_string();
        Self { rank: failure.rank.0, at_ms: ms(failure.at), why, copies }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{SegmentIndex, evidence::Evidence, message::ByteRange, report::Restored};

    use super::*;

    fn path<const N: usize>(ranks: [u32; N]) -> Path {
        ranks.into_iter().map(Rank).collect()
    }

    fn task(executor: u32, segment: u32, own: Path, source: (u32, Path), end_ms: u64) -> TaskRecord {
        TaskRecord {
            executor: Rank(executor),
            segment: SegmentIndex(segment),
            range: ByteRange { start: 0, len: 8 },
            own,
            sources: vec![(Rank(source.0), source.1)],
            start: Duration::from_millis(end_ms - 1),
            end: Duration::from_millis(end_ms),
        }
    }

    /// Rank 2 dies after 5 ms with the only partial {1-2} of both segments.
    fn report() -> Report {
        let copies = vec![(Rank(1), path([1])), (Rank(2), path([2]))];
        let restored =
            |segment| Restored { segment: SegmentIndex(segment), path: path([1, 2]), copies: copies.clone() };
        let at = Duration::from_millis(5);
        Report {
            contributors: path([0, 1, 2]),
            survived: path([2]),
            arrivals: vec![(Rank(0), Duration::ZERO), (Rank(1), Duration::ZERO), (Rank(2), Duration::ZERO)],
            trace: vec![
                task(2, 0, path([2]), (1, path([1])), 2),
                task(0, 0, path([0]), (1, path([1])), 8),
                task(0, 0, path([0, 1]), (2, path([2])), 9),
                task(0, 7, path([0]), (1, path([1])), 9),
            ],
            failures: vec![FailureRecord {
                rank: Rank(2),
                at,
                evidence: Evidence::HostLost,
                restored: vec![restored(0), restored(1)],
            }],
            ..Report::default()
        }
    }

    #[test]
    fn tasks_with_copies_are_told_from_others() {
        let timeline = Timeline::new("", 3, &report());
        let repairs = timeline.bars.iter().map(|bar| (bar.held, bar.repairs));
        assert_eq!(Vec::from_iter(repairs), [(2, false), (2, true), (3, true), (2, false)]);
    }

    #[test]
    fn copies_are_counted_by_their_holders() {
        let timeline = Timeline::new("", 3, &report());
        let copied = |path| vec![Copied { path, segments: 2 }];
        let copies = BTreeMap::from([(1, copied(path([1]))), (2, copied(path([2])))]);
        assert_eq!(
            timeline.deaths,
            [Death { rank: 2, at_ms: 5.0, why: "its host is lost".to_owned(), copies }]
        );
    }

    #[test]
    fn the_picture_names_the_dead_and_the_copies() {
        let svg = Timeline::new("a < b", 3, &report()).svg();
        for text in [
            "a &lt; b",
            "rank 2 is dead, 5.0 ms",
            "{1} × 2",
            "{2} × 2",
            "rank 0 folds {1} of rank 1 into {0}",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        let calm = Timeline::new("", 3, &Report { failures: Vec::new(), ..report() }).svg();
        assert!(!calm.contains("dead,") && !calm.contains("copy of"));
    }
}
