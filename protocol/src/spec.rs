//! What all ranks of one reduction must agree on, and the limits that hold for all of them.

use alloc::{
    borrow::ToOwned,
    boxed::Box,
    string::{String, ToString},
    vec::Vec,
};
use core::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{id::Rank, path::Path, pieces::Pattern, watch::INTERVALS_MOST};

/// The agreement behind one reduction. Each rank sends its own; the master compares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReductionSpec {
    /// Who takes part.
    pub group: Path,
    /// Who receives the result.
    pub delivery: Delivery,
    /// What is reduced, and how.
    pub kind: BodyKind,
    /// Which operands meet.
    pub order: Order,
    /// How long the reduction may take, counted from its first contribution. Without one it waits for every
    /// rank that lives.
    pub deadline: Option<Duration>,
    /// What of an original outlives its owner.
    pub protection: Protection,
    /// Whether the reduction goes on without contributions that are lost, and says whose they are.
    pub allow_missing: bool,
    /// Whether the report lists every task.
    pub trace: bool,
}

/// Which operands meet.
///
/// | order | two runs with the same bodies | costs |
/// |---|---|---|
/// | `Arrival` | may differ in what operations lose that are not quite associative: the rounding of floating-point sums | nothing |
/// | `Fixed` | give the same bits, whatever arrives when, is placed where, is cut how, or fails | partials wait for their siblings; between hosts, a root receives a partial per level of the tree, or a copy of the finished result |
///
/// In the fixed order the group's ranks are the leaves of a binary tree ([`bracketing`](crate::bracketing)),
/// lower ranks on the left. Each of its brackets is computed wherever that is fastest. Missing contributions
/// leave the others where they are in the tree. Operations that do not commute always reduce in this order.
///
/// In either order all ranks of an allreduce receive the same bits; by arrival, as long as nobody dies or is
/// cut off while the result is on its way. Then it may have to be folded anew for those who do not have it
/// yet.
///
/// The same bits in each run, that is, as long as processes compute alike: with one build of the program, on
/// processors of one kind. Which of several NaNs a floating-point sum or product yields is the processor's
/// choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Partials meet as they become ready.
    #[default]
    Arrival,
    /// Who meets is decided by the group alone.
    Fixed,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arrival => "arrival",
            Self::Fixed => "fixed",
        })
    }
}

/// Who receives the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// One rank (`MPI_Reduce`), which folds the others' contributions into its own. If it dies, nobody
    /// receives the result.
    Root(Rank),
    /// The first of these ranks that lives when the result is there. It is folded anywhere and copied to that
    /// rank.
    FirstOf(Vec<Rank>),
    /// Every rank of the group (`MPI_Allreduce`).
    All,
}

impl Delivery {
    /// The rank in whose hands the result arises, if that is decided beforehand.
    pub fn root(&self) -> Option<Rank> {
        match self {
            Self::Root(rank) => Some(*rank),
            Self::FirstOf(_) | Self::All => None,
        }
    }

    /// The ranks that may come to receive the result, where not all do.
    pub fn candidates(&self) -> &[Rank] {
        match self {
            Self::Root(rank) => core::slice::from_ref(rank),
            Self::FirstOf(ranks) => ranks,
            Self::All => &[],
        }
    }
}

/// What of an original outlives its owner's host, and from when on (DR-9, DR-12).
///
/// | level | replica | a contribution outlives its owner's host | costs |
/// |---|---|---|---|
/// | `None` | none | once a survivor has folded it, unless the group works in [`team`](crate::team)s | nothing |
/// | `Memory` | in another process's memory | once a survivor has folded it, or that process has copied it | while others are late: its bytes once over the link, and in memory |
/// | `Disk` | as `Memory`, and then in that process's store on its local disk | as `Memory` | as `Memory`, and a write; the memory is free again after it |
/// | `CommitFirst` | in another process's store on its local disk | from the start: it enters the reduction when the copy is acknowledged | as `Disk`, before folding begins |
///
/// The other process is one on another host, if there is one, and in another failure domain, if there is one.
/// To copy a contribution takes as long as to fold it. So `Memory` and `Disk` make copies while a reduction
/// waits for ranks that are late or do not answer, and leave the links to folding while it goes on.
/// `CommitFirst` lets a contribution in without a copy if none can be made, and says so. Bodies that travel
/// inside messages are kept by the master, and short ones on one host lie where all its processes have them,
/// but for groups that work in teams: there a process that dies takes its contribution along. What lies in
/// shared memory outlives its process at every level: arrays of `Session::array`, objects, and each `Vec`, but
/// with `None` on one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protection {
    /// No copies.
    None,
    /// A copy in the memory of another process.
    Memory,
    /// A copy on another process's disk.
    #[default]
    Disk,
    /// A copy on another process's disk before the contribution counts.
    CommitFirst,
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::CommitFirst => "commit-first",
        })
    }
}

/// The text names no level of protection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no level of protection; there are none, memory, disk and commit-first")]
pub struct ProtectionError(String);

impl FromStr for Protection {
    type Err = ProtectionError;

