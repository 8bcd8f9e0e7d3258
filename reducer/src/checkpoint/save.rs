//! Saving a checkpoint.

use std::{
    any::type_name,
    borrow::Cow,
    fmt,
    future::IntoFuture,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use everfold_runtime::kernel::Element;
use futures::{FutureExt, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    contents::{Contents, Shape},
    error::CheckpointError,
    hook::{CheckpointHook, Live},
    prepared::{Prepared, of_application},
};
use crate::{
    encoding,
    plan::{Depth, Save},
    session::Session,
};

/// A checkpoint that is about to be saved: made by [`Session::checkpoint`]. Await it.
#[must_use = "nothing is saved before it is awaited"]
pub struct Checkpoint<'a, T> {
    session: Session,
    state: &'a T,
    arrays: Vec<(Shape, &'a [u8])>,
    point: Option<String>,
    now: bool,
    durable: bool,
    /// How the plan saves at this point.
    planned: Option<Save>,
}

/// The outcome of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpointed {
    /// It is in force: a process that comes back goes on from it.
    Saved {
        /// The number of this rank's checkpoint.
        generation: u64,
        /// Length of its state, arrays and what hooks have saved, in bytes.
        bytes: u64,
    },
    /// It is copied, as an asynchronous [plan](crate::plan) says, and a thread writes it while the program
    /// goes on. Until it is written the checkpoint before is in force: a process that comes back goes on from
    /// that one, and its calls are answered from the result log. See [`Session::checkpoint_written`].
    Started {
        /// The number of this rank's checkpoint.
        generation: u64,
        /// Length of its state, arrays and what hooks have saved, in bytes.
        bytes: u64,
    },
    /// The interval is not over, or the pace does not say so; the [plan](crate::plan) saves no checkpoint here, or the last one is still
    /// being copied to the directory of checkpoints.
    NotDue,
    /// This process has come back, and has yet to repeat calls of an earlier process. Until then the
    /// checkpoint from which it goes on stays in force.
    CatchingUp,
    /// Ranks do not come back in this job, and it has no directory of checkpoints, or the [plan](crate::plan)
    /// saves none there at this point: see [`Config::restart_ranks`](crate::Config::restart_ranks) and
    /// [`Config::checkpoint_directory`](crate::Config::checkpoint_directory).
    NotConfigured,
    /// All ranks save together, and a rank has died that does not come back. Complete checkpoints stay in the
    /// directory.
    RanksLost,
}

