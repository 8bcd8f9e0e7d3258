//! Lets the worker's machine act on sockets, threads and memory.
//!
//! The thread that has an event for the machine takes it in and does at once what follows: the application's
//! thread that calls, the thread that has folded, the I/O thread that hears the master. No event is handed
//! over to another thread only to be heard there.
//!
//! | module | holds |
//! |---|---|
//! | `acting` | carrying out the actions of the machine |
//! | `driving` | the loop of the I/O thread |
//! | `listening` | hearing the master |
//! | `placed` | calls on the board |
//! | `teams` | deputies |
//! | `standing` | standing by, and taking a place |
//! | `coming_back` | notes from which later processes of this rank go on |

use std::{
    collections::BTreeMap,
    fs::File,
    io, mem,
    net::Shutdown,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, Weak, mpsc},
    thread::ThreadId,
    time::Instant,
};

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, ReductionSpec, Timestamp,
    message::{Contribution, Header, News, Peer, ToMaster},
    spec::Limits,
};
use everfold_worker::machine::{Event, Gone, Worker};
use tokio::{
    sync::{Notify, broadcast, watch},
    task::JoinSet,
};

use crate::{
    call::{Answer, CallError, Completed, JoinError, RankConfig},
    copier::Copier,
    deputies::Deputies,
    executor::{Share, ShareError},
    hearing::Hearing,
    keeper::Keeper,
    memory::{board::Bell, window::Windows},
    peers::{Found, Peers},
    placing::{Placed, Placing},
    replica::Mirror,
    result_log::ResultLog,
    serving::Server,
    transport::{
        ReadError,
        handshake::Seals,
        line::{Inlet, Outlet},
    },
};

mod acting;
mod coming_back;
mod driving;
mod listening;
mod placed;
mod standing;
mod teams;

use placed::{Part, Publish, Settled};
use standing::Standing;

/// A worker: its machine, and the shares, windows, peers and connections on which that acts.
pub(crate) struct Driver {
    config: RankConfig,
    pub(crate) windows: Arc<Windows>,
    server: Arc<Server>,
    keeper: Arc<Keeper>,
    copier: Copier,
    peers: Arc<Peers>,
    deputies: Deputies,
    /// Notified once this process knows the peers of its job.
    met: Notify,
    failed: watch::Sender<Path>,
    gone: watch::Sender<Option<Gone>>,
    origin: Instant,
    /// The I/O thread, and its runtime.
    thread: ThreadId,
    runtime: tokio::runtime::Handle,
    /// Wakes the I/O thread's [`Driver::drive`]: there are messages to send, a timeout is due earlier, or all
    /// is over.
    wake: Notify,
    inlet: Inlet,
    bell: Option<Bell>,
    /// Where ranks come back.
    log: Option<Arc<ResultLog>>,
    /// The board as this host's agent holds it, where ranks come back.
    board: Option<File>,
    pub(crate) hearing: Hearing,
    /// Notified whenever a call has ended.
    ended: Notify,
    inner: Mutex<Inner>,
}

/// What one thread at a time works with.
struct Inner {
    part: Part,
    calls: BTreeMap<ReductionId, OpenCall>,
    placing: Option<Placing>,
    outlet: Outlet<ToMaster>,
    limits: Limits,
    /// Where the application waits for its session.
    ready: Option<mpsc::Sender<Result<Joined, JoinError>>>,
    /// Until it takes part no more.
    news: Option<broadcast::Sender<News>>,
    /// All news since this process joined, until a listener takes it.
    early_news: Option<broadcast::Receiver<News>>,
    /// When the I/O thread wakes up by itself.
    due: Option<Timestamp>,
    /// Whether it takes part no more.
    over: bool,
    /// As long as this process stands by, and until it has joined.
    standing: Option<Standing>,
    /// Keeps a replica of the vault.
    mirror: Option<Mirror>,
    /// Answers from the result log that wait until what earlier processes have noted counts.
    held_answers: Vec<(ReductionId, Answer, Result<Completed, CallError>)>,
    /// Results on their way to the application, which get there when no reader has their memory any more.
    handing_back: JoinSet<()>,
}

/// A call of the application.
struct OpenCall {
    share: Arc<Share>,
    /// A hash of its specification, where ranks come back.
    spec: u64,
    answer: Option<Answer>,
}

/// What earlier processes of this rank may have left, where ranks come back.
#[derive(Default)]
pub(crate) struct Left {
    pub log: Option<ResultLog>,
    /// The board of the job, if it has one.
    pub board: Option<File>,
}

/// Pieces of news that are kept for slow listeners.
const NEWS_KEPT: usize = 1024;

