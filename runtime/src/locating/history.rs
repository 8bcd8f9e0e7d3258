//! What has become of the processes of a host: what its agent answers when it is asked for its log.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use everfold_locate::probe::Reading;
use everfold_protocol::{ProcessId, Rank, message::Ending};

/// For so long an end counts although a later process of the rank runs.
const RECENT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct History {
    processes: BTreeMap<ProcessId, Life>,
}

#[derive(Debug)]
struct Life {
    pid: Option<i32>,
    end: Option<(Instant, Ending)>,
    /// Whether its agent was told to end it.
    is_unwanted: bool,
}

impl History {
    pub fn came(&mut self, process: ProcessId, pid: Option<i32>) {
        self.processes.insert(process, Life { pid, end: None, is_unwanted: false });
    }

    pub fn ended(&mut self, process: ProcessId, ending: Ending) {
        let life = self.processes.entry(process).or_insert(Life { pid: None, end: None, is_unwanted: false });
        // An agent that is told how a process has ended may have seen it end before.
        let is_news = life.end.as_ref().is_none_or(|(_, known)| *known == Ending::Unknown);
        if is_news {
            life.end = Some((Instant::now(), ending));
        }
    }

    /// A process is about to be ended, as nobody needs it: that is no fault.
    pub fn is_unwanted(&mut self, process: ProcessId) {
        self.processes.get_mut(&process).into_iter().for_each(|life| life.is_unwanted = true);
    }

    /// Processes that have not ended, with their process ids.
    pub fn running(&self) -> impl Iterator<Item = (ProcessId, i32)> {
        let runs =
            |(process, life): (&ProcessId, &Life)| Some((*process, life.pid.filter(|_| life.end.is_none())?));
        self.processes.iter().filter_map(runs)
    }

    /// What is known of the latest process of a rank, or of one that has ended just before.
    pub fn readings(&self, rank: Rank) -> Vec<(Reading, f64)> {
        let lives =
            || self.processes.iter().filter(|(process, _)| process.rank == rank).map(|(_, life)| life);
        let Some(latest) = lives().next_back() else { return Vec::new() };
        let recent = |life: &&Life| life.end.is_some_and(|(at, _)| at.elapsed() < RECENT);
        let life = lives().rev().find(recent).unwrap_or(latest);
        let state = life.pid.filter(|_| life.end.is_none()).and_then(state);
        let runs = life.is_unwanted || (life.end.is_none() && !matches!(state, Some('Z' | 'X')));
        let is = |condition: bool| f64::from(u8::from(condition));
        vec![
            (Reading::Runs, is(runs)),
            (Reading::Stopped, is(matches!(state, Some('T' | 't')))),
            (Reading::OutOfMemory, is(matches!(life.end, Some((_, Ending::OutOfMemory))))),
        ]
    }
}

/// The state of a process as the system shows it.
fn state(pid: i32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    text.rsplit_once(')')?.1.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ProcessId = ProcessId { rank: Rank(3), incarnation: everfold_protocol::Incarnation(0) };

    fn of(history: &History) -> [f64; 3] {
        let readings = history.readings(Rank(3));
        [0, 1, 2].map(|at| readings[at].1)
    }

    #[test]
    fn an_end_counts_for_a_while_although_the_rank_has_come_back() {
        let mut history = History::default();
        assert!(history.readings(Rank(3)).is_empty());
        history.came(PROCESS, Some(std::process::id() as i32));
        assert_eq!(of(&history), [1.0, 0.0, 0.0]);
        history.ended(PROCESS, Ending::Unknown);
        history.ended(PROCESS, Ending::OutOfMemory);
        history.ended(PROCESS, Ending::Signal(9));
        assert_eq!(of(&history), [0.0, 0.0, 1.0], "how it has ended is known once");
        let next = ProcessId { incarnation: everfold_protocol::Incarnation(1), ..PROCESS };
        history.came(next, Some(std::process::id() as i32));
        assert_eq!(of(&history), [0.0, 0.0, 1.0]);
        assert_eq!(history.running().count(), 1);
    }

    #[test]
    fn a_stopped_process_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
        while state(pid.as_raw()) != Some('T') {
            std::thread::yield_now();
        }
        let mut history = History::default();
        history.came(PROCESS, Some(pid.as_raw()));
        assert_eq!(of(&history), [1.0, 1.0, 0.0]);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
