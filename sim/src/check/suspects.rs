//! Who may have to do with what goes wrong.

use everfold_protocol::{Path, Rank};

use super::schedule::{Schedule, Trouble};

/// Ranks to which something happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suspects {
    /// Those whose process ends.
    pub dead: Path,
    /// Those that may be declared failed, or that may lose the master: the dead, and whoever may be silent.
    pub all: Path,
    /// Those who close their sessions early.
    pub leaving: Path,
    /// Whether the master dies.
    pub master_dies: bool,
    /// Whether copies may be damaged.
    pub copies_fail: bool,
}

impl Suspects {
    pub fn of(schedule: &Schedule) -> Self {
        let ranks = schedule.ranks();
        let everyone = Path::range(0, ranks);
        let on = |hosts: &[u32]| -> Path {
            let is_there = |rank: &u32| hosts.contains(&schedule.hosts[*rank as usize]);
            (0..ranks).filter(is_there).map(Rank).collect()
        };
        let masters = schedule.hosts[0];
        let (mut dead, mut silent) = (Path::empty(), Path::empty());
        let mut copies_fail = schedule.damage_percent > 0;
        for fault in &schedule.faults {
            match &fault.what {
                Trouble::Kill(rank) | Trouble::LetGo(rank) | Trouble::Abandon(rank) => {
                    dead = join(&dead, &Path::single(Rank(*rank)));
                }
                Trouble::LoseHost(host) => dead = join(&dead, &on(&[*host])),
                Trouble::Freeze(rank) | Trouble::Starve { rank, .. } => {
                    // If the master is silent for too long, all others leave it.
                    let who = if *rank == 0 { everyone.clone() } else { Path::single(Rank(*rank)) };
                    silent = join(&silent, &who);
                }
                Trouble::Cut { from, to, .. } if from.contains(&masters) => silent = join(&silent, &on(to)),
                Trouble::Cut { from, to, .. } if to.contains(&masters) => silent = join(&silent, &on(from)),
                Trouble::SpoilCopies(_) => copies_fail = true,
                // Nobody is silent.
                Trouble::FullDisk(_) | Trouble::Cut { .. } | Trouble::Unreachable { .. } => {}
                Trouble::Slow { .. } | Trouble::SlowDisk { .. } => {}
            }
        }
        let master_dies = dead.contains(Rank(0));
        let all = if master_dies { everyone } else { join(&dead, &silent) };
        let leaving = schedule.leaves.iter().map(|leave| Rank(leave.rank)).collect();
        Self { dead, all, leaving, master_dies, copies_fail }
    }
}

pub(crate) fn join(one: &Path, other: &Path) -> Path {
    one.iter().chain(other.iter()).collect()
}
