//! Lets the worker's machine act on sockets, threads and memory.
//!
//! The thread that has an event for the machine takes it in and does at once what follows: the application's
//! thread that calls, the thread that has folded, the I/O thread that hears the master. No event is handed
//! over to another thread only to be heard there.

use std::{
    collections::BTreeMap,
    io, mem,
    net::Shutdown,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, Weak, mpsc},
    thread::ThreadId,
    time::{Duration, Instant},
};

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, ReductionSpec, Timestamp,
    message::{Contribution, Header, News, Peer, ToMaster, ToWorker},
    spec::Limits,
    watch::INTERVALS_MOST,
};
use everfold_worker::machine::{Action, End, Event, Gone, Worker};
use futures::{
    FutureExt,
    future::{BoxFuture, OptionFuture, pending},
};
use tokio::{
    io::unix::AsyncFd,
    sync::{Notify, broadcast, mpsc as tokio_mpsc, watch},
    task::JoinSet,
    time::sleep_until,
};

use crate::{
    call::{Answer, CallError, Completed, JoinError, RankConfig},
    copier::Copier,
    deputies::Deputies,
    descriptors::{self, patiently},
    executor::{Share, ShareError},
    hearing::Hearing,
    keeper::Keeper,
    memory::{board::Bell, window::Windows},
    peers::{Found, Peers},
    placing::{Calls, Placed, Placing},
    replica::{Mirror, Partner},
    result_log::{ResultLog, digest},
    serving::Server,
    transport::{
        ReadError,
        control::{BoxStream, LoopbackName},
        handshake::Seals,
        line::{Inlet, Outlet},
    },
};

mod coming_back;
mod placed;

use placed::{Part, Publish, Settled};

/// A worker: its machine, and what that acts on.
pub(crate) struct Driver {
    config: RankConfig,
    pub(crate) windows: Arc<Windows>,
    server: Arc<Server>,
    keeper: Arc<Keeper>,
    copier: Copier,
    peers: Arc<Peers>,
    deputies: Deputies,
    /// Notified once this process knows who is in the job.
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
    /// When the I/O thread wakes up by itself.
    due: Option<Timestamp>,
    /// Whether it takes part no more.
    over: bool,
    /// Keeps a replica of the vault.
    mirror: Option<Mirror>,
    /// Results on their way to the application, which get there when no reader has their memory any more.
    handing_back: JoinSet<()>,
}

/// A call of the application.
struct OpenCall {
    share: Arc<Share>,
    /// Stands for what it was called with, where ranks come back.
    spec: u64,
    answer: Option<Answer>,
}

