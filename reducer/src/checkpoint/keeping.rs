//! What a session remembers between checkpoints.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

use everfold_protocol::ReductionId;

use super::{
    background::Background,
    contents::Contents,
    error::CheckpointError,
    hook::{CheckpointHook, HookError},
    interval::Interval,
    pace::Pacing,
    spare::Spare,
};
use crate::plan::Placing;

/// What a session remembers between checkpoints.
pub(crate) struct Keeping {
    interval: Interval,
    pacing: Mutex<Pacing>,
    inner: Mutex<Inner>,
    /// In the order in which they were registered. They stay here while they run: a checkpoint without one of
    /// them could not be gone on from.
    hooks: Mutex<Vec<Box<dyn CheckpointHook>>>,
    /// Where the application is, and where a plan says to save.
    pub placing: Placing,
    /// What the application has asked for when it resumed.
    asked: OnceLock<Asked>,
    /// Calls whose outcome the application has not taken yet.
    held: Arc<HeldCalls>,
    /// The last checkpoint that was written while the program went on, or is.
    behind: Mutex<Option<Background>>,
    pub(super) spare: Spare,
}

/// The number of calls after which a checkpoint may be due although no time says so: with a plan, the result log
/// of a rank may be half full; a pace of the program's own may have heard news.
const CALLS_MAX: u64 = 64;

type HeldCalls = Mutex<BTreeMap<ReductionId, String>>;

/// What was asked for, and the name of the state's type once more.
type Asked = (&'static str, Contents);

struct Inner {
    stage: Stage,
    /// When the last checkpoint was saved, or the session began.
    last: Instant,
    /// How long it took to save.
    cost: Option<Duration>,
    /// Number of checkpoints that were begun, and the latest of them that was saved.
    begun: u64,
    latest: u64,
    /// Names of the hooks.
    hooks: Vec<String>,
}

/// How far the application is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has neither called anything nor asked for a checkpoint.
    New,
    /// It has called reductions first.
    Called,
    /// It has asked for its checkpoint, and has it if there is one.
    Resumed,
}

/// A call whose outcome the application has not taken yet.
#[derive(Debug)]
pub(crate) struct Held {
    calls: Weak<HeldCalls>,
    reduction: ReductionId,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(calls) = self.calls.upgrade() {
            lock(&calls).remove(&self.reduction);
        }
    }
}

impl Keeping {
    pub fn new(interval: Interval, pacing: Pacing, placing: Placing) -> Self {
        let inner = Inner {
            stage: Stage::New,
            last: Instant::now(),
            cost: None,
            begun: 0,
            latest: 0,
            hooks: Vec::new(),
        };
        Self {
            interval,
            pacing: Mutex::new(pacing),
            inner: Mutex::new(inner),
            hooks: Mutex::default(),
            placing,
            asked: OnceLock::new(),
            held: Arc::default(),
            behind: Mutex::default(),
            spare: Spare::default(),
        }
    }

    /// The last checkpoint that was written while the program went on, or is.
    pub(super) fn behind(&self) -> Option<Background> {
        lock(&self.behind).clone()
    }

    /// A checkpoint is written while the program goes on.
    pub(super) fn write_behind(&self, written: Background) {
        *lock(&self.behind) = Some(written);
    }

    /// Whether one is being written.
    pub(super) fn is_writing(&self) -> bool {
        self.behind().is_some_and(|written| written.result().is_none())
    }

    /// Waits until none is being written.
    pub async fn written(&self) {
        if let Some(written) = self.behind() {
            // What went wrong was told.
            let _ = written.wait().await;
        }
    }

    /// Takes in that a reduction is about to be called. Returns false if the application has not asked for
    /// its checkpoint before.
    pub fn calls(&self) -> bool {
        let mut inner = lock(&self.inner);
        if inner.stage == Stage::New {
            inner.stage = Stage::Called;
        }
        inner.stage == Stage::Resumed
    }

    /// Remembers a call until its outcome is taken.
    pub fn hold(&self, reduction: ReductionId, name: &str) -> Held {
        lock(&self.held).insert(reduction, name.to_owned());
        Held { calls: Arc::downgrade(&self.held), reduction }
    }

    /// Refuses if the outcome of a call is yet to be taken.
    pub fn check_held(&self) -> Result<(), CheckpointError> {
        let held = lock(&self.held);
        held.iter().next().map_or(Ok(()), |(reduction, name)| {
            Err(CheckpointError::StillHeld { name: name.clone(), sequence: reduction.sequence })
        })
    }

    /// Refuses to go on from a checkpoint if the application has begun to compute.
    pub fn check_new(&self) -> Result<(), CheckpointError> {
        match lock(&self.inner).stage {
            Stage::New => Ok(()),
            Stage::Called | Stage::Resumed => Err(CheckpointError::ResumedLate),
        }
    }

