//! What of a share peers can read.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use everfold_protocol::message::{Data, WindowRef};

use super::error::NoWindow;
use crate::memory::{
    buffer::{Buffer, Memory, Sheltered},
    window::{Content, Windows},
};

/// What of a share peers can read.
#[derive(Debug)]
pub(super) struct Shown {
    pub windows: Arc<Windows>,
    open: Mutex<Vec<WindowRef>>,
    inline_bytes_max: u64,
}

impl Shown {
    pub fn new(windows: Arc<Windows>, inline_bytes_max: u64) -> Self {
        Self { windows, open: Mutex::default(), inline_bytes_max }
    }

    pub fn publish(&self, content: Content) -> Result<Data, NoWindow> {
        let window = self.windows.publish(content).ok_or(NoWindow)?;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).push(window.clone());
        Ok(Data::Window(window))
    }

    /// The memory of an original. It is copied to where it outlives this process, if it has to and there is room.
    pub fn original(&self, memory: Box<dyn Memory>, outlives: bool) -> Arc<Buffer> {
        Buffer::new(match self.windows.region() {
            Some(region) if outlives && memory.region_offset().is_none() => {
                Sheltered::new(memory, region).map_or_else(|memory| memory, |it| Box::new(it) as _)
            }
            _ => memory,
        })
    }

    pub fn publish_encoded(&self, bytes: Vec<u8>) -> Result<Data, NoWindow> {
        if bytes.len() as u64 <= self.inline_bytes_max {
            Ok(Data::Inline(bytes.into()))
        } else {
            self.publish(Content::Encoded(self.sheltered(bytes)))
        }
    }

    /// Puts encoded bytes where they outlive this process, if there is room.
    pub fn sheltered(&self, bytes: Vec<u8>) -> Bytes {
        match self.windows.region().and_then(|region| region.allocate(bytes.len())) {
            Some(mut block) => {
                block.bytes_mut().copy_from_slice(&bytes);
                Bytes::from_owner(block)
            }
            None => bytes.into(),
        }
    }

    /// Closes the windows that `which` accepts.
    pub fn release(&self, which: impl Fn(&WindowRef) -> bool) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|window| {
            let release = which(window);
            if release {
                self.windows.release(window);
            }
            !release
        });
    }
}