/// What is done when nothing is locked any more.
enum Deed {
    /// Tells the application an outcome, which wakes it up.
    Answer(Answer, Box<Result<Completed, CallError>>),
    /// Begins with something, and goes on with it on the I/O thread.
    Begin(BoxFuture<'static, ()>),
    /// Hands a result back to the application, once no reader has its memory any more. The I/O thread lasts
    /// that long.
    HandBack(BoxFuture<'static, ()>),
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
        log: Option<ResultLog>,
        ready: mpsc::Sender<Result<Joined, JoinError>>,
    ) -> io::Result<Arc<Self>> {
        let socket = Arc::new(socket);
        let hearing = Hearing::new()?;
        // Without it there is no board, and everything still works with messages.
        let bell =
            me.region.and_then(|_| Bell::new().inspect_err(|error| tracing::warn!(%error, "no bell")).ok());
        me.bell = bell.as_ref().map(Bell::handle);
        let mut outlet = Outlet::new(socket.clone(), seals.outward);
        outlet.prepare()?;
        let inner = Inner {
            part: Part::new(Worker::new(me, config.size)),
            calls: BTreeMap::new(),
            placing: None,
            outlet,
            limits: Limits::default(),
            ready: Some(ready),
            news: Some(broadcast::Sender::new(NEWS_KEPT)),
            due: None,
            over: false,
            mirror: None,
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
                deputies: Deputies::new(config.policy, config.job, config.process, config.key),
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
                log: log.map(Arc::new),
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

    /// Takes in an event and does what follows.
    pub(crate) fn take(self: &Arc<Self>, event: Event) {
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

    /// Takes in what the master has said. Returns false if it says nothing more.
    fn hear(self: &Arc<Self>) -> bool {
        let frame_bytes_max = Limits::default().frame_bytes_max;
        let frame = |header, messages: Vec<ToWorker>| {
            self.work(|part, now, publish| {
                let events = messages.into_iter().map(|message| Event::Master { header, message });
                let each = events.map(|event| part.hear(now, event, &mut *publish));
                each.fold(Settled::default(), Settled::and)
            });
        };
        loop {
            match self.inlet.hear(frame_bytes_max, frame) {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) => {
                    tracing::debug!(%error, "no connection to the master");
                    self.take(Event::MasterLost);
                    return false;
                }
            }
        }
    }

    /// What `rank` keeps under `name`.
    pub(crate) async fn kept(&self, rank: Rank, name: u64) -> Result<Option<Found>, ReadError> {
        let (peers, silence_max) = (self.peers.clone(), self.lock().limits.silence_max());
        let read = self.runtime.spawn(async move { peers.kept(rank, name, silence_max).await });
        read.await.map_err(io::Error::other)?
    }

    /// Waits for what the master says or the bell announces, and takes it in. Returns false if the master
    /// says nothing more.
    async fn attend(self: &Arc<Self>, ears: &Ears) -> io::Result<bool> {
        tokio::select! {
            biased;
            Some(ready) = OptionFuture::from(ears.bell.as_ref().map(AsyncFd::readable)) => {
                ready?.clear_ready();
                self.bell.iter().for_each(Bell::silence);
                self.look();
                Ok(true)
            }
            ready = ears.line.readable() => {
                let mut ready = ready?;
                let goes_on = self.hear();
                ready.clear_ready();
                Ok(goes_on)
            }
        }
    }

    fn ears(&self) -> io::Result<Ears> {
        let bell = self.bell.as_ref().map(Bell::register).transpose()?;
        Ok(Ears { line: self.inlet.register()?, bell })
    }

    /// Hears the master on the I/O thread, whenever the application's thread does not.
    async fn listen(self: &Arc<Self>) -> io::Result<()> {
        loop {
            let ears = patiently(|| self.ears()).await?;
            while !self.hearing.application_waits() {
                if !self.attend(&ears).await? {
                    return Ok(());
                }
            }
            drop(ears);
            self.hearing.rest().await?;
        }
    }

    /// Hears the master on the thread that runs this, while that waits.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) async fn listen_here(self: Arc<Self>) -> io::Result<()> {
        let ears = self.ears()?;
        let _listening = self.hearing.begin();
        while self.attend(&ears).await? {}
        Ok(())
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
        if inner.part.machine().is_full() {
            share.release();
            return Err(ShareError::TooMany { limit: inner.limits.reductions_max });
        }
        let spec = self.log.as_ref().map_or(0, |_| digest(&contribution.spec));
        let call = OpenCall { share: Arc::new(share), spec, answer: Some(to) };
        inner.calls.insert(contribution.reduction, call);
        let call = Event::Call(contribution);
        let settled = self.take_part(&mut inner, |part, now, publish| part.hear(now, call, publish));
        self.go_on(inner, settled);
        Ok(())
    }

    /// Works on the I/O thread until all is over.
    pub(crate) async fn run(
        self: &Arc<Self>,
        members: tokio_mpsc::UnboundedReceiver<(ProcessId, BoxStream, Seals)>,
    ) {
        let leaving = Leaving(self);
        tokio::spawn(self.clone().host(members));
        self.act(self.lock());
        // If either cannot go on, neither can: the master sees the connection break.
        let ended = tokio::select! {
            driven = self.drive() => driven,
            Err(error) = self.listen() => Err(error),
        };
        if let Err(error) = ended {
            tracing::error!(%error, "the worker cannot go on");
        }
        drop(leaving);
        let handing_back = mem::take(&mut self.lock().handing_back);
        handing_back.join_all().await;
        self.keeper.close().await;
    }

    /// Sends what could not be sent at once, and lets time pass, until all is over.
    async fn drive(self: &Arc<Self>) -> io::Result<()> {
        // A master that is frozen takes nothing after a while; nobody must wait for it longer than silence
        // lasts.
        let mut patience: Option<tokio::time::Instant> = None;
        loop {
            let (due, line, interval) = {
                let mut inner = self.lock();
                self.send(&mut inner);
                if inner.over {
                    return Ok(());
                }
                inner.due = self.due(&inner);
                let line = inner.outlet.is_blocked().then(|| inner.outlet.register());
                (inner.due, line, inner.limits.ping_interval)
            };
            let now = tokio::time::Instant::now;
            patience = line.is_some().then(|| patience.unwrap_or_else(|| now() + interval * INTERVALS_MOST));
            let (line, again) = match line.transpose() {
                Ok(line) => (line, None),
                Err(error) if descriptors::is_scarcity(&error) => (None, Some(now() + descriptors::PAUSE)),
                Err(error) => return Err(error),
            };
            let due = due.map(|due| self.origin + Duration::from_nanos(due.as_nanos()));
            tokio::select! {
                biased;
                Some(ready) = OptionFuture::from(line.as_ref().map(AsyncFd::writable)) => {
                    drop(ready?);
                    self.lock().outlet.go_on();
                    patience = None;
                }
                () = until(again) => self.lock().outlet.go_on(),
                () = until(due.map(Into::into)) => {
                    self.work(|part, now, publish| part.let_time_pass(now, publish));
                    self.report(self.deputies.tell(|deputy| deputy.handle_timeout(self.now())));
                }
                () = until(patience) => {
                    // A process that was stopped meanwhile cannot know that the master was not.
                    if patience.is_some_and(|end| end.elapsed() < interval) {
                        tracing::warn!("the master takes no messages");
                        self.take(Event::MasterLost);
                    }
                    patience = None;
                }
                () = self.wake.notified() => {}
            }
        }
    }

    /// When something has to be done by itself.
    fn due(&self, inner: &Inner) -> Option<Timestamp> {
        inner.part.machine().poll_timeout().into_iter().chain(self.deputies.due()).min()
    }

    /// Takes part no more. Calls that are open, and calls from now on, end with the reason.
    fn leave(&self) {
        let mut inner = self.lock();
        inner.over = true;
        let gone = inner.part.machine().gone().unwrap_or(Gone::Left);
        self.gone.send_replace(Some(gone));
        // Before the master hears anything, and before anything is given back.
        self.windows.leave();
        self.server.close();
        inner.news = None;
        let settled = self.settle(&mut inner);
        let placed: Vec<Placed> = inner.part.forget();
        let open = mem::take(&mut inner.calls);
        inner.outlet.close(Shutdown::Both);
        drop(inner);
        self.end(settled);
        let open = open.into_values().filter_map(|call| call.answer);
        for to in open.chain(placed.into_iter().map(|placed| placed.with.1)) {
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
        self.lock().over = true;
        self.wake.notify_one();
    }

    /// Does what the machine wants done.
    fn act(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) {
        let mut deeds = Vec::new();
        while let Some(action) = inner.part.poll_action() {
            deeds.extend(self.do_one(&mut inner, action));
        }
        // The I/O thread sends together what all its tasks have to say.
        if inner.outlet.has_messages() && std::thread::current().id() == self.thread {
            self.wake.notify_one();
        } else {
            self.send(&mut inner);
        }
        if !inner.part.machine().takes_part() {
            self.deputies.end();
        }
        if inner.over || self.due(&inner) != inner.due {
            self.wake.notify_one();
        }
        drop(inner);
        for deed in deeds {
            match deed {
                Deed::Answer(to, result) => answer(to, *result),
                Deed::Begin(mut future) => {
                    let _runtime = self.runtime.enter();
                    if (&mut future).now_or_never().is_none() {
                        self.runtime.spawn(future);
                    }
                }
                Deed::HandBack(mut future) => {
                    let _runtime = self.runtime.enter();
                    if (&mut future).now_or_never().is_none() {
                        let mut inner = self.lock();
                        while inner.handing_back.try_join_next().is_some() {}
                        inner.handing_back.spawn_on(future, &self.runtime);
                    }
                }
            }
        }
    }

    fn do_one(self: &Arc<Self>, inner: &mut Inner, action: Action) -> Option<Deed> {
        match action {
            Action::Send(message) => inner.outlet.push(message),
            Action::Tell(deputy, message) => self.say(deputy, message, inner.limits),
            Action::Over(attempt) => {
                let reports = self.deputies.tell(|deputy| deputy.forget(self.now(), attempt));
                reports.into_iter().for_each(|report| inner.outlet.push(report));
            }
            Action::GiveUp(reduction) => {
                inner.share(reduction).into_iter().for_each(|share| share.give_up());
            }
            Action::Renew(reduction) => {
                let (share, driver) = (inner.share(reduction)?, self.clone());
                return Some(Deed::Begin(Box::pin(async move {
                    if tokio::task::spawn_blocking(move || share.renew()).await.is_ok() {
                        driver.take(Event::Renewed(reduction));
                    }
                })));
            }
            Action::Meet { peers, limits } => self.meet(inner, peers.to_vec(), limits),
            Action::Unwelcome(reason) => {
                let address = self.config.rendezvous.clone();
                let (rank, size) = (self.config.process.rank, self.config.size);
                end(inner, JoinError::Unwelcome { address, rank, size, reason });
            }
            Action::Incomplete { missing } => {
                let timeout = self.config.join_timeout;
                let rendezvous = LoopbackName::of(&self.config.rendezvous);
                end(inner, JoinError::Incomplete { missing, timeout, rendezvous });
            }
            Action::Closed => {
                let gone = inner.part.machine().gone().unwrap_or(Gone::MasterLost);
                end(inner, JoinError::from(gone));
            }
            Action::Execute(task) => {
                let (share, driver) = (inner.share(task.segment.reduction.called())?, self.clone());
                return Some(Deed::Begin(Box::pin(async move {
                    let (peers, id) = (driver.peers.clone(), task.task);
                    let done = move |result| driver.take(Event::Executed { task: id, result });
                    share.execute(&peers, task, done).await;
                })));
            }
            Action::Prefetch { reduction, bytes, part } => {
                let (share, driver) = (inner.share(reduction)?, self.clone());
                return Some(Deed::Begin(Box::pin(async move {
                    let start = part.range.start;
                    let body = share.prefetch(&driver.peers, bytes, part).await.ok();
                    drop(share);
                    driver.take(Event::Prefetched { reduction, start, body });
                })));
            }
            Action::Collect { reduction, pieces, how } => {
                let (share, driver) = (inner.share(reduction)?, self.clone());
                return Some(Deed::Begin(Box::pin(async move {
                    let result = share.collect(&driver.peers, pieces, how).await;
                    drop(share);
                    driver.take(Event::Collected { reduction, result });
                })));
            }
            Action::Keep(keep) => {
                let (share, driver) = (inner.share(keep.reduction)?, self.clone());
                return Some(Deed::Begin(Box::pin(async move {
                    let kept = driver.copier.copy(&share, keep).await;
                    driver.take(Event::Kept(kept));
                })));
            }
            Action::Resolve { reduction, end } => {
                let deed = resolve(inner, reduction, end);
                self.ended.notify_waiters();
                return deed;
            }
            Action::Release(reduction) => self.release(inner, reduction),
            Action::Departed { process, evidence } => {
                self.failed.send_modify(|failed| {
                    *failed = failed.union(&Path::single(process.rank)).unwrap_or_default();
                });
                self.peers.forget(process, evidence.leaves_memory());
                self.server.depart(process);
                let reports = self.deputies.depart(self.now(), process, evidence);
                reports.into_iter().for_each(|report| inner.outlet.push(report));
            }
            Action::Returned(peer) => {
                self.failed.send_modify(|failed| {
                    failed.remove(peer.process.rank);
                });
                self.peers.take_back(peer);
            }
            Action::Note { reduction, end } => return self.note(inner, reduction, end),
            Action::Replicate(agent) => {
                let (key, job, me) = (self.config.key, self.config.job, self.config.process);
                let silence_max = self.config.policy.limits.silence_max();
                inner.mirror = Some(Mirror::new(Partner { key, job, me, agent, silence_max }));
            }
            Action::Copy { agent, number } => self.copy_vault(inner, agent, number),
            Action::Forget(process) => self.peers.forget_memory(process),
            Action::AgentLost(agent) => self.peers.forget_host(agent),
            Action::News(news) => {
                tracing::info!(%news);
                // The application may not listen.
                drop(inner.news.as_ref().map(|listeners| listeners.send(news)));
            }
        }
        None
    }

    /// Tells a deputy something.
    fn say(self: &Arc<Self>, deputy: ProcessId, message: ToMaster, limits: Limits) {
        let Some(messages) = self.deputies.say(deputy, message) else { return };
        let driver = self.clone();
        self.runtime.spawn(async move {
            if let Some(peer) = driver.peers.find(deputy) {
                let each = |task| driver.take(Event::Deputy(deputy, task));
                driver.deputies.talk(peer, messages, limits, each).await;
            }
            driver.take(Event::DeputyLost(deputy));
        });
    }

    /// Lets members of the team here talk with its deputy. They may know of each other before this process
    /// knows of the job.
    async fn host(
        self: Arc<Self>,
        mut members: tokio_mpsc::UnboundedReceiver<(ProcessId, BoxStream, Seals)>,
    ) {
        self.met.notified().await;
        while let Some((member, stream, seals)) = members.recv().await {
            let (driver, limits) = (self.clone(), self.lock().limits);
            tokio::spawn(async move {
                let (now, report) = (|| driver.now(), |reports| driver.report(reports));
                driver.deputies.host(member, (stream, seals), limits, now, report).await;
            });
        }
    }

    /// Tells the master what the deputy here has to say, and wakes up when that is due.
    fn report(self: &Arc<Self>, reports: Vec<ToMaster>) {
        let mut inner = self.lock();
        reports.into_iter().for_each(|report| inner.outlet.push(report));
        self.send(&mut inner);
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

impl Driver {
    fn meet(self: &Arc<Self>, inner: &mut Inner, peers: Vec<Peer>, limits: Limits) {
        inner.limits = limits;
        // Before anything of this process can be read: peers hear of windows from now on.
        self.peers.allow(&peers);
        self.peers.meet(peers.clone(), &limits);
        self.server.meet(limits.silence_max());
        self.deputies.meet(peers.clone().into(), limits);
        self.met.notify_one();
        if let Some(region) = self.windows.region() {
            let of_process =
                |of: ProcessId| peers.iter().find(|peer| peer.process == of).map(|peer| peer.host);
            let host = of_process(self.config.process);
            region.share_host(peers.iter().filter(|peer| Some(peer.host) == host).count());
        }
        let rank = self.config.process.rank;
        let (placing, calls): (_, Option<Calls>) = Placing::open(rank, &peers, &limits).unzip();
        inner.placing = placing;
        calls.into_iter().for_each(|calls| inner.part.share_board(calls));
        self.recall(inner);
        if let Some(ready) = inner.ready.take() {
            let _ = ready.send(Ok(Joined { driver: self.clone(), peers, limits }));
        }
    }

    fn release(&self, inner: &mut Inner, reduction: ReductionId) {
        self.keeper.release(reduction);
        if let Some(call) = inner.calls.remove(&reduction) {
            call.share.release();
            if call.share.is_long_to_drop() {
                self.runtime.spawn_blocking(move || drop(call));
            }
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

/// Leaves when it is dropped, however that comes about.
struct Leaving<'a>(&'a Driver);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Where a runtime hears of what this rank waits for.
struct Ears {
    line: AsyncFd<Arc<OwnedFd>>,
    bell: Option<AsyncFd<Arc<OwnedFd>>>,
}

impl Inner {
    fn share(&self, reduction: ReductionId) -> Option<Arc<Share>> {
        self.calls.get(&reduction).map(|call| call.share.clone())
    }
}

/// Takes part no more; `error` is why, if the job has not begun.
fn end(inner: &mut Inner, error: JoinError) {
    if let Some(ready) = inner.ready.take() {
        let _ = ready.send(Err(error));
    }
    inner.over = true;
}

/// How a call ends for the application.
fn resolve(inner: &mut Inner, reduction: ReductionId, end: End) -> Option<Deed> {
    let call = inner.calls.get_mut(&reduction)?;
    let to = call.answer.take()?;
    let result = match end {
        End::Received(report) => {
            let share = call.share.clone();
            return Some(Deed::HandBack(Box::pin(async move {
                let value = share.take_body().await;
                let completed = value.map(|value| Completed { value: Some(value), report });
                answer(to, completed.map_err(CallError::ResultLost));
            })));
        }
        End::Finished(report) => Ok(Completed { value: None, report }),
        End::Fenced => Err(CallError::Fenced),
        End::Refused(refusal) => Err(CallError::Refused(refusal)),
        End::MasterLost => Err(CallError::MasterLost),
        End::Closed => Err(CallError::Closed),
        End::ResultLost(error) => Err(CallError::ResultLost(error)),
    };
    Some(Deed::Answer(to, Box::new(result)))
}

fn answer(to: Answer, result: Result<Completed, CallError>) {
    // The application may have dropped its future.
    let _ = to.send(result);
}

/// Waits until then, or for ever.
async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// Nanoseconds since `origin`, for machines that count from there.
pub fn timestamp(origin: Instant) -> Timestamp {
    Timestamp::from_nanos(origin.elapsed().as_nanos() as u64)
}
