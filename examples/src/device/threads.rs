//! A simulated device: threads, memory of their own, and a bus of limited bandwidth.

use std::{
    panic::{self, AssertUnwindSafe},
    process,
    sync::{Arc, Condvar, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{
    Engine, Id, Launch, OnThreads, Plain, Speeds, lock,
    memory::{Bytes, Memory},
};

/// Runs kernels on threads of the host, one kernel after the other.
pub(super) struct Threads {
    speeds: Speeds,
    launches: mpsc::Sender<(usize, OnThreads)>,
    shared: Arc<Shared>,
}

struct Shared {
    memory: Mutex<Memory>,
    /// Kernels that were launched and have not ended.
    left: Mutex<u64>,
    idle: Condvar,
}

impl Threads {
    pub(super) fn start(speeds: Speeds) -> Self {
        let (launches, launched) = mpsc::channel::<(usize, OnThreads)>();
        let shared =
            Arc::new(Shared { memory: Mutex::default(), left: Mutex::default(), idle: Condvar::new() });
        let of_thread = shared.clone();
        // It ends when the device is dropped.
        thread::spawn(move || {
            for (bytes, kernel) in launched {
                let begun = Instant::now();
                let ended = panic::catch_unwind(AssertUnwindSafe(|| kernel(&mut lock(&of_thread.memory))));
                if ended.is_err() {
                    // The host would wait for it for ever.
                    process::abort();
                }
                take_time(begun, bytes, speeds.memory_bytes_per_s);
                *lock(&of_thread.left) -= 1;
                of_thread.idle.notify_all();
            }
        });
        Self { speeds, launches, shared }
    }

    fn run(&self, bytes: usize, kernel: OnThreads) {
        *lock(&self.shared.left) += 1;
        let launched = self.launches.send((bytes, kernel));
        launched.unwrap_or_else(|_| unreachable!("its thread lives as long as the device"));
    }

    /// Uses the bus once the device is idle, for as long as these bytes take.
    fn over_bus<R>(&self, bytes: usize, act: impl FnOnce(&mut Memory) -> R) -> R {
        self.sync();
        let begun = Instant::now();
        let result = act(&mut lock(&self.shared.memory));
        take_time(begun, bytes, self.speeds.bus_bytes_per_s);
        result
    }
}

impl Engine for Threads {
    fn name(&self) -> String {
        "a simulated device".to_owned()
    }

    fn add(&self, values: Box<dyn Bytes>) -> Id {
        self.over_bus(values.bytes().len(), |memory| memory.add(values))
    }

    fn bytes(&self, buffer: Id) -> Option<usize> {
        self.sync();
        Some(lock(&self.shared.memory).buffer(buffer)?.bytes().len())
    }

    fn write(&self, to: Id, values: &[u8]) {
        self.over_bus(values.len(), |memory| existing(memory, to).bytes_mut().copy_from_slice(values));
    }

    fn read(&self, from: Id, values: &mut [u8]) {
        self.over_bus(values.len(), |memory| values.copy_from_slice(existing(memory, from).bytes()));
    }

    fn launch(&self, launch: &Launch, on_threads: OnThreads) {
        self.run(launch.moved, on_threads);
    }

    fn swap(&self, a: Id, b: Id) {
        self.run(0, Box::new(move |memory| memory.swap(a, b)));
    }

    fn sync(&self) {
        let left = lock(&self.shared.left);
        let ended = self.shared.idle.wait_while(left, |left| *left > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }
}

fn existing(memory: &mut Memory, id: Id) -> &mut dyn Bytes {
    memory.buffer(id).expect("buffers stay as long as their device")
}

/// Waits until something that has begun then has taken as long as it should.
fn take_time(begun: Instant, bytes: usize, bytes_per_s: f64) {
    let takes = Duration::from_secs_f64(bytes as f64 / bytes_per_s);
    thread::sleep(takes.saturating_sub(begun.elapsed()));
}

/// Does something with each item, on as many threads as there are cores.
pub fn each<T: Send>(items: &mut [T], act: impl Fn(usize, &mut T) + Sync) {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let length = items.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        for (number, part) in items.chunks_mut(length).enumerate() {
            let act = &act;
            scope.spawn(move || {
                part.iter_mut().enumerate().for_each(|(index, item)| act(number * length + index, item));
            });
        }
    });
}

/// Does something with each row of an array, on as many threads as there are cores.
pub fn rows<T: Plain>(array: &mut [T], width: usize, act: impl Fn(usize, &mut [T]) + Sync) {
    let mut rows: Vec<&mut [T]> = array.chunks_mut(width).collect();
    each(&mut rows, |index, row| act(index, row));
}
