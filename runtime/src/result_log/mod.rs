//! What a rank needs to come back: its last checkpoint, and how its calls have ended since.
//!
//! Both lie in the rank's [vault](everfold_storage::vault), which the agent of its host holds. A process that
//! comes in place of one that has died goes on from the checkpoint, does again what that one did, and is
//! answered from here. Calls that are not here go to the board or the master: no process of this rank
//! has noted how they have ended.
//!
//! # Invariants
//! - A checkpoint has a [number of calls](Calls) for each name. All calls below it have ended, and what came of
//!   them is in the state that was saved. All calls of the result log come after it.
//! - As long as a process has not called all that its earlier processes have noted, nothing is saved: what is
//!   noted would go with the log.
//! - An outcome that cannot be noted is told to the application all the same. Before that happens, no later
//!   process can go on from there, until a checkpoint is in force that was saved after it.

mod entry;
mod error;
mod following;
mod saving;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    fs::File,
    io::IoSlice,
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use everfold_protocol::{
    JobId, Path, ProcessId, ReductionId, codec,
    message::{Comeback, Fault},
    report::Refusal,
};
use everfold_storage::vault::{
    Checkpoint, Draft, Extent, Generation, Options, Outcome, Owner, StateFile, StateSource, Vault, VaultError,
};
use everfold_worker::machine::{End, ExecutionError};
use nix::sys::memfd::{MFdFlags, memfd_create};

pub(crate) use self::entry::digest;
pub use self::{
    entry::{Calls, Saved},
    error::LogError,
    saving::{Agreed, Begun, Saving},
};
use self::{
    entry::{Header, Line, Noted},
    following::Came,
};
use crate::{
    body::Body,
    call::{Call, CallError, Completed},
    executor::{Returned, recalled},
};

/// Files of a vault that ends with this process.
///
/// # Errors
/// The system has no memory or descriptors left.
pub(crate) fn own_files() -> Result<[File; 2], LogError> {
    let file = || memfd_create(c"everfold-vault", MFdFlags::MFD_CLOEXEC).map(File::from);
    let files = file().and_then(|first| Ok([first, file()?]));
    files.map_err(|error| LogError::Io(error.into()))
}

/// So many of the latest calls before a checkpoint are named in it. More are hardly noted in the time in which
/// a message to the master may get lost.
const LATEST: usize = 1024;

/// The result log of one rank, and its checkpoint.
pub(crate) struct ResultLog {
    process: ProcessId,
    saved: OnceLock<Saved>,
    bytes_max: u64,
    /// Bytes of the outcomes since the last checkpoint.
    bytes: AtomicU64,
    inner: Mutex<Inner>,
    /// Notified when there is more to answer from, or when what is not there goes to the master.
    grown: Condvar,
}

struct Inner {
    vault: Vault,
    /// What this process has found, until it saves a checkpoint of its own.
    found: Option<Checkpoint>,
    /// What earlier processes of this rank have noted, and this one has not called yet.
    known: BTreeMap<ReductionId, (Line, Outcome)>,
    /// The latest calls that this process and earlier ones have noted.
    latest: VecDeque<ReductionId>,
    /// Whether an outcome since the last checkpoint could not be noted.
    lacks_outcomes: bool,
    /// What it has cost so far to come back, until this process is where the earlier one was.
    returning: Option<Returning>,
    /// What has come from an earlier process, which lives, if this one follows it: calls wait for what that one notes.
    came: Option<Came>,
}

/// The comeback of a process that is under way.
struct Returning {
    comeback: Comeback,
    /// When the checkpoint was read.
    loaded: Instant,
}

impl Returning {
    /// Takes in that a part of the checkpoint was read from `began` on.
    fn load(&mut self, began: Instant) {
        self.loaded = Instant::now();
        self.comeback.load += self.loaded - began;
    }
}

