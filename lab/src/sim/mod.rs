//! What the simulator says of clusters that are not at hand.

mod costs;
pub mod figure;
mod paper;
pub mod parallel;
mod recoveries;
mod scale;
mod segments;

pub use self::{
    costs::PerMessage, paper::Paper, recoveries::SimRecoveries, scale::Scale, segments::SimSegments,
};
