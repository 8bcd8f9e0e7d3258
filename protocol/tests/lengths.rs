//! What a length inside of a frame can make this process allocate.

#![allow(clippy::unwrap_used)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt::Debug,
};

use bytes::Bytes;
use everfold_protocol::{
    Path,
    codec::{self, CodecError, DecodeError},
    frame::{self, FrameError},
    seal::Seal,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The system's allocator, which remembers the largest request of each thread.
struct Watched;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on as it is; the count needs no memory.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.set(LARGEST.get().max(layout.size()));
        // SAFETY: the caller promises what the system asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// What is allocated for a short frame at most: it has a few bytes, and an error may be a short text.
const BYTES_MAX: usize = 4096;

/// `before`, a length, and a few bytes that follow it.
fn lying(before: &[u8], len: u64) -> Vec<u8> {
    [before, &codec::encode(&len).unwrap(), &[1, 2, 3]].concat()
}

fn refuses<T: DeserializeOwned + Debug>(before: &[u8]) {
    for len in [4, 1 << 21, 1 << 40, 1 << 62, u64::MAX] {
        let bytes = lying(before, len);
        LARGEST.set(0);
        let decoded = codec::decode::<T>(&bytes);
        let largest = LARGEST.get();
        let name = std::any::type_name::<T>();
        match decoded {
            // The elements may be decoded one by one until the bytes end.
            Err(_) if len == 4 => {}
            Err(CodecError::Decode(DecodeError::Length { announced, .. })) => assert_eq!(announced, len),
            other => panic!("{name} of {len}: {other:?}"),
        }
        assert!(largest <= BYTES_MAX, "{name} of {len}: {largest} bytes at once");
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Object {
    label: Option<String>,
    sums: Vec<f64>,
}

#[test]
fn no_collection_trusts_a_length() {
    refuses::<String>(&[]);
    refuses::<Box<str>>(&[]);
    refuses::<Bytes>(&[]);
    refuses::<Vec<u8>>(&[]);
    refuses::<Vec<u64>>(&[]);
    refuses::<Vec<[u64; 32]>>(&[]);
    refuses::<Vec<()>>(&[]);
    refuses::<Vec<String>>(&[]);
    refuses::<Vec<String>>(&[1]);
    refuses::<VecDeque<u32>>(&[]);
    refuses::<BTreeMap<u64, String>>(&[]);
    refuses::<BTreeMap<u64, String>>(&[1, 7]);
    refuses::<BTreeSet<u8>>(&[]);
    refuses::<HashMap<String, u64>>(&[]);
    refuses::<Path>(&[]);
    refuses::<Object>(&[1]);
    refuses::<Object>(&[0]);
    refuses::<(u8, Bytes)>(&[9]);
}

#[test]
fn a_frame_with_a_lying_length_is_refused() {
    for len in [1 << 40, 1 << 62] {
        let mut bytes = Vec::new();
        // What stands for a collection is its length alone.
        frame::encode_into(&len, 1 << 10, &mut Seal::of_strangers(), &mut bytes).unwrap();
        LARGEST.set(0);
        let decoded = frame::decode::<Vec<Bytes>>(&bytes, 1 << 10, &mut Seal::of_strangers());
        let refused = matches!(
            decoded,
            Err(FrameError::Payload(CodecError::Decode(DecodeError::Length { announced, .. }))) if announced == len
        );
        assert!(refused, "{decoded:?}");
        assert!(LARGEST.get() <= BYTES_MAX);
    }
}

#[test]
fn elements_without_bytes_are_bounded() {
    let units = |len: usize| codec::decode::<Vec<()>>(&codec::encode(&vec![(); len]).unwrap());
    assert_eq!(units(1000).unwrap().len(), 1000);
    assert_eq!(units(codec::EMPTY_ELEMENTS_MAX).unwrap().len(), codec::EMPTY_ELEMENTS_MAX);
    let twice = codec::encode(&vec![vec![(); codec::EMPTY_ELEMENTS_MAX - 1]; 2]).unwrap();
    let decoded = codec::decode::<Vec<Vec<()>>>(&twice);
    assert!(matches!(decoded, Err(CodecError::Decode(_))), "{decoded:?}");
}
