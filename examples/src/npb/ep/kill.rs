//! Which rank dies on purpose, and when.

use std::str::FromStr;

/// A rank that kills itself, as `--kill RANK@FRACTION` says it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kill {
    /// Who. Never rank 0, which receives the results.
    pub rank: u32,
    /// When this part of its share is done; from 1 on, when it has contributed.
    pub fraction: f64,
}

impl FromStr for Kill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = text.split_once('@').and_then(|(rank, fraction)| {
            let fraction: f64 = fraction.parse().ok()?;
            (fraction.is_finite() && fraction >= 0.0).then_some(Self { rank: rank.parse().ok()?, fraction })
        });
        match read {
            Some(Self { rank: 0, .. }) => Err("rank 0 receives the results; kill another one".to_owned()),
            Some(kill) => Ok(kill),
            None => Err("it has to be a rank and a fraction from 0, such as 3@0.5".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_and_a_fraction() {
        assert_eq!("3@0.5".parse(), Ok(Kill { rank: 3, fraction: 0.5 }));
        assert_eq!("12@1".parse(), Ok(Kill { rank: 12, fraction: 1.0 }));
        for text in ["", "3", "3@", "@0.5", "-1@0.5", "3@-0.1", "3@NaN", "3@inf"] {
            assert!(text.parse::<Kill>().is_err(), "{text}");
        }
        assert!("0@0.5".parse::<Kill>().is_err_and(|error| error.contains("results")));
    }
}
