//! Many seeds on several threads. What comes of them does not depend on how they are shared out.

use std::{
    mem,
    ops::Range,
    process,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use everfold_lab::{Failure, interrupts};
use everfold_sim::check::{Tally, Violation, draw, run};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use nix::sys::signal::Signal;

/// Seeds that a thread takes at a time.
const CHUNK: u64 = 64;

/// What came of some seeds.
#[derive(Debug, Default)]
pub struct Batch {
    /// Runs in which all held.
    pub runs: u64,
    pub events: u64,
    pub tally: Tally,
    /// Sum of the runs' trace hashes, which does not depend on their order.
    pub hash: u64,
    /// The first seed at which something did not hold.
    pub failed: Option<(u64, Violation)>,
    pub elapsed: Duration,
    /// Whether it was ended before all were run.
    pub interrupted: Option<Signal>,
}

/// How a request to end is met.
#[derive(Debug)]
enum Request {
    /// As soon as the seeds have run that are under way. This is the request, if there is one.
    Runs(Option<Signal>),
    /// At once: nobody runs seeds any more.
    Ends,
}

/// Runs `seeds` until one fails, on `jobs` threads. A request to end that comes later ends this process at
/// once.
pub fn run_all(seeds: Range<u64>, jobs: usize) -> Result<Batch, Failure> {
    static REQUEST: Mutex<Request> = Mutex::new(Request::Runs(None));
    let request = || REQUEST.lock().unwrap_or_else(PoisonError::into_inner);
    let interrupted = || matches!(*request(), Request::Runs(Some(_)));
    interrupts::listen(move |signal| {
        match &mut *request() {
            Request::Runs(asked) => *asked = Some(signal),
            Request::Ends => process::exit(128 + signal as i32),
        }
        true
    })?;
    let progress = ProgressBar::new(seeds.end - seeds.start);
    let style =
        ProgressStyle::with_template("{elapsed_precise} {wide_bar} {human_pos}/{human_len} seeds {msg}");
    progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let begin = Instant::now();
    let all = Mutex::new(Batch::default());
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let work = || {
        while !stop.load(Ordering::Relaxed) && !interrupted() {
            let end = |first: u64| seeds.end.min(first.saturating_add(CHUNK));
            let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |first| {
                (first < seeds.end).then(|| end(first))
            });
            let Ok(first) = taken else { break };
            let chunk = run_chunk(first..end(first));
            stop.fetch_or(chunk.failed.is_some(), Ordering::Relaxed);
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.add(chunk);
            progress.set_position(all.runs);
            let rate = all.events as f64 / begin.elapsed().as_secs_f64();
            progress.set_message(format!("{} events/s", HumanCount(rate as u64)));
        }
    };
    thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    progress.finish_and_clear();
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.elapsed = begin.elapsed();
    if let Request::Runs(asked) = mem::replace(&mut *request(), Request::Ends) {
        all.interrupted = asked;
    }
    Ok(all)
}

/// Runs `seeds` until one fails.
fn run_chunk(seeds: Range<u64>) -> Batch {
    let mut batch = Batch::default();
    for seed in seeds {
        match run(&draw(seed)) {
            Ok(ran) => {
                batch.runs += 1;
                batch.events += ran.events;
                batch.tally += &ran.tally;
                batch.hash = batch.hash.wrapping_add(ran.trace_hash);
            }
            Err(violation) => {
                batch.failed = Some((seed, violation));
                break;
            }
        }
    }
    batch
}

impl Batch {
    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.events += other.events;
        self.tally += &other.tally;
        self.hash = self.hash.wrapping_add(other.hash);
        if let Some((seed, violation)) = other.failed
            && self.failed.as_ref().is_none_or(|(first, _)| seed < *first)
        {
            self.failed = Some((seed, violation));
        }
    }
}
