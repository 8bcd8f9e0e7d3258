//! One rank's share of a reduction, and what is done with it: fold, publish, collect.
//!
//! Reading peers is asynchronous; folding runs on the runtime's threads for blocking work, never on the
//! thread that serves windows and messages. Only what is shorter than a hand-over is folded on the spot.

//!
//! | module | holds |
//! |---|---|
//! | `fold` | doing tasks |
//! | `blame` | whose contribution it was when that panics |
//! | `collect` | copying a finished result here |
//! | `copies` | replicas of others' originals |
//! | `row` | putting pieces side by side |

mod blame;
mod collect;
mod copies;
mod covered;
mod fold;
mod row;

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use everfold_protocol::{
    Path, ProcessId,
    message::{Data, WindowRef},
    spec::{BodyKind, Limits, Operation, Order, ReductionSpec},
};
use everfold_worker::machine::ExecutionError;
use tokio::sync::Notify;

use self::{copies::Copies, row::Row};
pub(crate) use self::{fold::scratch, row::recalled};
use crate::{
    body::{Body, BodyError, Object},
    kernel::Accumulate,
    memory::{
        buffer::{Buffer, Memory, ReadLease, Sheltered, Unavailable},
        window::{Content, Windows},
    },
};

/// Bytes up to which arrays are folded where they arrive: about the time of a hand-over to another thread.
/// Only with operations that are ours: nobody knows how long others take.
const ON_THE_SPOT_BYTES: usize = 256 << 10;

/// What this rank put into a reduction and what has become of it.
#[derive(Debug)]
pub struct Share {
    me: ProcessId,
    group: Path,
    order: Order,
    /// Whether partials stay in this process: at the root, where the result arrives.
    private: bool,
    /// Whether the result takes the place of what grows here. A task that was given up elsewhere may still be
    /// under way: nothing is folded into the result.
    over: AtomicBool,
    shown: Shown,
    /// Replicas of others' originals.
    copies: Copies,
    /// What the original was, if partials grow in it and it may have to be contributed again.
    saved: Option<Bytes>,
    /// Whether an attempt in teams is given up, and who waits for what it reads.
    given_up: AtomicBool,
    waiting: Notify,
    kind: Kind,
}

/// What of a share peers can read.
#[derive(Debug)]
struct Shown {
    windows: Arc<Windows>,
    open: Mutex<Vec<WindowRef>>,
    inline_bytes_max: u64,
}

impl Shown {
    fn publish(&self, content: Content) -> Result<Data, NoWindow> {
        let window = self.windows.publish(content).ok_or(NoWindow)?;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).push(window.clone());
        Ok(Data::Window(window))
    }

    /// The memory of an original. It is copied to where it outlives this process, if it has to and there is room.
    fn original(&self, memory: Box<dyn Memory>, outlives: bool) -> Arc<Buffer> {
        Buffer::new(match self.windows.region() {
            Some(region) if outlives && memory.region_offset().is_none() => {
                Sheltered::new(memory, region).map_or_else(|memory| memory, |it| Box::new(it) as _)
            }
            _ => memory,
        })
    }

    fn publish_encoded(&self, bytes: Vec<u8>) -> Result<Data, NoWindow> {
        if bytes.len() as u64 <= self.inline_bytes_max {
            Ok(Data::Inline(bytes.into()))
        } else {
            self.publish(Content::Encoded(self.sheltered(bytes)))
        }
    }

    /// Puts encoded bytes where they outlive this process, if there is room.
    fn sheltered(&self, bytes: Vec<u8>) -> Bytes {
        match self.windows.region().and_then(|region| region.allocate(bytes.len())) {
            Some(mut block) => {
                block.bytes_mut().copy_from_slice(&bytes);
                Bytes::from_owner(block)
            }
            None => bytes.into(),
        }
    }

    /// Closes the windows that `which` accepts.
    fn release(&self, which: impl Fn(&WindowRef) -> bool) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|window| {
            let release = which(window);
            if release {
                self.windows.release(window);
            }
            !release
        });
    }
}

