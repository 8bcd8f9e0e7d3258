//! Lets the worker's machine act on sockets, threads and memory.
//!
//! Whoever has an event for the machine takes it in and does at once what follows: the application's thread that calls,
//! the thread that has folded, the I/O thread that hears the master. No event is handed over to another thread only to
//! be heard there.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, Weak, mpsc},
    thread::ThreadId,
    time::{Duration, Instant},
};

use everfold_protocol::{
    Path, ReductionId, Timestamp,
    message::{Contribution, Evidence, Header, Keep, News, Peer, Task, ToWorker},
    spec::Limits,
    watch::INTERVALS_MOST,
};
use tokio::{
    io::{AsyncWriteExt, WriteHalf},
    sync::{Notify, broadcast, oneshot, watch},
    time::{timeout, timeout_at},
};

use crate::{
    copier::Copier,
    executor::Share,
    handle::{CallError, Completed, Config, Handle, JoinError},
    keeper::Keeper,
    machine::{Action, End, Event, Gone, Worker},
    memory::window::Windows,
    outbox::Outbox,
    peers::Peers,
    transport::control::{BoxStream, Direct},
};

/// Where a call's outcome is awaited.
pub(crate) type Answer = oneshot::Sender<Result<Completed, CallError>>;

/// A worker: its machine, and what that acts on.
pub(crate) struct Driver {
    config: Config,
    pub(crate) windows: Arc<Windows>,
    keeper: Arc<Keeper>,
    copier: Copier,
    peers: Arc<Peers>,
    failed: watch::Sender<Path>,
    gone: watch::Sender<Option<Gone>>,
    origin: Instant,
    /// The I/O thread, and its runtime.
    thread: ThreadId,
    runtime: tokio::runtime::Handle,
    /// Wakes the I/O thread's [`Driver::drive`]: there are messages to send, a timeout is due earlier, or all is over.
    wake: Notify,
    inner: Mutex<Inner>,
}

/// What one thread at a time works with.
struct Inner {
    machine: Worker,
    locals: BTreeMap<ReductionId, Local>,
    outbox: Outbox,
    limits: Limits,
    /// Where the application waits for its session.
    ready: Option<mpsc::Sender<Result<Handle, JoinError>>>,
    /// Until it takes part no more.
    news: Option<broadcast::Sender<News>>,
    /// Whether it takes part no more.
    over: bool,
}

/// A call of the application.
struct Local {
    share: Arc<Share>,
    answer: Option<Answer>,
}

/// An outcome on its way to the application: told when nothing is locked any more, as it wakes another thread.
type Outcome = (Answer, Result<Completed, CallError>);

/// Pieces of news that are kept for slow listeners.
const NEWS_KEPT: usize = 1024;

