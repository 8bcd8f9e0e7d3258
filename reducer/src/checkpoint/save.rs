//! Saving a checkpoint.

use std::{any::type_name, collections::BTreeSet, fmt, future::IntoFuture, time::Instant};

use everfold_protocol::{ReductionId, codec};
use everfold_runtime::{
    kernel::Element,
    result_log::{Agreed, Calls, LogError, Saving},
};
use futures::{FutureExt, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    contents::{Contents, Shape},
    error::CheckpointError,
    hook::CheckpointHook,
    together,
};
use crate::{encoding, session::Session};

/// A checkpoint that is about to be saved: made by [`Session::checkpoint`]. Await it.
#[must_use = "nothing is saved before it is awaited"]
pub struct Checkpoint<'a, T> {
    session: Session,
    state: &'a T,
    arrays: Vec<(Shape, &'a [u8])>,
    now: bool,
    durable: bool,
}

/// What came of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpointed {
    /// It is in force: a process that comes back goes on from it.
    Saved {
        /// The number of this rank's checkpoint.
        generation: u64,
        /// Length of its state, arrays and what hooks have saved, in bytes.
        bytes: u64,
    },
    /// The interval is not over, or the last one is still on its way to the directory of checkpoints.
    NotDue,
    /// This process has come back, and has yet to make calls that an earlier one has made. The checkpoint that
    /// it has gone on from stays in force until then.
    CatchingUp,
    /// Ranks do not come back in this job, and it has no directory of checkpoints: see
    /// [`Config::restart_ranks`](crate::Config::restart_ranks) and
    /// [`Config::checkpoint_directory`](crate::Config::checkpoint_directory).
    NotConfigured,
    /// Checkpoints are saved by all ranks together, and a rank has died that does not come back. Those that were
    /// complete before stay in the directory.
    RanksLost,
}

impl Session {
    /// Saves what this rank needs to go on from here after its process has died, if a checkpoint is
    /// [due](Self::checkpoint_due).
    ///
    /// Call it where all values are in the state: a process that comes back goes on behind this line. It
    /// waits for reductions that were called before and whose futures were dropped. After
    /// [`resume`](Self::resume), where there is an example.
    ///
    /// # Errors
    /// [`CheckpointError::StillHeld`] if the outcome of a reduction is yet to be taken,
    /// [`CheckpointError::CalledMeanwhile`] if another task or thread calls while it waits,
    /// [`CheckpointError::NotTogether`] where all ranks save together and are not at the same call,
    /// [`CheckpointError::NotResumed`], and what else [`CheckpointError`] lists. The checkpoint before stays in
    /// force.
    pub fn checkpoint<'a, T>(&self, state: &'a T) -> Checkpoint<'a, T>
    where
        T: Serialize + DeserializeOwned + 'static,
    {
        Checkpoint { session: self.clone(), state, arrays: Vec::new(), now: false, durable: false }
    }

    /// Whether the next checkpoint would be saved: ranks come back, and the
    /// [interval](crate::Config::checkpoint_interval) is over or half of the room for outcomes is taken. Where all
    /// ranks save together, whether this one would: one is enough for all.
    pub fn checkpoint_due(&self) -> bool {
        let handle = self.handle();
        handle.saves() && (self.keeping().is_due() || handle.is_log_half_full())
    }

    /// Lets `hook` save state beside that of the application, and restore it when this rank comes back. Hooks
    /// run in the order in which they are registered.
    ///
    /// # Errors
    /// [`CheckpointError::HookLate`] after [`resume`](Self::resume), [`CheckpointError::TwiceNamed`].
    pub fn on_checkpoint(
        &self,
        name: impl Into<String>,
        hook: impl CheckpointHook,
    ) -> Result<(), CheckpointError> {
        self.keeping().add_hook(name.into(), Box::new(hook))
    }
}

