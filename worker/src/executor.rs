//! One rank's share of a reduction, and what is done with it: fold, publish, collect.
//!
//! Reading peers is asynchronous; folding runs on the runtime's threads for blocking work, never on the thread that
//! serves windows and messages. Only what is shorter than a hand-over is folded on the spot.

use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use everfold_protocol::{
    Path, ProcessId, ReductionId,
    bracketing::{self, Span},
    message::{ByteRange, Data, Fault, HalfBody, KeepAs, Piece, Source, Task, TaskCounters, WindowRef},
    spec::{BodyKind, Limits, Operation, Order, ReductionSpec},
};
use futures::future::try_join_all;

use crate::{
    body::{Body, BodyError, Object},
    keeper::{self, Keeper},
    kernel::{self, Accumulate, Bracketing, Own},
    machine::{Collected, ExecutionError},
    memory::{
        buffer::{Buffer, Memory},
        region::Region,
        window::{Content, Windows},
    },
    peers::Peers,
    transport::{Fetched, ReadError},
};

/// Bytes up to which arrays are folded where they arrive: about the time of a hand-over to another thread. Only with
/// operations that are ours: nobody knows how long others take.
const ON_THE_SPOT_BYTES: usize = 128 << 10;

/// What this rank put into a reduction and what has become of it.
#[derive(Debug)]
pub struct Share {
    me: ProcessId,
    group: Path,
    order: Order,
    /// Whether partials stay in this process: at the root, where the result arrives.
    private: bool,
    /// Whether the result takes the place of what grows here. A task that was given up elsewhere may still be under way:
    /// nothing is folded into the result.
    over: AtomicBool,
    shown: Shown,
    /// Windows on copies of others' originals.
    copies: Mutex<BTreeMap<ProcessId, WindowRef>>,
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

    fn publish_encoded(&self, bytes: Vec<u8>) -> Result<Data, NoWindow> {
        if bytes.len() as u64 <= self.inline_bytes_max {
            Ok(Data::Inline(bytes.into()))
        } else {
            self.publish(Content::Encoded(bytes.into()))
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
}

impl Array {
    fn original(&self) -> Result<Arc<Buffer>, BodyError> {
        let original = self.original.lock().unwrap_or_else(PoisonError::into_inner);
        original.clone().ok_or_else(handed_back)
    }
}

fn handed_back() -> BodyError {
    BodyError("it was handed back to the application".to_owned())
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Array(array) => write!(f, "array of {} bytes", array.bytes),
            Self::Object(_) => f.write_str("object"),
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
    /// The encoded body is over the job's limit.
    #[error("the encoded body has {bytes} bytes; the limit of this job is {limit}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
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
    ) -> Result<(Self, Data), ShareError> {
        let private = spec.delivery.root() == Some(me.rank);
        let inline_bytes_max = limits.inline_bytes_max;
        let shown = Shown { windows: windows.clone(), open: Mutex::default(), inline_bytes_max };
        let (kind, data) = match body {
            Body::Array { memory, element_bytes, accumulate } => {
                let inline = memory.bytes().len() as u64 <= inline_bytes_max;
                let copy = (inline && !private).then(|| Bytes::copy_from_slice(memory.bytes()));
                let original = Buffer::new(memory);
                let data = match copy {
                    Some(bytes) => Data::Inline(bytes),
                    None if private => Data::Private,
                    None => shown.publish(Content::Buffer(original.clone()))?,
                };
                let array = Array {
                    bytes: original.len(),
                    original: Mutex::new(Some(original)),
                    partial: Mutex::default(),
                    in_place: private || inline,
                    element_bytes,
                    accumulate,
                    predefined: !matches!(spec.kind, BodyKind::Array { operation: Operation::Custom(_), .. }),
                    collected: Mutex::default(),
                };
                (Kind::Array(array), data)
            }
            Body::Object(object) => {
                let data = if private { Data::Private } else { shown.publish_encoded(object.encode()?)? };
                (Kind::Object(Mutex::new(Some(object))), data)
            }
        };
        let (group, order) = (spec.group.clone(), spec.order);
        let copies = Mutex::default();
        let over = AtomicBool::new(false);
        Ok((Self { me, group, order, private, over, shown, copies, kind }, data))
    }

    fn folds_swiftly(&self) -> bool {
        matches!(&self.kind, Kind::Array(array) if array.predefined)
    }

    /// Whether giving the body back takes longer than handing that over to another thread. Of an object nobody knows.
    pub fn is_long_to_drop(&self) -> bool {
        match &self.kind {
            Kind::Array(array) => array.bytes > 1 << 20,
            Kind::Object(_) => true,
        }
    }

    /// Shows the copy of an original; one window for all its segments, whichever are there.
    pub(crate) fn show_copy(
        &self,
        keeper: &Arc<Keeper>,
        reduction: ReductionId,
        source: &Source,
        how: KeepAs,
    ) -> Result<Data, String> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(window) = copies.get(&source.process) {
            return Ok(Data::Window(window.clone()));
        }
        let kept = keeper::Kept {
            keeper: keeper.clone(),
            kind: everfold_storage::Kind::Replica,
            reduction,
            owner: source.process,
            bytes: source.data.len(),
            segment_bytes: NonZeroU64::new(how.segment_bytes),
        };
        let data = self.shown.publish(Content::Kept(Arc::new(kept))).map_err(|error| error.to_string())?;
        if let Data::Window(window) = &data {
            copies.insert(source.process, window.clone());
        }
        Ok(data)
    }

