//! The live buffers of a device in checkpoints.

use everfold::{CheckpointHook, HookError, Live};

use super::{Device, Id, Memory, lock};

/// Saves the buffers that a device [needs](Device::set_live) to go on. They come over the bus while the device is
/// idle, and are written from a copy: a device may go on meanwhile.
pub struct LiveBuffers {
    device: Device,
    copy: Option<Vec<u8>>,
}

impl LiveBuffers {
    /// Those of this device.
    pub fn of(device: &Device) -> Self {
        Self { device: device.clone(), copy: None }
    }

    /// All live buffers, each behind its number and its length.
    fn fetch(&self) -> Vec<u8> {
        let live = lock(&self.device.live).clone();
        self.device.over_bus(|memory| {
            let mut saved = vec![];
            for id in live {
                let buffer = memory.buffer(id).expect("live buffers are buffers").bytes();
                saved.extend([id.0 as u64, buffer.len() as u64].map(u64::to_le_bytes).concat());
                saved.extend(buffer);
            }
            let bytes = saved.len();
            (saved, bytes)
        })
    }
}

impl CheckpointHook for LiveBuffers {
    fn before(&mut self) -> Result<(), HookError> {
        self.copy = Some(self.fetch());
        Ok(())
    }

    fn live(&mut self) -> Result<Live, HookError> {
        let live = lock(&self.device.live).clone();
        self.device.sync();
        let mut memory = lock(&self.device.shared.memory);
        let bytes = live.into_iter().filter_map(|id| Some(memory.buffer(id)?.bytes().len() as u64));
        Ok(Live { host_bytes: 0, device_bytes: bytes.sum() })
    }

    fn save(&mut self) -> Result<Vec<u8>, HookError> {
        Ok(self.copy.take().unwrap_or_else(|| self.fetch()))
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), HookError> {
        self.device.over_bus(|memory| (fill(memory, saved), saved.len()))
    }
}

/// Fills buffers with what was fetched from them.
fn fill(memory: &mut Memory, mut saved: &[u8]) -> Result<(), HookError> {
    while !saved.is_empty() {
        let (id, length) = (number(&mut saved)?, number(&mut saved)?);
        let (values, rest) = saved.split_at_checked(length).ok_or("a buffer is cut off")?;
        let buffer = memory.buffer(Id(id)).ok_or("there is no such buffer")?.bytes_mut();
        if buffer.len() != length {
            return Err("a buffer has another length".into());
        }
        buffer.copy_from_slice(values);
        saved = rest;
    }
    Ok(())
}

fn number(saved: &mut &[u8]) -> Result<usize, HookError> {
    let (number, rest) = saved.split_first_chunk().ok_or("a number is cut off")?;
    *saved = rest;
    Ok(usize::try_from(u64::from_le_bytes(*number))?)
}
