//! A device beside the host: kernels over memory of its own, behind a bus of limited bandwidth.
//!
//! Launching a kernel returns at once, kernels run one after the other, none can be interrupted, and what is
//! in the device's memory has to come over the bus. There are two kinds:
//! - A *simulated* one: threads of the host. So that runs take the same time on a busy machine, a kernel
//!   takes at least as long as the memory of the device needs for the bytes that it says it moves.
//! - A *graphics card*, by CUDA, if the feature `cuda` was built in. Its libraries are looked for at run
//!   time.
//!
//! | module | holds |
//! |---|---|
//! | `launch` | what a device is told to run |
//! | `source` | what a program's source says of its kernels |
//! | `threads` | the simulated device |
//! | `card` | the graphics card |
//! | `memory` | buffers and what kernels of the simulated device see of them |
//! | `hook` | saves and restores the live buffers with each checkpoint |

#[cfg(feature = "cuda")]
mod card;
mod hook;
mod launch;
mod memory;
mod source;
mod threads;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::{
    hook::LiveBuffers,
    launch::{Argument, Launch},
    memory::{Buffer, Id, Memory, Plain},
    threads::{each, rows},
};
use self::{memory::Bytes, source::Source, threads::Threads};

/// How fast a simulated device is, in bytes per second.
#[derive(Clone, Copy, Debug)]
pub struct Speeds {
    /// Of its memory.
    pub memory_bytes_per_s: f64,
    /// Of the bus between it and the host, in each direction.
    pub bus_bytes_per_s: f64,
}

/// Why there is no graphics card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// The program was built without the feature `cuda`.
    #[error("this program was built without cards: build it with --features cuda")]
    NotBuilt,
    /// There is no driver.
    #[error("there is no CUDA driver: libcuda was not found")]
    NoDriver,
    /// The driver has no card.
    #[error("the CUDA driver knows no card")]
    NoCard,
    /// There is nothing to compile kernels with.
    #[error(
        "kernels cannot be compiled: libnvrtc was not found. It comes with the CUDA toolkit; LD_LIBRARY_PATH \
         may name its folder"
    )]
    NoCompiler,
    /// The kernels cannot be compiled, and what the compiler says.
    #[error("kernels cannot be compiled: {0}")]
    Kernels(String),
    /// What the driver says.
    #[error("the CUDA driver says: {0}")]
    Driver(String),
}

/// What threads run as a kernel.
type OnThreads = Box<dyn FnOnce(&mut Memory) + Send>;

/// A kind of device.
trait Engine: Send + Sync {
    fn name(&self) -> String;
    fn add(&self, values: Box<dyn Bytes>) -> Id;
    fn bytes(&self, buffer: Id) -> Option<usize>;
    fn write(&self, to: Id, values: &[u8]);
    fn read(&self, from: Id, values: &mut [u8]);
    fn launch(&self, launch: &Launch, on_threads: OnThreads);
    fn swap(&self, a: Id, b: Id);
    fn sync(&self);
}

/// A device. Clones are the same.
#[derive(Clone)]
pub struct Device {
    engine: Arc<dyn Engine>,
    source: Arc<Source>,
    live: Arc<Mutex<Vec<Id>>>,
}

impl Device {
    /// Switches a simulated device on. It runs closures, but only as kernels that this source has, too.
    pub fn simulated(source: &'static str, speeds: Speeds) -> Self {
        Self::new(source, Threads::start(speeds))
    }

    /// Takes a graphics card into use, with the kernels of this CUDA C++ source. Where there are several
    /// cards, ranks take turns.
    ///
    /// # Errors
    /// There is none, or it cannot run these kernels.
    pub fn card(source: &'static str, rank: u32) -> Result<Self, CardError> {
        #[cfg(feature = "cuda")]
        return card::Card::open(source, rank).map(|card| Self::new(source, card));
        #[cfg(not(feature = "cuda"))]
        {
            let _ = (source, rank);
            Err(CardError::NotBuilt)
        }
    }