    fn from_str(text: &str) -> Result<Self, ProtectionError> {
        match text {
            "none" => Ok(Self::None),
            "memory" => Ok(Self::Memory),
            "disk" => Ok(Self::Disk),
            "commit-first" => Ok(Self::CommitFirst),
            _ => Err(ProtectionError(text.to_owned())),
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(rank) => write!(f, "root {rank}"),
            Self::FirstOf(ranks) => {
                let ranks: Vec<_> = ranks.iter().map(Rank::to_string).collect();
                write!(f, "the first living of {}", ranks.join(", "))
            }
            Self::All => f.write_str("all ranks"),
        }
    }
}

/// What a body is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BodyKind {
    /// Elements that combine one by one: may be cut into segments and folded in place.
    Array {
        /// Type of an element.
        element: ElementType,
        /// What is done to two elements.
        operation: Operation,
        /// Number of elements; the same on all ranks.
        length: u64,
    },
    /// A value of any serde type: one segment, carried encoded; its length may differ between ranks.
    Object {
        /// The type's name as the compiler gives it.
        type_name: String,
    },
    /// Bytes that stay as they are: the result is the ranks' [pieces](crate::pieces), side by side.
    Pieces {
        /// What they are made of.
        of: String,
        /// Whose pieces go to whom.
        pattern: Pattern,
        /// Number of elements of each contribution, if that is to be the same on all ranks.
        length: Option<u64>,
    },
}

impl BodyKind {
    /// Whether folding cannot fail: the operation is ours, and all operands are known to have the same
    /// length.
    pub fn folds_surely(&self) -> bool {
        matches!(self, Self::Array { operation, .. } if !matches!(operation, Operation::Custom(_)))
    }

    /// Bytes of the body and of one element, if its elements may be cut apart.
    pub fn array_bytes(&self) -> Option<(u64, u64)> {
        match self {
            Self::Array { element, length, .. } => {
                let element = element.size_bytes();
                Some((element.saturating_mul(*length), element))
            }
            Self::Object { .. } | Self::Pieces { .. } => None,
        }
    }

    /// Whose pieces go to whom, if contributions are not folded.
    pub fn pattern(&self) -> Option<Pattern> {
        match self {
            Self::Pieces { pattern, .. } => Some(*pattern),
            Self::Array { .. } | Self::Object { .. } => None,
        }
    }
}

/// Type of an array's elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum ElementType {
    F32,
    F64,
    I32,
    I64,
    U32,
    U64,
    U8,
    /// A value and where it was found, for min-loc and max-loc.
    Located(Box<ElementType>),
    /// A plain-old-data type of the application.
    Custom {
        name: String,
        size_bytes: u32,
    },
}

impl ElementType {
    /// Size of one element in bytes.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::U8 => 1,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
            // The location is as wide as the value.
            Self::Located(value) => value.size_bytes().saturating_mul(2),
            Self::Custom { size_bytes, .. } => u64::from(*size_bytes),
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("f32"),
            Self::F64 => f.write_str("f64"),
            Self::I32 => f.write_str("i32"),
            Self::I64 => f.write_str("i64"),
            Self::U32 => f.write_str("u32"),
            Self::U64 => f.write_str("u64"),
            Self::U8 => f.write_str("u8"),
            Self::Located(value) => write!(f, "located {value}"),
            Self::Custom { name, size_bytes } => write!(f, "{name} ({size_bytes} bytes)"),
        }
    }
}

/// What is done to two elements. Names follow the MPI standard's predefined operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Operation {
    Sum,
    Product,
    Min,
    Max,
    BitAnd,
    BitOr,
    BitXor,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    MinLoc,
    MaxLoc,
    /// The application's own, known by its name.
    Custom(String),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::BitAnd => "bitwise and",
            Self::BitOr => "bitwise or",
            Self::BitXor => "bitwise xor",
            Self::LogicalAnd => "logical and",
            Self::LogicalOr => "logical or",
            Self::LogicalXor => "logical xor",
            Self::MinLoc => "min-loc",
            Self::MaxLoc => "max-loc",
            Self::Custom(name) => name,
        })
    }
}

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

impl ReductionSpec {
    /// The first aspect on which `self` and `other` differ, with both values as text.
    ///
    /// `trace` is no such aspect: a rank that asks for the list of tasks asks for itself.
    pub fn disagreement(&self, other: &Self) -> Option<(Aspect, String, String)> {
        fn differ<T: PartialEq>(
            aspect: Aspect,
            a: &T,
            b: &T,
            show: impl Fn(&T) -> String,
        ) -> Option<(Aspect, String, String)> {
            (a != b).then(|| (aspect, show(a), show(b)))
        }
        let deadline = |d: &Option<Duration>| d.map_or("none".to_owned(), |d| format!("{d:?}"));
        differ(Aspect::Group, &self.group, &other.group, Path::to_string)
            .or_else(|| differ(Aspect::Order, &self.order, &other.order, Order::to_string))
            .or_else(|| differ(Aspect::Delivery, &self.delivery, &other.delivery, Delivery::to_string))
            .or_else(|| self.kind.disagreement(&other.kind))
            .or_else(|| differ(Aspect::Deadline, &self.deadline, &other.deadline, deadline))
            .or_else(|| {
                differ(Aspect::Protection, &self.protection, &other.protection, Protection::to_string)
            })
            .or_else(|| {
                differ(Aspect::AllowMissing, &self.allow_missing, &other.allow_missing, bool::to_string)
            })
    }
}

