//! Owners of windows who answer anything.

use std::collections::BTreeMap;

use everfold_protocol::{
    Generation, WindowId, codec,
    frame::{self, PRELUDE_BYTES},
    message::{ByteRange, Peer, Place, WindowRef},
};
use everfold_runtime::transport::{OneSidedRead, ReadError, control::BoxStream, handshake::Seals, tcp::Tcp};
use futures::future;
use tokio::{
    io::{AsyncWriteExt, split},
    net::UnixStream,
};

use crate::{
    input::{Input, piece},
    memory::bounded,
    messages,
    requests::{Answer, Refused, Request},
    talk::{JOB, KEY, Raw, next_frame, process, sealed, seals, wait_for},
};

const WINDOW_BYTES: u64 = 4096;
const READS: usize = 8;

/// What an owner says, and what that means.
enum Said {
    Answer(Answer, Vec<u8>),
    Bytes(Vec<u8>),
}

/// What becomes of a read.
#[derive(Debug, PartialEq)]
enum Outcome {
    Bytes(Vec<u8>),
    Released,
    Range,
    Damaged,
    Checksum,
    Broken,
}

fn content(range: ByteRange) -> Vec<u8> {
    (range.start..range.start + range.len).map(|at| (at % 251) as u8).collect()
}

/// # Panics
/// If a read ends otherwise than its answer says, or not at all.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let count = usize::from(input.byte()) % READS + 1;
    let range = |input: &mut Input<'_>| {
        let start = u64::from(input.short()) % WINDOW_BYTES;
        ByteRange { start, len: u64::from(input.short()) % (WINDOW_BYTES - start + 1) }
    };
    let ranges: Vec<ByteRange> = (0..count).map(|_| range(&mut input)).collect();
    let [ours, theirs] = seals();
    let Seals { mut outward, mut inward } = theirs;
    let mut waiting: BTreeMap<u64, ByteRange> = (0..).zip(ranges.iter().copied()).collect();
    let mut outcomes = BTreeMap::new();
    let mut bytes = Vec::new();
    let mut is_broken = false;
    for _ in 0..2 * READS {
        if input.is_empty() {
            break;
        }
        let kind = input.byte();
        let said = match kind % 8 {
            0 => Said::Bytes(input.piece().to_vec()),
            1 => Said::Bytes(sealed(&Raw(input.piece()), &mut outward)),
            of => {
                let number = input.number();
                let refused = [Refused::Released, Refused::OutOfRange, Refused::Damaged];
                let sent = content(waiting.get(&number).copied().unwrap_or(ByteRange { start: 0, len: 9 }));
                let tag = outward.seal_content(&sent);
                match of {
                    2..=4 => Said::Answer(Answer { number, result: Ok(tag) }, sent),
                    // Damaged on the way, if there is anything.
                    5 => Said::Answer(
                        Answer { number, result: Ok(tag) },
                        sent.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 0)).collect(),
                    ),
                    _ => {
                        let refused = refused[usize::from(kind / 8) % 3];
                        Said::Answer(Answer { number, result: Err(refused) }, Vec::new())
                    }
                }
            }
        };
        match said {
            Said::Answer(answer, sent) => {
                bytes.extend(sealed(&answer, &mut outward));
                bytes.extend(&sent);
                let Some(range) = waiting.get(&answer.number).copied().filter(|_| !is_broken) else {
                    is_broken = true;
                    continue;
                };
                waiting.remove(&answer.number);
                let outcome = match answer.result {
                    Ok(_) if sent == content(range) => Outcome::Bytes(sent),
                    Ok(_) => Outcome::Checksum,
                    Err(Refused::Released) => Outcome::Released,
                    Err(Refused::OutOfRange) => Outcome::Range,
                    Err(Refused::Damaged) => Outcome::Damaged,
                };
                outcomes.insert(answer.number, outcome);
            }
            Said::Bytes(said) => {
                // What happens to be an answer is taken for one by the reader, but not here.
                if is_any_answer(&said) {
                    return;
                }
                is_broken |= !said.is_empty();
                bytes.extend(said);
            }
        }
    }

    let owner = Peer { process: process(2), address: "127.0.0.1:0".to_owned(), ..messages::peer() };
    let window = WindowRef {
        window: WindowId(3),
        generation: Generation(4),
        bytes: WINDOW_BYTES,
        checksum: None,
        place: Place::Served,
    };
    let most = (256 << 10) + 4 * bytes.len();
    let results = bounded(most, || {
        wait_for(async {
            let tcp = Tcp::new(KEY, JOB, process(1));
            let (stream, other) = UnixStream::pair().unwrap();
            let stream: BoxStream = Box::new(stream);
            tcp.attach(owner.process, stream, ours);
            let reads = future::join_all(ranges.iter().map(|range| tcp.read(&owner, &window, *range)));
            let answers = async {
                let (mut hears, mut tells) = split(other);
                for (number, range) in (0..).zip(&ranges) {
                    let frame = next_frame(&mut hears).await.unwrap();
                    let request: Request = frame::decode(&frame, 1 << 10, &mut inward).unwrap().unwrap();
                    assert_eq!((request.number, request.range), (number, *range));
                    assert_eq!((request.window, request.generation), (window.window, window.generation));
                }
                // It may have hung up on what was said.
                let _ = tells.write_all(&bytes).await;
            };
            future::join(reads, answers).await.0
        })
    });
    for (number, result) in (0..).zip(results) {
        let outcome = match result {
            Ok(bytes) => Outcome::Bytes(bytes.to_vec()),
            Err(ReadError::Released) => Outcome::Released,
            Err(ReadError::Range { .. }) => Outcome::Range,
            Err(ReadError::Damaged) => Outcome::Damaged,
            Err(ReadError::Checksum) => Outcome::Checksum,
            Err(_) => Outcome::Broken,
        };
        assert_eq!(outcome, outcomes.remove(&number).unwrap_or(Outcome::Broken));
    }
}

/// Whether this is a frame whose payload means an answer, genuine or not.
fn is_any_answer(frame: &[u8]) -> bool {
    frame.get(PRELUDE_BYTES..).is_some_and(|payload| codec::decode::<Answer>(payload).is_ok())
}

pub fn samples() -> Vec<Vec<u8>> {
    let before = [3u8, 0, 0, 100, 0, 8, 0, 0, 16, 5, 0, 0, 0, 0, 1, 100, 1];
    let with = |rest: &[u8]| [&before[..], rest].concat();
    let [_, theirs] = seals();
    let mut outward = theirs.outward;
    let unasked = sealed(&(9u64, 1u8, 0u8), &mut outward);
    vec![
        with(&[2, 0, 2, 1, 2, 2, 2, 3]),
        with(&[2, 3, 5, 0, 7, 2, 15, 1]),
        with(&[2, 0, 2, 0]),
        with(&[23, 0, 2, 255, 1]),
        with(&[&[2, 0, 0][..], &piece(&unasked), &[2, 1]].concat()),
        with(&[&[2, 0, 1][..], &piece(&[3; 30]), &[2, 1]].concat()),
    ]
}
