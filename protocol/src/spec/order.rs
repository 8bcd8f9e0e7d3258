//! Which operands meet.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Which operands meet.
///
/// | order | two runs with the same bodies | costs |
/// |---|---|---|
/// | `Arrival` | may differ in the rounding of operations that are not quite associative, such as floating-point sums | nothing |
/// | `Fixed` | give the same bits, for any arrival, placement and lengths of segments, and any deaths | partials wait for their siblings; between hosts, a root receives a partial per level of the tree, or a copy of the finished result |
///
/// In the fixed order the group's ranks are the leaves of a binary tree ([`bracketing`](crate::bracketing)),
/// lower ranks on the left. Each of its brackets is computed wherever that is fastest. Missing contributions
/// leave the others where they are in the tree. Operations that do not commute always reduce in this order.
///
/// In either order all ranks of an allreduce receive the same bits; by arrival, as long as no rank dies or is
/// cut off while the result is copied. Then it may have to be folded anew for ranks that do not have it yet.
///
/// The same bits in each run need processes that compute alike: one build of the program, and processors of
/// one kind. Which of several NaNs a floating-point sum or product yields is the processor's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Partials meet as they become ready.
    #[default]
    Arrival,
    /// The group alone decides which partials meet.
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
