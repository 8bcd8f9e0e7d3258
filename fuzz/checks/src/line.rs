//! A connection that hears frames piece by piece.

use std::{
    io::Write,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
};

use bytes::Bytes;
use everfold_protocol::{
    codec,
    message::{Data, Header, ToWorker},
    parcel::{self, LONG_BYTES},
    seal::{KEY_BYTES, Seal},
};
use everfold_runtime::transport::line::Inlet;

use crate::{
    input::{Input, piece},
    memory::bounded,
    messages,
    talk::{Raw, sealed},
};

/// Longest frame. A payload is shorter, unless it lies.
const FRAME_BYTES_MAX: u64 = 1 << 20;

/// # Panics
/// If other messages are heard than were said before the first wrong byte.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let step = usize::from(input.short()).max(1);
    let (mut said, mut meant, mut is_broken) = (Vec::new(), Vec::new(), false);
    let mut seal = Seal::new([3; KEY_BYTES]);
    let mut is_genuine = true;
    while !input.is_empty() && said.len() < 64 << 10 {
        match input.byte() % 8 {
            0 => {
                let strange = input.piece();
                said.extend_from_slice(strange);
                is_genuine &= strange.is_empty();
            }
            _ => {
                let payload = input.piece();
                said.extend(sealed(&Raw(payload), &mut seal));
                if is_genuine && !is_broken {
                    let lend = |range| Bytes::copy_from_slice(&payload[range]);
                    match parcel::decode::<Header, ToWorker>(payload, lend) {
                        Ok(batch) => meant.push(codec::encode(&batch).unwrap()),
                        Err(_) => is_broken = true,
                    }
                }
            }
        }
    }
    let (mut peer, own) = UnixStream::pair().unwrap();
    own.set_nonblocking(true).unwrap();
    let inlet = Inlet::new(Arc::new(OwnedFd::from(own)), Seal::new([3; KEY_BYTES]));
    let mut heard = Vec::new();
    let mut pieces = said.chunks(step.max(said.len() / 32));
    // What is kept of an unfinished frame, and what it decodes to.
    let most = 4 * said.len() + messages::bytes_max(data.len()) + (256 << 10);
    let ended = loop {
        let piece = pieces.next();
        peer.write_all(piece.unwrap_or_default()).unwrap();
        let is_last = piece.is_none();
        let result = bounded(most, || {
            loop {
                let frame = |header, messages| heard.push((header, messages));
                match inlet.hear::<ToWorker>(FRAME_BYTES_MAX, frame) {
                    Ok(true) => {}
                    result => break result,
                }
            }
        });
        match result {
            Ok(_) if is_last => break Ok(()),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
    };
    let heard: Vec<_> =
        heard.iter().map(|batch: &(Header, Vec<ToWorker>)| codec::encode(batch).unwrap()).collect();
    assert!(heard == meant, "{} frames were heard of {}", heard.len(), meant.len());
    match ended {
        Ok(()) => assert!(!is_broken, "what means nothing is refused"),
        Err(error) => assert!(is_broken || !is_genuine, "all was well: {error}"),
    }
}

/// A task whose source's body follows.
fn parcel_with_a_body() -> Vec<u8> {
    let is_task = |message: &ToWorker| matches!(message, ToWorker::Task(_));
    let mut batches = messages::to_worker().into_iter();
    let (header, mut messages) =
        batches.find(|(_, messages)| messages.iter().any(is_task)).expect("there is a task among them");
    for message in &mut messages {
        if let ToWorker::Task(task) = message {
            task.sources[0].data = Data::Inline(vec![9; LONG_BYTES].into());
        }
    }
    let mut bytes = Vec::new();
    let following = parcel::encode(&header, &mut messages, &mut bytes).expect("it can be encoded");
    following.bodies().for_each(|body| bytes.extend_from_slice(body));
    bytes
}

pub fn samples() -> Vec<Vec<u8>> {
    let frames: Vec<Vec<u8>> = messages::to_worker()
        .iter()
        .map(|batch| [&[1][..], &piece(&codec::encode(batch).unwrap())].concat())
        .collect();
    let stranger = sealed(&Raw(&[5; 40]), &mut Seal::of_strangers());
    let long = [&b"evfd"[..], &everfold_protocol::codec::VERSION.to_le_bytes(), &[0, 0, 0, 0, 8, 0]].concat();
    let with_a_body = piece(&parcel_with_a_body());
    let before = |step: u16, parts: &[&[u8]]| [&step.to_le_bytes()[..], &parts.concat()].concat();
    vec![
        before(0xffff, &[&frames[..5].concat()]),
        before(5000, &[&[1][..], &with_a_body, &frames[0], &[1], &with_a_body[..]]),
        before(13, &[&frames[5..].concat()]),
        before(40, &[&frames[0], &[0], &piece(&stranger), &frames[1]]),
        before(0xffff, &[&frames[0], &[0], &piece(&[&long[..], &[0; 50]].concat())]),
        before(9, &[&frames[0], &[1], &piece(&[1, 2, 3]), &frames[2]]),
    ]
}
