//! What each rank does in which algorithm. The root is rank 0.

use std::fmt;

/// A step of a rank's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Begin to send bytes: their number.
    Send { to: u32, bytes: u64 },
    /// Wait until all that was sent has arrived.
    Drain,
    /// Be ready for the next bytes of this rank.
    Post { from: u32 },
    /// Wait for the oldest bytes of this rank that are not here yet.
    Wait { from: u32 },
    /// Fold bytes: their number.
    Fold { bytes: u64 },
}

/// A static algorithm for a reduction to rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Binomial tree, whole vectors.
    Binomial,
    /// Recursive-halving reduce-scatter and binomial gather (Rabenseifner).
    Rabenseifner,
    /// Every rank receives from the next and sends to the one before, segment by segment.
    Chain {
        /// Length of a segment.
        segment_bytes: u64,
        /// Whether the next segment is received while one is folded.
        ahead: bool,
    },
    /// Complete binary tree, segment by segment; the next segments are received while one is folded.
    BinaryTree {
        /// Length of a segment.
        segment_bytes: u64,
    },
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binomial => "binomial tree",
            Self::Rabenseifner => "Rabenseifner",
            Self::Chain { .. } => "pipelined chain",
            Self::BinaryTree { .. } => "pipelined binary tree",
        })
    }
}

impl Algorithm {
    /// What `rank` of `ranks` does for `bytes` bytes.
    pub(crate) fn program(self, rank: u32, ranks: u32, bytes: u64) -> Vec<Step> {
        match self {
            Self::Binomial => {
                let mut steps = Vec::new();
                binomial(&mut steps, rank, ranks, |_| bytes, Some(bytes));
                steps
            }
            Self::Rabenseifner => rabenseifner(rank, ranks, bytes),
            Self::Chain { segment_bytes, ahead } => {
                let children = (rank + 1 < ranks).then_some(rank + 1);
                pipeline(children.as_slice(), rank.checked_sub(1), bytes, segment_bytes, ahead)
            }
            Self::BinaryTree { segment_bytes } => {
                let children = [2 * rank + 1, 2 * rank + 2].into_iter().filter(|child| *child < ranks);
                let children: Vec<u32> = children.collect();
                let parent = rank.checked_sub(1).map(|rank| rank / 2);
                pipeline(&children, parent, bytes, segment_bytes, true)
            }
        }
    }
}

/// Receives from the children of a binomial tree and sends to its parent. `bytes` tells what a child with
/// that lowest bit sends; `fold` bytes are folded after each.
fn binomial(steps: &mut Vec<Step>, rank: u32, ranks: u32, bytes: impl Fn(u32) -> u64, fold: Option<u64>) {
    let mut bit = 1;
    while bit < ranks {
        if rank & bit != 0 {
            steps.push(Step::Send { to: rank - bit, bytes: bytes(bit) });
            return;
        }
        if rank + bit < ranks {
            let from = rank + bit;
            steps.extend([Step::Post { from }, Step::Wait { from }]);
            steps.extend(fold.map(|bytes| Step::Fold { bytes }));
        }
        bit *= 2;
    }
}

fn rabenseifner(rank: u32, ranks: u32, bytes: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    let core = 1 << ranks.ilog2();
    let beyond = ranks - core;
    // Odd ranks of the first pairs send everything to their neighbours and drop out.
    let member = if rank < 2 * beyond {
        if rank % 2 == 1 {
            return vec![Step::Send { to: rank - 1, bytes }];
        }
        let from = rank + 1;
        steps.extend([Step::Post { from }, Step::Wait { from }, Step::Fold { bytes }]);
        rank / 2
    } else {
        rank - beyond
    };
    let rank_of = |member: u32| if member < beyond { 2 * member } else { member + beyond };
    let mut part = bytes;
    let mut bit = core / 2;
    while bit > 0 {
        part /= 2;
        let partner = rank_of(member ^ bit);
        steps.extend([
            Step::Post { from: partner },
            Step::Send { to: partner, bytes: part },
            Step::Wait { from: partner },
            Step::Drain,
            Step::Fold { bytes: part },
        ]);
        bit /= 2;
    }
    // Each child brings as many parts as it has gathered.
    let mut gather = Vec::new();
    let share = bytes / u64::from(core);
    binomial(&mut gather, member, core, |bit| share * u64::from(bit), None);
    steps.extend(gather.into_iter().map(|step| match step {
        Step::Send { to, bytes } => Step::Send { to: rank_of(to), bytes },
        Step::Post { from } => Step::Post { from: rank_of(from) },
        Step::Wait { from } => Step::Wait { from: rank_of(from) },
        step => step,
    }));
    steps
}

fn pipeline(children: &[u32], parent: Option<u32>, bytes: u64, segment_bytes: u64, ahead: bool) -> Vec<Step> {
    let segments = bytes.div_ceil(segment_bytes);
    let mut steps = Vec::new();
    let post = |steps: &mut Vec<Step>| steps.extend(children.iter().map(|&from| Step::Post { from }));
    if ahead {
        post(&mut steps);
    }
    for segment in 0..segments {
        let bytes = segment_bytes.min(bytes - segment * segment_bytes);
        if !ahead || segment + 1 < segments {
            post(&mut steps);
        }
        for &from in children {
            steps.extend([Step::Wait { from }, Step::Fold { bytes }]);
        }
        steps.extend(parent.map(|to| Step::Send { to, bytes }));
    }
    steps
}