impl Session {
    /// Saves this rank's state, from which a later process of the rank goes on, if a checkpoint is
    /// [due](Self::checkpoint_due).
    ///
    /// Call it where the state holds every value that is needed later: a process that comes back goes on
    /// behind this line. The call waits for earlier reductions whose futures were dropped. Call
    /// [`resume`](Self::resume) before the first checkpoint; there is an example there.
    ///
    /// # Cancelling
    /// Await it to its end where all ranks save together, in a directory: do not put it in a `select` or
    /// under a timeout. If its future is dropped while ranks agree, or before it is polled, this rank counts
    /// other calls than the others from then on, and every later checkpoint ends in
    /// [`CheckpointError::Dropped`] here and in [`CheckpointError::NotTogether`] at the others.
    ///
    /// # Errors
    /// [`CheckpointError::StillHeld`] if the program holds a future of a reduction,
    /// [`CheckpointError::CalledMeanwhile`] if another task or thread calls while it waits,
    /// [`CheckpointError::NotTogether`] where all ranks save together and are not at the same call,
    /// [`CheckpointError::NotResumed`], and the others that [`CheckpointError`] lists. The checkpoint before
    /// stays in force.
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
            planned: None,
        }
    }

    /// Waits until all checkpoints are written: those that were [started](Checkpointed::Started), and those
    /// that are being copied to the directory. Returns the number of the checkpoint in force, if there is
    /// one. If one could not be written, [`News::CheckpointUnwritten`](crate::News::CheckpointUnwritten) says
    /// so.
    pub async fn checkpoint_written(&self) -> Option<u64> {
        self.keeping().written().await;
        if let Some(together) = self.together() {
            together.written().await;
        }
        let generation = self.handle().generation().0;
        (generation > 0).then_some(generation)
    }

    /// Whether the next checkpoint would be saved: ranks come back, and the
    /// [interval](crate::Config::checkpoint_interval) is over, or the [pace](crate::CheckpointPace) says so, or half of the room for outcomes is taken. If
    /// all ranks save together, they do so as soon as a checkpoint is due for one of them. While this rank
    /// follows a [plan](crate::plan), no interval counts.
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
    /// Saves an array beside the state, without a copy. [`Resume::array`](super::Resume::array) reads it.
    pub fn array<E: Element>(mut self, name: impl Into<String>, array: &'a [E]) -> Self {
        self.arrays.push((Shape::of(name.into(), array), bytemuck::cast_slice(array)));
        self
    }

    /// Saves the checkpoint although none is due.
    pub fn now(mut self) -> Self {
        self.now = true;
        self
    }

    /// Names this point of the program. If the rank follows a [plan](crate::plan), the plan says at which
    /// passes of which points a checkpoint is saved; a profile that is recorded has these points.
    ///
    /// A point has the same name at all ranks and in all passes. If a loop has several points, each has a
    /// name of its own.
    pub fn at(mut self, point: impl Into<String>) -> Self {
        self.point = Some(point.into());
        self
    }

    /// Copies state, arrays and hooks now, and writes the copy when the future is awaited, on the thread that
    /// awaits it. So another thread can await it while this one and a device go on. It costs memory for the
    /// copy. A plain `await` copies no arrays.
    ///
    /// The checkpoint is in force once the future has ended, and holds the state of the moment when it was
    /// started. Call no reduction in between: the checkpoint would end in
    /// [`CheckpointError::CalledMeanwhile`]. If a later one is in force already, nothing is saved, and the
    /// outcome is [`Checkpointed::NotDue`].
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

    /// Waits until the checkpoint is complete, on all ranks, in the
    /// [directory](crate::Config::checkpoint_directory) that outlives the job. It is saved although none is
    /// due. All ranks say `durable` at this call.
    ///
    /// Without it, the checkpoint goes into the directory while the ranks compute on.
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
        let planned = self.session.reach_in_plan(self.point.as_deref());
        // What is asked for goes as deep as it can, and is waited for.
        self.planned = if self.now || self.durable { planned.and(Some(Save::Waiting)) } else { planned };
        self.now |= planned.is_some();
        let is_shallow = self.is_shallow();
        let Self { session, now, durable, .. } = self;
        match session.together() {
            Some(together) if is_shallow => {
                together.count_anew();
                let nobody_goes_on = !session.handle().may_return();
                Ok(nobody_goes_on.then_some(Checkpointed::NotConfigured))
            }
            Some(together) if together.votes(*now || *durable) => Ok(None),
            Some(_) => Ok(Some(Checkpointed::NotDue)),
            None if *durable => Err(CheckpointError::NoDirectory),
            None if !session.handle().saves() => Ok(Some(Checkpointed::NotConfigured)),
            None if !*now && !session.checkpoint_due() => Ok(Some(Checkpointed::NotDue)),
            None if session.handle().calls_to_catch_up() > 0 => Ok(Some(Checkpointed::CatchingUp)),
            None => Ok(None),
        }
    }

    /// Whether it does not go into a directory, although there may be one.
    fn is_shallow(&self) -> bool {
        matches!(self.planned, Some(Save::UpTo(depth)) if depth < Depth::Directory)
    }

    /// What can be done before calls have ended.
    fn prepare(self) -> Result<Prepared<'a>, CheckpointError> {
        let Self { session, state, arrays, point, planned, .. } = self;
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
        let is_behind = planned == Some(Save::Behind);
        Ok(Prepared { session, number, is_point, is_behind, calls, contents, state, arrays, of_hooks: None })
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

impl<'a, T: Serialize + DeserializeOwned + 'static> IntoFuture for Checkpoint<'a, T> {
    type Output = Result<Checkpointed, CheckpointError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let mut this = self;
        let (begun_at, session) = (Instant::now(), this.session.clone());
        let begun = this.begin();
        let (how, is_shallow) = ((this.now, this.durable), this.is_shallow());
        let prepared = matches!(begun, Ok(None)).then(|| this.prepare());
        session.away_since(begun_at);
        async move {
            let Some(prepared) = prepared else {
                return begun.map(|done| done.unwrap_or(Checkpointed::NotDue));
            };
            match session.together() {
                Some(together) if is_shallow => together.save_alone(prepared?).await,
                Some(together) => together.save(&session, prepared, how).await,
                None => prepared?.save(None).await,
            }
        }
        .boxed()
    }
}

impl<T> fmt::Debug for Checkpoint<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("arrays", &self.arrays.len()).finish_non_exhaustive()
    }
}