    /// Closes all windows of this share.
    pub fn release(&self) {
        self.shown.release(|_| true);
    }

    /// Does `task`: reads its sources and folds them into this rank's partial. `done` hears where that is readable and
    /// what it cost, or whose data it could not be done with; the partial is then as it was.
    pub async fn execute(
        self: Arc<Self>,
        peers: &Peers,
        mut task: Task,
        done: impl FnOnce(Result<(Data, TaskCounters), ExecutionError>) + Send + 'static,
    ) {
        let started = Instant::now();
        if self.order == Order::Fixed {
            task.sources.sort_by_key(|source| source.path.first());
        }
        let range = matches!(self.kind, Kind::Array(_)).then_some(task.range);
        let fetches = task.sources.iter().map(|source| peers.fetch(source.process, &source.data, range));
        let fetched = match try_join_all(fetches).await {
            Ok(fetched) => fetched,
            Err(error) => return done(Err(error)),
        };
        let fetch_ns = started.elapsed().as_nanos() as u64;
        let bytes: usize = fetched.iter().map(|bytes| bytes.len()).sum();
        let on_the_spot = bytes <= ON_THE_SPOT_BYTES && self.folds_swiftly();
        let fold = move || {
            // Waiting for a free thread is no work: it would make a busy worker look slow.
            let started = Instant::now();
            let folded = catch_unwind(AssertUnwindSafe(|| self.fold(&task, &fetched)));
            let panicked = |_| {
                let reason = "combining panicked; the panic's message is in this rank's output";
                Err(ExecutionError::blame(self.me, reason))
            };
            let result = folded.unwrap_or_else(panicked).map(|data| {
                let task_ns = fetch_ns + started.elapsed().as_nanos() as u64;
                (data, TaskCounters { task_ns, fetch_ns, fetched_bytes: bytes as u64 })
            });
            // What the master hears next may be that the body goes back to the application.
            drop((self, fetched));
            done(result);
        };
        if on_the_spot {
            fold();
        } else {
            tokio::task::spawn_blocking(fold);
        }
    }

    /// Which operand of `task`, counted from the left, is this rank's own, and where all of them lie in the group. If it has
    /// none, the first source takes its place.
    fn operands(&self, task: &Task) -> (usize, Vec<Span>) {
        let own = Some(&task.own).filter(|own| !own.is_empty());
        let is_left = |source: &&Source| own.is_some_and(|own| source.path.first() < own.first());
        let own_number = task.sources.iter().filter(is_left).count();
        let mut paths: Vec<&Path> = task.sources.iter().map(|source| &source.path).collect();
        own.into_iter().for_each(|own| paths.insert(own_number, own));
        let span = |path| Span::of(path, &self.group).expect("I1: paths are parts of the group");
        (own_number, paths.into_iter().map(span).collect())
    }

    fn fold(&self, task: &Task, fetched: &[Fetched]) -> Result<Data, ExecutionError> {
        match &self.kind {
            Kind::Array(array) => self.fold_array(array, task, fetched),
            Kind::Object(object) => {
                let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
                self.check_open()?;
                self.fold_object(&mut object, task, fetched)?;
                if self.private {
                    return Ok(Data::Private);
                }
                let object = object.as_ref().ok_or_else(|| ExecutionError::blame(self.me, handed_back()))?;
                let encoded = object.encode().map_err(|error| ExecutionError::blame(self.me, error))?;
                self.shown.publish_encoded(encoded).map_err(|error| ExecutionError::blame(self.me, error))
            }
        }
    }

