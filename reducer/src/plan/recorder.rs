//! Recording a profile: when rank 0 reaches its points, and how many bytes are live there.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use everfold_planner::{machine::Machine, profile::POINTS_MOST, text::Text, trace::Trace};

use crate::checkpoint::{Interval, Live};

/// Assumed where nothing was measured.
const STORAGE_BYTES_PER_S: f64 = 1e9;
const BUS_BYTES_PER_S: f64 = 1e9;
const MTBF: Duration = Duration::from_secs(86_400);

/// A profile that is being recorded. Time that checkpoints take does not count.
#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    begun: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    trace: Trace,
    /// Time that was spent in checkpoints.
    away: Duration,
    /// Live bytes of the latest point.
    live: Live,
    storage: Moved,
    bus: Moved,
    is_full: bool,
    is_written: bool,
}

/// Bytes that were moved, and how long it took.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    bytes: u64,
    took: Duration,
}

impl Recorder {
    /// Begins; the file is empty until the program has ended.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(path: PathBuf) -> io::Result<Self> {
        fs::write(&path, "")?;
        Ok(Self { path, begun: Instant::now(), inner: Mutex::default() })
    }

    /// The program has reached a point at this moment, with these live bytes.
    pub fn reach(&self, point: &str, at: Instant, live: Live) {
        let mut inner = self.lock();
        let at_ns = nanoseconds(at.duration_since(self.begun).saturating_sub(inner.away));
        inner.is_full |= !inner.trace.reach(point, at_ns, live.host_bytes, live.device_bytes);
        inner.live = live;
    }

    /// So long the program was held up by a checkpoint, or by recording.
    pub fn was_away(&self, time: Duration) {
        self.lock().away += time;
    }

    /// Hooks have fetched what is live at the latest point from their devices.
    pub fn fetched(&self, took: Duration) {
        let mut inner = self.lock();
        let device_bytes = inner.live.device_bytes;
        inner.bus.add(device_bytes, took);
    }

    /// A checkpoint has been written.
    pub fn saved(&self, bytes: u64, took: Duration) {
        self.lock().storage.add(bytes, took);
    }

    /// This process has not seen the beginning of the program: nothing is written down.
    pub fn give_up(&self) {
        self.lock().is_written = true;
    }

    /// Writes the profile down, once.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(&self, interval: Interval, ranks: u32) -> io::Result<()> {
        let mut inner = self.lock();
        if std::mem::replace(&mut inner.is_written, true) {
            return Ok(());
        }
        let end_ns = nanoseconds(self.begun.elapsed().saturating_sub(inner.away));
        let (machine, notes) = inner.machine(interval);
        let points = inner.trace.len();
        let rest = if inner.is_full { "; later points were left out" } else { "" };
        let source = format!("recorded at rank 0 of {ranks}, {points} points{rest}");
        debug_assert!(points as u64 <= POINTS_MOST);
        let sections = inner.trace.sections(end_ns);
        let text =
            Text { title: &title(), source: &source, machine: &machine, notes: &notes, sections: &sections };
        write(&self.path, &text.to_string())
    }

    /// Where it is written to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// What the program runs on, as far as it was measured.
    fn machine(&self, interval: Interval) -> (Machine, Vec<(&'static str, String)>) {
        let has_device = self.bus.bytes > 0 || self.live.device_bytes > 0;
        let mtbf = match interval {
            Interval::Young { mtbf } | Interval::Daly { mtbf } => Some(mtbf),
            Interval::Fixed(_) => None,
        };
        let assumed = || "assumed: put yours here".to_owned();
        let measured = |moved: &Moved, what: &str| match moved.bytes_per_s() {
            Some(_) => format!("measured, {} bytes {what}", moved.bytes),
            None => "assumed, as no checkpoint was saved: put yours here".to_owned(),
        };
        let machine = Machine {
            storage_bytes_per_s: self.storage.bytes_per_s().unwrap_or(STORAGE_BYTES_PER_S),
            bus_bytes_per_s: match has_device {
                true => self.bus.bytes_per_s().unwrap_or(BUS_BYTES_PER_S),
                false => f64::INFINITY,
            },
            mtbf_host_s: mtbf.unwrap_or(MTBF).as_secs_f64(),
            mtbf_device_s: f64::INFINITY,
            restart_s: 0.0,
            reread: 1.0,
        };
        let configured = mtbf.map_or_else(assumed, |_| "that of Config::checkpoint_interval".to_owned());
        let notes = vec![
            ("storage", measured(&self.storage, "in checkpoints")),
            ("bus", measured(&self.bus, "from the device")),
            ("mtbf_host", configured),
            ("restart", assumed()),
        ];
        (machine, notes)
    }
}

impl Moved {
    fn add(&mut self, bytes: u64, took: Duration) {
        if bytes > 0 {
            self.bytes += bytes;
            self.took += took;
        }
    }

    /// To three digits: no measurement is better.
    fn bytes_per_s(&self) -> Option<f64> {
        let bytes_per_s = self.bytes as f64 / self.took.as_secs_f64();
        let scale = 10f64.powi(bytes_per_s.log10() as i32 - 2);
        let rounded = (bytes_per_s / scale).round() * scale;
        (rounded.is_finite() && rounded > 0.0).then_some(rounded)
    }
}

/// What the program is called.
fn title() -> String {
    let program = std::env::args_os().next().map(PathBuf::from);
    let stem = program.as_deref().and_then(Path::file_stem);
    stem.map_or_else(|| "a program".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// Replaces the file as a whole.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    fs::write(&beside, text)?;
    fs::rename(&beside, path)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
