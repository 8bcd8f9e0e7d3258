//! The live buffers of a device in checkpoints.

use everfold::{CheckpointHook, HookError, Live};

use super::{Device, Id, lock};

/// Saves the buffers that a device [needs](Device::set_live) to go on. They come over the bus while the
/// device is idle, and are written from a copy: a device may go on meanwhile.
pub struct LiveBuffers {
    device: Device,
    copy: Vec<u8>,
    has_copy: bool,
}

impl LiveBuffers {
    /// Those of this device.
    pub fn of(device: &Device) -> Self {
        Self { device: device.clone(), copy: Vec::new(), has_copy: false }
    }

    /// All live buffers, with the length of each.
    fn all(&self) -> Vec<(Id, usize)> {
        let live = lock(&self.device.live).clone();
        let with_length = |id| (id, self.device.engine.bytes(id).expect("live buffers are buffers"));
        live.into_iter().map(with_length).collect()
    }

    /// Fetches all live buffers, each behind its number and its length.
    fn fetch(&self, saved: &mut Vec<u8>) {
        let live = self.all();
        saved.reserve(live.iter().map(|(_, length)| 16 + length).sum());
        for (id, length) in live {
            saved.extend([id.0 as u64, length as u64].map(u64::to_le_bytes).concat());
            let begin = saved.len();
            saved.resize(begin + length, 0);
            self.device.engine.read(id, &mut saved[begin..]);
        }
    }
}

impl CheckpointHook for LiveBuffers {
    fn before(&mut self) -> Result<(), HookError> {
        let mut copy = std::mem::take(&mut self.copy);
        copy.clear();
        self.fetch(&mut copy);
        (self.copy, self.has_copy) = (copy, true);
        Ok(())
    }

    fn live(&mut self) -> Result<Live, HookError> {
        let device_bytes = self.all().iter().map(|(_, length)| *length as u64).sum();
        Ok(Live { host_bytes: 0, device_bytes })
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), HookError> {
        match std::mem::take(&mut self.has_copy) {
            true => std::mem::swap(&mut self.copy, into),
            false => self.fetch(into),
        }
        Ok(())
    }

    /// Fills buffers with what was fetched from them.
    fn restore(&mut self, mut saved: &[u8]) -> Result<(), HookError> {
        while !saved.is_empty() {
            let (id, length) = (Id(number(&mut saved)?), number(&mut saved)?);
            let (values, rest) = saved.split_at_checked(length).ok_or("a buffer is cut off")?;
            if self.device.engine.bytes(id).ok_or("there is no such buffer")? != length {
                return Err("a buffer has another length".into());
            }
            self.device.engine.write(id, values);
            saved = rest;
        }
        Ok(())
    }
}

fn number(saved: &mut &[u8]) -> Result<usize, HookError> {
    let (number, rest) = saved.split_first_chunk().ok_or("a number is cut off")?;
    *saved = rest;
    Ok(usize::try_from(u64::from_le_bytes(*number))?)
}