impl ReductionSpec {
    /// Ranks that are named as receivers of the result, or as its source.
    pub fn named_roots(&self) -> impl Iterator<Item = Rank> + '_ {
        let source = self.kind.pattern().and_then(Pattern::source);
        self.delivery.candidates().iter().copied().chain(source)
    }

    /// Largest contribution that travels inside messages, in bytes. Of pieces that each rank is told, all
    /// together are as long as one body may be.
    pub fn inline_bytes_max(&self, limits: &Limits) -> u64 {
        match self.kind.pattern() {
            Some(Pattern::Gather | Pattern::Scatter(..) | Pattern::Exchange(_)) => {
                limits.inline_bytes_max / (self.group.len() as u64).max(1)
            }
            Some(Pattern::Broadcast(_)) | None => limits.inline_bytes_max,
        }
    }
}

impl BodyKind {
    fn disagreement(&self, other: &Self) -> Option<(Aspect, String, String)> {
        if self == other {
            return None;
        }
        Some(match (self, other) {
            (
                Self::Array { element: e1, operation: o1, length: l1 },
                Self::Array { element: e2, operation: o2, length: l2 },
            ) => {
                if e1 != e2 {
                    (Aspect::Element, e1.to_string(), e2.to_string())
                } else if o1 != o2 {
                    (Aspect::Operation, o1.to_string(), o2.to_string())
                } else {
                    (Aspect::Length, l1.to_string(), l2.to_string())
                }
            }
            (
                Self::Pieces { of: o1, pattern: p1, length: l1 },
                Self::Pieces { of: o2, pattern: p2, length: l2 },
            ) => {
                let length = |length: &Option<u64>| length.map_or("any".to_owned(), |it| it.to_string());
                if o1 != o2 {
                    (Aspect::Element, o1.clone(), o2.clone())
                } else if p1 != p2 {
                    (Aspect::Pattern, p1.to_string(), p2.to_string())
                } else {
                    (Aspect::Length, length(l1), length(l2))
                }
            }
            _ => (Aspect::BodyType, self.to_string(), other.to_string()),
        })
    }
}

impl fmt::Display for BodyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array { element, operation, length } => write!(f, "{operation} of {length} × {element}"),
            Self::Object { type_name } => f.write_str(type_name),
            Self::Pieces { of, pattern, .. } => write!(f, "{pattern}, of {of}"),
        }
    }
}

/// Limits that every part of a job holds to.
///
/// They bound memory: what is over one is refused with an error that names it, never truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest body, in bytes.
    pub body_bytes_max: u64,
    /// Largest body that travels inside its reduction message, in bytes.
    pub inline_bytes_max: u64,
    /// Largest array that may lie on the board of a host, in bytes; 0 for none.
    pub board_bytes_max: u64,
    /// Largest frame, in bytes.
    pub frame_bytes_max: u64,
    /// Most reductions that one rank may have in flight.
    pub reductions_max: u64,
    /// How often the master pings every process; what has to be noticed or done in time derives from it.
    pub ping_interval: Duration,
    /// Ranks from which on a reduction to one rank between hosts is tried in teams; 0 for never. See
    /// [`team`](crate::team).
    pub teams_from: u32,
    /// Whether ranks come back whose processes have died. Then each rank notes how its reductions end before
    /// its application hears that.
    pub ranks_return: bool,
    /// Most bytes of replicas of vaults that an agent holds; 0 where none are made. With them, ranks come back
    /// on other hosts.
    pub replica_bytes_max: u64,
}

/// Ping intervals for which a read may bring nothing.
const READ_INTERVALS: u32 = 6;

impl Limits {
    /// How long a read of another process's memory may bring nothing before it is given up: longer than a
    /// process that runs is silent, so that its end is mostly noticed before. Zero, without pings: for ever.
    pub fn read_patience(&self) -> Duration {
        self.ping_interval.saturating_mul(READ_INTERVALS)
    }

    /// Longest silence of a process before it is declared failed, however irregularly it was heard before.
    pub fn silence_max(&self) -> Duration {
        self.ping_interval.saturating_mul(INTERVALS_MOST)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 16 << 30,
            inline_bytes_max: 16 << 10,
            board_bytes_max: 512 << 10,
            frame_bytes_max: 64 << 20,
            reductions_max: 65_536,
            ping_interval: Duration::from_millis(500),
            teams_from: 100,
            ranks_return: false,
            replica_bytes_max: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_follow_from_a_long_ping_interval_are_as_long_as_there_are() {
        let limits = Limits { ping_interval: Duration::MAX, ..Limits::default() };
        assert_eq!((limits.read_patience(), limits.silence_max()), (Duration::MAX, Duration::MAX));
    }
}
