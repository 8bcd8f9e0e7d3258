//! The fault localisation tree (FL-1): whose symptoms a host collects. It does not change while the job lasts.

use alloc::collections::BTreeMap;

use crate::place::Host;

/// The root of every tree: the host where the master is.
pub const ROOT: Host = Host(0);

/// Why a host does not collect symptoms for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It is dead.
    Dead,
    /// Its bandwidth or its cores are used up.
    Overloaded,
    /// It does not answer.
    CutOff,
}

/// Who is away, as one host sees it.
pub type Absent = BTreeMap<Host, Absence>;

/// A complete tree over hosts `0..hosts`, with the root [`ROOT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    hosts: u32,
    children: u32,
}

/// Why there is no such tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// No hosts.
    #[error("a tree needs at least one host")]
    Empty,
    /// A parent has to have children.
    #[error("a host needs room for at least one child")]
    Childless,
}

impl Tree {
    /// A tree in which each host has up to `children` children.
    ///
    /// # Errors
    /// One of the two is 0.
    pub fn new(hosts: u32, children: u32) -> Result<Self, TreeError> {
        match (hosts, children) {
            (0, _) => Err(TreeError::Empty),
            (_, 0) => Err(TreeError::Childless),
            _ => Ok(Self { hosts, children }),
        }
    }

    /// Whether the tree has this host.
    pub fn contains(&self, host: Host) -> bool {
        host.0 < self.hosts
    }

    /// The localisation node of `host` (FLN); none for the root.
    pub fn parent(&self, host: Host) -> Option<Host> {
        (host.0 > 0).then(|| Host((host.0 - 1) / self.children))
    }

    /// Who collects the symptoms of `host` now: its parent or, while that is away, the nearest ancestor that is there (SFLN).
    /// At worst it is the root, which also collects its own.
    pub fn collector(&self, host: Host, absent: &Absent) -> Host {
        let ancestors = core::iter::successors(self.parent(host), |&above| self.parent(above));
        ancestors.into_iter().find(|above| !absent.contains_key(above)).unwrap_or(ROOT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symptoms_climb_past_whoever_is_away_and_end_at_the_root() {
        let tree = Tree::new(40, 3).unwrap();
        let mut absent = Absent::new();
        assert_eq!(tree.collector(Host(39), &absent), Host(12));
        for (away, why, next) in
            [(12, Absence::Dead, 3), (3, Absence::Overloaded, 0), (0, Absence::CutOff, 0)]
        {
            absent.insert(Host(away), why);
            assert_eq!(tree.collector(Host(39), &absent), Host(next));
        }
        assert_eq!(tree.collector(Host(0), &absent), Host(0));
    }

    #[test]
    fn there_is_no_tree_of_nobody() {
        assert_eq!(Tree::new(0, 3), Err(TreeError::Empty));
        assert_eq!(Tree::new(3, 0), Err(TreeError::Childless));
    }
}
