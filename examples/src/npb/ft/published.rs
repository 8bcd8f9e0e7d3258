//! The sizes of FT and its published answers.

use super::{Checksum, Complex};
use clap::ValueEnum;
use std::fmt;

/// Parts of checksums may differ by this much of the published value, as in NPB 3.4.
const TOLERANCE: f64 = 1e-12;

/// The size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Class {
    /// Sample, 64 × 64 × 64.
    S,
    /// Workstation, 128 × 128 × 32.
    W,
    /// 256 × 256 × 128. The field takes 134 MB, and each rank needs it several times.
    A,
}

const S: [Complex; 6] = [
    [5.546087004964E+02, 4.845363331978E+02],
    [5.546385409189E+02, 4.865304269511E+02],
    [5.546148406171E+02, 4.883910722336E+02],
    [5.545423607415E+02, 4.901273169046E+02],
    [5.544255039624E+02, 4.917475857993E+02],
    [5.542683411902E+02, 4.932597244941E+02],
];
const W: [Complex; 6] = [
    [5.673612178944E+02, 5.293246849175E+02],
    [5.631436885271E+02, 5.282149986629E+02],
    [5.594024089970E+02, 5.270996558037E+02],
    [5.560698047020E+02, 5.260027904925E+02],
    [5.530898991250E+02, 5.249400845633E+02],
    [5.504159734538E+02, 5.239212247086E+02],
];
const A: [Complex; 6] = [
    [5.046735008193E+02, 5.114047905510E+02],
    [5.059412319734E+02, 5.098809666433E+02],
    [5.069376896287E+02, 5.098144042213E+02],
    [5.077892868474E+02, 5.101336130759E+02],
    [5.085233095391E+02, 5.104914655194E+02],
    [5.091487099959E+02, 5.107917842803E+02],
];

impl Class {
    /// Steps in time.
    pub const STEPS: u32 = 6;

    /// Numbers of the field in x, y and z.
    pub fn size(self) -> [usize; 3] {
        match self {
            Self::S => [64, 64, 64],
            Self::W => [128, 128, 32],
            Self::A => [256, 256, 128],
        }
    }

    /// Whether this is the checksum that was published, after `step` steps.
    pub fn is_published(self, step: u32, Checksum(found): Checksum) -> bool {
        let published = match self {
            Self::S => S,
            Self::W => W,
            Self::A => A,
        };
        let agrees = |(found, published): (f64, f64)| ((found - published) / published).abs() <= TOLERANCE;
        let published = (step as usize).checked_sub(1).and_then(|index| published.get(index));
        published.is_some_and(|published| found.into_iter().zip(*published).all(agrees))
    }

    /// Floating-point operations of the whole run, as NPB counts them.
    pub fn operations(self) -> f64 {
        let all = self.size().into_iter().product::<usize>() as f64;
        let (log, steps) = (all.ln(), f64::from(Self::STEPS));
        all * (14.8157 + 7.19641 * log + (5.23518 + 7.21113 * log) * steps)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
