//! On what two ranks may disagree.

use core::fmt;

use serde::{Deserialize, Serialize};

/// On what two ranks of one reduction disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Aspect {
    /// The names differ although their hashes do not.
    Name,
    /// The set of ranks.
    Group,
    /// Root, or reduce against allreduce.
    Delivery,
    /// Array against object, or two types of object.
    BodyType,
    /// Type of an array's elements.
    Element,
    /// The operation.
    Operation,
    /// Number of elements.
    Length,
    /// The order in which contributions meet; that of an operation that does not commute is fixed.
    Order,
    /// The deadline.
    Deadline,
    /// The level of protection.
    Protection,
    /// Whether contributions may be missing.
    AllowMissing,
    /// Whose pieces go to whom.
    Pattern,
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "the name",
            Self::Group => "the group",
            Self::Delivery => "who receives the result",
            Self::BodyType => "the type of the body",
            Self::Element => "the type of the elements",
            Self::Operation => "the operation",
            Self::Length => "the number of elements",
            Self::Order => "the order in which contributions meet",
            Self::Deadline => "the deadline",
            Self::Protection => "the level of protection",
            Self::AllowMissing => "whether contributions may be missing",
            Self::Pattern => "whose pieces go to whom",
        })
    }
}