impl ResultLog {
    /// The log that lies in these files: empty for the first process of a rank, and as its earlier ones have
    /// left it for the others. It takes at most `bytes_max` bytes.
    ///
    /// # Errors
    /// What lies there is damaged or lacks an outcome, or the system says why not.
    pub fn open(files: [File; 2], job: JobId, process: ProcessId, bytes_max: u64) -> Result<Self, LogError> {
        let began = Instant::now();
        let (owner, options) = (Owner { job, rank: process.rank }, Options::in_memory(bytes_max));
        let again =
            [files[0].try_clone().map_err(LogError::Io)?, files[1].try_clone().map_err(LogError::Io)?];
        if process.incarnation.0 == 0 {
            return Ok(Self::new(Vault::create(files, owner, options)?, process, bytes_max));
        }
        let (vault, remembered) = match Vault::open(files, owner, options) {
            // Earlier processes have died before they could call anything.
            Err(VaultError::Absent) => {
                return Ok(Self::new(Vault::create(again, owner, options)?, process, bytes_max));
            }
            opened => opened?,
        };
        let mut log = Self::new(vault, process, bytes_max);
        let inner = log.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        for outcome in remembered.outcomes {
            let line: Line = codec::decode(outcome.key())?;
            inner.known.insert(line.reduction, (line, outcome));
        }
        inner.found = remembered.checkpoint;
        if let Some(found) = &inner.found {
            let header: Header = codec::decode(found.header())?;
            inner.latest = header.latest.clone().into();
            log.saved = header.saved(found).into();
        }
        let known: Vec<ReductionId> = inner.known.keys().copied().collect();
        tracing::debug!(%process, outcomes = known.len(), "has come back");
        known.into_iter().for_each(|reduction| inner.remember(reduction));
        inner.returning.iter_mut().for_each(|returning| returning.load(began));
        Ok(log)
    }

    fn new(vault: Vault, process: ProcessId, bytes_max: u64) -> Self {
        let bytes = AtomicU64::new(vault.log_bytes());
        let latest = VecDeque::new();
        let returning = (process.incarnation.0 > 0)
            .then(|| Returning { comeback: Comeback::default(), loaded: Instant::now() });
        let inner = Inner {
            vault,
            found: None,
            known: BTreeMap::new(),
            latest,
            lacks_outcomes: false,
            returning,
            came: None,
        };
        let (saved, inner) = (OnceLock::new(), Mutex::new(inner));
        Self { process, saved, bytes_max, bytes, inner, grown: Condvar::new() }
    }

    /// The checkpoint that this process has found when it joined, or has adopted.
    pub fn saved(&self) -> Option<&Saved> {
        self.saved.get()
    }

