//! Answers from the owner's windows.

use std::{io, sync::Arc};

use bytes::Buf;
use everfold_protocol::{frame, seal::Seal};
use futures::{
    FutureExt,
    stream::{FuturesUnordered, StreamExt},
};
use tokio::{
    io::{AsyncWriteExt, BufReader, ReadHalf, WriteHalf},
    sync::mpsc,
};

use super::{
    super::{
        control::{Stream, read_frame},
        handshake::{HandshakeError, Seals},
    },
    words::{Answer, Bytes, FRAME_BYTES_MAX, READ_AHEAD_BYTES, Refused, Request},
};
use crate::memory::window::{Shelf, WindowError};

/// Requests that wait for the answers before them; further ones wait at their reader.
const REQUESTS_MAX: usize = 64;
/// Answers that are read from a disk at the same time.
const DISK_READS_MAX: usize = 16;

/// Answers one connection until the peer hangs up.
///
/// A range is leased when its answer is about to be written, one at a time: a reader that asks and does not
/// listen holds up one range of one window.
///
/// # Errors
/// The connection broke in the middle of something, or the peer does not keep to the protocol.
pub async fn serve(
    stream: impl Stream,
    Seals { outward, inward }: Seals,
    shelf: Arc<impl Shelf>,
) -> Result<(), HandshakeError> {
    let (reader, writer) = tokio::io::split(stream);
    let (asked, requests) = mpsc::channel(REQUESTS_MAX);
    tokio::select! {
        heard = take_requests(reader, inward, asked) => heard,
        told = answer(writer, outward, requests, shelf) => told,
    }
}

async fn take_requests(
    reader: ReadHalf<impl Stream>,
    mut seal: Seal,
    asked: mpsc::Sender<Request>,
) -> Result<(), HandshakeError> {
    let mut reader = BufReader::with_capacity(READ_AHEAD_BYTES, reader);
    loop {
        match read_frame(&mut reader, FRAME_BYTES_MAX, &mut seal).await {
            Err(HandshakeError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            request => drop(asked.send(request?).await),
        }
    }
}

async fn answer(
    mut writer: WriteHalf<impl Stream>,
    mut seal: Seal,
    mut requests: mpsc::Receiver<Request>,
    shelf: Arc<impl Shelf>,
) -> Result<(), HandshakeError> {
    let mut bytes = Vec::new();
    let mut from_disk = FuturesUnordered::new();
    loop {
        let (number, read) = tokio::select! {
            Some(read) = from_disk.next() => read,
            Some(Request { number, window, generation, range, at }) = requests.recv(),
                if from_disk.len() < DISK_READS_MAX =>
            {
                let shelf = shelf.clone();
                let mut read =
                    Box::pin(async move { (number, shelf.read(window, generation, range, at).await) });
                match (&mut read).now_or_never() {
                    Some(read) => read,
                    None => {
                        from_disk.push(read);
                        continue;
                    }
                }
            }
            else => return Ok(()),
        };
        let (result, held) = match read {
            Ok(held) => (Ok(Bytes { tag: seal.seal_content(&held) }), Some(held)),
            Err(WindowError::Released) => (Err(Refused::Released), None),
            Err(WindowError::Range { .. }) => (Err(Refused::OutOfRange), None),
            Err(WindowError::Damaged) => (Err(Refused::Damaged), None),
            Err(WindowError::NoRoom(reason)) => (Err(Refused::NoRoom(reason)), None),
        };
        bytes.clear();
        frame::encode_into(&Answer { number, result }, FRAME_BYTES_MAX, &mut seal, &mut bytes)?;
        let content = held.as_deref().unwrap_or_default();
        writer.write_all_buf(&mut Buf::chain(&bytes[..], content)).await?;
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::message::ByteRange;

    use super::*;

    use crate::memory::{
        buffer::Buffer,
        window::{Content, Windows},
    };

    /// A reader that asks and asks, and takes no answer.
    #[tokio::test]
    async fn who_does_not_listen_holds_up_one_range() {
        const RANGES: u64 = 1000;
        let windows = Arc::new(Windows::new(None));
        let buffer = Buffer::new(Box::new(vec![1u8; RANGES as usize]));
        let window = windows.publish(Content::Buffer(buffer.clone())).unwrap();
        let (mut reader, server) = tokio::io::duplex(8);
        let seals = || Seals { outward: Seal::of_strangers(), inward: Seal::of_strangers() };
        tokio::spawn(serve(server, seals(), windows));
        let asking = tokio::spawn(async move {
            let mut seal = Seal::of_strangers();
            for start in 0..RANGES {
                let range = ByteRange { start, len: 1 };
                let (window, generation) = (window.window, window.generation);
                let request = Request { number: start, window, generation, range, at: None };
                let mut bytes = Vec::new();
                frame::encode_into(&request, FRAME_BYTES_MAX, &mut seal, &mut bytes).unwrap();
                reader.write_all(&bytes).await.unwrap();
            }
            reader
        });
        // Everything happens on this thread: until nothing more does.
        for _ in 0..100 * RANGES {
            tokio::task::yield_now().await;
        }
        let held = (0..RANGES).filter(|start| buffer.write(*start, 1).is_err()).count();
        assert_eq!(held, 1);
        assert!(!asking.is_finished(), "the server takes no request before it can answer");
    }
}
