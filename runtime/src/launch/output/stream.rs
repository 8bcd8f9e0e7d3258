//! One of our two streams, and the thread that writes to it.

use std::{
    io::{self, PipeWriter, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use everfold_protocol::Rank;
use tokio::{
    net::unix::pipe,
    sync::{mpsc, oneshot},
};

use super::{
    forwarder::Forwarder,
    label::{Labels, Screen},
    lines::Lines,
};

/// Blocks that may wait for being written.
const BLOCKS_MAX: usize = 16;

/// Between two attempts to write to a stream that someone has made non-blocking.
const RETRY: Duration = Duration::from_millis(1);

/// One of our streams, and the thread that writes to it.
pub(crate) struct Stream {
    sink: Sink,
    screen: Screen,
    labels: Option<Labels>,
    lost: Arc<AtomicBool>,
}

impl Stream {
    /// `notices` hears of the first output that is lost.
    pub(super) fn start(
        to: impl Write + Send + 'static,
        screen: Screen,
        labels: Option<Labels>,
        notices: Option<Sink>,
    ) -> io::Result<Self> {
        let (sink, items) = mpsc::channel(BLOCKS_MAX);
        let lost = Arc::new(AtomicBool::new(false));
        let lose = {
            let lost = lost.clone();
            move |error| {
                if !lost.swap(true, Ordering::Relaxed)
                    && let Some(notices) = &notices
                {
                    notices.send_blocking(notice_of_loss(&error));
                }
            }
        };
        std::thread::Builder::new()
            .name("everfold-output".to_owned())
            .spawn(move || write(items, to, lose))?;
        Ok(Self { sink: Sink { items: sink, begin: "" }, screen, labels, lost })
    }

    /// Whether a line that ends in a carriage return is overwritten by the next one.
    pub(crate) fn is_overwritten(&self) -> bool {
        self.screen.is_overwritten()
    }

    /// Whether something that was sent before the last [`flush`](Self::flush) could not be written.
    pub(super) fn has_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// A pipe for the output of `rank`: the end for the process, and what reads the other one.
    pub(crate) fn open(&self, rank: Rank) -> io::Result<(PipeWriter, Forwarder)> {
        let (reader, writer) = io::pipe()?;
        let pipe = pipe::Receiver::from_owned_fd(reader.into())?;
        let lines = Lines::new(self.labels.as_ref().map(|labels| labels.of(rank)));
        Ok((writer, Forwarder::new(pipe, lines, self.sink.clone())))
    }

    /// For lines of our own.
    pub(crate) fn sink(&self) -> Sink {
        Sink { begin: self.screen.erase(), ..self.sink.clone() }
    }

    /// Waits until all that was sent so far is written.
    pub(super) async fn flush(&self) {
        let (written, is_written) = oneshot::channel();
        if self.sink.items.send(Item::Mark(written)).await.is_ok() {
            let _ = is_written.await;
        }
    }
}

enum Item {
    /// Whole lines.
    Block(Vec<u8>),
    /// To be answered when everything before it is written.
    Mark(oneshot::Sender<()>),
}

/// Where whole lines go.
#[derive(Clone)]
pub(crate) struct Sink {
    items: mpsc::Sender<Item>,
    /// The text before each block.
    begin: &'static str,
}

impl Sink {
    /// Sends whole lines. Waits while too many are under way.
    pub(crate) async fn send(&self, block: impl Into<Vec<u8>>) {
        let block = block.into();
        if !block.is_empty() {
            let _ = self.items.send(self.item(block)).await;
        }
    }

    /// Sends whole lines, unless that means to wait.
    pub(crate) fn try_send(&self, block: impl Into<Vec<u8>>) {
        let _ = self.items.try_send(self.item(block.into()));
    }

    /// Sends whole lines from a thread outside of any runtime. Waits while too many are under way.
    fn send_blocking(&self, block: impl Into<Vec<u8>>) {
        let _ = self.items.blocking_send(self.item(block.into()));
    }

    fn item(&self, mut block: Vec<u8>) -> Item {
        block.splice(..0, self.begin.bytes());
        Item::Block(block)
    }
}

pub(super) fn notice_of_loss(error: &io::Error) -> String {
    format!("everfold: cannot write to standard output: {error}; output of the processes is lost\n")
}

/// Writes until nobody reads any more. What is sent after that goes nowhere, and nobody waits for it. `lose`
/// hears why a block could not be written.
fn write(mut items: mpsc::Receiver<Item>, mut to: impl Write, mut lose: impl FnMut(io::Error)) {
    while let Some(item) = items.blocking_recv() {
        match item {
            Item::Block(block) => match write_block(&mut to, &block) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return,
                Err(error) => lose(error),
            },
            Item::Mark(written) => drop(written.send(())),
        }
    }
}

/// Like `write_all` and `flush`, but a stream that would block is tried again.
///
/// Rank 0 shares our stdin. If that is the terminal our stdout is at, and rank 0 makes it non-blocking, so is
/// ours.
fn write_block(to: &mut impl Write, mut block: &[u8]) -> io::Result<()> {
    loop {
        let step = if block.is_empty() { to.flush().map(|()| 0) } else { to.write(block) };
        match step {
            Ok(_) if block.is_empty() => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => block = &block[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(RETRY),
            Err(error) => return Err(error),
        }
    }
}