    /// Folds encoded operands into the object in `slot`.
    ///
    /// All are decoded before the first is combined, so that a bad one changes nothing (I4).
    fn fold_object(
        &self,
        slot: &mut Option<Box<dyn Object>>,
        task: &Task,
        fetched: &[Fetched],
    ) -> Result<(), ExecutionError> {
        let own = slot.as_ref().ok_or_else(|| ExecutionError::blame(self.me, handed_back()))?;
        let decode = |(source, bytes): (&Source, &Fetched)| {
            own.decode(bytes).map_err(|error| ExecutionError::blame(source.process, error))
        };
        let mut operands: Vec<_> = task.sources.iter().zip(fetched).map(decode).collect::<Result<_, _>>()?;
        let (own_number, spans) = match self.order {
            Order::Arrival => (0, Vec::new()),
            Order::Fixed => self.operands(task),
        };
        let own = slot.take().filter(|_| !task.own.is_empty());
        own.into_iter().for_each(|own| operands.insert(own_number, own));
        let combine = |mut left: Box<dyn Object>, right| {
            left.combine(right);
            left
        };
        *slot = match self.order {
            Order::Arrival => operands.into_iter().reduce(combine),
            Order::Fixed => bracketing::fold(spans.into_iter().zip(operands), combine),
        };
        Ok(())
    }

    fn fold_array(&self, array: &Array, task: &Task, fetched: &[Fetched]) -> Result<Data, ExecutionError> {
        let ByteRange { start, len } = task.range;
        for (source, bytes) in task.sources.iter().zip(fetched) {
            if bytes.len() as u64 != len {
                let reason = format!("it has {} bytes where {len} are needed", bytes.len());
                return Err(ExecutionError::blame(source.process, reason));
            }
        }
        let original = array.original().map_err(|error| ExecutionError::blame(self.me, error))?;
        let (target, data) = if array.in_place {
            (original.clone(), None)
        } else {
            let (partial, data) =
                self.partial(array).map_err(|error| ExecutionError::blame(self.me, error))?;
            (partial, Some(data))
        };
        // A peer may still read what is about to be overwritten, for a task that was given up.
        let busy =
            |error| ExecutionError { fault: Fault::Unreachable, ..ExecutionError::blame(self.me, error) };
        let sources: Vec<&[u8]> = fetched.iter().map(|bytes| &**bytes).collect();
        let first = !array.in_place && task.own == Path::single(self.me.rank);
        let own_bytes;
        let (own, sources) = match sources.split_first() {
            Some((own, rest)) if task.own.is_empty() => (Own::From(own), rest),
            _ if first => {
                own_bytes = original.read(start, len).map_err(busy)?;
                (Own::From(&own_bytes), &sources[..])
            }
            _ => (Own::InPlace, &sources[..]),
        };
        let mut target = target.write(start, len).map_err(busy)?;
        self.check_open()?;
        match self.order {
            Order::Arrival => kernel::fold(&mut target, own, sources, array.element_bytes, &array.accumulate),
            Order::Fixed => {
                let (own_number, spans) = self.operands(task);
                let numbered = spans.into_iter().zip((0..).map(Bracketing::operand));
                if let Some(bracketing) = bracketing::fold(numbered, Bracketing::pair) {
                    let (element_bytes, accumulate) = (array.element_bytes, &array.accumulate);
                    kernel::fold_bracketed(
                        &mut target,
                        own,
                        own_number,
                        sources,
                        &bracketing,
                        element_bytes,
                        accumulate,
                    );
                }
            }
        }
        if let Some(torn) = fetched.iter().position(|bytes| !bytes.is_still_valid()) {
            let spoils = matches!(own, Own::InPlace) || task.own.is_empty();
            let fault = if spoils { Fault::Torn } else { Fault::Unreachable };
            return Err(ExecutionError {
                fault,
                ..ExecutionError::blame(task.sources[torn].process, ReadError::Released)
            });
        }
        Ok(match data {
            Some(data) => data,
            None if self.private => Data::Private,
            None => Data::Inline(Bytes::copy_from_slice(&target)),
        })
    }

