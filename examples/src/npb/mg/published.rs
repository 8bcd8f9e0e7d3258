//! Sizes and published answers of MG.

use std::fmt;

use clap::ValueEnum;

use super::operators::Coefficients;

/// Size of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Class {
    /// 32 points in each dimension.
    S,
    /// 128 points.
    W,
    /// 256 points.
    A,
    /// 256 points and five times as many cycles.
    B,
}

/// The answer may differ from the published one by this part of it.
const TOLERANCE: f64 = 1e-8;

impl Class {
    /// Points in each dimension are 2 to this power.
    pub fn levels(self) -> u32 {
        match self {
            Self::S => 5,
            Self::W => 7,
            Self::A | Self::B => 8,
        }
    }

    /// Points in each dimension.
    pub fn points(self) -> usize {
        1 << self.levels()
    }

    /// V-cycles.
    pub fn cycles(self) -> u32 {
        match self {
            Self::S | Self::W | Self::A => 4,
            Self::B => 20,
        }
    }

    /// What the smoother weighs a point and its neighbours with.
    pub fn smoother(self) -> Coefficients {
        match self {
            Self::S | Self::W | Self::A => Coefficients([-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0, 0.0]),
            Self::B => Coefficients([-3.0 / 17.0, 1.0 / 33.0, -1.0 / 61.0, 0.0]),
        }
    }

    /// The norm of the residual after the last cycle.
    fn published(self) -> f64 {
        match self {
            Self::S => 0.5307707005734e-04,
            Self::W => 0.6467329375339e-05,
            Self::A => 0.2433365309069e-05,
            Self::B => 0.1800564401355e-05,
        }
    }

    /// Whether `norm` is what was published for the end of the run.
    pub fn is_published(self, norm: f64) -> bool {
        ((norm - self.published()) / self.published()).abs() <= TOLERANCE
    }

    /// Operations on floating-point numbers, as NPB counts them.
    pub fn operations(self) -> f64 {
        58.0 * f64::from(self.cycles()) * (self.points() as f64).powi(3)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
