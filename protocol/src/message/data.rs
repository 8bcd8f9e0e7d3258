//! Where bytes can be read.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::{Generation, RegionOffset, WindowId};

/// Where bytes can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Data {
    /// Right here: the body was small enough to travel.
    Inline(Bytes),
    /// In a window of the process that sent this.
    Window(WindowRef),
    /// Nowhere but at its owner, which folds it itself: the root's own contribution.
    Private,
}

impl Data {
    /// Bytes that can be read here, if any can.
    pub fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Window(window) => window.bytes,
            Self::Private => 0,
        }
    }

    /// Whether nothing can be read here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory that peers may read one-sidedly, as its owner published it.
///
/// The bytes do not change until the owner releases the window; `generation` tells a reader that it came too
/// late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowRef {
    /// The window at its owner.
    pub window: WindowId,
    /// Value of the owner's generation counter while the window is valid.
    pub generation: Generation,
    /// Length in bytes.
    pub bytes: u64,
    /// xxh3 of the whole window, where the publisher held the bytes in cache anyway (encoded objects). Arrays
    /// have none: a pass over them to make it would cost as much as folding them.
    pub checksum: Option<u64>,
    /// How a process on the same host reaches it without asking.
    pub place: Place,
}

/// How a process on the same host reaches a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// In the owner's region of shared memory, which peers map.
    Region(RegionOffset),
    /// At this address of the owner's private memory, which peers read with `process_vm_readv`.
    Memory(u64),
    /// Only the owner's server hands it out.
    Served,
}

impl Place {
    /// Whether the bytes stay as they are, and readable on the same host, when their process ends or leaves.
    ///
    /// A region's blocks are not given back then; private memory is.
    pub fn outlives_its_process(self) -> bool {
        matches!(self, Self::Region(_))
    }
}

/// A process's region of shared memory, for peers on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionRef {
    /// File descriptor in that process.
    pub descriptor: i32,
    /// Length in bytes.
    pub bytes: u64,
    /// Where it begins in that process's address space.
    pub address: u64,
    /// Stands at its beginning. Process ids, descriptors and lengths come again; this number does not.
    pub nonce: u128,
}