    /// Whoever folds asks once it holds what it writes to, and whoever puts the result in its place waits for that.
    fn check_open(&self) -> Result<(), ExecutionError> {
        match self.over.load(Ordering::SeqCst) {
            true => Err(ExecutionError::blame(self.me, "the reduction is over here")),
            false => Ok(()),
        }
    }

    /// The buffer in which this rank's partials grow, made and published at the first use.
    fn partial(&self, array: &Array) -> Result<(Arc<Buffer>, Data), NoWindow> {
        let mut partial = array.partial.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(partial) = &*partial {
            return Ok(partial.clone());
        }
        let buffer = Buffer::new(scratch(self.shown.windows.region(), array.bytes));
        let data = self.shown.publish(Content::Buffer(buffer.clone()))?;
        Ok(partial.insert((buffer, data)).clone())
    }

    /// Copies a finished result into this rank's body. What could not be reached may come with another call; then the body
    /// stays readable for others meanwhile.
    ///
    /// # Errors
    /// A piece does not fit, or is damaged; the body is then of no use.
    pub async fn collect(
        self: &Arc<Self>,
        peers: &Peers,
        pieces: Vec<Piece>,
    ) -> Result<Collected, ExecutionError> {
        if self.group.len() == 1 {
            return Ok(Collected::Whole(None));
        }
        let in_windows = pieces.iter().any(|piece| matches!(piece.data, Data::Window(_)));
        match self.collect_pieces(peers, pieces).await {
            Ok(encoded) if in_windows => {
                Ok(Collected::Whole(encoded.or_else(|| self.show_half().map(|half| half.data))))
            }
            Ok(_) => Ok(Collected::Whole(None)),
            Err(error) if error.fault == Fault::Unreachable => {
                Ok(Collected::Part { body: self.show_half(), error })
            }
            Err(error) => Err(error),
        }
    }

    /// Shows an array into which the result was copied, or a part of it.
    fn show_half(&self) -> Option<HalfBody> {
        let Kind::Array(array) = &self.kind else { return None };
        let original = array.original().ok()?;
        let mut progress = array.collected.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.shown.is_none() {
            progress.shown = self.shown.publish(Content::Buffer(original)).ok();
        }
        let Progress { done: collected, touched: untouched, .. } = *progress;
        progress.shown.clone().map(|data| HalfBody { data, collected, untouched })
    }

    async fn collect_pieces(
        self: &Arc<Self>,
        peers: &Peers,
        pieces: Vec<Piece>,
    ) -> Result<Option<Data>, ExecutionError> {
        match &self.kind {
            Kind::Array(array) => {
                let original = array.original().map_err(|error| ExecutionError::blame(self.me, error))?;
                // All originals are folded; nobody reads this one any more, unless it is itself a part of the result.
                let progress = array.collected.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let in_result = |window: &WindowRef| {
                    let pieces = pieces.iter().map(|piece| &piece.data);
                    pieces.chain(&progress.shown).any(|data| matches!(data, Data::Window(it) if it == window))
                };
                self.shown
                    .release(|window| self.shown.windows.shows(window, &original) && !in_result(window));
                if array.in_place {
                    self.over.store(true, Ordering::SeqCst);
                }
                if progress.shown.is_none() {
                    // Whoever has read it last may not have let go of it yet.
                    original.idle().await;
                }
                for mut piece in pieces.into_iter().filter(|piece| piece.range.end() > progress.done) {
                    let start = piece.range.start.max(progress.done);
                    piece.range = ByteRange { start, len: piece.range.end() - start };
                    self.collect_piece(peers, array, &original, piece).await?;
                }
                Ok(None)
            }
            Kind::Object(_) => {
                let Some(Piece { process, data, .. }) = pieces.into_iter().next() else { return Ok(None) };
                if process == self.me {
                    return Ok(Some(data));
                }
                let bytes = peers.fetch(process, &data, None).await?;
                let share = self.clone();
                let replaced = tokio::task::spawn_blocking(move || share.replace(bytes)).await;
                replaced
                    .unwrap_or_else(|error| Err(BodyError(format!("decoding panicked: {error}"))))
                    .map_err(|error| ExecutionError::blame(process, error))
            }
        }
    }

