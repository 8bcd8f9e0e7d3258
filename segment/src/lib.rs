//! Recovery segments: who computes what, and what is left to compute after deaths.
//!
//! A segment is a loop over indices with a reduction at its end, in *rounds*. All ranks decide alike, because they
//! decide from nothing but the results and reports of the rounds, which are the same at all of them.
//!
//! Pure: no clocks, messages or memory. How long folding has taken comes in, what a round yields comes in, and what
//! ranks do next goes out. What is folded is a type of the caller's.
//!
//! | module | has |
//! |---|---|
//! | [`indices`] | sets of indices: holes, division by weights |
//! | [`grains`] | how indices are cut into grains |
//! | [`partials`] | values with the grains that are in them; the tree of the fixed order |
//! | [`round`] | the body of a round; how fast ranks are |
//! | [`folding`] | how a rank goes through its share, and when it leaves its progress |
//! | [`ledger`] | what all ranks know alike, and who does what in the next round |
//! | [`report`] | what is told |

// The compiler proves it pure. Tests may use more.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod folding;
pub mod grains;
pub mod indices;
pub mod ledger;
pub mod partials;
pub mod report;
pub mod round;

/// What is folded.
pub trait Combine {
    /// `self = self ∘ other`
    fn combine(&mut self, other: Self);
}
