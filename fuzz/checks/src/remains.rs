//! Regions that processes have handed over to their agent, whatever is in them, and readers of them.

use std::{
    fs::File,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::Arc,
};

use everfold_protocol::{
    Generation, RegionOffset, WindowId,
    message::{ByteRange, RegionRef},
};
use everfold_runtime::{
    agent::remains::Remains,
    memory::{
        peer_region::PeerRegion,
        window::{Shelf, WindowError},
    },
};
use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
};

use crate::{
    input::Input,
    memory::bounded,
    talk::{process, wait_for},
};

/// Where the generations stand in a region, how many there are, and where blocks begin.
const GENERATIONS_AT: u64 = 64 << 10;
const GENERATIONS: u64 = 128 << 10;
const BLOCKS: u64 = GENERATIONS_AT + 8 * GENERATIONS + 2 * (64 << 10);

const NONCE: u128 = 0x1234_5678_9abc_def0_1234;

/// A file of this length in memory that begins with the nonce, and never becomes shorter.
pub(crate) fn region_file(bytes: u64) -> (OwnedFd, RegionRef) {
    let (file, region) = unsealed(bytes);
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
    (file, region)
}

/// The same, and its owner may cut it.
fn unsealed(bytes: u64) -> (OwnedFd, RegionRef) {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(c"everfold-fuzz", flags).unwrap());
    file.set_len(bytes).unwrap();
    file.write_all_at(&NONCE.to_ne_bytes(), 0).unwrap();
    let region = RegionRef { descriptor: file.as_raw_fd(), bytes, address: 0, nonce: NONCE };
    (file.into(), region)
}

/// # Panics
/// If something is read that lies outside, or under a generation that does not stand there.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = input.byte();
    let blocks = u64::from(input.short());
    match kind % 8 {
        0 => announced(input, blocks),
        _ => read(input, blocks),
    }
}

/// A region is described otherwise than it is.
fn announced(mut input: Input<'_>, blocks: u64) {
    let bytes = input.number();
    let (file, region) = region_file(BLOCKS * u64::from(input.byte() % 2) + blocks);
    let (is_short, len) = (region.bytes < BLOCKS, region.bytes);
    let nonce = region.nonce ^ u128::from(input.long());
    let described =
        RegionRef { bytes: if input.byte().is_multiple_of(2) { len } else { bytes }, nonce, ..region };
    let adopted = bounded(64 << 10, || PeerRegion::adopt(file, &described));
    let is_right = !is_short && described.bytes == len && nonce == NONCE;
    assert_eq!(adopted.is_ok(), is_right, "{described:?} of {len} bytes");
    let (reading, _writing) = nix::unistd::pipe().unwrap();
    assert!(PeerRegion::adopt(reading, &described).is_err(), "a pipe is no region");
    let (file, region) = unsealed(len);
    assert!(PeerRegion::adopt(file, &region).is_err(), "who reads what is cut dies");
}

/// What stands in the region is anything, and so is what readers ask for.
fn read(mut input: Input<'_>, blocks: u64) {
    let (file, region) = region_file(BLOCKS + blocks);
    let memory = File::from(file.try_clone().unwrap());
    let writes = input.byte() % 8;
    for _ in 0..writes {
        let (slot, generation) = (input.number() % GENERATIONS, input.number());
        memory.write_all_at(&generation.to_ne_bytes(), GENERATIONS_AT + 8 * slot).unwrap();
    }
    let content = input.piece();
    memory.write_all_at(&content[..content.len().min(blocks as usize)], BLOCKS).unwrap();

    let remains = Arc::new(Remains::default());
    remains.hold(process(1), PeerRegion::adopt(file, &region).unwrap());
    assert!(wait_for(remains.of(process(2)).read(WindowId(0), Generation(0), RANGE, None)).is_err());
    let left = remains.of(process(1));
    let reads = input.many(16, |input| {
        let (window, generation) = (WindowId(input.number()), Generation(input.number()));
        let offset = match input.byte() % 4 {
            0 => None,
            1 => Some(input.number()),
            _ => Some(BLOCKS + u64::from(input.byte())),
        };
        (window, generation, ByteRange { start: input.number(), len: input.number() }, offset)
    });
    for (window, generation, range, offset) in reads {
        let most = (64 << 10) + 2 * range.len.min(region.bytes) as usize;
        let result =
            bounded(most, || wait_for(left.read(window, generation, range, offset.map(RegionOffset))));
        let stands = || {
            let mut word = [0; 8];
            memory.read_exact_at(&mut word, GENERATIONS_AT + 8 * window.0).unwrap();
            u64::from_ne_bytes(word)
        };
        // Zero stands where no window is open.
        let is_open = window.0 < GENERATIONS && generation.0 != 0 && stands() == generation.0;
        let place = offset.and_then(|offset| offset.checked_add(range.start));
        let inside =
            place.filter(|place| place.checked_add(range.len).is_some_and(|end| end <= region.bytes));
        match result {
            Ok(held) => {
                let place = inside.expect("it is inside");
                assert!(is_open, "{window} is not open under {generation}");
                let mut expected = vec![0; range.len as usize];
                memory.read_exact_at(&mut expected, place).unwrap();
                assert!(*held == expected);
            }
            Err(WindowError::Released) => assert!(!is_open),
            Err(WindowError::Range { .. }) => assert!(inside.is_none()),
            Err(error @ (WindowError::Damaged | WindowError::NoRoom(_))) => panic!("it can be read: {error}"),
        }
    }
    remains.release(process(1));
    assert!(matches!(
        wait_for(left.read(WindowId(0), Generation(1), RANGE, None)),
        Err(WindowError::Released)
    ));
}

const RANGE: ByteRange = ByteRange { start: 0, len: 1 };

pub fn samples() -> Vec<Vec<u8>> {
    let open = [3u8, 100, 1, 2, 5, 7];
    let content = crate::input::piece(&[9; 40]);
    let with = |reads: &[&[u8]]| [&open[..], &[0; 0], &content, &reads.concat()].concat();
    let at = [5u8, 7, 2, 0, 3, 20];
    vec![
        [&[2u8, 100, 0, 1, 5, 7][..], &content, &at, &at].concat(),
        [&[2u8, 100, 0, 0][..], &content, &[5, 0, 2, 0, 0, 4]].concat(),
        [&[2u8, 100, 0, 1, 5, 7][..], &content, &[5, 7, 0, 1, 1, 5, 7, 2, 0, 240, 0, 240, 0]].concat(),
        [
            &[2u8, 0xff, 0xff, 2, 5, 7, 6, 8][..],
            &content,
            &[5, 7, 1, 0, 0, 200, 0xff, 0xff, 6, 8, 2, 0, 9, 9],
        ]
        .concat(),
        with(&[&at, &[6, 7, 2, 0, 1, 1]]),
        vec![0, 5, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![0, 5, 0, 240, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    ]
}
