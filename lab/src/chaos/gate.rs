//! The moment from which faults count.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::clock::now_ns;

/// Opens once, when the trial's reduction begins; ends with the trial.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    opened_ns: Option<u64>,
    is_over: bool,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first time counts.
    pub fn open(&self, at_ns: u64) {
        self.state().opened_ns.get_or_insert(at_ns);
        self.changed.notify_all();
    }

    /// Whoever waits stops waiting.
    pub fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    /// When it opened.
    pub fn opened_ns(&self) -> Option<u64> {
        self.state().opened_ns
    }

    /// Time since it opened.
    pub fn since(&self) -> Duration {
        Duration::from_nanos(self.opened_ns().map_or(0, |opened| now_ns().saturating_sub(opened)))
    }

    /// Waits until `after` has passed since it opened. False if the trial ends before.
    pub fn wait(&self, after: Duration) -> bool {
        let mut state = self.state();
        loop {
            if state.is_over {
                return false;
            }
            state = match state.opened_ns {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(opened) => {
                    let due = opened + after.as_nanos() as u64;
                    let left = due.saturating_sub(now_ns());
                    if left == 0 {
                        return true;
                    }
                    let waited = self.changed.wait_timeout(state, Duration::from_nanos(left));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn waiting_ends_in_time_or_with_the_trial() {
        let gate = Gate::default();
        thread::scope(|scope| {
            let soon = scope.spawn(|| gate.wait(Duration::from_millis(1)));
            let never = scope.spawn(|| gate.wait(Duration::from_secs(3600)));
            gate.open(now_ns());
            assert!(soon.join().unwrap());
            assert!(gate.since() >= Duration::from_millis(1));
            gate.end();
            assert!(!never.join().unwrap());
        });
        assert!(!gate.wait(Duration::ZERO), "it is over");
    }
}
