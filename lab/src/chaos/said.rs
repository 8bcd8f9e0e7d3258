//! What a rank of the built-in program tells, as lines of JSON on its stdout.

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// All ranks have joined and filled their bodies, and this one is about to call the reduction.
    Go {
        /// When, by [`now_ns`](crate::clock::now_ns).
        at_ns: u64,
    },
    /// This rank has called its first reduction: its contribution is on its way, and it may compute on.
    Called {
        /// When, by [`now_ns`](crate::clock::now_ns).
        at_ns: u64,
    },
    /// The rank has done all that it had to do.
    Ended {
        /// When it had the outcome of its last reduction, by [`now_ns`](crate::clock::now_ns).
        at_ns: u64,
        /// How that was.
        told: Told,
    },
}

/// How the reductions of a rank have ended, worst last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// Well: what was delivered here was right, and the survivors could reduce again.
    Ok(Work),
    /// In an error that says what is lost.
    Lost {
        /// What is lost.
        loss: Loss,
        /// The error.
        why: String,
    },
    /// In an error that should not be, or the session did not go on.
    Failed {
        /// The error.
        why: String,
    },
    /// In a value that is not the sum of what the report says was contributed.
    Wrong {
        /// The first wrong element.
        what: String,
    },
}

/// What a reduction could not do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// A rank died before it had contributed.
    Absent,
    /// A rank died and no copy of its contribution was left.
    Contribution,
    /// The rank that held the result died before it was read.
    Result,
    /// The host of the master is lost.
    Master,
    /// Another program said so by its exit code.
    Unknown,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Absent => "a rank died before it had contributed",
            Self::Contribution => "a rank died and no copy of its contribution was left",
            Self::Result => "the rank that held the result died before it was read",
            Self::Master => "the host of the master is lost",
            Self::Unknown => "a rank said so by its exit code",
        })
    }
}

/// What was done for a result, where it is known: at the ranks that receive it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Folds of two partials that a run without faults needs.
    pub folds: u64,
    /// Folds that were done again.
    pub folds_redone: u64,
    /// Ranks that died and whose contributions count nevertheless.
    pub survived: u64,
}

impl Told {
    fn rank(&self) -> u8 {
        match self {
            Self::Ok(_) => 0,
            Self::Lost { .. } => 1,
            Self::Failed { .. } => 2,
            Self::Wrong { .. } => 3,
        }
    }

    /// How two reductions have ended, one after the other.
    pub fn and(self, next: Self) -> Self {
        match (self, next) {
            (Self::Ok(a), Self::Ok(b)) => Self::Ok(Work {
                folds: a.folds + b.folds,
                folds_redone: a.folds_redone + b.folds_redone,
                survived: a.survived + b.survived,
            }),
            (a, b) if b.rank() > a.rank() => b,
            (a, _) => a,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts_and_the_first_of_equals() {
        let ok = |folds| Told::Ok(Work { folds, folds_redone: 1, survived: 0 });
        let lost = |why: &str| Told::Lost { loss: Loss::Absent, why: why.to_owned() };
        let wrong = Told::Wrong { what: "it is wrong".to_owned() };
        assert_eq!(ok(2).and(ok(3)), Told::Ok(Work { folds: 5, folds_redone: 2, survived: 0 }));
        assert_eq!(lost("first").and(lost("second")), lost("first"));
        assert_eq!(ok(1).and(lost("it")).and(ok(1)), lost("it"));
        assert_eq!(wrong.clone().and(lost("it")), wrong.clone());
        assert_eq!(lost("it").and(wrong.clone()), wrong);
    }
}
