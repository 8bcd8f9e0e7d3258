//! A checkpoint whose state is encoded: it waits for calls to end, and then is written, or copied to be
//! written while the program goes on.
//!
//! # Invariants
//! - A checkpoint begins between calls, when none is open and none is being written.
//! - What is written while the program goes on is a copy. Nothing of it changes after it has begun.

use std::{borrow::Cow, collections::BTreeSet, time::Instant};

use everfold_protocol::{ReductionId, codec, message::News};
use everfold_runtime::result_log::{Agreed, Begun, Calls, LogError, Saving};
use everfold_storage::vault::Draft;

use super::{
    background::Background, contents::Contents, error::CheckpointError, save::Checkpointed, together,
};
use crate::session::Session;

/// A checkpoint that waits for calls to end.
pub(super) struct Prepared<'a> {
    pub session: Session,
    /// Counts those of this process.
    pub number: u64,
    /// Whether the program has said at which point it is.
    pub is_point: bool,
    /// Whether it is written while the program goes on.
    pub is_behind: bool,
    /// How often each name had been called when the state was read.
    pub calls: Calls,
    pub contents: Contents,
    pub state: Vec<u8>,
    pub arrays: Vec<Cow<'a, [u8]>>,
    /// What hooks have saved, if they were asked already.
    pub of_hooks: Option<Vec<Vec<u8>>>,
}

impl Prepared<'_> {
    /// The same, which depends on no memory of the application. The caller waits for it by awaiting it, and
    /// it is not written behind the program.
    pub fn into_owned(mut self) -> Result<Prepared<'static>, CheckpointError> {
        self.prepare_hooks()?;
        let of_hooks = self.save_hooks()?;
        let Self { session, number, is_point, calls, contents, state, arrays, .. } = self;
        let arrays = arrays.into_iter().map(|array| Cow::Owned(array.into_owned())).collect();
        let of_hooks = Some(of_hooks);
        Ok(Prepared { session, number, is_point, is_behind: false, calls, contents, state, arrays, of_hooks })
    }

    /// Saves it, with the number that all ranks have `agreed` on if they have.
    pub async fn save(self, agreed: Option<Agreed>) -> Result<Checkpointed, CheckpointError> {
        let (begun, session) = (Instant::now(), self.session.clone());
        let saved = self.save_between_calls(agreed).await;
        session.away_since(begun);
        saved
    }

    async fn save_between_calls(mut self, agreed: Option<Agreed>) -> Result<Checkpointed, CheckpointError> {
        let session = self.session.clone();
        let encoded = codec::encode(&self.contents).map_err(LogError::from)?;
        // One is written at a time: the next waits.
        session.keeping().written().await;
        let asks_hooks = self.of_hooks.is_none();
        if asks_hooks {
            self.prepare_hooks()?;
        }
        if self.is_behind {
            self.copy_arrays();
        }
        loop {
            session.handle().all_ended().await?;
            session.keeping().written().await;
            if asks_hooks {
                self.of_hooks = Some(self.save_hooks()?);
            }
            // Others may have called meanwhile.
            let saved = session.between_calls(|calls| self.save_now(agreed, calls, &encoded))?;
            if let Some(saved) = saved {
                return Ok(saved);
            }
        }
    }

    /// Saves it, or begins to, unless calls are open again.
    fn save_now(
        &mut self,
        agreed: Option<Agreed>,
        calls: Calls,
        contents: &[u8],
    ) -> Result<Option<Checkpointed>, CheckpointError> {
        let session = self.session.clone();
        let (handle, keeping) = (session.handle(), session.keeping());
        if handle.has_open_calls()? || keeping.is_writing() {
            return Ok(None);
        }
        keeping.check_held()?;
        if of_application(calls.clone()) != self.calls {
            return Err(CheckpointError::CalledMeanwhile);
        }
        if keeping.is_overtaken(self.number) {
            return Ok(Some(Checkpointed::NotDue));
        }
        if self.is_behind {
            match handle.begin(agreed, calls.clone(), contents.to_vec())? {
                Begun::Draft(draft) => return Ok(Some(self.write_behind(draft))),
                Begun::CatchingUp(_) => return Ok(Some(Checkpointed::CatchingUp)),
                Begun::Pressing => {}
            }
        }
        let begun = Instant::now();
        let of_hooks = self.of_hooks.iter().flatten().map(Vec::as_slice);
        let arrays = self.arrays.iter().map(|array| &**array);
        let parts: Vec<&[u8]> = std::iter::once(&self.state[..]).chain(arrays).chain(of_hooks).collect();
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let saving = handle.save(agreed, calls, contents.to_vec(), &parts)?;
        keeping.spare.return_hooks(self.of_hooks.take().unwrap_or_default());
        Ok(Some(match saving {
            Saving::CatchingUp(_) => Checkpointed::CatchingUp,
            Saving::Done(generation) => {
                session.saved(self.number, bytes, begun);
                Checkpointed::Saved { generation: generation.0, bytes }
            }
        }))
    }

    /// Has a thread write it.
    fn write_behind(&mut self, draft: Box<Draft>) -> Checkpointed {
        let arrays: Vec<_> = std::mem::take(&mut self.arrays).into_iter().map(Cow::into_owned).collect();
        let of_hooks = self.of_hooks.take().unwrap_or_default();
        let state = [std::mem::take(&mut self.state)];
        let bytes = parts([&state, &arrays, &of_hooks]).map(|part| part.len() as u64).sum();
        let (generation, number, begun) = (draft.generation().0, self.number, Instant::now());
        let session = self.session.clone();
        let write = move || {
            let written = write(&session, *draft, [&state, &arrays, &of_hooks]);
            session.keeping().spare.return_arrays(arrays);
            session.keeping().spare.return_hooks(of_hooks);
            match &written {
                Ok(()) => session.saved(number, bytes, begun),
                Err(error) => session.tell_unwritten(generation, error.to_string()),
            }
            written
        };
        let written = Background::start(write).unwrap_or_else(|error| {
            let reason = format!("there are no threads left to write it: {error}");
            self.session.tell_unwritten(generation, reason.clone());
            Background::failed(reason)
        });
        self.session.keeping().write_behind(written);
        Checkpointed::Started { generation, bytes }
    }

    /// Lets hooks end what is under way.
    fn prepare_hooks(&mut self) -> Result<(), CheckpointError> {
        let (begun, keeping) = (Instant::now(), self.session.keeping());
        keeping.each_hook("prepare for a checkpoint", |_, hook| hook.before())?;
        if let Some(recorder) = keeping.placing.recorder().filter(|_| self.is_point) {
            recorder.fetched(begun.elapsed());
        }
        Ok(())
    }

    fn save_hooks(&self) -> Result<Vec<Vec<u8>>, CheckpointError> {
        let keeping = self.session.keeping();
        keeping.each_hook("save its state", |index, hook| {
            let mut saved = keeping.spare.for_hook(index);
            hook.save(&mut saved)?;
            Ok(saved)
        })
    }

    /// Lets the program change its arrays from now on.
    fn copy_arrays(&mut self) {
        let spare = &self.session.keeping().spare;
        for (index, array) in self.arrays.iter_mut().enumerate() {
            let mut copy = spare.for_array(index);
            copy.extend_from_slice(array);
            *array = Cow::Owned(copy);
        }
    }
}

