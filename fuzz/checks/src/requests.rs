//! Readers who ask for anything of the windows that are served over TCP.

use std::sync::Arc;

use everfold_protocol::{
    Generation, RegionOffset, WindowId, codec,
    frame::{self, PRELUDE_BYTES},
    message::{ByteRange, WindowRef},
    seal::Tag,
};
use everfold_runtime::{
    memory::{
        buffer::Buffer,
        window::{Content, Windows},
    },
    transport::tcp,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use crate::{
    input::{Input, piece},
    memory::bounded,
    talk::{Raw, next_frame, sealed, seals, wait_for},
};

/// As on the wire.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub number: u64,
    pub window: WindowId,
    pub generation: Generation,
    pub range: ByteRange,
    pub at: Option<RegionOffset>,
}

/// As on the wire.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub number: u64,
    pub result: Result<Tag, Refused>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Refused {
    Released,
    OutOfRange,
    Damaged,
}

const CONTENT_BYTES: usize = 5000;
const REQUESTS_MAX: usize = 80;

fn content(of: u8) -> Vec<u8> {
    (0..CONTENT_BYTES).map(|at| (at % 251) as u8 ^ of).collect()
}

/// Three windows, of which the second is released, and the buffer behind the third.
struct Served {
    windows: Arc<Windows>,
    refs: [WindowRef; 3],
    buffer: Arc<Buffer>,
}

impl Served {
    fn new() -> Self {
        let windows = Arc::new(Windows::new(None));
        let buffer = Buffer::new(Box::new(content(2)));
        let contents = [0, 1].map(|of| Content::Encoded(content(of).into()));
        let [first, second] = contents.map(|content| windows.publish(content).unwrap());
        windows.release(&second);
        // It takes the place of the second, under another generation.
        let third = windows.publish(Content::Buffer(buffer.clone())).unwrap();
        Self { windows, refs: [first, second, third], buffer }
    }

    /// What `request` is to be answered.
    fn expected(&self, request: &Request) -> Result<Vec<u8>, Refused> {
        let is_meant =
            |window: &&WindowRef| window.window == request.window && window.generation == request.generation;
        let found = [0, 2].into_iter().find(|of| is_meant(&&self.refs[*of])).ok_or(Refused::Released)?;
        let ByteRange { start, len } = request.range;
        let end =
            start.checked_add(len).filter(|end| *end <= CONTENT_BYTES as u64).ok_or(Refused::OutOfRange)?;
        Ok(content(found as u8)[start as usize..end as usize].to_vec())
    }
}

/// What a reader says: a request of any kind, or a frame with any payload, or no frame.
enum Said {
    Request(Request),
    Bytes { frame: bool, bytes: Vec<u8> },
}

fn read(input: &mut Input<'_>, refs: &[WindowRef; 3]) -> Said {
    let kind = input.byte();
    match kind % 16 {
        0 => Said::Bytes { frame: false, bytes: input.piece().to_vec() },
        1 => {
            let bytes = input.piece().to_vec();
            match codec::decode(&bytes) {
                Ok(request) => Said::Request(request),
                Err(_) => Said::Bytes { frame: true, bytes },
            }
        }
        _ => {
            let meant = &refs[usize::from(kind / 16) % 3];
            let (window, generation) = match kind & 1 {
                0 => (meant.window, meant.generation),
                _ => (WindowId(input.number()), Generation(input.number())),
            };
            let range = ByteRange { start: input.number(), len: input.number() };
            let at = (kind & 2 != 0).then(|| RegionOffset(input.number()));
            Said::Request(Request { number: input.number(), window, generation, range, at })
        }
    }
}

/// # Panics
/// If an answer is not what it should be, or something stays lent.
pub fn check(data: &[u8]) {
    let served = Served::new();
    let mut input = Input::new(data);
    let said = input.many(REQUESTS_MAX, |input| read(input, &served.refs));
    // Up to what is no request.
    let requests: Vec<Request> = said
        .iter()
        .map_while(|said| match said {
            Said::Request(request) => Some(*request),
            Said::Bytes { .. } => None,
        })
        .collect();
    let is_broken = requests.len() < said.len();
    let [ours, theirs] = seals();
    let mut outward = theirs.outward;
    let bytes: Vec<Vec<u8>> = said
        .iter()
        .map(|said| match said {
            Said::Request(request) => sealed(request, &mut outward),
            Said::Bytes { frame: true, bytes } => sealed(&Raw(bytes), &mut outward),
            Said::Bytes { frame: false, bytes } => bytes.clone(),
        })
        .collect();

    let (mut reader, server) = duplex(4 << 20);
    let mut inward = theirs.inward;
    let listen = async {
        reader.write_all(&bytes.concat()).await.unwrap();
        let mut heard = 0;
        for request in &requests {
            let Some(frame) = next_frame(&mut reader).await else { break };
            let answer: Answer = frame::decode(&frame, 1 << 10, &mut inward).unwrap().unwrap();
            assert_eq!(answer.number, request.number);
            match (answer.result, served.expected(request)) {
                (Ok(tag), Ok(expected)) => {
                    let mut bytes = vec![0; expected.len()];
                    // The server may have gone in the middle of it because of what came next.
                    if reader.read_exact(&mut bytes).await.is_err() {
                        break;
                    }
                    assert!(bytes == expected && inward.check_content(&bytes, &tag).is_ok());
                }
                (Err(refused), Err(expected)) => assert_eq!(refused, expected),
                (told, expected) => panic!("{request:?}: told {told:?}, but {expected:?} is so"),
            }
            heard += 1;
        }
        drop(reader);
        heard
    };
    // Also of what is kept of this check's own: requests, answers, and the pipe between both.
    let most = (4 << 20) + 16 * CONTENT_BYTES + 64 * data.len();
    let (result, heard) = bounded(most, || {
        wait_for(async { tokio::join!(tcp::serve(server, ours, served.windows.clone()), listen) })
    });
    match result {
        Ok(()) => assert_eq!(heard, requests.len()),
        Err(error) => assert!(is_broken, "all was well: {error}"),
    }
    assert!(served.buffer.write(0, CONTENT_BYTES as u64).is_ok(), "nothing stays lent");
}

pub fn samples() -> Vec<Vec<u8>> {
    let Served { refs: [first, second, third], .. } = Served::new();
    let range = ByteRange { start: 8, len: 4000 };
    let request = |window: &WindowRef, range, at| {
        let request =
            Request { number: 300, window: window.window, generation: window.generation, range, at };
        [&[1][..], &piece(&codec::encode(&request).unwrap())].concat()
    };
    let edges = [(0, 5000), (5000, 0), (1, 5000), (u64::MAX, 2), (2, u64::MAX)];
    let edges = edges.map(|(start, len)| request(&third, ByteRange { start, len }, None)).concat();
    let good = [request(&first, range, None), request(&third, range, Some(RegionOffset(5)))].concat();
    let noise = [&[0][..], &piece(&[7; PRELUDE_BYTES])].concat();
    vec![
        good.clone(),
        [good.clone(), request(&second, range, None), good.clone()].concat(),
        edges,
        [good.clone(), noise, good.clone()].concat(),
        [&good[..], &[1], &piece(&[5; 9])].concat(),
        vec![2, 10, 20, 1, 18, 5, 6, 2, 34, 250, 3, 1, 9, 3, 50, 1, 2, 3, 4, 5],
    ]
}