    /// The checkpoint in force is that of an earlier job from now on. Names are counted as in this job, which has
    /// made these `calls`.
    ///
    /// # Errors
    /// It is damaged, or the system says why not. There is none then.
    pub fn adopt(&self, calls: Calls, state: &StateFile) -> Result<(), LogError> {
        let mut inner = self.lock();
        let mut header: Header = codec::decode(state.header())?;
        // The master of this job has seen none of those.
        header.latest = inner.latest.iter().copied().collect();
        header.calls = calls;
        header.is_adopted = true;
        let found = inner.vault.adopt(&codec::encode(&header)?, state)?;
        // Once: a process asks for its checkpoint once.
        let _ = self.saved.set(header.saved(&found));
        inner.found = Some(found);
        inner.known.clear();
        self.bytes.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// The generation in force.
    pub fn generation(&self) -> Generation {
        self.lock().vault.generation()
    }

    /// The state in force, to be copied elsewhere before the second checkpoint after it.
    ///
    /// # Errors
    /// There is none, or the system says why not.
    pub fn state(&self) -> Result<StateSource, LogError> {
        Ok(self.lock().vault.state()?)
    }

    /// Fills `buffer` with a part of the checkpoint that this process has found. The buffer is as long as the
    /// part.
    ///
    /// # Errors
    /// It is damaged, or this process has saved another one since.
    pub fn read_part(&self, part: usize, buffer: &mut [u8]) -> Result<(), LogError> {
        let began = Instant::now();
        let mut inner = self.lock();
        let part = inner.found.as_ref().and_then(|found| found.parts().get(part)).ok_or(LogError::Absent)?;
        inner.vault.read_part(part, buffer)?;
        inner.returning.iter_mut().for_each(|returning| returning.load(began));
        Ok(())
    }

    /// Saves a checkpoint; then the log is empty. All `calls` have ended, and no other call is under way. Its
    /// number is what all ranks have `agreed` on, or the next.
    ///
    /// # Errors
    /// The system says why not. What was in force before stays so.
    pub fn save(
        &self,
        agreed: Option<Agreed>,
        calls: Calls,
        contents: Vec<u8>,
        parts: &[&[u8]],
    ) -> Result<Saving, LogError> {
        let mut inner = self.lock();
        if !inner.known.is_empty() {
            return Ok(Saving::CatchingUp(inner.known.len()));
        }
        let mut draft = inner.begin(agreed, calls, contents)?;
        parts.iter().try_for_each(|part| draft.part(part))?;
        Ok(Saving::Done(self.put_in_force(&mut inner, draft)?))
    }

    /// Begins a checkpoint that is written while the application goes on. What is noted from now on comes behind it.
    /// All `calls` have ended, and no other call is under way.
    ///
    /// # Errors
    /// The system says why not, or another one is being written. What was in force before stays so.
    pub fn begin(&self, agreed: Option<Agreed>, calls: Calls, contents: Vec<u8>) -> Result<Begun, LogError> {
        let mut inner = self.lock();
        match inner.known.len() {
            // What is noted goes nowhere as long as an outcome is missing, nor where no room is left. What comes from an
            // earlier process is read from where it lies, and a seal moves it.
            0 if inner.lacks_outcomes || inner.stands_by() || self.is_half_full() => Ok(Begun::Pressing),
            0 => Ok(Begun::Draft(Box::new(inner.begin(agreed, calls, contents)?))),
            left => Ok(Begun::CatchingUp(left)),
        }
    }

    /// Puts a checkpoint in force that was written. What was noted before it was begun is gone from the log.
    ///
    /// # Errors
    /// The system says why not, or an outcome could not be noted meanwhile. What was in force before stays so.
    pub fn seal(&self, draft: Draft) -> Result<Generation, LogError> {
        self.put_in_force(&mut self.lock(), draft)
    }

    fn put_in_force(&self, inner: &mut Inner, draft: Draft) -> Result<Generation, LogError> {
        let generation = inner.vault.seal(draft)?;
        inner.found = None;
        inner.lacks_outcomes = false;
        self.bytes.store(inner.vault.log_bytes(), Ordering::Relaxed);
        Ok(generation)
    }

    /// Takes in how long it has taken to get what earlier processes have left from another host.
    pub fn arrived(&self, transfer: Duration) {
        self.lock().returning.iter_mut().for_each(|returning| returning.comeback.transfer = transfer);
    }

    /// What it has cost this process to come back, once, as soon as it has made all calls that earlier ones have
    /// noted.
    pub fn caught_up(&self) -> Option<Comeback> {
        let mut inner = self.lock();
        let is_done = inner.known.is_empty();
        let Returning { comeback, loaded } = inner.returning.take_if(|_| is_done)?;
        Some(Comeback { again: loaded.elapsed(), ..comeback })
    }

    /// Calls that earlier processes of this rank have noted, and this one has not made yet.
    pub fn left(&self) -> usize {
        self.lock().known.len()
    }

    /// Whether the log has taken more than half of its room.
    pub fn is_half_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.bytes_max / 2
    }

    /// Lets no later process go on from here: an outcome cannot be noted. Says whether that is new.
    ///
    /// # Errors
    /// The system says why not. Then nobody may hear of the outcome.
    pub fn forbid(&self) -> Result<bool, LogError> {
        let mut inner = self.lock();
        if inner.lacks_outcomes {
            return Ok(false);
        }
        inner.vault.forbid()?;
        inner.lacks_outcomes = true;
        Ok(true)
    }

