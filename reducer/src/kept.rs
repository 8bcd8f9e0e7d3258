//! State that cannot be computed again, kept for others to read after a death (PR-3).
//!
//! What a rank keeps lies in its shared memory, which the agent of its host holds and shows, whether the
//! process lives or not. If the ranks that keep it are on several hosts, each state is copied to a rank of
//! another one: the *keeper* of a rank is the next rank of the group, in a ring, that was on another host
//! when the job began. All ranks work that out alike, so nobody has to be told who has what.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::IntoFuture,
    sync::{Mutex, MutexGuard, PoisonError},
};

use everfold_protocol::{AgentId, Path, Rank, report::Refusal};
use everfold_runtime::{
    kernel::Element,
    memory::catalogue::{self, KeepError},
    peers::Found,
    transport::ReadError,
};
use futures::{FutureExt, future::BoxFuture};

use serde::{Deserialize, Serialize};

use crate::{body::ReducerBody, error::ReduceError, group::Group, session::Session};

/// State that is about to be kept: made by [`Session::keep`]. Await it.
#[must_use = "nothing is kept before it is awaited"]
pub struct Keep<'a, T> {
    session: Session,
    name: String,
    array: &'a [T],
    among: Option<&'a Group>,
}

/// The outcome of keeping a state: the same at all ranks of the group, but for the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// How often this process has kept something under the name since it was released last, this time
    /// included. A process that comes back counts from 1 again.
    pub version: u64,
    /// The ranks whose state has a replica on another host: none if all ranks are on one host. A rank that
    /// has migrated may share the host of its keeper, and is left out then.
    pub replicated: Path,
}

/// A state that a rank has kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept<T> {
    /// The state.
    pub array: Vec<T>,
    /// How often the process of the rank had kept something under the name by then: see
    /// [`Keeping::version`].
    pub version: u64,
    /// Whether this is the replica: the host of the rank is lost, or the rank has come back, and has kept
    /// nothing under the name since.
    pub is_replica: bool,
}

/// Why a state is not kept, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// There is no room for it. The state that was kept before stays.
    #[error("state {name:?} is not kept: {reason}")]
    NoRoom {
        /// Of the state.
        name: String,
        /// Why.
        reason: KeepError,
    },
    /// Ranks could not agree that replicas stand. This rank's state is kept on its own host.
    #[error("replicas of state {name:?} may be missing: {error}")]
    NoReplicas {
        /// Of the state.
        name: String,
        /// The error of the reduction by which ranks agree.
        error: Box<ReduceError>,
    },
    /// The rank keeps nothing under this name.
    #[error("rank {rank} keeps no state {name:?}: keep it there by Session::keep")]
    NotKept {
        /// Whose state it would be.
        rank: Rank,
        /// Of the state.
        name: String,
    },
    /// Its elements are of another type.
    #[error("state {name:?} of rank {rank} has elements of another type than {asked}")]
    OtherType {
        /// Whose state it is.
        rank: Rank,
        /// Of the state.
        name: String,
        /// The type that was asked for.
        asked: &'static str,
    },
    /// It was replaced again and again while it was read: try once more.
    #[error("rank {rank} replaces state {name:?} faster than it can be read: try once more")]
    Unsteady {
        /// Whose state it is.
        rank: Rank,
        /// Of the state.
        name: String,
    },
    /// The host of the rank is lost, or what its earlier process has kept, and so is the replica, or there
    /// was none.
    #[error("neither state {name:?} of rank {rank} nor a replica of it can be read: {error}")]
    Lost {
        /// Whose state it was.
        rank: Rank,
        /// Of the state.
        name: String,
        /// The error of the last read.
        error: ReadError,
    },
    /// There is no such rank.
    #[error("rank {rank} is not in the job, which has {size} ranks")]
    NoSuchRank {
        /// The rank that was asked for.
        rank: Rank,
        /// Ranks of the job.
        size: u32,
    },
}

