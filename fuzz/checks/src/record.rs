//! Records as a disk gives them back, and the names under which they lie there.

use everfold_protocol::{Incarnation, ProcessId, Rank, ReductionId, SegmentIndex};
use everfold_storage::{
    Kind, RecordKey,
    record::{self, HEADER_BYTES, RecordError},
};

use crate::{
    input::{Input, piece},
    memory::bounded,
};

/// # Panics
/// If a record is accepted that was not written, or names sort otherwise than what they name.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let (kind, position) = (Kind::ALL[usize::from(input.byte()) % 2], input.short() as usize);
    let keys = [key(&mut input), key(&mut input)];
    let name = input.piece();
    let bytes = input.rest();

    // The key is hashed together with the head of the record, and nothing else is copied.
    match bounded(4096 + 2 * name.len(), || record::decode(kind, name, bytes)) {
        Ok(payload) => assert_eq!(record::encode(kind, name, payload), bytes),
        Err(RecordError::Truncated { bytes: found, expected }) => {
            assert!(found == bytes.len() as u64 && found < expected);
        }
        Err(RecordError::Trailing { left }) => assert!(left <= (bytes.len() - HEADER_BYTES) as u64),
        Err(error) => drop(error.to_string()),
    }

    let [a, b] = keys;
    assert_eq!(a.to_bytes().cmp(&b.to_bytes()), a.cmp(&b));
    let [first, end] = RecordKey::range(a.reduction);
    assert_eq!((first..end).contains(&b.to_bytes()), a.reduction == b.reduction);
    drop(a.to_string());

    let written = record::encode(kind, &a.to_bytes(), bytes);
    assert_eq!(record::decode(kind, &a.to_bytes(), &written), Ok(bytes));
    if a != b {
        assert!(record::decode(kind, &b.to_bytes(), &written).is_err(), "it lies under another name");
    }
    let mut damaged = written;
    let bit = position % (damaged.len() * 8);
    damaged[bit / 8] ^= 1 << (bit % 8);
    assert!(record::decode(kind, &a.to_bytes(), &damaged).is_err(), "a bit was flipped");
    damaged.truncate(position % damaged.len());
    assert!(record::decode(kind, &a.to_bytes(), &damaged).is_err(), "it was cut");
}

fn key(input: &mut Input<'_>) -> RecordKey {
    let reduction = ReductionId { name: input.number(), sequence: input.number() };
    let owner =
        ProcessId { rank: Rank(input.number() as u32), incarnation: Incarnation(input.byte().into()) };
    let segment = (input.byte() % 2 == 1).then(|| SegmentIndex(input.number() as u32));
    RecordKey { reduction, owner, segment }
}

pub fn samples() -> Vec<Vec<u8>> {
    let name = b"name";
    let keys = [5, 1, 2, 0, 1, 3, 5, 1, 2, 0, 0];
    let with = |kind: u8, record: &[u8]| [&[kind, 9, 0][..], &keys, &piece(name), record].concat();
    vec![
        with(0, &record::encode(Kind::Original, name, b"a contribution")),
        with(1, &record::encode(Kind::Replica, name, &[])),
        with(0, &record::encode(Kind::Replica, name, &[1; 100])),
        with(0, &record::encode(Kind::Original, b"other", b"a contribution")),
        with(0, b"evst\x02\x00"),
    ]
}