impl Driver {
    /// A worker that is about to join as `me`; `ready` hears when it has. To be made on its I/O thread.
    pub(crate) fn new(
        config: Config,
        me: Peer,
        windows: Arc<Windows>,
        keeper: Arc<Keeper>,
        peers: Arc<Peers>,
        direct: Direct,
        ready: mpsc::Sender<Result<Handle, JoinError>>,
    ) -> Arc<Self> {
        let inner = Inner {
            machine: Worker::new(me),
            locals: BTreeMap::new(),
            outbox: Outbox::new(direct),
            limits: Limits::default(),
            ready: Some(ready),
            news: Some(broadcast::Sender::new(NEWS_KEPT)),
            over: false,
        };
        Arc::new_cyclic(|driver: &Weak<Self>| {
            let driver = driver.clone();
            let trouble = move |kept| {
                if let Some(driver) = driver.upgrade() {
                    driver.take(Event::Kept(kept));
                }
            };
            Self {
                copier: Copier::new(keeper.clone(), peers.clone(), trouble),
                keeper,
                windows,
                peers,
                failed: watch::Sender::new(Path::empty()),
                gone: watch::Sender::new(None),
                origin: Instant::now(),
                thread: std::thread::current().id(),
                runtime: tokio::runtime::Handle::current(),
                wake: Notify::new(),
                inner: Mutex::new(inner),
                config,
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Whoever panicked has left the machine in an unknown state: it must not go on.
        self.inner.lock().unwrap_or_else(|poisoned| {
            let mut inner = poisoned.into_inner();
            inner.over = true;
            inner
        })
    }

    fn now(&self) -> Timestamp {
        timestamp(self.origin)
    }

    /// Says hello to the master.
    pub(crate) fn begin(self: &Arc<Self>) {
        self.work(|_, _| {});
    }

    /// What happens in the job from now on; nothing if this process takes part no more.
    pub(crate) fn news(&self) -> broadcast::Receiver<News> {
        let news = self.lock().news.as_ref().map(broadcast::Sender::subscribe);
        news.unwrap_or_else(|| broadcast::Sender::new(1).subscribe())
    }

    /// Takes in an event and does what follows.
    pub(crate) fn take(self: &Arc<Self>, event: Event) {
        self.work(|machine, now| machine.handle_event(now, event));
    }

    /// Takes in what the master said.
    pub(crate) fn hear(self: &Arc<Self>, header: Header, messages: Vec<ToWorker>) {
        self.work(|machine, now| {
            for message in messages {
                machine.handle_event(now, Event::Master { header, message });
            }
        });
    }

    fn work(self: &Arc<Self>, tell: impl FnOnce(&mut Worker, Timestamp)) {
        let mut inner = self.lock();
        if !inner.over {
            tell(&mut inner.machine, self.now());
            let outcomes = self.act(&mut inner);
            drop(inner);
            outcomes.into_iter().for_each(answer);
        }
    }

    /// Makes a call.
    pub(crate) fn call(self: &Arc<Self>, contribution: Contribution, share: Share, to: Answer) {
        let mut inner = self.lock();
        if inner.over {
            let gone = inner.machine.gone().unwrap_or(Gone::Left);
            drop(inner);
            return answer((to, Err(gone.into())));
        }
        let local = Local { share: Arc::new(share), answer: Some(to) };
        inner.locals.insert(contribution.reduction, local);
        inner.machine.handle_event(self.now(), Event::Call(contribution));
        let outcomes = self.act(&mut inner);
        drop(inner);
        outcomes.into_iter().for_each(answer);
    }

    /// Sends what could not be sent at once, and lets time pass, until all is over.
    pub(crate) async fn drive(self: &Arc<Self>, mut control: WriteHalf<BoxStream>) {
        loop {
            let (due, blocked, patience) = {
                let mut inner = self.lock();
                self.send(&mut inner);
                if inner.over {
                    break;
                }
                let patience = inner.limits.ping_interval * INTERVALS_MOST;
                (inner.machine.poll_timeout(), inner.outbox.take_blocked(), patience)
            };
            if let Some(bytes) = blocked {
                // A master that is frozen takes nothing after a while; nobody must wait for it longer than silence lasts.
                if timeout(patience, control.write_all(&bytes)).await.is_err() {
                    tracing::warn!(?patience, "the master takes no messages");
                    self.take(Event::MasterLost);
                }
                continue;
            }
            let awake = self.wake.notified();
            let Some(due) = due else {
                awake.await;
                continue;
            };
            let due = self.origin + Duration::from_nanos(due.as_nanos());
            if timeout_at(due.into(), awake).await.is_err() {
                self.work(Worker::handle_timeout);
            }
        }
        self.say_goodbye();
        self.keeper.close().await;
    }

    /// Whoever has called or calls from now on hears why nothing happens.
    fn say_goodbye(&self) {
        let mut inner = self.lock();
        let gone = inner.machine.gone().unwrap_or(Gone::Left);
        self.gone.send_replace(Some(gone));
        inner.news = None;
        let open = mem::take(&mut inner.locals);
        drop(inner);
        for to in open.into_values().filter_map(|local| local.answer) {
            answer((to, Err(gone.into())));
        }
    }

    /// Ends all at once, as if the process had died.
    pub(crate) fn abandon(&self) {
        self.lock().over = true;
        self.wake.notify_one();
    }

    /// Does what the machine wants done.
    fn act(self: &Arc<Self>, inner: &mut Inner) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let due = inner.machine.poll_timeout();
        while let Some(action) = inner.machine.poll_action() {
            match action {
                Action::Send(message) => inner.outbox.push(message),
                Action::Meet { peers, limits } => self.meet(inner, peers.to_vec(), limits),
                Action::Unwelcome(reason) => {
                    let address = self.config.rendezvous.clone();
                    self.end(inner, JoinError::Unwelcome { address, reason });
                }
                Action::Incomplete { missing } => {
                    let timeout = self.config.join_timeout;
                    self.end(inner, JoinError::Incomplete { missing, timeout });
                }
                Action::Execute(task) => self.execute(inner, task),
                Action::Collect { reduction, pieces } => {
                    let Some(Local { share, .. }) = inner.locals.get(&reduction) else { continue };
                    let (share, driver) = (share.clone(), self.clone());
                    self.runtime.spawn(async move {
                        let result = share.collect(&driver.peers, pieces).await;
                        drop(share);
                        driver.take(Event::Collected { reduction, result });
                    });
                }
                Action::Resolve { reduction, end } => outcomes.extend(resolve(inner, reduction, end)),
                Action::Release(reduction) => self.release(inner, reduction),
                Action::Departed { process, evidence } => {
                    self.failed.send_modify(|failed| {
                        *failed = failed.union(&Path::single(process.rank)).unwrap_or_default();
                    });
                    self.peers.forget(process, evidence == Evidence::Disconnected);
                }
                Action::Keep(keep) => self.keep(inner, keep),
                Action::News(news) => {
                    tracing::info!(%news);
                    // The application may not listen.
                    drop(inner.news.as_ref().map(|listeners| listeners.send(news)));
                }
                Action::Closed => self.end(inner, JoinError::MasterLost),
            }
        }
        // The I/O thread sends together what all its tasks have to say.
        if inner.outbox.has_messages() && std::thread::current().id() == self.thread {
            self.wake.notify_one();
        } else {
            self.send(inner);
        }
        if inner.over || inner.machine.poll_timeout() != due {
            self.wake.notify_one();
        }
        outcomes
    }

    /// Sends what there is to tell the master.
    fn send(self: &Arc<Self>, inner: &mut Inner) {
        if !inner.outbox.has_messages() {
            return;
        }
        let Config { job, process: sender, .. } = self.config;
        let header = Header { job, epoch: inner.machine.epoch(), sender };
        match inner.outbox.send(&header, inner.limits.frame_bytes_max) {
            Ok(false) => {}
            Ok(true) => self.wake.notify_one(),
            Err(error) => {
                // Bodies are checked against the limits before; what is left over is a defect, not a reason to hang.
                tracing::error!(%error, "cannot tell the master");
                let driver = self.clone();
                self.runtime.spawn(async move { driver.take(Event::MasterLost) });
            }
        }
    }
}

impl Driver {
    fn meet(self: &Arc<Self>, inner: &mut Inner, peers: Vec<Peer>, limits: Limits) {
        inner.limits = limits;
        self.peers.meet(peers.clone());
        let handle = Handle {
            process: self.config.process,
            limits,
            peers,
            gone: self.gone.subscribe(),
            failed: self.failed.subscribe(),
            driver: self.clone(),
            thread: None,
        };
        if let Some(ready) = inner.ready.take() {
            let _ = ready.send(Ok(handle));
        }
    }

    /// Takes part no more; `error` is why, if the job has not begun.
    fn end(&self, inner: &mut Inner, error: JoinError) {
        if let Some(ready) = inner.ready.take() {
            let _ = ready.send(Err(error));
        }
        inner.over = true;
    }

    fn execute(self: &Arc<Self>, inner: &Inner, task: Task) {
        let Some(Local { share, .. }) = inner.locals.get(&task.segment.reduction) else { return };
        let (share, driver, id) = (share.clone(), self.clone(), task.task);
        self.runtime.spawn(async move {
            let peers = driver.peers.clone();
            share.execute(&peers, task, move |result| driver.take(Event::Executed { task: id, result })).await;
        });
    }

    /// Makes copies of an original, in the background.
    fn keep(self: &Arc<Self>, inner: &Inner, keep: Keep) {
        let Some(Local { share, .. }) = inner.locals.get(&keep.reduction) else { return };
        let (share, driver) = (share.clone(), self.clone());
        self.runtime.spawn(async move {
            let kept = driver.copier.copy(&share, keep).await;
            driver.take(Event::Kept(kept));
        });
    }

    fn release(&self, inner: &mut Inner, reduction: ReductionId) {
        self.keeper.release(reduction);
        if let Some(local) = inner.locals.remove(&reduction) {
            local.share.release();
            if local.share.is_long_to_drop() {
                self.runtime.spawn_blocking(move || drop(local));
            }
        }
    }
}

/// How a call ends for the application.
fn resolve(inner: &mut Inner, reduction: ReductionId, end: End) -> Option<Outcome> {
    let local = inner.locals.get_mut(&reduction)?;
    let to = local.answer.take()?;
    let result = match end {
        End::Received(report) => {
            let value = local.share.take_body();
            value.map(|value| Completed { value: Some(value), report }).map_err(CallError::ResultLost)
        }
        End::Finished(report) => Ok(Completed { value: None, report }),
        End::Fenced => Err(CallError::Fenced),
        End::Refused(refusal) => Err(CallError::Refused(refusal)),
        End::MasterLost => Err(CallError::MasterLost),
        End::Closed => Err(CallError::Closed),
        End::ResultLost(error) => Err(CallError::ResultLost(error)),
    };
    Some((to, result))
}

fn answer((to, result): Outcome) {
    // The application may have dropped its future.
    let _ = to.send(result);
}

/// Nanoseconds since `origin`, for machines that count from there.
pub fn timestamp(origin: Instant) -> Timestamp {
    Timestamp::from_nanos(origin.elapsed().as_nanos() as u64)
}