    /// Puts the decoded `bytes` in the place of this rank's object, and shows them if they did not come in a message.
    fn replace(&self, bytes: Fetched) -> Result<Option<Data>, BodyError> {
        if let Kind::Object(object) = &self.kind {
            let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
            let object = object.as_mut().ok_or_else(handed_back)?;
            *object = object.decode(&bytes)?;
            self.over.store(true, Ordering::SeqCst);
        }
        Ok(match bytes {
            Fetched::Inline(_) => None,
            bytes => self.shown.publish(Content::Encoded(Bytes::from_owner(bytes))).ok(),
        })
    }

    async fn collect_piece(
        &self,
        peers: &Peers,
        array: &Array,
        original: &Arc<Buffer>,
        piece: Piece,
    ) -> Result<(), ExecutionError> {
        let Piece { range, process, data } = piece;
        let progress = |part: ByteRange, done: bool| {
            let mut progress = array.collected.lock().unwrap_or_else(PoisonError::into_inner);
            progress.touched = progress.touched.max(part.end());
            progress.done = if done { part.end() } else { progress.done };
        };
        let is_mine = |window| self.shown.windows.shows(window, original);
        if process == self.me && (array.in_place || matches!(&data, Data::Window(window) if is_mine(window)))
        {
            progress(range, true);
            return Ok(());
        }
        let inline = matches!(data, Data::Inline(_));
        // Long pieces come in parts, so that staging stays short and peers are read in turn.
        let part_bytes = (1 << 20) / array.element_bytes.max(1) as u64 * array.element_bytes.max(1) as u64;
        let part_bytes = if inline { range.len } else { part_bytes.max(array.element_bytes as u64) };
        for start in (range.start..range.end()).step_by(part_bytes as usize) {
            let part = ByteRange { start, len: part_bytes.min(range.end() - start) };
            let bytes = peers.fetch(process, &data, Some(part)).await?;
            let original = original.clone();
            progress(part, false);
            let copy = move || {
                let unreachable = || ExecutionError {
                    fault: Fault::Unreachable,
                    ..ExecutionError::blame(process, ReadError::Released)
                };
                // A peer may still read what is about to be overwritten, for a task that was given up.
                let mut target = original.write(part.start, part.len).map_err(|error| ExecutionError {
                    fault: Fault::Unreachable,
                    ..ExecutionError::blame(process, error)
                })?;
                if bytes.len() != target.len() {
                    return Err(ExecutionError::blame(process, ReadError::Released));
                }
                target.copy_from_slice(&bytes);
                if bytes.is_still_valid() { Ok(()) } else { Err(unreachable()) }
            };
            if part.len as usize <= ON_THE_SPOT_BYTES {
                copy()?;
            } else {
                let copied = tokio::task::spawn_blocking(copy).await;
                copied.unwrap_or_else(|error| Err(ExecutionError::blame(process, error)))?;
            }
            progress(part, true);
        }
        Ok(())
    }

    /// Takes the body out: the result, where this rank was to have it. Waits for whoever still reads it. Partials stay
    /// readable.
    ///
    /// # Errors
    /// It was taken before.
    pub async fn take_body(&self) -> Result<Returned, ExecutionError> {
        let busy = || ExecutionError::blame(self.me, "the body is still in use");
        match &self.kind {
            Kind::Array(array) => {
                let original = array.original.lock().unwrap_or_else(PoisonError::into_inner).take();
                let original = original.ok_or_else(|| ExecutionError::blame(self.me, handed_back()))?;
                self.shown.release(|window| self.shown.windows.shows(window, &original));
                original.idle().await;
                original.into_owner().map(Returned::Array).map_err(|_| busy())
            }
            Kind::Object(object) => {
                let object = object.lock().unwrap_or_else(PoisonError::into_inner).take();
                object.map(Returned::Object).ok_or_else(|| ExecutionError::blame(self.me, handed_back()))
            }
        }
    }
}

/// A body on its way back to the application.
pub enum Returned {
    /// The memory it came in.
    Array(Box<dyn Memory>),
    /// The object.
    Object(Box<dyn Object>),
}

/// Memory for a partial: shared if possible, so that peers can map it.
fn scratch(region: Option<&Arc<Region>>, len: usize) -> Box<dyn Memory> {
    match region.and_then(|region| region.allocate(len)) {
        Some(block) => Box::new(block),
        None => Box::new(Words { words: vec![0; len.div_ceil(8)], len }),
    }
}

/// Private memory, aligned for every element type.
struct Words {
    words: Vec<u64>,
    len: usize,
}

impl Memory for Words {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}
