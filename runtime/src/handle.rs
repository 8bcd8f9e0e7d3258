//! What an application's session holds of its worker: the way to call reductions, and to hear of the job.

use std::{fmt, sync::Arc, thread::JoinHandle};

use everfold_protocol::{
    Path, ProcessId, Rank,
    message::{Contribution, News, Peer},
    spec::{Limits, Protection},
    team,
};
use everfold_storage::vault::{Draft, Generation, StateFile, StateSource};
use everfold_worker::machine::{Event, Gone};
use tokio::sync::{broadcast, oneshot, watch};

use crate::{
    call::{Call, CallError, Pending},
    driver::{Driver, Joined},
    executor::{Prospects, Share, ShareError},
    memory::{catalogue::KeepError, region::Region},
    peers::Found,
    result_log::{Agreed, Begun, Calls, LogError, ResultLog, Saved, Saving},
    transport::ReadError,
};

/// A process's place in its job.
pub struct Handle {
    process: ProcessId,
    limits: Limits,
    peers: Vec<Peer>,
    /// Whether they are on several hosts.
    apart: bool,
    driver: Arc<Driver>,
    gone: watch::Receiver<Option<Gone>>,
    failed: watch::Receiver<Path>,
    /// The I/O thread.
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// The handle of a process that has joined; `thread` does its input and output.
    pub(crate) fn new(joined: Joined, thread: JoinHandle<()>) -> Self {
        let Joined { driver, peers, limits } = joined;
        Self {
            process: driver.process(),
            limits,
            apart: peers.iter().any(|peer| peer.host != peers[0].host),
            peers,
            gone: driver.watch_gone(),
            failed: driver.watch_failed(),
            driver,
            thread: Some(thread),
        }
    }

    /// This process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// All processes of the job when it began, by rank.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// What holds in this job.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Memory that peers can map, if there is any.
    pub fn region(&self) -> Option<&Arc<Region>> {
        self.driver.windows.region()
    }

    /// Ranks that were declared failed, as far as this process has heard.
    pub fn failed(&self) -> Path {
        self.failed.borrow().clone()
    }

