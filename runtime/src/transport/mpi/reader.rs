//! The thread that reads by MPI. It sleeps while nothing is under way.

use std::{
    io,
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, TryRecvError},
    },
    time::{Duration, Instant},
};

use everfold_protocol::{Rank, message::ByteRange};
use tokio::sync::oneshot;

use super::{
    super::staging::Staging,
    PATIENCE,
    raw::{BYTES_MAX, Get, Window},
};
use crate::patience::{Patience, SLICE, Watched};

/// How often the thread looks again and only gives way to others in between, and the longest pause then.
const LOOKS: u32 = 64;
const PAUSE_MAX: Duration = Duration::from_micros(500);

/// A read, and who waits for it.
#[derive(Debug)]
pub(super) struct Order {
    /// In whose memory.
    pub rank: Rank,
    /// Addresses there.
    pub range: ByteRange,
    /// The address of the window's generation.
    pub generation: u64,
    /// Room for the bytes.
    pub into: Staging,
    pub answer: oneshot::Sender<Outcome>,
}

/// The bytes, and the generation of their window afterwards; or why there are none.
pub(super) type Outcome = io::Result<Got>;

#[derive(Debug)]
pub(super) struct Got {
    pub bytes: Staging,
    pub generation: u64,
}

/// Reads what is ordered, until nobody orders any more. Counts how often it has looked at its reads.
pub(super) fn read(window: Window, orders: &Receiver<Order>, turns: &AtomicU64) {
    let mut reads: Vec<Read> = Vec::new();
    // How often in a row nothing was done.
    let mut idle = 0u32;
    // Beside threads with other work, giving way costs a time slice: there it sleeps from the first look on.
    let (mut patience, mut gives_way) = (Patience::new(0), true);
    loop {
        if reads.is_empty() {
            let Ok(order) = orders.recv() else { return };
            reads.extend(Read::begin(window, order));
            gives_way = patience.takes_chance();
        }
        loop {
            match orders.try_recv() {
                Ok(order) => reads.extend(Read::begin(window, order)),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return reads.into_iter().for_each(Read::abandon),
            }
        }
        let before = reads.len();
        reads = reads.into_iter().filter_map(|read| read.advance(window)).collect();
        turns.fetch_add(1, Relaxed);
        idle = if reads.len() < before { 0 } else { idle + 1 };
        let looks = if gives_way { LOOKS } else { 0 };
        // MPI wakes nobody up when a read is done.
        match Duration::from_micros(u64::from(idle.saturating_sub(looks))) {
            _ if reads.is_empty() && gives_way => patience.learn(Watched::Came),
            _ if reads.is_empty() => {}
            Duration::ZERO if gives_way => {
                let begun = Instant::now();
                std::thread::yield_now();
                if begun.elapsed() >= SLICE {
                    patience.learn(Watched::Dear);
                    gives_way = false;
                }
            }
            pause => std::thread::sleep(pause.min(PAUSE_MAX)),
        }
    }
}

/// A read that is under way: first its bytes, then the generation.
struct Read {
    order: Order,
    gets: Vec<Get>,
    /// Where the generation comes.
    generation: Option<Vec<u8>>,
    /// When something came last.
    latest: Instant,
}

impl Read {
    /// Asks for the bytes. `None` if that failed, which is answered.
    fn begin(window: Window, mut order: Order) -> Option<Self> {
        let rank = order.rank.0;
        let mut gets = Vec::new();
        let mut rest: &mut [u8] = &mut order.into;
        let mut failure = None;
        for part in in_calls(order.range) {
            let (into, beyond) = rest.split_at_mut(part.len as usize);
            rest = beyond;
            // SAFETY: the room stays in the order, and that in this read, until all gets are done; a read
            // that ends earlier leaves it behind for good.
            match unsafe { window.get(rank, part.start, into) } {
                Ok(get) => gets.push(get),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let read = Self { order, gets, generation: None, latest: Instant::now() };
        match failure {
            None => Some(read),
            Some(error) => {
                read.fail(error);
                None
            }
        }
    }

    /// Looks how far it is. `None` if it has ended, which is answered.
    fn advance(mut self, window: Window) -> Option<Self> {
        let mut failure = None;
        let before = self.gets.len();
        self.gets.retain_mut(|get| match get.is_done() {
            Ok(done) => !done,
            Err(error) => {
                failure = Some(error);
                false
            }
        });
        if let Some(error) = failure {
            self.fail(error);
            return None;
        }
        if self.gets.len() < before {
            self.latest = Instant::now();
        }
        match (self.gets.is_empty(), self.generation.take()) {
            (true, None) => self.ask_generation(window),
            (true, Some(generation)) => {
                let word = generation.try_into().expect("a generation is a word");
                self.end(u64::from_ne_bytes(word));
                None
            }
            (false, generation) => {
                self.generation = generation;
                if self.latest.elapsed() > PATIENCE {
                    self.fail(io::ErrorKind::TimedOut.into());
                    return None;
                }
                Some(self)
            }
        }
    }

    /// Asks for the generation, when all bytes are there.
    fn ask_generation(mut self, window: Window) -> Option<Self> {
        let room = self.generation.insert(vec![0; size_of::<u64>()]);
        // SAFETY: as above; the room is on the heap, and stays in this read.
        match unsafe { window.get(self.order.rank.0, self.order.generation, &mut room[..]) } {
            Ok(get) => {
                self.gets.push(get);
                Some(self)
            }
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    fn end(self, generation: u64) {
        // Nobody may wait any more.
        drop(self.order.answer.send(Ok(Got { bytes: self.order.into, generation })));
    }

    /// Answers that nothing has come.
    fn fail(self, error: io::Error) {
        let Self { order, gets, generation, .. } = self;
        // MPI may still write there.
        std::mem::forget((order.into, gets, generation));
        drop(order.answer.send(Err(error)));
    }

    /// Leaves it to MPI: the process is about to end.
    fn abandon(self) {
        self.fail(io::ErrorKind::BrokenPipe.into());
    }
}

/// A range in parts that a call can take.
fn in_calls(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let starts = (0..range.len.div_ceil(BYTES_MAX)).map(move |part| part * BYTES_MAX);
    starts.map(move |start| ByteRange { start: range.start + start, len: BYTES_MAX.min(range.len - start) })
}
