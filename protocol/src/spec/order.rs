//! Which operands meet.

use core::fmt;

use serde::{Deserialize, Serialize};

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
