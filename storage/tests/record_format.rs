//! Records that were written once go on being read.
//!
//! The fixtures were written by the first build that had their version of the format, and are never written
//! again: a new version adds files of its own. `corrupted.v1` is `replica.v1` with one bit of the payload
//! changed; `replica.v65535` begins like every record, and the rest is what no build knows.

use everfold_protocol::{Incarnation, ProcessId, Rank, ReductionId, SegmentIndex};
use everfold_storage::{
    Kind, RecordKey,
    record::{self, RecordError},
};

const PAYLOAD: &[u8] = b"forty-two numbers in a row, folded once";

fn key() -> RecordKey {
    RecordKey {
        reduction: ReductionId { name: 0x0123_4567_89ab_cdef, sequence: 3 },
        owner: ProcessId { rank: Rank(5), incarnation: Incarnation(1) },
        segment: Some(SegmentIndex(7)),
    }
}

fn read(record: &[u8]) -> Result<&[u8], RecordError> {
    record::decode(Kind::Replica, &key().to_bytes(), record)
}

#[test]
fn a_record_of_version_1_is_read() {
    assert_eq!(read(include_bytes!("fixtures/replica.v1")), Ok(PAYLOAD));
}

#[test]
fn the_current_version_is_written_as_it_always_was() {
    let record = record::encode(Kind::Replica, &key().to_bytes(), PAYLOAD);
    assert_eq!(record, include_bytes!("fixtures/replica.v1"), "a new layout needs a new version");
}

#[test]
fn a_corrupted_record_is_refused() {
    let error = read(include_bytes!("fixtures/corrupted.v1")).unwrap_err();
    assert!(matches!(error, RecordError::Checksum { .. }), "{error:?}");
}

#[test]
fn a_record_of_the_future_is_told_as_such() {
    assert_eq!(read(include_bytes!("fixtures/replica.v65535")), Err(RecordError::Version(u16::MAX)));
}