    /// Notes how a call has ended, and what it has brought.
    ///
    /// # Errors
    /// There is no room, or the system says why not.
    pub fn note(&self, reduction: ReductionId, spec: u64, end: &End, value: &[u8]) -> Result<(), LogError> {
        // It is not over for this rank.
        let Some(noted) = Noted::of(end) else { return Ok(()) };
        let key = codec::encode(&Line { reduction, spec, noted })?;
        let mut inner = self.lock();
        inner.remember(reduction);
        // Nobody could go on from there in any case.
        if !inner.lacks_outcomes {
            inner.vault.append(&key, &[IoSlice::new(value)])?;
            self.bytes.store(inner.vault.log_bytes(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// What earlier processes of this rank have noted, to be told before the first call: all since the
    /// checkpoint, and the latest before it.
    pub fn noted(&self) -> Vec<ReductionId> {
        self.lock().latest.iter().copied().collect()
    }

    /// What of the vault is in force.
    pub fn extent(&self) -> Extent {
        self.lock().vault.extent()
    }

    /// Fills `buffer` with bytes of the vault from `offset` on, as they were when it had this `extent`, if
    /// its generation is still in force. Returns whether it is.
    ///
    /// # Errors
    /// The system says why not.
    pub fn read_raw(&self, extent: Extent, offset: u64, buffer: &mut [u8]) -> Result<bool, LogError> {
        let inner = self.lock();
        if inner.vault.generation() != extent.generation {
            return Ok(false);
        }
        inner.vault.read_raw(offset, buffer)?;
        // There the log ended, which a zero says. An outcome that was noted since lies behind it.
        let end = (extent.bytes - 1).checked_sub(offset).and_then(|end| usize::try_from(end).ok());
        end.and_then(|end| buffer.get_mut(end)).into_iter().for_each(|byte| *byte = 0);
        Ok(true)
    }

    /// Answers a call that an earlier process of this rank has made and seen the end of. If that process lives, waits
    /// until it has.
    ///
    /// # Errors
    /// Gives the call back if it is none.
    // What it gives back is no error.
    #[allow(clippy::result_large_err)]
    pub fn answer(&self, call: Call) -> Result<Result<Completed, CallError>, Call> {
        let mut inner = self.wait_for(call.reduction);
        let Some((line, outcome)) = inner.known.remove(&call.reduction) else { return Err(call) };
        if line.spec != digest(&call.spec) {
            let (rank, sequence) = (self.process.rank, call.reduction.sequence);
            return Ok(Err(Refusal::Diverged { rank, name: call.name, sequence }.into()));
        }
        Ok(match line.noted {
            Noted::Finished(report) => Ok(Completed { value: None, report }),
            Noted::Received(report) => {
                let value = inner.value(&outcome, call.body);
                let lost = |reason| CallError::ResultLost(ExecutionError::blame(self.process, reason));
                value.map(|value| Completed { value: Some(value), report }).map_err(lost)
            }
            Noted::Refused(refusal) => Err(refusal.into()),
            Noted::ResultLost { culprit, reason } => Err(CallError::ResultLost(ExecutionError {
                culprit,
                suspects: Path::empty(),
                fault: Fault::Unfit,
                reason,
            })),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn begin(&mut self, agreed: Option<Agreed>, calls: Calls, contents: Vec<u8>) -> Result<Draft, LogError> {
        let latest = self.latest.iter().copied().collect();
        let is_durable = agreed.is_some_and(|agreed| agreed.is_durable);
        let is_agreed = agreed.is_some();
        let header = Header { calls, contents, latest, is_adopted: false, is_agreed, is_durable };
        let header = codec::encode(&header)?;
        Ok(match agreed {
            Some(Agreed { generation, .. }) => self.vault.begin_as(generation, &header)?,
            None => self.vault.begin(&header)?,
        })
    }

    /// Remembers that a call has been noted.
    fn remember(&mut self, reduction: ReductionId) {
        while self.latest.len() >= LATEST && !self.known.contains_key(&self.latest[0]) {
            self.latest.pop_front();
        }
        self.latest.push_back(reduction);
    }

    /// The value of an outcome, in place of `body`.
    fn value(&self, outcome: &Outcome, body: Body) -> Result<Returned, String> {
        let told = |error: &dyn fmt::Display| error.to_string();
        match body {
            Body::Array { mut memory, .. } => {
                self.vault.read_value(outcome, memory.bytes_mut()).map_err(|error| told(&error))?;
                Ok(Returned::Array(memory))
            }
            Body::Object(object) => {
                let mut bytes = vec![0; outcome.value_bytes() as usize];
                self.vault.read_value(outcome, &mut bytes).map_err(|error| told(&error))?;
                object.decode(&bytes).map(Returned::Object).map_err(|error| told(&error))
            }
            Body::Pieces(_) => {
                let mut bytes = vec![0; outcome.value_bytes() as usize];
                self.vault.read_value(outcome, &mut bytes).map_err(|error| told(&error))?;
                recalled(bytes).ok_or_else(|| "it is damaged".to_owned())
            }
        }
    }
}

impl fmt::Debug for ResultLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the result log of {}", self.process)
    }
}