    /// Looks for what is needed to use a graphics card, and leaves it alone.
    ///
    /// # Errors
    /// The feature `cuda`, the driver, or the compiler of kernels is not there.
    pub fn find_card() -> Result<(), CardError> {
        #[cfg(feature = "cuda")]
        return card::find();
        #[cfg(not(feature = "cuda"))]
        Err(CardError::NotBuilt)
    }

    fn new(source: &'static str, engine: impl Engine + 'static) -> Self {
        Self { engine: Arc::new(engine), source: Arc::new(Source::of(source)), live: Arc::default() }
    }

    /// What it is called.
    pub fn name(&self) -> String {
        self.engine.name()
    }

    /// A buffer in the device's memory, filled over the bus.
    pub fn upload<T: Plain>(&self, values: Vec<T>) -> Buffer<T> {
        Buffer::of(self.engine.add(Box::new(values)))
    }

    /// A buffer of zeros.
    pub fn zeros<T: Plain>(&self, len: usize) -> Buffer<T> {
        self.upload(vec![T::zeroed(); len])
    }

    /// Overwrites a buffer over the bus.
    pub fn write<T: Plain>(&self, buffer: Buffer<T>, values: &[T]) {
        self.engine.write(buffer.id(), bytemuck::cast_slice(values));
    }

    /// What is in a buffer, over the bus.
    pub fn read<T: Plain>(&self, buffer: Buffer<T>) -> Vec<T> {
        let bytes = self.engine.bytes(buffer.id()).expect("buffers stay as long as their device");
        let mut values = vec![T::zeroed(); bytes / size_of::<T>()];
        self.engine.read(buffer.id(), bytemuck::cast_slice_mut(&mut values));
        values
    }

    /// Launches a kernel: on a card as its source has it, on a simulated device as a closure. Returns at
    /// once. Without items there is nothing to do.
    pub fn launch(&self, launch: Launch, on_threads: impl FnOnce(&mut Memory) + Send + 'static) {
        self.source.check(&launch);
        if launch.items > 0 {
            self.engine.launch(&launch, Box::new(on_threads));
        }
    }

    /// Exchanges what is in two buffers, without moving it, behind all kernels that were launched.
    pub fn swap<T: Plain>(&self, a: Buffer<T>, b: Buffer<T>) {
        self.engine.swap(a.id(), b.id());
    }

    /// Waits until all kernels have ended.
    pub fn sync(&self) {
        self.engine.sync();
    }

    /// Says which buffers are needed to go on from here.
    pub fn set_live(&self, buffers: Vec<Id>) {
        *lock(&self.live) = buffers;
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use everfold::CheckpointHook;

    use super::*;

    const SOURCE: &str = "__global__ void any(count items)";

    fn device() -> Device {
        Device::simulated(SOURCE, Speeds { memory_bytes_per_s: 1e12, bus_bytes_per_s: 1e12 })
    }

    fn any() -> Launch {
        Launch::of("any", 1)
    }

    #[test]
    fn kernels_run_one_after_the_other() {
        let device = device();
        let (a, b) = (device.upload(vec![1u64, 2, 3]), device.zeros::<u64>(3));
        for _ in 0..100 {
            device.launch(any(), move |memory| {
                memory.write([b], |memory, [out]| rows(out, 1, |index, cell| cell[0] += memory.of(a)[index]));
            });
            device.launch(any(), move |memory| memory.of_mut(a)[0] += 1);
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
        first.launch(any(), move |memory| memory.of_mut(a).fill(2.5));
        first.launch(any(), move |memory| memory.of_mut(b).fill(8));
        first.set_live(vec![a.id()]);
        let mut hook = LiveBuffers::of(&first);
        assert_eq!(hook.live().unwrap().device_bytes, 16);
        hook.before().unwrap();
        let mut saved = Vec::new();
        hook.save(&mut saved).unwrap();
        let (second, a, b) = begin();
        LiveBuffers::of(&second).restore(&saved).unwrap();
        assert_eq!((second.read(a), second.read(b)), (vec![2.5; 4], vec![7; 3]));
        let mut cut = saved.clone();
        cut.pop();
        assert!(LiveBuffers::of(&second).restore(&cut).is_err());
    }
}
