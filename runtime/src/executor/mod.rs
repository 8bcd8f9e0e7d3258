//! One rank's share of a reduction: folding, publishing and collecting it.
//!
//! Reading peers is asynchronous; folding runs on the runtime's threads for blocking work, never on the
//! thread that serves windows and messages. Only bodies that take less time than a hand-over are folded on
//! the spot.
//!
//! | module | holds |
//! |---|---|
//! | `array` | an array that is folded |
//! | `shown` | what peers can read |
//! | `returned` | a body on its way back |
//! | `error` | why a body cannot be contributed |
//! | `fold` | doing tasks |
//! | `blame` | whose contribution it was when that panics |
//! | `collect` | copying a finished result here |
//! | `copies` | replicas of others' originals |
//! | `row` | putting pieces side by side |

mod array;
mod blame;
mod collect;
mod copies;
mod covered;
mod error;
mod fold;
mod returned;
mod row;
mod shown;

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use everfold_protocol::{
    Path, ProcessId,
    message::Data,
    spec::{BodyKind, Limits, Operation, Order, ReductionSpec},
};
use tokio::sync::Notify;

use self::{array::Array, copies::Copies, row::Row, shown::Shown};
pub use self::{
    error::{NoWindow, ShareError},
    returned::Returned,
};
pub(crate) use self::{fold::scratch, row::recalled};
use crate::{
    body::{Body, Object},
    memory::window::{Content, Windows},
};

/// Bytes up to which arrays are folded where they arrive, which is mostly on the thread that serves windows and
/// messages. A hand-over to another thread and back takes about half as long as to fold that many.
/// Only with predefined operations: the time of others is unknown.
const ON_THE_SPOT_BYTES: usize = 1 << 20;

/// This rank's original in a reduction, its partials, and its result.
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
    /// A copy of the original, if partials grow in it and it may have to be contributed again.
    saved: Option<Bytes>,
    /// Whether an attempt in teams is given up; tasks that still read hear so.
    given_up: AtomicBool,
    waiting: Notify,
    kind: Kind,
}

/// The body; it is taken out when the application's future ends.
enum Kind {
    Array(Array),
    Object(Mutex<Option<Box<dyn Object>>>),
    Pieces(Row),
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

/// The future of a share, as far as its memory depends on it.
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
        let shown = Shown::new(windows.clone(), inline_bytes_max);
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

    /// Whether giving the body back takes longer than handing that over to another thread. Of an object it is
    /// not known.
    pub fn is_long_to_drop(&self) -> bool {
        match &self.kind {
            Kind::Array(array) => array.bytes > 1 << 20,
            Kind::Object(_) | Kind::Pieces(_) => true,
        }
    }

    /// Length of an array in bytes, `None` of an object.
    pub(crate) fn array_bytes(&self) -> Option<u64> {
        match &self.kind {
            Kind::Array(array) => Some(array.bytes as u64),
            Kind::Object(_) | Kind::Pieces(_) => None,
        }
    }

    /// Closes all windows of this share. A task that goes on shows nothing any more.
    pub fn release(&self) {
        self.shown.close();
    }
}
