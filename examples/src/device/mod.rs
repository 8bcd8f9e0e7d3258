//! A device beside the host: kernels that run on threads of their own, over memory of their own, behind a bus
//! of limited bandwidth.
//!
//! It behaves as a graphics card does for somebody who takes checkpoints: launching a kernel returns at once,
//! kernels run one after the other, none can be interrupted, and what is in the device's memory has to come over
//! the bus. Nothing of it needs such a card. So that runs take the same time on a busy machine, a kernel takes at
//! least as long as the memory of the device needs for the bytes that it says it moves.
//!
//! | module | holds |
//! |---|---|
//! | `memory` | buffers and what kernels see of them |
//! | `hook` | saves and restores the live buffers with each checkpoint |

mod hook;
mod memory;

use std::{
    panic::{self, AssertUnwindSafe},
    process,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

pub use self::{
    hook::LiveBuffers,
    memory::{Buffer, Id, Memory, Plain},
};

/// How fast a device is, in bytes per second.
#[derive(Clone, Copy, Debug)]
pub struct Speeds {
    /// Of its memory.
    pub memory_bytes_per_s: f64,
    /// Of the bus between it and the host, in each direction.
    pub bus_bytes_per_s: f64,
}

type Kernel = Box<dyn FnOnce(&mut Memory) + Send>;

/// A device. Clones are the same.
#[derive(Clone)]
pub struct Device {
    speeds: Speeds,
    launches: mpsc::Sender<(u64, Kernel)>,
    shared: Arc<Shared>,
    live: Arc<Mutex<Vec<Id>>>,
}

struct Shared {
    memory: Mutex<Memory>,
    /// Kernels that were launched and have not ended.
    left: Mutex<u64>,
    idle: Condvar,
}

impl Device {
    /// Switches a device on.
    pub fn start(speeds: Speeds) -> Self {
        let (launches, launched) = mpsc::channel::<(u64, Kernel)>();
        let shared =
            Arc::new(Shared { memory: Mutex::default(), left: Mutex::default(), idle: Condvar::new() });
        let of_thread = shared.clone();
        // It ends when the last clone of the device is dropped.
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
        Self { speeds, launches, shared, live: Arc::default() }
    }

    /// A buffer in the device's memory, filled over the bus.
    pub fn upload<T: Plain>(&self, values: Vec<T>) -> Buffer<T> {
        self.over_bus(|memory| memory.add(values))
    }

    /// A buffer of zeros.
    pub fn zeros<T: Plain>(&self, len: usize) -> Buffer<T> {
        self.sync();
        lock(&self.shared.memory).add(vec![T::zeroed(); len]).0
    }

    /// Overwrites a buffer over the bus.
    pub fn write<T: Plain>(&self, buffer: Buffer<T>, values: &[T]) {
        self.over_bus(|memory| {
            memory.of_mut(buffer).copy_from_slice(values);
            ((), size_of_val(values))
        });
    }

    /// What is in a buffer, over the bus.
    pub fn read<T: Plain>(&self, buffer: Buffer<T>) -> Vec<T> {
        self.over_bus(|memory| {
            let values = memory.of(buffer).to_vec();
            let bytes = size_of_val(&*values);
            (values, bytes)
        })
    }

    /// Launches a kernel that moves so many bytes of the device's memory. Returns at once.
    pub fn launch(&self, bytes: usize, kernel: impl FnOnce(&mut Memory) + Send + 'static) {
        *lock(&self.shared.left) += 1;
        let launched = self.launches.send((bytes as u64, Box::new(kernel)));
        launched.unwrap_or_else(|_| unreachable!("its thread lives as long as the device"));
    }

    /// Waits until all kernels have ended.
    pub fn sync(&self) {
        let left = lock(&self.shared.left);
        let ended = self.shared.idle.wait_while(left, |left| *left > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    /// Says which buffers are needed to go on from here.
    pub fn set_live(&self, buffers: Vec<Id>) {
        *lock(&self.live) = buffers;
    }

    /// Uses the bus once the device is idle, for as long as these bytes take.
    fn over_bus<R>(&self, act: impl FnOnce(&mut Memory) -> (R, usize)) -> R {
        self.sync();
        let begun = Instant::now();
        let (result, bytes) = act(&mut lock(&self.shared.memory));
        take_time(begun, bytes as u64, self.speeds.bus_bytes_per_s);
        result
    }
}

/// Waits until something that has begun then has taken as long as it should.
fn take_time(begun: Instant, bytes: u64, bytes_per_s: f64) {
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

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use everfold::CheckpointHook;

    use super::*;

    fn device() -> Device {
        Device::start(Speeds { memory_bytes_per_s: 1e12, bus_bytes_per_s: 1e12 })
    }

    #[test]
    fn kernels_run_one_after_the_other() {
        let device = device();
        let (a, b) = (device.upload(vec![1u64, 2, 3]), device.zeros::<u64>(3));
        for _ in 0..100 {
            device.launch(0, move |memory| {
                memory.write([b], |memory, [out]| rows(out, 1, |index, cell| cell[0] += memory.of(a)[index]));
            });
            device.launch(0, move |memory| memory.of_mut(a)[0] += 1);
        }
        assert_eq!(device.read(a), [101, 2, 3]);
        assert_eq!(device.read(b), [(1..=100).sum::<u64>(), 200, 300]);
    }

    #[test]
    fn live_buffers_come_back_and_others_do_not() {
        let begin = || {
            let device = device();
            let (a, b) = (device.upload(vec![1.5f32; 4]), device.upload(vec![7u8; 3]));
            (device, a, b)
        };
        let (first, a, b) = begin();
        first.launch(0, move |memory| memory.of_mut(a).fill(2.5));
        first.launch(0, move |memory| memory.of_mut(b).fill(8));
        first.set_live(vec![a.id()]);
        let mut hook = LiveBuffers::of(&first);
        assert_eq!(hook.live().unwrap().device_bytes, 16);
        hook.before().unwrap();
        let saved = hook.save().unwrap();
        let (second, a, b) = begin();
        LiveBuffers::of(&second).restore(&saved).unwrap();
        assert_eq!((second.read(a), second.read(b)), (vec![2.5; 4], vec![7; 3]));
        let mut cut = saved.clone();
        cut.pop();
        assert!(LiveBuffers::of(&second).restore(&cut).is_err());
    }
}