/// The body; it is taken out when the application's future ends.
enum Kind {
    Array(Array),
    Object(Mutex<Option<Box<dyn Object>>>),
    Pieces(Row),
}

struct Array {
    original: Mutex<Option<Arc<Buffer>>>,
    bytes: usize,
    /// Where partials grow, unless they do in the original itself.
    partial: Mutex<Option<(Arc<Buffer>, Data)>>,
    /// Whether partials grow in the original, because nobody else reads it.
    in_place: bool,
    element_bytes: usize,
    accumulate: Accumulate,
    /// Whether the operation is one of ours.
    predefined: bool,
    collected: Mutex<Progress>,
}

/// How far the result is copied into an array.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// The bytes before this one are the result.
    done: u64,
    /// The bytes from this one on are as they were.
    touched: u64,
    /// The window on it, once others may have to read it.
    shown: Option<Data>,
    /// Whether it is copied into the partial.
    beside: bool,
}

impl Array {
    fn original(&self) -> Result<Arc<Buffer>, BodyError> {
        let original = self.original.lock().unwrap_or_else(PoisonError::into_inner);
        original.clone().ok_or_else(handed_back)
    }
}

fn handed_back() -> BodyError {
    BodyError::Failed("it was handed back to the application".to_owned())
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Array(array) => write!(f, "array of {} bytes", array.bytes),
            Self::Object(_) => f.write_str("object"),
            Self::Pieces(_) => f.write_str("pieces"),
        }
    }
}

/// There are too many windows open, or too little memory for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many reductions are in flight: there is no window left for another one")]
pub struct NoWindow;

