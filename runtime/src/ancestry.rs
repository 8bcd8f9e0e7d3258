//! Which process has started which.

use std::iter;

/// The processes that have started `process`, the nearest first, up to the first that is not shown. Where
/// there is no `/proc` there are none.
pub fn ancestors(process: u32) -> impl Iterator<Item = u32> {
    iter::successors(parent(process), |process| parent(*process))
}

/// The nearest process that is, or has started, each of `processes`.
pub fn common_ancestor(processes: &[u32]) -> Option<u32> {
    common(processes, |process| iter::once(process).chain(ancestors(process)))
}

/// `line` begins with a process, and goes on with its ancestors. It is followed no further than to the first
/// in common: there may be thousands of processes.
fn common<L: Iterator<Item = u32>>(processes: &[u32], line: impl Fn(u32) -> L) -> Option<u32> {
    let (first, others) = processes.split_first()?;
    let mut candidates: Vec<u32> = line(*first).collect();
    for other in others {
        let met =
            line(*other).find_map(|process| candidates.iter().position(|candidate| *candidate == process))?;
        candidates.drain(..met);
    }
    candidates.first().copied()
}

fn parent(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    parent_in(&status).filter(|parent| *parent > 0)
}

/// The name of the program stands in parentheses, and may itself hold some.
fn parent_in(status: &str) -> Option<u32> {
    status.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent_in("17 (sh) S 4 17 17 0"), Some(4));
        assert_eq!(parent_in("17 (a) S 1 (b) S 4 17 17 0"), Some(4));
        assert_eq!(parent_in(""), None);
        assert_eq!(ancestors(std::process::id()).next(), Some(std::os::unix::process::parent_id()));
    }

    #[test]
    fn the_nearest_common_ancestor_is_found() {
        // A supervisor 10 with ranks 11 and, behind a shell 12, 13; another shell 20 with 21; all under 1.
        let line = |process: u32| {
            let line = match process {
                10 => vec![10, 1],
                11 => vec![11, 10, 1],
                13 => vec![13, 12, 10, 1],
                21 => vec![21, 20, 1],
                hidden => vec![hidden],
            };
            line.into_iter()
        };
        assert_eq!(common(&[11, 13], line), Some(10));
        assert_eq!(common(&[11], line), Some(11));
        assert_eq!(common(&[10, 13, 11], line), Some(10));
        assert_eq!(common(&[13, 21, 11], line), Some(1));
        assert_eq!(common(&[13, 99], line), None);
        assert_eq!(common(&[], line), None);
    }
}