impl Driver {
    /// A worker that is about to join as `me`; `ready` hears when it has. To be made on its I/O thread.
    pub(crate) fn new(
        config: RankConfig,
        mut me: Peer,
        server: Arc<Server>,
        (keeper, peers): (Arc<Keeper>, Arc<Peers>),
        (socket, seals): (OwnedFd, Seals),
        left: Left,
        ready: mpsc::Sender<Result<Joined, JoinError>>,
    ) -> io::Result<Arc<Self>> {
        let socket = Arc::new(socket);
        let hearing = Hearing::new()?;
        // Without it there is no board, and everything still works with messages.
        let bell = me.region.and_then(|_| {
            Bell::new()
                .inspect_err(|error| tracing::warn!(%error, "no bell: short arrays go through the master"))
                .ok()
        });
        me.bell = bell.as_ref().map(Bell::handle);
        let mut outlet = Outlet::new(socket.clone(), seals.outward);
        outlet.prepare()?;
        let (news, early_news) = broadcast::channel(NEWS_KEPT);
        let inner = Inner {
            part: Part::new(Worker::new(me, config.size)),
            calls: BTreeMap::new(),
            placing: None,
            outlet,
            limits: Limits::default(),
            ready: Some(ready),
            news: Some(news),
            early_news: Some(early_news),
            due: None,
            over: false,
            standing: None,
            mirror: None,
            held_answers: Vec::new(),
            handing_back: JoinSet::new(),
        };
        Ok(Arc::new_cyclic(|driver: &Weak<Self>| {
            let driver = driver.clone();
            let trouble = move |kept| {
                if let Some(driver) = driver.upgrade() {
                    driver.take(Event::Kept(kept));
                }
            };
            Self {
                copier: Copier::new(keeper.clone(), peers.clone(), trouble),
                keeper,
                windows: server.windows().clone(),
                server,
                met: Notify::new(),
                deputies: Deputies::new(config.policy.clone(), config.job, config.process, config.key),
                peers,
                failed: watch::Sender::new(Path::empty()),
                gone: watch::Sender::new(None),
                origin: Instant::now(),
                thread: std::thread::current().id(),
                runtime: tokio::runtime::Handle::current(),
                wake: Notify::new(),
                inner: Mutex::new(inner),
                inlet: Inlet::new(socket, seals.inward),
                bell,
                log: left.log.map(Arc::new),
                board: left.board,
                hearing,
                ended: Notify::new(),
                config,
            }
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A thread that panicked has left the machine in an unknown state: it must not go on.
        self.inner.lock().unwrap_or_else(|poisoned| {
            let mut inner = poisoned.into_inner();
            inner.over = true;
            self.wake.notify_one();
            inner
        })
    }

    fn now(&self) -> Timestamp {
        timestamp(self.origin)
    }

    pub(crate) fn process(&self) -> ProcessId {
        self.config.process
    }

    /// Follows whether this process takes part, and why not.
    pub(crate) fn watch_gone(&self) -> watch::Receiver<Option<Gone>> {
        self.gone.subscribe()
    }

    /// Follows which ranks were declared failed.
    pub(crate) fn watch_failed(&self) -> watch::Receiver<Path> {
        self.failed.subscribe()
    }

    /// What happens in the job from now on; nothing if this process takes part no more.
    pub(crate) fn news(&self) -> broadcast::Receiver<News> {
        let news = self.lock().news.as_ref().map(broadcast::Sender::subscribe);
        news.unwrap_or_else(|| broadcast::Sender::new(1).subscribe())
    }

    /// All news since this process joined, for the first listener. Later ones hear only new ones.
    pub(crate) fn all_news(&self) -> broadcast::Receiver<News> {
        let early = self.lock().early_news.take();
        early.unwrap_or_else(|| self.news())
    }

    /// Takes in an event and does what follows.
    pub(crate) fn take(self: &Arc<Self>, event: Event) {
        let Some(event) = self.keep(event) else { return };
        self.work(|part, now, publish| part.hear(now, event, publish));
    }

    /// Takes in something and does what follows.
    fn work(self: &Arc<Self>, tell: impl FnOnce(&mut Part, Timestamp, Publish<'_>) -> Settled) {
        let mut inner = self.lock();
        if !inner.over {
            let settled = self.take_part(&mut inner, tell);
            self.go_on(inner, settled);
        }
    }

    /// What `rank` keeps under `name`.
    pub(crate) async fn kept(&self, rank: Rank, name: u64) -> Result<Option<Found>, ReadError> {
        let (peers, silence_max) = (self.peers.clone(), self.lock().limits.silence_max());
        let read = self.runtime.spawn(async move { peers.kept(rank, name, silence_max).await });
        read.await.map_err(io::Error::other)?
    }

    /// Up to how many bytes the body of a call comes inlined.
    pub(crate) fn inline_bytes_max(&self, spec: &ReductionSpec) -> u64 {
        self.lock().part.machine().inline_bytes_max(spec)
    }

    /// Makes a call.
    ///
    /// # Errors
    /// Too many are in flight. Nothing has come of it.
    pub(crate) fn call(
        self: &Arc<Self>,
        contribution: Contribution,
        share: Share,
        to: Answer,
    ) -> Result<(), ShareError> {
        let mut inner = self.lock();
        if inner.over {
            let gone = inner.part.machine().gone().unwrap_or(Gone::Left);
            drop(inner);
            answer(to, Err(gone.into()));
            return Ok(());
        }
        if inner.part.is_full() {
            share.release();
            return Err(ShareError::TooMany { limit: inner.limits.reductions_max });
        }
        let spec = self.stands_for(&contribution.spec);
        let call = OpenCall { share: Arc::new(share), spec, answer: Some(to) };
        inner.calls.insert(contribution.reduction, call);
        let call = Event::Call(contribution);
        let settled = self.take_part(&mut inner, |part, now, publish| part.hear(now, call, publish));
        self.go_on(inner, settled);
        Ok(())
    }

    /// When something has to be done by itself.
    fn due(&self, inner: &Inner) -> Option<Timestamp> {
        inner.part.machine().poll_timeout().into_iter().chain(self.deputies.due()).min()
    }

    /// Takes part no more. Calls that are open, and calls from now on, end with the reason.
    fn leave(self: &Arc<Self>) {
        let mut inner = self.lock();
        inner.over = true;
        let gone = inner.part.machine().gone().unwrap_or(Gone::Left);
        self.gone.send_replace(Some(gone));
        // Before the master hears anything, and before anything is given back.
        self.windows.leave();
        self.server.close();
        inner.news = None;
        // Calls that wait for what an earlier process notes end.
        inner.standing.take().into_iter().for_each(Standing::end);
        self.log.iter().for_each(|log| log.stand_by_no_more());
        let settled = self.settle(&mut inner);
        let placed: Vec<Placed> = inner.part.forget();
        let open = mem::take(&mut inner.calls);
        let held = mem::take(&mut inner.held_answers);
        inner.outlet.close(Shutdown::Both);
        drop(inner);
        self.end(settled);
        let open = open.into_values().filter_map(|call| call.answer);
        let held = held.into_iter().map(|(_, to, _)| to);
        for to in open.chain(held).chain(placed.into_iter().map(|placed| placed.with.1)) {
            answer(to, Err(gone.into()));
        }
        self.ended.notify_waiters();
    }

    /// Why this process takes part no more, if so.
    pub(crate) fn gone(&self) -> Option<Gone> {
        let inner = self.lock();
        inner.over.then(|| inner.part.machine().gone().unwrap_or(Gone::Left))
    }

    /// Ends all at once, as if the process had died.
    pub(crate) fn abandon(&self) {
        let mut inner = self.lock();
        inner.over = true;
        inner.standing.iter_mut().for_each(Standing::fail);
        drop(inner);
        self.wake.notify_one();
    }

    /// Sends what there is to tell the master.
    fn send(self: &Arc<Self>, inner: &mut Inner) {
        if !inner.outlet.has_messages() {
            return;
        }
        let RankConfig { job, process: sender, .. } = self.config;
        let header = Header { job, epoch: inner.part.machine().epoch(), sender };
        if let Err(error) = inner.outlet.send(&header, inner.limits.frame_bytes_max) {
            // Bodies are checked against the limits before; what is left over is a defect, not a reason to
            // hang.
            tracing::error!(%error, "cannot tell the master");
            let driver = self.clone();
            self.runtime.spawn(async move { driver.take(Event::MasterLost) });
        } else if inner.outlet.is_blocked() {
            self.wake.notify_one();
        }
    }
}

/// A process that has joined its job.
pub(crate) struct Joined {
    pub driver: Arc<Driver>,
    /// All processes of the job, by rank.
    pub peers: Vec<Peer>,
    /// What holds in this job.
    pub limits: Limits,
}

impl Inner {
    fn share(&self, reduction: ReductionId) -> Option<Arc<Share>> {
        self.calls.get(&reduction).map(|call| call.share.clone())
    }
}

fn answer(to: Answer, result: Result<Completed, CallError>) {
    // The application may have dropped its future.
    let _ = to.send(result);
}

/// Nanoseconds since `origin`, for machines that count from there.
pub fn timestamp(origin: Instant) -> Timestamp {
    Timestamp::from_nanos(origin.elapsed().as_nanos() as u64)
}
