//! Going on from the last checkpoint.

use std::{any::type_name, fmt, future::IntoFuture, marker::PhantomData};

use everfold_protocol::codec;
use everfold_runtime::{
    body::BodyError,
    kernel::Element,
    result_log::{LogError, Saved},
};
use futures::{FutureExt, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    contents::{Contents, Shape},
    error::CheckpointError,
};
use crate::{encoding, session::Session};

/// The state from which a rank goes on: made by [`Session::resume`]. Await it.
#[must_use = "nothing is read before it is awaited"]
pub struct Resume<'a, T> {
    session: Session,
    arrays: Vec<(Shape, &'a mut [u8])>,
    state: PhantomData<fn() -> T>,
}

impl Session {
    /// The state of this rank's last checkpoint, of this job or of the one from which it goes on; `None` if
    /// there is none, or if the job saves none.
    ///
    /// Every process calls it once, before its first reduction: calls before the checkpoint are not repeated,
    /// and later calls get the numbers that they had.
    ///
    /// # Cancelling
    /// Await it to its end. If its future is dropped before, the other ranks of a job with a directory of
    /// checkpoints may wait for this one, and what is called next may be answered with what belongs to
    /// another call. End the process instead.
    ///
    /// # Errors
    /// [`CheckpointError`]: the checkpoint is damaged, or holds another type, other arrays or other hooks; or
    /// `resume` is called too late.
    ///
    /// ```no_run
    /// use everfold::prelude::*;
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Default, Serialize, Deserialize)]
    /// struct State {
    ///     step: u32,
    ///     residual: f64,
    /// }
    ///
    /// # async fn program(session: Session) -> everfold::Result<()> {
    /// let mut field = vec![1.0; 1000];
    /// let saved: Option<State> = session.resume().array("field", &mut field).await?;
    /// let mut state = saved.unwrap_or_default();
    /// while state.step < 100 {
    ///     let Sum(sum) = session.allreduce("sum", Sum(vec![field[0]])).order(Order::Fixed).await?.value;
    ///     state.residual = sum[0];
    ///     field.iter_mut().for_each(|value| *value *= 0.5);
    ///     state.step += 1;
    ///     session.checkpoint(&state).array("field", &field).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume<'a, T>(&self) -> Resume<'a, T>
    where
        T: Serialize + DeserializeOwned + 'static,
    {
        Resume { session: self.clone(), arrays: Vec::new(), state: PhantomData }
    }
}

impl<'a, T: Serialize + DeserializeOwned + 'static> Resume<'a, T> {
    /// Fills `array` with the saved array of this name. Without a checkpoint it stays as it is.
    ///
    /// Give the same arrays as to [`Checkpoint::array`](super::Checkpoint::array), in the same order and of
    /// the same lengths.
    pub fn array<E: Element>(mut self, name: impl Into<String>, array: &'a mut [E]) -> Self {
        let shape = Shape::of(name.into(), array);
        self.arrays.push((shape, bytemuck::cast_slice_mut(array)));
        self
    }

    async fn read(self) -> Result<Option<T>, CheckpointError> {
        let Self { session, arrays, .. } = self;
        let keeping = session.keeping();
        let (shapes, arrays): (Vec<_>, Vec<_>) = arrays.into_iter().unzip();
        let asked = Contents {
            type_name: type_name::<T>().to_owned(),
            arrays: shapes,
            hooks: keeping.hook_names(),
            passed: None,
        };
        asked.check()?;
        keeping.check_new()?;
        if let Some(together) = session.together() {
            together.resume(&session).await?;
        }
        let Some(saved) = session.handle().saved() else {
            keeping.resumed(type_name::<T>(), asked);
            return Ok(None);
        };
        let contents: Contents = codec::decode(&saved.contents).map_err(LogError::from)?;
        contents.compare(&asked, type_name::<T>())?;
        let state = encoding::decode(&part(&session, saved, 0)?).map_err(undecodable::<T>)?;
        for (index, array) in arrays.into_iter().enumerate() {
            session.handle().read_saved(Contents::ARRAYS_AT + index, array)?;
        }
        let first = contents.hooks_at();
        let of_hooks: Vec<Vec<u8>> = (first..first + contents.hooks.len())
            .map(|at| part(&session, saved, at))
            .collect::<Result<_, _>>()?;
        keeping.each_hook("restore what it has saved", |index, hook| hook.restore(&of_hooks[index]))?;
        session.go_on_in_plan(contents.passed);
        keeping.resumed(type_name::<T>(), asked);
        Ok(Some(state))
    }
}

fn part(session: &Session, saved: &Saved, index: usize) -> Result<Vec<u8>, LogError> {
    let mut bytes = vec![0; saved.parts.get(index).copied().unwrap_or_default() as usize];
    session.handle().read_saved(index, &mut bytes)?;
    Ok(bytes)
}

fn undecodable<T>(source: BodyError) -> CheckpointError {
    CheckpointError::Undecodable { type_name: type_name::<T>(), source }
}

impl<'a, T: Serialize + DeserializeOwned + 'static> IntoFuture for Resume<'a, T> {
    type Output = Result<Option<T>, CheckpointError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.read().boxed()
    }
}

impl<T> fmt::Debug for Resume<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resume").field("arrays", &self.arrays.len()).finish_non_exhaustive()
    }
}
