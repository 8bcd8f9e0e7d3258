//! What every implementation of [`OneSidedRead`] has to pass.
//!
//! Each implementation's test calls [`check`] with a way to make a target, so that a new transport is held to
//! the same promises as the others. One that asks the owner's server passes [`check_window`] with every other
//! content, too.

use std::sync::Arc;

use bytes::Bytes;
use everfold_protocol::{
    Generation, WindowId,
    message::{ByteRange, Peer, WindowRef},
};

use super::{OneSidedRead, ReadError};
use crate::memory::{
    buffer::{Buffer, Memory},
    window::{Content, Windows},
};

/// Reads windows of `target`, whose windows are `windows`, in every way that matters.
///
/// # Panics
/// If the implementation breaks a promise.
pub async fn check(reader: &dyn OneSidedRead, target: &Peer, windows: &Arc<Windows>) {
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 % 251) as u8).collect();
    let buffers: Vec<Box<dyn Memory>> = match windows.region() {
        Some(region) => {
            let mut block = region.allocate(content.len()).expect("the region is empty");
            block.bytes_mut().copy_from_slice(&content);
            vec![Box::new(block), Box::new(content.clone())]
        }
        None => vec![Box::new(content.clone())],
    };
    for memory in buffers {
        check_window(reader, target, windows, Content::Buffer(Buffer::new(memory)), &content).await;
    }
    let encoded = Content::Encoded(Bytes::from(content.clone()));
    check_window(reader, target, windows, encoded, &content).await;
}

/// Reads a window that shows `content`, which are the bytes `expected`: at least two million.
///
/// # Panics
/// If the implementation breaks a promise.
pub async fn check_window(
    reader: &dyn OneSidedRead,
    target: &Peer,
    windows: &Arc<Windows>,
    content: Content,
    expected: &[u8],
) {
    let window = windows.publish(content).expect("the table is empty");
    reads_what_was_published(reader, target, &window, expected).await;
    refuses_what_is_outside(reader, target, &window).await;
    many_reads_at_once(reader, target, &window, expected).await;
    refuses_what_was_released(reader, target, windows, &window).await;
}

async fn reads_what_was_published(
    reader: &dyn OneSidedRead,
    target: &Peer,
    window: &WindowRef,
    content: &[u8],
) {
    for (start, len) in [(0, content.len()), (0, 1), (999, 70_001), (content.len() - 1, 1), (5, 0)] {
        let range = ByteRange { start: start as u64, len: len as u64 };
        let bytes = reader.read(target, window, range).await.expect("the window is open");
        assert!(*bytes == content[start..start + len], "bytes {start}..{}", start + len);
        assert!(bytes.is_still_valid());
    }
}

async fn refuses_what_is_outside(reader: &dyn OneSidedRead, target: &Peer, window: &WindowRef) {
    for (start, len) in [(0, window.bytes + 1), (window.bytes, 1), (u64::MAX, 2)] {
        let result = reader.read(target, window, ByteRange { start, len }).await;
        assert!(matches!(result, Err(ReadError::Range { .. })), "{start} + {len}: {result:?}");
    }
}

async fn many_reads_at_once(reader: &dyn OneSidedRead, target: &Peer, window: &WindowRef, content: &[u8]) {
    let ranges = (0..20u64).map(|n| ByteRange { start: n * 100_000, len: 100_000 });
    let reads = ranges.map(|range| async move {
        let bytes = reader.read(target, window, range).await.expect("the window is open");
        assert!(*bytes == content[range.start as usize..range.end() as usize]);
    });
    futures::future::join_all(reads).await;
}

async fn refuses_what_was_released(
    reader: &dyn OneSidedRead,
    target: &Peer,
    windows: &Arc<Windows>,
    window: &WindowRef,
) {
    let range = ByteRange { start: 0, len: 10 };
    let early = reader.read(target, window, range).await.expect("the window is open");
    windows.release(window);
    if matches!(early, super::Fetched::Mapped(_)) {
        assert!(!early.is_still_valid(), "what lies at the peer becomes invalid with its window");
    }
    let stale = reader.read(target, window, range).await;
    assert!(matches!(stale, Err(ReadError::Released)), "{stale:?}");
    let never = WindowRef { window: WindowId(77), generation: Generation(1 << 40), ..window.clone() };
    let never = reader.read(target, &never, range).await;
    assert!(matches!(never, Err(ReadError::Released)), "{never:?}");
}
