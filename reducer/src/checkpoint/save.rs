//! Saving a checkpoint.

use std::{
    any::type_name,
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    future::IntoFuture,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use everfold_protocol::{ReductionId, codec};
use everfold_runtime::{
    kernel::Element,
    result_log::{self, Agreed, Calls, LogError},
};
use futures::{FutureExt, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    contents::{Contents, Shape},
    error::CheckpointError,
    hook::{CheckpointHook, Live},
    together,
};
use crate::{encoding, session::Session};

/// A checkpoint that is about to be saved: made by [`Session::checkpoint`]. Await it.
#[must_use = "nothing is saved before it is awaited"]
pub struct Checkpoint<'a, T> {
    session: Session,
    state: &'a T,
    arrays: Vec<(Shape, &'a [u8])>,
    point: Option<String>,
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
    /// The interval is not over, the [plan](crate::plan) saves none here, or the last one is still on its way to the
    /// directory of checkpoints.
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
        Checkpoint {
            session: self.clone(),
            state,
            arrays: Vec::new(),
            point: None,
            now: false,
            durable: false,
        }
    }

    /// Whether the next checkpoint would be saved: ranks come back, and the
    /// [interval](crate::Config::checkpoint_interval) is over or half of the room for outcomes is taken. Where all
    /// ranks save together, whether this one would: one is enough for all. While this rank follows a
    /// [plan](crate::plan), no interval counts.
    pub fn checkpoint_due(&self) -> bool {
        let handle = self.handle();
        let is_over = || !self.keeping().placing.follows_plan() && self.keeping().is_due();
        handle.saves() && (is_over() || handle.is_log_half_full())
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

    /// Says which point of the program this is. Where a rank follows a [plan](crate::plan), the plan says at
    /// which passes of which points a checkpoint is saved; a profile that is recorded has these points.
    ///
    /// A point has one name, whoever passes it and how often. Where a loop passes several places, each has a
    /// name of its own.
    pub fn at(mut self, point: impl Into<String>) -> Self {
        self.point = Some(point.into());
        self
    }

    /// Takes a copy of everything that is to be saved, now, and writes it when the future is awaited: on
    /// another thread, while this one and a device go on. It costs memory for the copy. A plain `await` copies no
    /// arrays.
    ///
    /// The checkpoint is in force once the future has ended, and holds what was there when it was started. Call no
    /// reduction in between: the checkpoint would end in [`CheckpointError::CalledMeanwhile`]. If a later one is
    /// in force already, nothing is saved, and the outcome is [`Checkpointed::NotDue`].
    ///
    /// # Errors
    /// Those of [`Session::checkpoint`], and [`CheckpointError::StartedTogether`] where all ranks save together.
    pub fn start(mut self) -> Result<Saving, CheckpointError> {
        if self.session.together().is_some() {
            return Err(CheckpointError::StartedTogether);
        }
        let (begun, session) = (Instant::now(), self.session.clone());
        let prepared = match self.begin()? {
            None => Ok(self.prepare()?.into_owned()?),
            Some(nothing) => Err(nothing),
        };
        session.away_since(begun);
        let writes = prepared.is_ok();
        let written = async move {
            match prepared {
                Ok(prepared) => prepared.save(None).await,
                Err(nothing) => Ok(nothing),
            }
        };
        Ok(Saving { writes, written: written.boxed() })
    }

    /// Waits until it is complete in the [directory](crate::Config::checkpoint_directory) that outlives the job, on
    /// all ranks. They all say so at this call. It is saved in any case.
    ///
    /// Without it, the checkpoint goes there while the ranks compute on.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Records that the program is at this point.
    fn record(&self, reached: Instant) -> Result<(), CheckpointError> {
        let keeping = self.session.keeping();
        let (Some(recorder), Some(point)) = (keeping.placing.recorder(), &self.point) else { return Ok(()) };
        let state = encoding::encode(self.state).map_err(CheckpointError::Unfit)?;
        let arrays: usize = self.arrays.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut live = Live { host_bytes: (state.len() + arrays) as u64, device_bytes: 0 };
        for of_hook in keeping.each_hook("tell how much is live", |_, hook| hook.live())? {
            live.host_bytes += of_hook.host_bytes;
            live.device_bytes += of_hook.device_bytes;
        }
        recorder.reach(point, reached, live);
        Ok(())
    }

    /// Whether there is something to do at this call.
    fn begin(&mut self) -> Result<Option<Checkpointed>, CheckpointError> {
        self.session.keeping().check_resumed()?;
        self.record(Instant::now())?;
        self.now |= self.session.reach_in_plan(self.point.as_deref());
        let Self { session, now, durable, .. } = self;
        match session.together() {
            Some(together) if together.votes(*now || *durable) => Ok(None),
            Some(_) => Ok(Some(Checkpointed::NotDue)),
            None if *durable => Err(CheckpointError::NoDirectory),
            None if !session.handle().saves() => Ok(Some(Checkpointed::NotConfigured)),
            None if !*now && !session.checkpoint_due() => Ok(Some(Checkpointed::NotDue)),
            None if session.handle().calls_to_catch_up() > 0 => Ok(Some(Checkpointed::CatchingUp)),
            None => Ok(None),
        }
    }

    /// What can be done before calls have ended.
    fn prepare(self) -> Result<Prepared<'a>, CheckpointError> {
        let Self { session, state, arrays, point, .. } = self;
        let keeping = session.keeping();
        keeping.check_held()?;
        let (shapes, arrays): (Vec<_>, Vec<_>) = arrays.into_iter().unzip();
        let contents = Contents {
            type_name: type_name::<T>().to_owned(),
            arrays: shapes,
            hooks: keeping.hook_names(),
            passed: keeping.placing.passed(),
        };
        contents.check()?;
        keeping.check_asked(&contents)?;
        // Before the state is read: it has the values of these calls, and of no others.
        let calls = session.between_calls(of_application);
        let state = encoding::encode(state).map_err(CheckpointError::Unfit)?;
        let arrays = arrays.into_iter().map(Cow::Borrowed).collect();
        let (number, is_point) = (keeping.begin_saving(), point.is_some());
        Ok(Prepared { session, number, is_point, calls, contents, state, arrays, of_hooks: None })
    }
}

