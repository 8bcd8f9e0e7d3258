//! Asking and hearing over one connection.

use std::{
    io,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use everfold_protocol::{Generation, RegionOffset, WindowId, frame, message::ByteRange, seal::Seal};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, ReadBuf, WriteHalf},
    sync::{mpsc, oneshot},
};

use super::{
    super::{
        ReadError,
        control::{BoxStream, read_frame},
        handshake::{HandshakeError, Seals},
        staging::{Pool, Staging},
    },
    patience::lose_patience,
    pending::Pending,
    words::{Answer, Bytes, FRAME_BYTES_MAX, READ_AHEAD_BYTES, Refused, Request},
};

/// A read that somebody waits for.
#[derive(Debug)]
pub(super) struct Asked {
    pub window: WindowId,
    pub generation: Generation,
    pub range: ByteRange,
    pub at: Option<RegionOffset>,
    pub answer: oneshot::Sender<Result<Staging, ReadError>>,
}

/// Asks and listens until the connection breaks, or brings nothing for too long although reads wait. They
/// then hear it, because nobody is left to answer.
pub(super) async fn converse(
    stream: BoxStream,
    Seals { outward, inward }: Seals,
    mut requests: mpsc::UnboundedReceiver<Asked>,
    pool: &Pool,
    patience: Option<Duration>,
) {
    let (reader, writer) = tokio::io::split(stream);
    let (pending, heard_bytes) = (Pending::default(), AtomicU64::new(0));
    let reader = Counted { reader, bytes: &heard_bytes };
    let result = tokio::select! {
        asked = ask(writer, outward, &mut requests, &pending) => asked,
        heard = hear(reader, inward, &pending, pool) => heard,
        () = lose_patience(patience, &heard_bytes, &pending) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "it brings nothing").into())
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection for reading broke");
    }
}

/// Counts the bytes that come.
struct Counted<'a, R> {
    reader: R,
    bytes: &'a AtomicU64,
}

impl<R: AsyncRead + Unpin> AsyncRead for Counted<'_, R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.reader).poll_read(context, into);
        self.bytes.fetch_add((into.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

async fn ask(
    mut writer: WriteHalf<BoxStream>,
    mut seal: Seal,
    requests: &mut mpsc::UnboundedReceiver<Asked>,
    pending: &Pending,
) -> Result<(), HandshakeError> {
    let mut batch = Vec::new();
    let mut bytes = Vec::new();
    let mut next = 0;
    while requests.recv_many(&mut batch, 64).await > 0 {
        bytes.clear();
        for Asked { window, generation, range, at, answer } in batch.drain(..) {
            // Nobody waits for reads that were given up.
            if !answer.is_closed() {
                let request = Request { number: next, window, generation, range, at };
                frame::encode_into(&request, FRAME_BYTES_MAX, &mut seal, &mut bytes)?;
                pending.add(next, (range, answer));
                next += 1;
            }
        }
        writer.write_all(&bytes).await?;
    }
    Ok(())
}

async fn hear(
    reader: impl AsyncRead + Unpin,
    mut seal: Seal,
    pending: &Pending,
    pool: &Pool,
) -> Result<(), HandshakeError> {
    let mut reader = BufReader::with_capacity(READ_AHEAD_BYTES, reader);
    loop {
        let Answer { number, result } = read_frame(&mut reader, FRAME_BYTES_MAX, &mut seal).await?;
        let asked = pending.take(number);
        let unasked = || io::Error::new(io::ErrorKind::InvalidData, "an answer to no request");
        let (range, answer) = asked.ok_or_else(unasked)?;
        let result = match result {
            Ok(Bytes { tag }) => {
                let mut staging = pool.take(range.len as usize);
                reader.read_exact(&mut staging).await?;
                seal.check_content(&staging, &tag).map(|()| staging).map_err(|_| ReadError::Checksum)
            }
            Err(Refused::Released) => Err(ReadError::Released),
            Err(Refused::OutOfRange) => Err(ReadError::Range { start: range.start, end: range.end() }),
            Err(Refused::Damaged) => Err(ReadError::Damaged),
            Err(Refused::NoRoom(reason)) => Err(ReadError::NoRoom(reason)),
        };
        let _ = answer.send(result);
    }
}
