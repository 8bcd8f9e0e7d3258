//! A graphics card, by CUDA, whose libraries are looked for at run time.

use std::{
    fmt::Display,
    process,
    sync::{Arc, Mutex},
};

use cudarc::{
    driver::{CudaContext, CudaModule, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg},
    nvrtc::{self, CompileError, CompileOptions},
};

use super::{Argument, CardError, Engine, Id, Launch, OnThreads, lock, memory::Bytes};

/// Looks for the driver and for the compiler of kernels.
pub(super) fn find() -> Result<(), CardError> {
    // SAFETY: they load a library, which does nothing by that.
    let (has_driver, has_compiler) =
        unsafe { (cudarc::driver::sys::is_culib_present(), nvrtc::sys::is_culib_present()) };
    match (has_driver, has_compiler) {
        (false, _) => Err(CardError::NoDriver),
        (true, false) => Err(CardError::NoCompiler),
        (true, true) => Ok(()),
    }
}

/// One card, and the kernels of one program on it.
pub(super) struct Card {
    name: String,
    stream: Arc<CudaStream>,
    kernels: Arc<CudaModule>,
    buffers: Mutex<Vec<CudaSlice<u8>>>,
}

impl Card {
    /// Compiles the kernels for a card and takes it into use. With fewer cards, several ranks share each.
    pub(super) fn open(source: &str, rank: u32) -> Result<Self, CardError> {
        find()?;
        let cards = usize::try_from(CudaContext::device_count()?).unwrap_or_default();
        if cards == 0 {
            return Err(CardError::NoCard);
        }
        let context = CudaContext::new(rank as usize % cards)?;
        // A host that waits for the card leaves its core to others.
        context.set_blocking_synchronize()?;
        let (major, minor) = context.compute_capability()?;
        let options = CompileOptions {
            // Products are rounded before they are added, as on the host: both get the same bits.
            fmad: Some(false),
            options: vec![format!("--gpu-architecture=compute_{major}{minor}")],
            ..CompileOptions::default()
        };
        let kernels = context.load_module(nvrtc::compile_ptx_with_opts(source, options)?)?;
        Ok(Self {
            name: context.name()?,
            stream: context.default_stream(),
            kernels,
            buffers: Mutex::default(),
        })
    }

    fn try_add(&self, values: &[u8]) -> Result<Id, DriverError> {
        let buffer = self.stream.clone_htod(values)?;
        self.stream.synchronize()?;
        let mut buffers = lock(&self.buffers);
        buffers.push(buffer);
        Ok(Id(buffers.len() - 1))
    }

    fn try_write(&self, to: Id, values: &[u8]) -> Result<(), DriverError> {
        self.stream.memcpy_htod(values, &mut lock(&self.buffers)[to.0])?;
        self.stream.synchronize()
    }

    fn try_read(&self, from: Id, values: &mut [u8]) -> Result<(), DriverError> {
        self.stream.memcpy_dtoh(&lock(&self.buffers)[from.0], values)?;
        self.stream.synchronize()
    }

    fn try_launch(&self, launch: &Launch) -> Result<(), DriverError> {
        let (buffers, function) = (lock(&self.buffers), self.kernels.load_function(launch.name)?);
        let items = launch.items as u64;
        let mut call = self.stream.launch_builder(&function);
        call.arg(&items);
        for argument in &launch.arguments {
            match argument {
                Argument::Buffer(id) => call.arg(&buffers[id.0]),
                Argument::Count(count) => call.arg(count),
                Argument::Real(real) => call.arg(real),
            };
        }
        let blocks = launch.items.div_ceil(launch.per_block) as u32;
        let config = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (launch.per_block as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: the kernel takes what it is given (`Source::check`), and stays within the buffers of its
        // program. What is on the stream runs in order, and buffers live as long as it.
        unsafe { call.launch(config) }.map(drop)
    }
}

impl Engine for Card {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn add(&self, values: Box<dyn Bytes>) -> Id {
        or_die(self.try_add(values.bytes()))
    }

    fn bytes(&self, buffer: Id) -> Option<usize> {
        Some(lock(&self.buffers).get(buffer.0)?.len())
    }

    fn write(&self, to: Id, values: &[u8]) {
        or_die(self.try_write(to, values));
    }

    fn read(&self, from: Id, values: &mut [u8]) {
        or_die(self.try_read(from, values));
    }

    fn launch(&self, launch: &Launch, _: OnThreads) {
        or_die(self.try_launch(launch));
    }

    fn swap(&self, a: Id, b: Id) {
        // Kernels on the stream have their pointers already.
        lock(&self.buffers).swap(a.0, b.0);
    }

    fn sync(&self) {
        or_die(self.stream.synchronize());
    }
}

/// What was on a card that fails is lost. The process dies of it, and comes back with its last checkpoint.
fn or_die<T>(result: Result<T, impl Display>) -> T {
    result.unwrap_or_else(|error| {
        eprintln!("the card failed: {error}");
        process::abort()
    })
}

impl From<DriverError> for CardError {
    fn from(error: DriverError) -> Self {
        Self::Driver(error.to_string())
    }
}

impl From<CompileError> for CardError {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::CompileError { log, .. } => Self::Kernels(log.to_string_lossy().into_owned()),
            error => Self::Kernels(error.to_string()),
        }
    }
}