/// Why a body cannot be contributed.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// See [`NoWindow`].
    #[error(transparent)]
    NoWindow(#[from] NoWindow),
    /// See [`BodyError`].
    #[error(transparent)]
    Body(#[from] BodyError),
    /// This rank has as many reductions in flight as it may have.
    #[error("{limit} reductions are in flight, which is the limit")]
    TooMany {
        /// The limit.
        limit: u64,
    },
    /// The encoded body is over the job's limit.
    #[error("the encoded body has {bytes} bytes; the limit of this job is {limit}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

/// What is in store for a share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prospects {
    /// It is copied where it outlives this process, if there is room.
    pub outlives: bool,
    /// It may have to be [renewed](Share::renew).
    pub may_come_back: bool,
}

impl Share {
    /// Makes `body` this rank's original: readable for peers unless this rank is the root.
    ///
    /// # Errors
    /// The body cannot be encoded, or no window is free.
    pub fn new(
        me: ProcessId,
        spec: &ReductionSpec,
        body: Body,
        windows: &Arc<Windows>,
        limits: &Limits,
        Prospects { outlives, may_come_back }: Prospects,
    ) -> Result<(Self, Data), ShareError> {
        let private = spec.delivery.root() == Some(me.rank);
        let inline_bytes_max = spec.inline_bytes_max(limits);
        let shown = Shown { windows: windows.clone(), open: Mutex::default(), inline_bytes_max };
        let mut saved = None;
        let (kind, data) = match body {
            Body::Array { memory, element_bytes, accumulate } => {
                let inline = memory.bytes().len() as u64 <= inline_bytes_max;
                let in_place = private || inline;
                let saves = (inline && !private) || (private && may_come_back);
                saved = saves.then(|| Bytes::copy_from_slice(memory.bytes()));
                let original = shown.original(memory, outlives && !in_place);
                let data = match &saved {
                    Some(bytes) if !private => Data::Inline(bytes.clone()),
                    _ if private => Data::Private,
                    _ => shown.publish(Content::Buffer(original.clone()))?,
                };
                let array = Array {
                    bytes: original.len(),
                    original: Mutex::new(Some(original)),
                    partial: Mutex::default(),
                    in_place,
                    element_bytes,
                    accumulate,
                    predefined: !matches!(spec.kind, BodyKind::Array { operation: Operation::Custom(_), .. }),
                    collected: Mutex::default(),
                };
                (Kind::Array(array), data)
            }
            Body::Object(object) => {
                let data = match private {
                    true => object.check().map(|()| Data::Private)?,
                    false => shown.publish_encoded(object.encode()?)?,
                };
                (Kind::Object(Mutex::new(Some(object))), data)
            }
            Body::Pieces(memory) => {
                let data = match memory.bytes().len() as u64 <= inline_bytes_max {
                    true => Data::Inline(Bytes::copy_from_slice(memory.bytes())),
                    false => shown.publish(Content::Buffer(shown.original(memory, outlives)))?,
                };
                (Kind::Pieces(Row::new(me.rank, spec)), data)
            }
        };
        let (group, order) = (spec.group.clone(), spec.order);
        let copies = Copies::default();
        let over = AtomicBool::new(false);
        let (given_up, waiting) = (AtomicBool::new(false), Notify::new());
        Ok((Self { me, group, order, private, over, shown, copies, saved, given_up, waiting, kind }, data))
    }

    /// Waits no longer for what tasks of an attempt in teams read.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
        self.waiting.notify_waiters();
    }

    /// Waits until an attempt in teams is given up.
    async fn is_given_up(&self) {
        let mut told = std::pin::pin!(self.waiting.notified());
        told.as_mut().enable();
        if !self.given_up.load(Ordering::SeqCst) {
            told.await;
        }
    }

    /// Makes the body the original again that it was when it was contributed. To be called when no task works
    /// on this share.
    pub fn renew(&self) {
        if let Kind::Array(array) = &self.kind {
            let partial = array.partial.lock().unwrap_or_else(PoisonError::into_inner).take();
            self.shown.release(|window| {
                partial.as_ref().is_some_and(|(_, data)| matches!(data, Data::Window(it) if it == window))
            });
            if let (Some(saved), Ok(original)) = (&self.saved, array.original()) {
                let body = original.write(0, array.bytes as u64);
                body.expect("what grows in place is lent to tasks only").copy_from_slice(saved);
            }
        }
        self.given_up.store(false, Ordering::SeqCst);
    }

    fn folds_swiftly(&self) -> bool {
        matches!(&self.kind, Kind::Array(array) if array.predefined)
    }

    /// Whether giving the body back takes longer than handing that over to another thread. Of an object
    /// nobody knows.
    pub fn is_long_to_drop(&self) -> bool {
        match &self.kind {
            Kind::Array(array) => array.bytes > 1 << 20,
            Kind::Object(_) | Kind::Pieces(_) => true,
        }
    }

    /// Makes the body of a `result` that lies in the partial: takes that, if both are memory of the same
    /// kind, or copies it. Nobody else needs it any more.
    async fn put_in_place(
        &self,
        result: Arc<Buffer>,
        original: Arc<Buffer>,
    ) -> Result<Arc<Buffer>, ExecutionError> {
        self.shown.release(|window| self.shown.windows.shows(window, &result));
        result.idle().await;
        if result.is_block() && original.is_block() {
            return Ok(result);
        }
        let copy = move || {
            let bytes = original.len() as u64;
            original.write(0, bytes)?.copy_from_slice(&result.read(0, bytes)?);
            Ok::<_, Unavailable>(original)
        };
        let copied = tokio::task::spawn_blocking(copy).await;
        let copied = copied.map_err(|error| ExecutionError::blame(self.me, error))?;
        copied.map_err(|error| ExecutionError::blame(self.me, error))
    }

    /// Length of an array in bytes, `None` of an object.
    pub(crate) fn array_bytes(&self) -> Option<u64> {
        match &self.kind {
            Kind::Array(array) => Some(array.bytes as u64),
            Kind::Object(_) | Kind::Pieces(_) => None,
        }
    }

    /// The result, once it is here.
    ///
    /// # Errors
    /// It was handed back, or cannot be encoded.
    pub(crate) fn value(&self) -> Result<Value, BodyError> {
        match &self.kind {
            Kind::Array(array) => {
                let lease = array.original()?.read(0, array.bytes as u64);
                lease.map(Value::Array).map_err(|error| BodyError::Failed(error.to_string()))
            }
            Kind::Object(object) => {
                let object = object.lock().unwrap_or_else(PoisonError::into_inner);
                object.as_ref().ok_or_else(handed_back)?.encode().map(Value::Object)
            }
            Kind::Pieces(row) => row.noted().map(Value::Object),
        }
    }

    /// Closes all windows of this share.
    pub fn release(&self) {
        self.shown.release(|_| true);
    }

    /// Takes the body out: the result, where this rank was to have it. Waits for readers. Partials stay
    /// readable.
    ///
    /// # Errors
    /// It was taken before.
    pub async fn take_body(&self) -> Result<Returned, ExecutionError> {
        match &self.kind {
            Kind::Array(array) => {
                let original = array.original.lock().unwrap_or_else(PoisonError::into_inner).take();
                let original = original.ok_or_else(|| ExecutionError::blame(self.me, handed_back()))?;
                self.shown.release(|window| self.shown.windows.shows(window, &original));
                original.idle().await;
                if let Some(result) = array.take_beside() {
                    let result = self.put_in_place(result, original).await?;
                    return Ok(Returned::Array(alone(result).await));
                }
                Ok(Returned::Array(alone(original).await))
            }
            Kind::Object(object) => {
                let object = object.lock().unwrap_or_else(PoisonError::into_inner).take();
                object.map(Returned::Object).ok_or_else(|| ExecutionError::blame(self.me, handed_back()))
            }
            Kind::Pieces(row) => {
                let (result, lengths) =
                    row.take().ok_or_else(|| ExecutionError::blame(self.me, handed_back()))?;
                self.shown.release(|window| self.shown.windows.shows(window, &result));
                Ok(Returned::Pieces { memory: alone(result).await, lengths })
            }
        }
    }
}

