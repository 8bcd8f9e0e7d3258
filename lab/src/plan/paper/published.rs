//! What the paper says of its six applications, and what follows from it.

/// One of the paper's applications.
#[derive(Clone, Copy, Debug)]
pub struct Application {
    /// Its name.
    pub name: &'static str,
    /// Its profile, in TOML.
    pub profile: &'static str,
    /// Checkpoints of host and device together, of the host, and of the device (table 1).
    pub checkpoints: [usize; 3],
    /// Run time with synchronous and with asynchronous checkpoints (table 2).
    pub run_s: [f64; 2],
    /// By how much asynchronous checkpoints are cheaper, in parts: one of them (fig. 11), and all (fig. 12). The
    /// text names the extremes only.
    pub cheaper: [Option<f64>; 2],
}

/// The extremes over all applications, in parts: of one checkpoint and of all.
pub const ONE: [f64; 2] = [0.335, 0.573];
pub const ALL: [f64; 2] = [0.584, 0.733];
/// Half of the last digit of a part.
const ROUNDING: f64 = 0.0005;
/// Half the MTBF of host and device together, of the host, and of the device.
pub const INTERVALS_S: [f64; 3] = [75.0, 200.0, 120.0];

pub const APPLICATIONS: [Application; 6] = [
    Application {
        name: "Swim",
        profile: include_str!("../../../profiles/swim.toml"),
        checkpoints: [14, 5, 9],
        run_s: [1261.289, 1148.858],
        cheaper: [None, None],
    },
    Application {
        name: "Mgrid",
        profile: include_str!("../../../profiles/mgrid.toml"),
        checkpoints: [56, 21, 35],
        run_s: [4756.304, 4398.415],
        cheaper: [None, None],
    },
    Application {
        name: "FFT2D",
        profile: include_str!("../../../profiles/fft2d.toml"),
        checkpoints: [11, 4, 7],
        run_s: [881.425, 865.986],
        cheaper: [Some(0.335), Some(0.584)],
    },
    Application {
        name: "BackProp",
        profile: include_str!("../../../profiles/backprop.toml"),
        checkpoints: [66, 24, 41],
        run_s: [5235.780, 5042.400],
        cheaper: [None, None],
    },
    Application {
        name: "BFS",
        profile: include_str!("../../../profiles/bfs.toml"),
        checkpoints: [28, 10, 17],
        run_s: [2197.076, 2125.882],
        cheaper: [Some(0.573), Some(0.733)],
    },
    Application {
        name: "Gaussian",
        profile: include_str!("../../../profiles/gaussian.toml"),
        checkpoints: [52, 19, 32],
        run_s: [3930.368, 3912.090],
        cheaper: [None, None],
    },
];

impl Application {
    /// Between which bounds the run time without checkpoints is, which the paper does not give.
    ///
    /// A program of T seconds has as many checkpoints as whole intervals are in T. Of all checkpoints, those of
    /// both kinds take the run times of table 2 less T, and one kind is cheaper by a part that is known, or is
    /// between those of the extremes.
    pub fn run_alone_s(&self) -> [f64; 2] {
        let [sync_s, async_s] = self.run_s;
        let counts = INTERVALS_S.iter().zip(self.checkpoints);
        let least_s = counts.clone().map(|(interval_s, count)| interval_s * count as f64);
        let most_s = counts.map(|(interval_s, count)| interval_s * (count + 1) as f64);
        let [low, high] = self.cheaper[1].map_or(ALL, |part| [part, part]);
        let alone_s = |part: f64| sync_s - (sync_s - async_s) / part;
        [
            least_s.fold(alone_s(low - ROUNDING), f64::max),
            most_s.fold(alone_s(high + ROUNDING).min(async_s), f64::min),
        ]
    }

    /// By how much one asynchronous checkpoint of the device is cheaper than a synchronous one, by table 2, if
    /// the program takes so long without checkpoints.
    pub fn one_cheaper(&self, alone_s: f64) -> f64 {
        let [sync, _, device] = self.checkpoints.map(|count| count as f64);
        let [sync_s, async_s] = self.run_s.map(|run_s| run_s - alone_s);
        1.0 - async_s / device / (sync_s / sync)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_run_times_of_the_paper_can_be_true_together() {
        for application in APPLICATIONS {
            let [least_s, most_s] = application.run_alone_s();
            assert!(least_s < most_s && most_s < least_s * 1.03, "{application:?}: {least_s} to {most_s}");
        }
    }
}
