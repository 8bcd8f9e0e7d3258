//! What of a share peers can read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// The windows that are open; none are any more once this is closed.
    open: Mutex<Option<Vec<WindowRef>>>,
    inline_bytes_max: u64,
}

impl Shown {
    pub fn new(windows: Arc<Windows>, inline_bytes_max: u64) -> Self {
        Self { windows, open: Mutex::new(Some(Vec::new())), inline_bytes_max }
    }

    /// Opens a window.
    ///
    /// # Errors
    /// There is none left, or this is closed: a task may go on after the reduction has ended.
    pub fn publish(&self, content: Content) -> Result<Data, NoWindow> {
        let window = self.windows.publish(content).ok_or(NoWindow)?;
        match &mut *self.lock() {
            Some(open) => open.push(window.clone()),
            None => {
                self.windows.release(&window);
                return Err(NoWindow);
            }
        }
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
        self.lock().iter_mut().for_each(|open| {
            open.retain(|window| {
                let release = which(window);
                if release {
                    self.windows.release(window);
                }
                !release
            });
        });
    }

    /// Closes all windows. From now on none is opened.
    pub fn close(&self) {
        let open = self.lock().take();
        open.into_iter().flatten().for_each(|window| self.windows.release(&window));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<WindowRef>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_shows_after_the_end_of_its_reduction_is_closed_at_once() {
        let shown = Shown::new(Arc::new(Windows::new(None)), 0);
        let show = || shown.publish(Content::Encoded(Bytes::from_static(b"long")));
        assert!(show().is_ok());
        assert_eq!(shown.windows.len(), 1);
        shown.close();
        assert_eq!(show(), Err(NoWindow));
        assert!(shown.windows.is_empty());
    }
}
