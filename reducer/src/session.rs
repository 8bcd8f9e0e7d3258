//! A process's place in its job.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use everfold_protocol::{Rank, ReductionId, message::News};
use everfold_runtime::{
    kernel::Element,
    rank::{Handle, Waiting},
    result_log::Calls,
};
use futures::Stream;
use tokio::sync::broadcast::error::RecvError;

use crate::{
    array::Array,
    checkpoint::{CheckpointPace, Interval, Keeping, Pacing, Together},
    group::Group,
    kept::States,
    plan::Placing,
};

/// A process's place in its job, and the way to call reductions. Clones are the same session.
///
/// # Closing
/// [`close`](Self::close) leaves the job in good order; [`launch`](crate::launch()) does it when the
/// program's closure ends well. Dropping the last clone of an open session closes it, too, and blocks the
/// thread meanwhile.
#[derive(Clone, Debug)]
pub struct Session {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: Handle,
    /// How often each name was used, by the part of the id that stands for it. Nothing is ever taken out: a
    /// number that was used must not come again, and all ranks have to count alike, whenever they use a name
    /// again.
    sequences: Mutex<HashMap<u64, u64, BuildHasherDefault<Hashed>>>,
    keeping: Keeping,
    /// Where checkpoints are saved for a later job.
    together: Option<Together>,
    states: States,
}

impl Session {
    pub(crate) fn new(
        handle: Handle,
        interval: Interval,
        pace: Option<Box<dyn CheckpointPace>>,
        placing: Placing,
        together: Option<Together>,
    ) -> Self {
        // What was called before the checkpoint is not called again.
        let sequences = handle.saved().into_iter().flat_map(|saved| saved.calls.iter().copied()).collect();
        let own = |pace| Pacing::own(pace, handle.news());
        let pacing = pace.map_or_else(|| Pacing::of(interval), own);
        let keeping = Keeping::new(interval, pacing, placing);
        let sequences = Mutex::new(sequences);
        Self { inner: Arc::new(Inner { handle, sequences, keeping, together, states: States::default() }) }
    }

    pub(crate) fn together(&self) -> Option<&Together> {
        self.inner.together.as_ref()
    }

    pub(crate) fn keeping(&self) -> &Keeping {
        &self.inner.keeping
    }

    pub(crate) fn states(&self) -> &States {
        &self.inner.states
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.inner.handle
    }

    /// This process's rank, `0..size`.
    pub fn rank(&self) -> Rank {
        self.handle().process().rank
    }

    /// Number of processes in the job.
    pub fn size(&self) -> u32 {
        self.handle().peers().len() as u32
    }

    /// All ranks of the job.
    pub fn world(&self) -> Group {
        Group::world(self.size())
    }

    /// The ranks that are not known to have failed. A group that names a failed rank is refused, unless
    /// contributions [may be missing](crate::Reduction::allow_missing); `world()` names all ranks.
    ///
    /// Ranks hear of a failure at different times, but all ranks of a group have to name the same group. So
    /// take the group from a [report](crate::Report), which is the same at all ranks that receive the result;
    /// or take it from here, and call again if the reduction is refused.
    ///
    /// Where [ranks come back](crate::Config::restart_ranks), take no groups from here. A rank that is away for a
    /// moment is missing here, although reductions of all ranks wait for it. A reduction without it would leave it
    /// with another count of the calls of that name.
    pub fn survivors(&self) -> Group {
        let failed = self.handle().failed();
        self.world().filter(|rank| !failed.contains(rank))
    }

    /// The news of the job: failures, recoveries, slow processes, located faults, contributions without a
    /// replica. The first listener also hears all news since the session began, later ones only new ones. The
    /// stream ends when the session is over. A listener that falls more than 1024 items behind misses the
    /// oldest.
    pub fn events(&self) -> impl Stream<Item = News> + Send + Unpin + use<> {
        let news = self.handle().all_news();
        Box::pin(futures::stream::unfold(news, |mut news| async {
            loop {
                match news.recv().await {
                    Ok(event) => return Some((event, news)),
                    Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "a listener is too slow"),
                    Err(RecvError::Closed) => return None,
                }
            }
        }))
    }

    /// An array of `len` elements in memory that peers on this host can map, so that reducing it copies
    /// nothing. If shared memory has no room for it, the array lies in private memory.
    ///
    /// Its content is unspecified: usually zero, or the values of an earlier array.
    pub fn array<T: Element>(&self, len: usize) -> Array<T> {
        let bytes = len.checked_mul(size_of::<T>());
        let block = self.handle().region().zip(bytes).and_then(|(region, bytes)| region.allocate(bytes));
        Array::allocate(block, len)
    }

    /// Waits until all reductions that this rank has called are over, and leaves the job. Later calls end in
    /// [`ReduceError::SessionClosed`](crate::ReduceError::SessionClosed).
    pub async fn close(&self) {
        if let Err((path, error)) = self.end_points() {
            tracing::error!(path = %path.display(), %error, "the profile cannot be written");
        }
        self.checkpoint_written().await;
        self.handle().close().await;
    }

    /// Lets the thread that waits for this session's futures hear the master by itself.
    pub(crate) fn waiting(&self) -> Waiting {
        self.handle().waiting()
    }

    /// Leaves the job at once, as if this process had died; ranks that wait for it hear so.
    ///
    /// [`launch`](crate::launch()) does this when the program's closure ends in an error.
    pub fn abandon(&self) {
        self.handle().abandon();
    }

    /// Does something while no thread can call a reduction; it is given how often each name was called.
    pub(crate) fn between_calls<R>(&self, act: impl FnOnce(Calls) -> R) -> R {
        let sequences = self.inner.sequences.lock().unwrap_or_else(PoisonError::into_inner);
        let mut calls: Calls = sequences.iter().map(|(name, next)| (*name, *next)).collect();
        calls.sort_unstable();
        act(calls)
    }

    /// The number that the next call of `name` has.
    pub(crate) fn next_number(&self, name: &str) -> u64 {
        let sequences = self.inner.sequences.lock().unwrap_or_else(PoisonError::into_inner);
        sequences.get(&ReductionId::new(name, 0).name).copied().unwrap_or_default()
    }

    /// Makes the next call of `name`. A call that fails does not count.
    pub(crate) fn numbered<T, E>(
        &self,
        name: String,
        call: impl FnOnce(ReductionId, String) -> Result<T, E>,
    ) -> Result<T, E> {
        // The lock is held during the call: two threads that call one name do so one after the other.
        let mut sequences = self.inner.sequences.lock().unwrap_or_else(PoisonError::into_inner);
        let id = ReductionId::new(&name, 0);
        let next = sequences.get(&id.name).copied().unwrap_or_default();
        let called = call(ReductionId { sequence: next, ..id }, name)?;
        sequences.insert(id.name, next + 1);
        Ok(called)
    }
}

/// Takes names as they are: they are hashes already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, name: u64) {
        self.0 = name;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("names are numbers");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_costs_little() {
        let mut sequences = HashMap::<u64, u64, BuildHasherDefault<Hashed>>::default();
        for step in 0..1_000_000 {
            *sequences.entry(ReductionId::new(&format!("step-{step}"), 0).name).or_default() += 1u64;
        }
        assert_eq!(sequences.len(), 1_000_000, "no two names are one");
        // A key, a count and a byte of control in each slot; 7 of 8 slots at most are in use, and half of
        // them at least.
        let slots = sequences.capacity().next_power_of_two();
        let bytes = slots * (size_of::<(u64, u64)>() + 1) / sequences.len();
        assert!(bytes <= 40, "{bytes} bytes for each name");
    }
}
