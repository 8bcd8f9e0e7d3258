//! The sizes of CG and its published answers.

use clap::ValueEnum;
use std::fmt;

/// How far zeta may be from the published one, as in NPB 3.4.
pub const TOLERANCE: f64 = 1e-10;

/// The size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Class {
    /// Sample, 1400 rows.
    S,
    /// Workstation, 7000 rows.
    W,
    /// 14 000 rows.
    A,
    /// 75 000 rows, 75 iterations.
    B,
}

/// What serial runs of NPB 3.3 print after each outer iteration, of class B after the first 15.
#[rustfmt::skip]
const S: [f64; 15] = [
    9.9986441579140, 8.5733279203222, 8.5954510374058, 8.5969972340737, 8.5971549151767,
    8.5971744311608, 8.5971770704913, 8.5971774440630, 8.5971774983942, 8.5971775064409,
    8.5971775076486, 8.5971775078318, 8.5971775078598, 8.5971775078641, 8.5971775078648,
];
#[rustfmt::skip]
const W: [f64; 15] = [
    11.9997003727381, 10.3457275664058, 10.3617880137963, 10.3625416284965, 10.3625905854467,
    10.3625946467087, 10.3625950398342, 10.3625950817269, 10.3625950864815, 10.3625950870452,
    10.3625950871141, 10.3625950871227, 10.3625950871238, 10.3625950871240, 10.3625950871240,
];
#[rustfmt::skip]
const A: [f64; 15] = [
    19.9997581277040, 17.1140495745506, 17.1296668946143, 17.1302113581193, 17.1302338856353,
    17.1302349879482, 17.1302350498916, 17.1302350537510, 17.1302350540101, 17.1302350540284,
    17.1302350540298, 17.1302350540299, 17.1302350540299, 17.1302350540299, 17.1302350540299,
];
#[rustfmt::skip]
const B: [f64; 15] = [
    59.9994751578754, 21.7627846142536, 22.2876617043224, 22.5230738188346, 22.6275390653892,
    22.6740259189533, 22.6949056826251, 22.7044023166872, 22.7087834345620, 22.7108351397177,
    22.7118107121341, 22.7122816240971, 22.7125122663242, 22.7126268007594, 22.7126844161819,
];

impl Class {
    /// Rows of the matrix.
    pub fn order(self) -> usize {
        match self {
            Self::S => 1400,
            Self::W => 7000,
            Self::A => 14_000,
            Self::B => 75_000,
        }
    }

    /// Random entries of each vector that the matrix is made of.
    pub fn nonzeros(self) -> usize {
        match self {
            Self::S => 7,
            Self::W => 8,
            Self::A => 11,
            Self::B => 13,
        }
    }

    /// Outer iterations.
    pub fn iterations(self) -> u32 {
        if self == Self::B { 75 } else { 15 }
    }

    /// What is taken from the diagonal.
    pub fn shift(self) -> f64 {
        match self {
            Self::S => 10.0,
            Self::W => 12.0,
            Self::A => 20.0,
            Self::B => 60.0,
        }
    }

    /// Zeta at the end, as NPB verifies it.
    pub fn zeta(self) -> f64 {
        match self {
            Self::S => 8.5971775078648,
            Self::W => 10.362595087124,
            Self::A => 17.130235054029,
            Self::B => 22.712745482631,
        }
    }

    /// Zeta after outer iteration `iteration`, counted from 0, where it is known.
    pub fn zeta_after(self, iteration: u32) -> Option<f64> {
        let zetas = match self {
            Self::S => S,
            Self::W => W,
            Self::A => A,
            Self::B => B,
        };
        zetas.get(iteration as usize).copied()
    }

    /// Floating-point operations of the whole run, as NPB counts them.
    pub fn operations(self) -> f64 {
        let entries = (self.nonzeros() * (self.nonzeros() + 1)) as f64;
        let each = 3.0 + entries + f64::from(super::STEPS) * (5.0 + entries) + 3.0;
        2.0 * f64::from(self.iterations()) * self.order() as f64 * each
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