    /// News of the job from now on. A listener that reads too slowly misses the oldest.
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.driver.news()
    }

    /// All news of the job since this process joined, for the first listener; only new ones for later
    /// listeners.
    pub fn all_news(&self) -> broadcast::Receiver<News> {
        self.driver.all_news()
    }

    /// Contributes to a reduction. Returns at once.
    ///
    /// # Errors
    /// The body cannot be encoded or shown to peers; then no other rank has heard of the call.
    pub fn call(&self, call: Call) -> Result<Pending, ShareError> {
        let (answer, pending) = oneshot::channel();
        let Err((call, answer)) = self.driver.answer_from_log(call, answer) else { return Ok(pending) };
        let Err((call, answer)) = self.driver.place(call, answer) else { return Ok(pending) };
        let Call { reduction, name, spec, body } = call;
        let tried = self.apart && team::suits(&spec, self.limits.teams_from);
        // Beside a link it costs little in any case.
        let outlives = self.apart || spec.protection > Protection::None;
        let prospects = Prospects { outlives, may_come_back: tried };
        let limits = Limits { inline_bytes_max: self.driver.inline_bytes_max(&spec), ..self.limits };
        let shared = Share::new(self.process, &spec, body, &self.driver.windows, &limits, prospects);
        let is_closed = |shared: &Result<_, ShareError>| match shared {
            // A process that has left shows no windows any more.
            Err(ShareError::NoWindow(_)) => self.driver.gone(),
            _ => None,
        };
        if let Some(gone) = is_closed(&shared) {
            let _ = answer.send(Err(gone.into()));
            return Ok(pending);
        }
        let (share, data) = shared?;
        let limit = self.limits.body_bytes_max;
        if data.len() > limit {
            share.release();
            return Err(ShareError::TooLarge { bytes: data.len(), limit });
        }
        self.driver.call(Contribution { reduction, name, spec, data }, share, answer)?;
        Ok(pending)
    }

    /// Whether later processes of this rank may come in place of this one.
    pub fn may_return(&self) -> bool {
        self.saves() && self.limits.ranks_return
    }

    /// Whether checkpoints are saved: for later processes of this rank, or for a later job.
    pub fn saves(&self) -> bool {
        self.driver.log().is_some()
    }

    /// Goes on from the checkpoint of an earlier job, after these `calls` of this one.
    ///
    /// # Errors
    /// It is damaged, or the system says why not.
    pub fn adopt(&self, calls: Calls, state: &StateFile) -> Result<(), LogError> {
        self.driver.log().ok_or(LogError::Absent)?.adopt(calls, state)
    }

    /// The generation of the checkpoint in force, 0 if there is none.
    pub fn generation(&self) -> Generation {
        self.driver.log().map_or(Generation::BEGINNING, ResultLog::generation)
    }

    /// The state of that checkpoint, to be copied elsewhere before the second one after it.
    ///
    /// # Errors
    /// There is none, or the system says why not.
    pub fn state(&self) -> Result<StateSource, LogError> {
        self.driver.log().ok_or(LogError::Absent)?.state()
    }

    /// Tells the listeners of this process.
    pub fn publish(&self, news: News) {
        self.driver.publish(news);
    }

    /// The checkpoint that earlier processes of this rank have left, or that was [adopted](Self::adopt).
    pub fn saved(&self) -> Option<&Saved> {
        self.driver.log().and_then(ResultLog::saved)
    }

    /// Fills `buffer` with a part of [that checkpoint](Self::saved), which is as long.
    ///
    /// # Errors
    /// It is damaged.
    pub fn read_saved(&self, part: usize, buffer: &mut [u8]) -> Result<(), LogError> {
        self.driver.log().ok_or(LogError::Absent)?.read_part(part, buffer)
    }

    /// Calls that earlier processes of this rank have noted, and this one has not made yet.
    pub fn calls_to_catch_up(&self) -> usize {
        self.driver.log().map_or(0, ResultLog::left)
    }

    /// Whether outcomes have taken more than half of their room since the last checkpoint.
    pub fn is_log_half_full(&self) -> bool {
        self.driver.log().is_some_and(ResultLog::is_half_full)
    }

    /// Waits until all calls of this rank have ended.
    ///
    /// # Errors
    /// This process takes part no more.
    pub async fn all_ended(&self) -> Result<(), CallError> {
        self.driver.all_ended().await.map_err(CallError::from)
    }

    /// Whether a call of this rank has not ended.
    ///
    /// # Errors
    /// This process takes part no more.
    pub fn has_open_calls(&self) -> Result<bool, CallError> {
        self.driver.has_open_calls().map_err(CallError::from)
    }

    /// Saves a checkpoint. All `calls` have ended, and no other call is under way. Its number is the one that all
    /// ranks have `agreed` on, or the next.
    ///
    /// # Errors
    /// The system says why not. The checkpoint before stays in force.
    pub fn save(
        &self,
        agreed: Option<Agreed>,
        calls: Calls,
        contents: Vec<u8>,
        parts: &[&[u8]],
    ) -> Result<Saving, LogError> {
        let saving = self.driver.log().ok_or(LogError::Absent)?.save(agreed, calls, contents, parts)?;
        if let Saving::Done(_) = saving {
            self.driver.saved();
        }
        Ok(saving)
    }

    /// Begins a checkpoint that is written while the application goes on. All `calls` have ended, and no other call is
    /// under way. What later calls bring comes behind it.
    ///
    /// # Errors
    /// The system says why not, or another one is being written. The checkpoint before stays in force.
    pub fn begin(&self, agreed: Option<Agreed>, calls: Calls, contents: Vec<u8>) -> Result<Begun, LogError> {
        self.driver.log().ok_or(LogError::Absent)?.begin(agreed, calls, contents)
    }

    /// Puts a checkpoint in force that was [begun](Self::begin), and whose parts are written.
    ///
    /// # Errors
    /// The system says why not, or an outcome could not be noted meanwhile. The checkpoint before stays in force.
    pub fn seal(&self, draft: Draft) -> Result<Generation, LogError> {
        let generation = self.driver.log().ok_or(LogError::Absent)?.seal(draft)?;
        self.driver.saved();
        Ok(generation)
    }

    /// Keeps `bytes` under `name` in shared memory, in place of earlier ones, for others to read when this
    /// process has died. `tag` is their type and version.
    ///
    /// # Errors
    /// [`KeepError`]. The bytes that were kept before stay.
    pub fn keep(&self, name: u64, tag: u64, bytes: &[u8]) -> Result<(), KeepError> {
        self.driver.windows.catalogue().ok_or(KeepError::NoRoom)?.keep(name, tag, bytes)
    }

    /// Keeps nothing under `name` any more. Returns whether anything was.
    pub fn release_kept(&self, name: u64) -> bool {
        self.driver.windows.catalogue().is_some_and(|catalogue| catalogue.release(name))
    }

    /// Reads what `rank` keeps under `name`, or has kept when its process died, if there is anything.
    ///
    /// # Errors
    /// The host of that rank is lost, or its agent does not answer.
    pub async fn kept(&self, rank: Rank, name: u64) -> Result<Option<Found>, ReadError> {
        self.driver.kept(rank, name).await
    }

    /// Lets the thread that waits for the application's futures hear the master by itself.
    pub fn waiting(&self) -> Waiting {
        Waiting(self.driver.clone())
    }

    /// Leaves the job once all reductions of this rank have ended.
    pub async fn close(&self) {
        self.driver.take(Event::Close);
        let mut gone = self.gone.clone();
        // An error means that the thread has ended, which is as good.
        let _ = gone.wait_for(Option::is_some).await;
    }
}

/// The thread on which the application waits, as its worker sees it. One thread at a time.
#[derive(Clone)]
pub struct Waiting(Arc<Driver>);

impl Waiting {
    /// Hears the master, in the runtime that this runs in. To be spawned there once.
    pub async fn listen(self) {
        if let Err(error) = self.0.listen_here().await {
            tracing::debug!(%error, "the application does not hear the master");
        }
    }

    /// Waits for the latest call for a short while without going to sleep, if it is on the board.
    pub fn watch(&self) {
        self.0.watch();
    }

    /// The runtime's thread is about to wait.
    pub fn begin(&self) {
        self.0.hearing.wait();
    }

    /// The runtime's thread goes on.
    pub fn end(&self) {
        self.0.hearing.compute();
    }

    /// The runtime's thread is about to wait for something else than the runtime.
    pub fn elsewhere(&self) {
        self.0.hearing.wait_deaf();
    }
}

impl Handle {
    /// Ends this worker at once, as if its process had died: the others learn it from the broken connection.
    pub fn abandon(&self) {
        self.driver.abandon();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the place of {} in its job", self.process)
    }
}

impl Drop for Handle {
    /// Leaves the job and waits for it, as [`Handle::close`]. A panicking thread leaves as
    /// [`Handle::abandon`] does.
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        if panicking {
            self.driver.abandon();
        } else {
            self.driver.take(Event::Close);
        }
        if let Some(thread) = self.thread.take()
            && !panicking
        {
            let _ = thread.join();
        }
    }
}