/// What the parts of a checkpoint are, in the order in which they are written.
fn parts(groups: [&[Vec<u8>]; 3]) -> impl Iterator<Item = &Vec<u8>> {
    groups.into_iter().flatten()
}

fn write(session: &Session, mut draft: Draft, groups: [&[Vec<u8>]; 3]) -> Result<(), LogError> {
    parts(groups).try_for_each(|part| draft.part(part))?;
    session.handle().seal(draft).map(drop)
}

impl Session {
    /// Takes in that a checkpoint is in force, which was written from `begun` on.
    fn saved(&self, number: u64, bytes: u64, begun: Instant) {
        self.keeping().saved(number, begun.elapsed());
        if let Some(recorder) = self.keeping().placing.recorder() {
            recorder.saved(bytes, begun.elapsed());
        }
    }

    fn tell_unwritten(&self, generation: u64, reason: String) {
        let news = News::CheckpointUnwritten { rank: self.rank(), generation, reason };
        tracing::warn!(%news);
        self.handle().publish(news);
    }
}

/// Calls without those by which ranks agree on checkpoints.
pub(super) fn of_application(mut calls: Calls) -> Calls {
    let own: BTreeSet<u64> = together::NAMES.iter().map(|name| ReductionId::new(name, 0).name).collect();
    calls.retain(|(name, _)| !own.contains(name));
    calls
}