impl Session {
    /// Keeps `array` under `name`, in place of the state that was kept there, so that other ranks can read it
    /// when this process has died (PR-3).
    ///
    /// It is copied into shared memory, where it outlives this process. If the ranks of the group are on
    /// several hosts, all of them call it, and it ends when each rank's state has a replica on another host.
    /// On one host it ends at once, and a rank may call it alone.
    ///
    /// ```no_run
    /// # use everfold::prelude::*;
    /// # async fn program(session: Session, team: Group, spectrum: Vec<f64>) -> everfold::Result<()> {
    /// session.keep("spectrum", &spectrum).among(&team).await?;
    /// // … rank 3 dies …
    /// let lost = session.kept::<f64>(Rank(3), "spectrum").await?;
    /// println!("{} numbers of rank 3, version {}", lost.array.len(), lost.version);
    /// session.release("spectrum");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A process may keep 1023 states. A state that was replaced once takes twice its length: two copies take
    /// turns, so that a death in the middle leaves the one or the other.
    ///
    /// # Cancelling
    /// Await it to its end between hosts, where it makes several reductions: if its future is dropped, the
    /// others wait for this rank as long as its process lives.
    ///
    /// # Errors
    /// [`StateError::NoRoom`], [`StateError::NoReplicas`].
    pub fn keep<'a, T: Element>(&self, name: impl Into<String>, array: &'a [T]) -> Keep<'a, T> {
        Keep { session: self.clone(), name: name.into(), array, among: None }
    }

    /// Keeps no state under `name` any more, neither of this rank nor as a keeper of others. Returns whether
    /// one was kept. Each rank releases its own states; those of dead ranks are released when the job ends.
    /// The keeper of a state has to release the name, too: until then [`kept`](Self::kept) finds the replica
    /// there.
    pub fn release(&self, name: &str) -> bool {
        let Some(state) = self.states().lock().remove(name) else { return false };
        for rank in state.held {
            self.handle().release_kept(of_replica(rank, name));
        }
        self.handle().release_kept(of_state(name))
    }

    /// Reads the state that `rank` keeps under `name`, or had kept when its process died. No other rank takes
    /// part.
    ///
    /// If the host of that rank is lost or cannot be reached, or the rank has come back and has kept nothing
    /// under the name since, this reads the replica; for that, this rank has to have kept the same name among
    /// the same group. The replica is as old as the last [`keep`](Self::keep) whose
    /// [`replicated`](Keeping::replicated) named the rank.
    ///
    /// # Errors
    /// [`StateError::NotKept`], [`StateError::OtherType`], [`StateError::Unsteady`], [`StateError::Lost`],
    /// [`StateError::NoSuchRank`].
    pub async fn kept<T: Element>(&self, rank: Rank, name: &str) -> Result<Kept<T>, StateError> {
        if rank.0 >= self.size() {
            return Err(StateError::NoSuchRank { rank, size: self.size() });
        }
        let without = |error: Option<ReadError>| match error {
            Some(error) => StateError::Lost { rank, name: name.to_owned(), error },
            None => StateError::NotKept { rank, name: name.to_owned() },
        };
        let error = match self.handle().kept(rank, of_state(name)).await {
            Ok(Some(found)) => return self.decode(rank, name, found, false),
            // An earlier process of the rank may have kept it.
            Ok(None) => None,
            Err(ReadError::Checksum) => return Err(StateError::Unsteady { rank, name: name.to_owned() }),
            Err(error) => Some(error),
        };
        let group = self.states().lock().get(name).map_or_else(|| self.world(), |state| state.group.clone());
        let Some(keeper) = self.keeper(&group, rank) else { return Err(without(error)) };
        match self.handle().kept(keeper, of_replica(rank, name)).await {
            Ok(Some(found)) => self.decode(rank, name, found, true),
            Ok(None) => Err(without(error)),
            Err(error) => Err(without(Some(error))),
        }
    }

    fn decode<T: Element>(
        &self,
        rank: Rank,
        name: &str,
        Found { entry, bytes, .. }: Found,
        is_replica: bool,
    ) -> Result<Kept<T>, StateError> {
        if entry.tag & TYPES != tag::<T>(0) {
            let asked = std::any::type_name::<T>();
            return Err(StateError::OtherType { rank, name: name.to_owned(), asked });
        }
        let mut array = vec![<T as bytemuck::Zeroable>::zeroed(); bytes.len() / size_of::<T>()];
        bytemuck::cast_slice_mut(&mut array).copy_from_slice(&bytes);
        Ok(Kept { array, version: entry.tag >> TYPE_BITS, is_replica })
    }

    /// Who keeps the replicas of `rank`'s states: nobody, if all of the group were on one host when the job
    /// began.
    fn keeper(&self, group: &Group, rank: Rank) -> Option<Rank> {
        let host = |rank: Rank| self.host(rank);
        let behind = group.iter().filter(|other| *other > rank);
        let mut ring = behind.chain(group.iter().filter(|other| *other < rank));
        ring.find(|other| host(*other) != host(rank))
    }

    fn host(&self, rank: Rank) -> Option<AgentId> {
        self.handle().peers().get(rank.index())?.agent.as_ref().map(|agent| agent.id)
    }
}