impl Array {
    /// Takes in that the partial is folded anew from this byte on: what was copied there of a result is no
    /// more.
    fn forget_result(&self, start: u64) {
        let mut progress = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.beside {
            progress.done = progress.done.min(start);
        }
    }

    /// Takes the partial, if the whole result was copied there.
    fn take_beside(&self) -> Option<Arc<Buffer>> {
        let progress = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = progress.beside && progress.done == self.bytes as u64;
        let mut partial = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
        partial.take_if(|_| is_there).map(|(partial, _)| partial)
    }
}

/// Gives a buffer back to its owner, of which nothing is shown any more, once nobody reads it.
async fn alone(mut buffer: Arc<Buffer>) -> Box<dyn Memory> {
    loop {
        buffer.idle().await;
        match buffer.into_owner() {
            Ok(owner) => return owner,
            // Somebody is about to see that it is not there for it any more.
            Err(held) => buffer = held,
        }
        tokio::task::yield_now().await;
    }
}

/// The bytes of a result.
pub(crate) enum Value {
    /// Of an array, where they are.
    Array(ReadLease),
    /// Of an object, encoded; or of pieces, with their lengths.
    Object(Vec<u8>),
}

impl Value {
    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Array(lease) => lease,
            Self::Object(bytes) => bytes,
        }
    }
}

/// A body on its way back to the application.
pub enum Returned {
    /// The memory it came in.
    Array(Box<dyn Memory>),
    /// The object.
    Object(Box<dyn Object>),
    /// The pieces of those that have contributed, side by side.
    Pieces {
        /// Their bytes.
        memory: Box<dyn Memory>,
        /// How long each is.
        lengths: Vec<u64>,
    },
}
