//! Reads what one process prints.

use std::{
    io::{self, PipeReader, Read},
    pin::pin,
};

use nix::fcntl::{FcntlArg, fcntl};
use tokio::net::unix::pipe;

use super::{lines::Lines, stream::Sink};

/// Reads one stream of one process.
pub(crate) struct Forwarder {
    pipe: pipe::Receiver,
    lines: Lines,
    sink: Sink,
}

impl Forwarder {
    pub(super) fn new(pipe: pipe::Receiver, lines: Lines, sink: Sink) -> Self {
        Self { pipe, lines, sink }
    }

    /// Forwards until the stream ends, or until the process has `ended` and what it left in the pipe is read.
    ///
    /// A process may leave others behind that keep the pipe open. They are not waited for.
    pub(crate) async fn run(self, ended: impl Future<Output = ()>) {
        let Self { pipe, mut lines, sink } = self;
        let mut ended = pin!(ended);
        loop {
            tokio::select! {
                Ok(()) = pipe.readable() => {}
                () = &mut ended => break,
            }
            match lines.read(|bytes| pipe.try_read(bytes)) {
                Ok(Some((_, block))) => sink.send(block).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(None) | Err(_) => break,
            }
        }
        // The runtime need not have noticed yet what was written last, but the pipe knows.
        if let Ok(pipe) = pipe.into_nonblocking_fd() {
            let mut left = fcntl(&pipe, FcntlArg::F_GETPIPE_SZ).unwrap_or(0) as usize;
            let mut pipe = PipeReader::from(pipe);
            while left > 0
                && let Ok(Some((count, block))) = lines.read(|bytes| pipe.read(bytes))
            {
                left = left.saturating_sub(count);
                sink.send(block).await;
            }
        }
        sink.send(lines.finish()).await;
    }
}
