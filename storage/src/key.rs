//! Under which name a record is kept.
//!
//! ```text
//! offset  bytes  field
//!      0      8  name of the reduction
//!      8      8  its sequence number
//!     16      4  rank of the owner
//!     20      4  incarnation of the owner
//!     24      1  0: the whole body, 1: one segment
//!     25      4  index of the segment, or zero
//! ```
//! All integers are big-endian, so that bytes sort as [`RecordKey`]s do and all records of one reduction lie
//! side by side: releasing a reduction is one deleted range, however many segments it had.

use std::fmt;

use everfold_protocol::{ProcessId, ReductionId, SegmentIndex};

/// Length of an encoded key in bytes.
pub const KEY_BYTES: usize = 29;
const REDUCTION_BYTES: usize = 16;

/// What a record is. Each kind has its own column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The contribution of the process that keeps it.
    Original,
    /// A copy of another process's contribution.
    Replica,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Original, Self::Replica];

    /// The number that stands for this kind on disk; never given to another kind.
    pub(crate) fn code(self) -> u16 {
        match self {
            Self::Original => 1,
            Self::Replica => 2,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Original => "original",
            Self::Replica => "replica",
        })
    }
}

/// Names one record among those of its [`Kind`]. Ordered by reduction, then owner, then segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    /// The reduction that the value belongs to.
    pub reduction: ReductionId,
    /// The process whose contribution it is; for a replica not the one that keeps it.
    pub owner: ProcessId,
    /// Which segment of the contribution, or `None` for all of it.
    pub segment: Option<SegmentIndex>,
}

impl RecordKey {
    /// The key as it stands in the database.
    pub fn to_bytes(self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[..REDUCTION_BYTES].copy_from_slice(&prefix(self.reduction));
        bytes[16..20].copy_from_slice(&self.owner.rank.0.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.owner.incarnation.0.to_be_bytes());
        if let Some(segment) = self.segment {
            bytes[24] = 1;
            bytes[25..].copy_from_slice(&segment.0.to_be_bytes());
        }
        bytes
    }

    /// The smallest key that a record of `reduction` can have, and a key that is larger than all of them.
    pub fn range(reduction: ReductionId) -> [[u8; KEY_BYTES]; 2] {
        [0x00, 0xff].map(|filler| {
            let mut bytes = [filler; KEY_BYTES];
            bytes[..REDUCTION_BYTES].copy_from_slice(&prefix(reduction));
            bytes
        })
    }
}

fn prefix(reduction: ReductionId) -> [u8; REDUCTION_BYTES] {
    let mut bytes = [0; REDUCTION_BYTES];
    bytes[..8].copy_from_slice(&reduction.name.to_be_bytes());
    bytes[8..].copy_from_slice(&reduction.sequence.to_be_bytes());
    bytes
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reduction {:?} of {}", self.reduction, self.owner)?;
        match self.segment {
            Some(segment) => write!(f, ", segment {segment}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{Incarnation, Rank};
    use proptest::prelude::*;

    use super::*;

    fn number<T: Copy + std::fmt::Debug + 'static>(edges: [T; 4]) -> impl Strategy<Value = T> {
        prop::sample::select(edges.to_vec())
    }

    prop_compose! {
        fn key()(
            name in number([0, 1, 256, u64::MAX]),
            sequence in number([0, 255, 256, u64::MAX]),
            rank in number([0, 255, 256, u32::MAX]),
            incarnation in number([0, 1, 256, u32::MAX]),
            segment in prop::option::of(number([0, 255, 256, u32::MAX])),
        ) -> RecordKey {
            RecordKey {
                reduction: ReductionId { name, sequence },
                owner: ProcessId { rank: Rank(rank), incarnation: Incarnation(incarnation) },
                segment: segment.map(SegmentIndex),
            }
        }
    }

    proptest! {
        #[test]
        fn bytes_sort_as_keys_do(a in key(), b in key()) {
            prop_assert_eq!(a.to_bytes().cmp(&b.to_bytes()), a.cmp(&b));
        }

        #[test]
        fn a_range_holds_the_keys_of_its_reduction_and_no_others(a in key(), b in key()) {
            let [first, end] = RecordKey::range(a.reduction);
            let inside = (first..end).contains(&b.to_bytes());
            prop_assert_eq!(inside, a.reduction == b.reduction);
        }
    }
}