impl<'a, T: Element> Keep<'a, T> {
    /// Only these ranks keep something under this name. Without it all ranks do.
    pub fn among(mut self, group: &'a Group) -> Self {
        self.among = Some(group);
        self
    }

    async fn keep(self) -> Result<Keeping, StateError> {
        let Self { session, name, array, among } = self;
        let group = among.cloned().unwrap_or_else(|| session.world());
        let me = session.rank();
        if !group.contains(me) {
            let group = group.path().clone();
            let error = ReduceError::from(Refusal::CallerOutsideGroup { rank: me, group });
            return Err(StateError::NoReplicas { name, error: error.into() });
        }
        let version = session.states().lock().get(&name).map_or(0, |state| state.version) + 1;
        let kept = session.handle().keep(of_state(&name), tag::<T>(version), bytemuck::cast_slice(array));
        kept.map_err(|reason| StateError::NoRoom { name: name.clone(), reason })?;
        let owners: Vec<Rank> =
            group.iter().filter(|rank| session.keeper(&group, *rank) == Some(me)).collect();
        let state = State { version, group: group.clone(), held: owners.clone() };
        let before = session.states().lock().insert(name.clone(), state);
        let held = before.into_iter().flat_map(|before| before.held);
        for rank in held.filter(|rank| !owners.contains(rank)) {
            session.handle().release_kept(of_replica(rank, &name));
        }
        if group.iter().all(|rank| session.host(rank) == session.host(me)) {
            return Ok(Keeping { version, replicated: Path::empty() });
        }
        let replicated = replicate(&session, &group, &name, &owners).await;
        let replicated = replicated.map_err(|error| StateError::NoReplicas { name, error: error.into() })?;
        Ok(Keeping { version, replicated })
    }
}

/// Copies the states of `owners` here, and waits until the others have done the same. Returns whose states lie
/// on a second host.
async fn replicate(
    session: &Session,
    group: &Group,
    name: &str,
    owners: &[Rank],
) -> Result<Path, ReduceError> {
    let meet = |what: &str, copied: Copied| {
        let call = session.allreduce(format!("{what} {name}"), copied);
        call.group(group).allow_missing()
    };
    let mut copied = Copied::default();
    // From here on every state stands that is to be copied.
    meet("keep", Copied::default()).await?;
    for &owner in owners {
        let kept = session.handle().kept(owner, of_state(name)).await;
        let Ok(Some(Found { entry, bytes, is_here })) = kept else { continue };
        match session.handle().keep(of_replica(owner, name), entry.tag, &bytes) {
            // It outlives the owner's process, but not this host.
            Ok(()) if is_here => {}
            Ok(()) => copied.of.extend([owner.0]),
            Err(error) => tracing::warn!(%owner, name, %error, "a kept state has no replica"),
        }
    }
    let copied = meet("kept", copied).await?.value;
    Ok(copied.of.into_iter().map(Rank).collect())
}

/// Of which ranks there are replicas.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Copied {
    of: BTreeSet<u32>,
}

impl ReducerBody for Copied {
    fn combine(&mut self, mut other: Self) {
        self.of.append(&mut other.of);
    }
}

impl<'a, T: Element> IntoFuture for Keep<'a, T> {
    type Output = Result<Keeping, StateError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.keep().boxed()
    }
}

impl<T> fmt::Debug for Keep<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keep").field("name", &self.name).field("elements", &self.array.len()).finish()
    }
}

/// What a session remembers of the states that its rank keeps.
#[derive(Debug, Default)]
pub(crate) struct States(Mutex<BTreeMap<String, State>>);

#[derive(Debug)]
struct State {
    version: u64,
    group: Group,
    /// Of which ranks there are replicas here.
    held: Vec<Rank>,
}

impl States {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bits of a tag that stand for the type of the elements; the others are the version.
const TYPE_BITS: u32 = 24;
const TYPES: u64 = (1 << TYPE_BITS) - 1;

fn tag<T: Element>(version: u64) -> u64 {
    version << TYPE_BITS | catalogue::name(&T::element_type().to_string()) & TYPES
}

fn of_state(name: &str) -> u64 {
    catalogue::name(&format!("state {name}"))
}

fn of_replica(rank: Rank, name: &str) -> u64 {
    catalogue::name(&format!("replica {rank} {name}"))
}