/// A checkpoint whose content was taken already: made by [`Checkpoint::start`]. Await it.
#[must_use = "nothing is saved before it is awaited"]
pub struct Saving {
    writes: bool,
    written: BoxFuture<'static, Result<Checkpointed, CheckpointError>>,
}

impl Saving {
    /// Whether there is anything to write. Otherwise it ends at once, with an outcome that says why not.
    pub fn writes(&self) -> bool {
        self.writes
    }
}

impl Future for Saving {
    type Output = Result<Checkpointed, CheckpointError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.written.poll_unpin(context)
    }
}

impl fmt::Debug for Saving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saving").field("writes", &self.writes).finish_non_exhaustive()
    }
}

/// A checkpoint that waits for calls to end.
pub(super) struct Prepared<'a> {
    session: Session,
    /// Counts those of this process.
    number: u64,
    /// Whether the program has said at which point it is.
    is_point: bool,
    /// How often each name had been called when the state was read.
    calls: Calls,
    contents: Contents,
    state: Vec<u8>,
    arrays: Vec<Cow<'a, [u8]>>,
    /// What hooks have saved, if they were asked already.
    of_hooks: Option<Vec<Vec<u8>>>,
}

impl Prepared<'_> {
    /// The same, which depends on no memory of the application.
    fn into_owned(self) -> Result<Prepared<'static>, CheckpointError> {
        prepare_hooks(&self.session, self.is_point)?;
        let of_hooks = save_hooks(&self.session)?;
        let arrays = self.arrays.into_iter().map(|array| Cow::Owned(array.into_owned())).collect();
        let Self { session, number, is_point, calls, contents, state, .. } = self;
        Ok(Prepared { session, number, is_point, calls, contents, state, arrays, of_hooks: Some(of_hooks) })
    }

    /// Saves it, with the number that all ranks have `agreed` on if they have.
    pub(super) async fn save(self, agreed: Option<Agreed>) -> Result<Checkpointed, CheckpointError> {
        let (begun, session) = (Instant::now(), self.session.clone());
        let saved = self.save_between_calls(agreed).await;
        session.away_since(begun);
        saved
    }

    async fn save_between_calls(self, agreed: Option<Agreed>) -> Result<Checkpointed, CheckpointError> {
        let Self { session, number, is_point, calls: before, contents, state, arrays, of_hooks } = self;
        let contents = codec::encode(&contents).map_err(LogError::from)?;
        if of_hooks.is_none() {
            prepare_hooks(&session, is_point)?;
        }
        loop {
            session.handle().all_ended().await?;
            let begun = Instant::now();
            let keeping = session.keeping();
            let asked_now = of_hooks.is_none().then(|| save_hooks(&session)).transpose()?;
            let of_hooks = of_hooks.iter().chain(&asked_now).flatten().map(Vec::as_slice);
            let arrays = arrays.iter().map(|array| &**array);
            let parts: Vec<&[u8]> = std::iter::once(&state[..]).chain(arrays).chain(of_hooks).collect();
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
                if keeping.is_overtaken(number) {
                    return Ok(Some(None));
                }
                Ok(Some(Some(session.handle().save(agreed, calls, contents.clone(), &parts)?)))
            });
            match saving {
                Err(error) => return Err(error),
                Ok(None) => {}
                Ok(Some(None)) => return Ok(Checkpointed::NotDue),
                Ok(Some(Some(result_log::Saving::CatchingUp(_)))) => return Ok(Checkpointed::CatchingUp),
                Ok(Some(Some(result_log::Saving::Done(generation)))) => {
                    keeping.saved(number, begun.elapsed());
                    if let Some(recorder) = keeping.placing.recorder() {
                        recorder.saved(bytes, begun.elapsed());
                    }
                    return Ok(Checkpointed::Saved { generation: generation.0, bytes });
                }
            }
        }
    }
}

/// Lets hooks end what is under way.
fn prepare_hooks(session: &Session, is_point: bool) -> Result<(), CheckpointError> {
    let begun = Instant::now();
    session.keeping().each_hook("prepare for a checkpoint", |_, hook| hook.before())?;
    if let Some(recorder) = session.keeping().placing.recorder().filter(|_| is_point) {
        recorder.fetched(begun.elapsed());
    }
    Ok(())
}

fn save_hooks(session: &Session) -> Result<Vec<Vec<u8>>, CheckpointError> {
    session.keeping().each_hook("save its state", |_, hook| hook.save())
}

impl<'a, T: Serialize + DeserializeOwned + 'static> IntoFuture for Checkpoint<'a, T> {
    type Output = Result<Checkpointed, CheckpointError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let mut this = self;
        let (begun_at, session) = (Instant::now(), this.session.clone());
        let begun = this.begin();
        let how = (this.now, this.durable);
        let prepared = matches!(begun, Ok(None)).then(|| this.prepare());
        session.away_since(begun_at);
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