impl<'a, T: Serialize + DeserializeOwned + 'static> Checkpoint<'a, T> {
    /// Saves an array beside the state, straight from where it lies. [`Resume::array`](super::Resume::array)
    /// reads it.
    pub fn array<E: Element>(mut self, name: impl Into<String>, array: &'a [E]) -> Self {
        self.arrays.push((Shape::of(name.into(), array), bytemuck::cast_slice(array)));
        self
    }

    /// Saves it although none is due.
    pub fn now(mut self) -> Self {
        self.now = true;
        self
    }

    /// Waits until it is complete in the [directory](crate::Config::checkpoint_directory) that outlives the job, on
    /// all ranks. They all say so at this call. It is saved in any case.
    ///
    /// Without it, the checkpoint goes there while the ranks compute on.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Whether there is something to do at this call.
    fn begin(&self) -> Result<Option<Checkpointed>, CheckpointError> {
        let Self { session, now, durable, .. } = self;
        session.keeping().check_resumed()?;
        match session.together() {
            Some(together) if together.votes(*now || *durable) => Ok(None),
            Some(_) => Ok(Some(Checkpointed::NotDue)),
            None if *durable => Err(CheckpointError::NoDirectory),
            None if !session.handle().saves() => Ok(Some(Checkpointed::NotConfigured)),
            None if !now && !session.checkpoint_due() => Ok(Some(Checkpointed::NotDue)),
            None if session.handle().calls_to_catch_up() > 0 => Ok(Some(Checkpointed::CatchingUp)),
            None => Ok(None),
        }
    }

    /// What can be done before calls have ended.
    fn prepare(self) -> Result<Prepared<'a>, CheckpointError> {
        let Self { session, state, arrays, .. } = self;
        let keeping = session.keeping();
        keeping.check_held()?;
        let (shapes, arrays): (Vec<_>, Vec<_>) = arrays.into_iter().unzip();
        let contents =
            Contents { type_name: type_name::<T>().to_owned(), arrays: shapes, hooks: keeping.hook_names() };
        contents.check()?;
        keeping.check_asked(&contents)?;
        // Before the state is read: it has the values of these calls, and of no others.
        let calls = session.between_calls(of_application);
        let state = encoding::encode(state).map_err(CheckpointError::Unfit)?;
        Ok(Prepared { session, calls, contents, state, arrays })
    }
}

/// A checkpoint that waits for calls to end.
pub(super) struct Prepared<'a> {
    session: Session,
    /// How often each name had been called when the state was read.
    calls: Calls,
    contents: Contents,
    state: Vec<u8>,
    arrays: Vec<&'a [u8]>,
}

impl Prepared<'_> {
    /// Saves it, with the number that all ranks have `agreed` on if they have.
    pub(super) async fn save(self, agreed: Option<Agreed>) -> Result<Checkpointed, CheckpointError> {
        let Self { session, calls: before, contents, state, arrays } = self;
        let contents = codec::encode(&contents).map_err(LogError::from)?;
        session.keeping().each_hook("prepare for a checkpoint", |_, hook| hook.before())?;
        loop {
            session.handle().all_ended().await?;
            let begun = Instant::now();
            let keeping = session.keeping();
            let of_hooks = keeping.each_hook("save its state", |_, hook| hook.save())?;
            let arrays = arrays.iter().copied();
            let parts: Vec<&[u8]> =
                std::iter::once(&state[..]).chain(arrays).chain(of_hooks.iter().map(Vec::as_slice)).collect();
            let bytes = parts.iter().map(|part| part.len() as u64).sum();
            // Others may have called meanwhile.
            let saving = session.between_calls(|calls| {
                if session.handle().has_open_calls()? {
                    return Ok(None);
                }
                keeping.check_held()?;
                if of_application(calls.clone()) != before {
                    return Err(CheckpointError::CalledMeanwhile);
                }
                Ok(Some(session.handle().save(agreed, calls, contents.clone(), &parts)?))
            });
            match saving {
                Err(error) => return Err(error),
                Ok(None) => {}
                Ok(Some(Saving::CatchingUp(_))) => return Ok(Checkpointed::CatchingUp),
                Ok(Some(Saving::Done(generation))) => {
                    keeping.saved(begun.elapsed());
                    return Ok(Checkpointed::Saved { generation: generation.0, bytes });
                }
            }
        }
    }
}

impl<'a, T: Serialize + DeserializeOwned + 'static> IntoFuture for Checkpoint<'a, T> {
    type Output = Result<Checkpointed, CheckpointError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let (session, how) = (self.session.clone(), (self.now, self.durable));
        let begun = self.begin();
        let prepared = matches!(begun, Ok(None)).then(|| self.prepare());
        async move {
            let Some(prepared) = prepared else {
                return begun.map(|done| done.unwrap_or(Checkpointed::NotDue));
            };
            match session.together() {
                Some(together) => together.save(&session, prepared, how).await,
                None => prepared?.save(None).await,
            }
        }
        .boxed()
    }
}

/// Calls without those by which ranks agree on checkpoints.
fn of_application(mut calls: Calls) -> Calls {
    let own: BTreeSet<u64> = together::NAMES.iter().map(|name| ReductionId::new(name, 0).name).collect();
    calls.retain(|(name, _)| !own.contains(name));
    calls
}

impl<T> fmt::Debug for Checkpoint<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("arrays", &self.arrays.len()).finish_non_exhaustive()
    }
}