    /// Takes in that the application has its checkpoint, or there is none, and what it has asked for.
    pub(super) fn resumed(&self, type_name: &'static str, asked: Contents) {
        // Once: it does not ask again.
        let _ = self.asked.set((type_name, asked));
        lock(&self.inner).stage = Stage::Resumed;
    }

    /// Refuses to save what a process that comes back would not ask for.
    pub(super) fn check_asked(&self, contents: &Contents) -> Result<(), CheckpointError> {
        match self.asked.get() {
            Some((type_name, asked)) => contents.compare(asked, type_name),
            None => Ok(()),
        }
    }

    /// Refuses to save anything if the application has not asked for its checkpoint.
    pub fn check_resumed(&self) -> Result<(), CheckpointError> {
        match lock(&self.inner).stage {
            Stage::Resumed => Ok(()),
            Stage::New | Stage::Called => Err(CheckpointError::NotResumed),
        }
    }

    /// How long is between checkpoints, where neither a plan nor a pace of the program's own says it.
    pub fn interval(&self) -> Interval {
        self.interval
    }

    /// Whether the pace says that a checkpoint is due.
    pub fn is_due(&self) -> bool {
        let (elapsed, interval, _) = self.pace();
        elapsed >= interval
    }

    /// How many calls of `checkpoint` may pass until one is due, if it was called so often since the last one
    /// was saved.
    pub(super) fn calls_until_due(&self, calls: u64) -> u64 {
        if self.placing.follows_plan() {
            return CALLS_MAX;
        }
        let (elapsed, interval, hears) = self.pace();
        let left = interval.saturating_sub(elapsed);
        let each = elapsed.as_secs_f64() / calls.max(1) as f64;
        let until = if left.is_zero() { 0 } else { (left.as_secs_f64() / each.max(1e-9)).ceil() as u64 };
        if hears { until.min(CALLS_MAX) } else { until }
    }

    /// The time since the last checkpoint, how long after it the next one is due, and whether news may change
    /// that.
    fn pace(&self) -> (Duration, Duration, bool) {
        let (last, cost) = {
            let inner = lock(&self.inner);
            (inner.last, inner.cost)
        };
        let mut pacing = lock(&self.pacing);
        (last.elapsed(), pacing.interval(cost), pacing.hears())
    }

    /// The number of a checkpoint that is about to be saved.
    pub fn begin_saving(&self) -> u64 {
        // News that comes later is not older than the checkpoint.
        lock(&self.pacing).listen();
        let mut inner = lock(&self.inner);
        inner.begun += 1;
        inner.begun
    }

    /// Whether a later checkpoint was saved already.
    pub fn is_overtaken(&self, number: u64) -> bool {
        lock(&self.inner).latest > number
    }

    /// Takes in that a checkpoint was saved, which took so long.
    pub fn saved(&self, number: u64, cost: Duration) {
        let mut inner = lock(&self.inner);
        inner.latest = number;
        inner.last = Instant::now();
        inner.cost = Some(cost);
        drop(inner);
        lock(&self.pacing).saved(cost);
    }

    pub fn add_hook(&self, name: String, hook: Box<dyn CheckpointHook>) -> Result<(), CheckpointError> {
        let mut inner = lock(&self.inner);
        if inner.stage == Stage::Resumed {
            return Err(CheckpointError::HookLate { name });
        }
        if inner.hooks.contains(&name) {
            return Err(CheckpointError::TwiceNamed { what: "hook", name });
        }
        // They are held while hooks restore what they have saved.
        let Ok(mut hooks) = self.hooks.try_lock() else { return Err(CheckpointError::HookLate { name }) };
        hooks.push(hook);
        inner.hooks.push(name);
        Ok(())
    }

    pub fn hook_names(&self) -> Vec<String> {
        lock(&self.inner).hooks.clone()
    }

    /// Lets all hooks do something, in the order in which they were registered.
    pub fn each_hook<R>(
        &self,
        action: &'static str,
        mut act: impl FnMut(usize, &mut dyn CheckpointHook) -> Result<R, HookError>,
    ) -> Result<Vec<R>, CheckpointError> {
        let names = self.hook_names();
        let mut hooks = lock(&self.hooks);
        let each = hooks.iter_mut().zip(names).enumerate();
        each.map(|(index, (hook, name))| {
            act(index, hook.as_mut()).map_err(|source| CheckpointError::Hook { name, action, source })
        })
        .collect()
    }
}

impl std::fmt::Debug for Keeping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeping").field("interval", &self.interval).finish_non_exhaustive()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
