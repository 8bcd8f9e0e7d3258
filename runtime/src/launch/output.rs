//! Carries what the processes print to our own stdout and stderr, line by line.
//!
//! - Lines of different ranks never mix. With a prefix that holds for every byte: a line of more than 64 KiB
//!   is cut, and a last line without an end gets one. Without a prefix no byte is changed or added, so these
//!   two may touch the line of another rank.
//! - A carriage return ends a line like a newline does. A progress display is then shown as it moves, each
//!   state behind the prefix of its rank, instead of being held back until it is complete. On a terminal, a
//!   prefix and a line of our own first erase what such a display has left in the line.
//! - Memory is bounded. If our stdout is read slowly, the processes wait as they would without us.
//! - A closed pipe, as behind `| head -1`, is no error: the job goes on to its end, and what the processes
//!   print there is taken and dropped. They compute for hours, and a pager that ends must not end them.
//! - Any other failure, such as a full disk, loses output. The first one is told on stderr, and the exit code
//!   tells it, too. The next line is tried again: there may be room by then.
//!
//! Writing blocks, so each stream has a thread for it, and a terminal that was stopped does not stop the
//! supervisor.

use std::{
    io::{self, IsTerminal, PipeReader, PipeWriter, Read, Write},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use everfold_protocol::Rank;
use nix::fcntl::{FcntlArg, fcntl};
use tokio::{
    net::unix::pipe,
    sync::{mpsc, oneshot},
};

use super::terminal;

/// Longest line that is kept until its end is seen, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Most that is read at once, in bytes.
const READ_BYTES_MAX: usize = 16 << 10;
/// Blocks that may wait for being written.
const BLOCKS_MAX: usize = 16;
/// Between two attempts to write to a stream that someone has made non-blocking.
const RETRY: Duration = Duration::from_millis(1);

/// Our two streams.
pub(super) struct Output {
    pub(super) stdout: Stream,
    pub(super) stderr: Stream,
}

impl Output {
    /// Unless `quiet`, what cannot be written to stdout is told on stderr.
    pub(super) fn start(ranks: u32, prefix: bool, quiet: bool) -> io::Result<Self> {
        let start = |to: Box<dyn Write + Send>, screen, notices| {
            Stream::start(to, screen, prefix.then(|| Labels::new(ranks, screen)), notices)
        };
        let stderr = start(Box::new(io::stderr()), Screen::of(&io::stderr()), None)?;
        let notices = (!quiet).then(|| stderr.sink());
        let stdout = start(Box::new(io::stdout()), Screen::of(&io::stdout()), notices)?;
        Ok(Self { stdout, stderr })
    }

    /// Waits until all that was sent so far is written. Returns true if something could not be written.
    pub(super) async fn finish(&self) -> bool {
        self.stdout.flush().await;
        // By now stdout has told here what it has lost.
        self.stderr.flush().await;
        self.stdout.has_lost() || self.stderr.has_lost()
    }
}

/// See <https://no-color.org>.
fn wants_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// What can be done where one of our streams is shown.
#[derive(Clone, Copy, Debug, Default)]
struct Screen {
    is_coloured: bool,
    is_overwritten: bool,
}

impl Screen {
    fn of(stream: &impl IsTerminal) -> Self {
        Self {
            is_coloured: stream.is_terminal() && wants_colour(),
            is_overwritten: terminal::can_overwrite(stream),
        }
    }

    /// What a line begins with.
    fn erase(self) -> &'static str {
        if self.is_overwritten { terminal::ERASE } else { "" }
    }
}

/// One of our streams, and the thread that writes to it.
pub(super) struct Stream {
    sink: Sink,
    screen: Screen,
    labels: Option<Labels>,
    lost: Arc<AtomicBool>,
}

impl Stream {
    /// `notices` hears of the first output that is lost.
    fn start(
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
    pub(super) fn is_overwritten(&self) -> bool {
        self.screen.is_overwritten
    }

    /// Whether something that was sent before the last [`flush`](Self::flush) could not be written.
    fn has_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// A pipe for the output of `rank`: the end for the process, and what reads the other one.
    pub(super) fn open(&self, rank: Rank) -> io::Result<(PipeWriter, Forwarder)> {
        let (reader, writer) = io::pipe()?;
        let pipe = pipe::Receiver::from_owned_fd(reader.into())?;
        let lines = Lines::new(self.labels.as_ref().map(|labels| labels.of(rank)));
        Ok((writer, Forwarder { pipe, lines, sink: self.sink.clone() }))
    }

    /// For lines of our own.
    pub(super) fn sink(&self) -> Sink {
        Sink { begin: self.screen.erase(), ..self.sink.clone() }
    }

    /// Waits until all that was sent so far is written.
    async fn flush(&self) {
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
pub(super) struct Sink {
    items: mpsc::Sender<Item>,
    /// What is written before each block.
    begin: &'static str,
}

impl Sink {
    /// Sends whole lines. Waits while too many are under way.
    pub(super) async fn send(&self, block: impl Into<Vec<u8>>) {
        let block = block.into();
        if !block.is_empty() {
            let _ = self.items.send(self.item(block)).await;
        }
    }

    /// Sends whole lines, unless that means to wait.
    pub(super) fn try_send(&self, block: impl Into<Vec<u8>>) {
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

fn notice_of_loss(error: &io::Error) -> String {
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

/// Reads one stream of one process.
pub(super) struct Forwarder {
    pipe: pipe::Receiver,
    lines: Lines,
    sink: Sink,
}

impl Forwarder {
    /// Forwards until the stream ends, or until the process has `ended` and what it left in the pipe is read.
    ///
    /// A process may leave others behind that keep the pipe open. They are not waited for.
    pub(super) async fn run(self, ended: impl Future<Output = ()>) {
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

/// How the ranks are named in front of their lines.
struct Labels {
    digits: usize,
    screen: Screen,
}

impl Labels {
    fn new(ranks: u32, screen: Screen) -> Self {
        Self { digits: ranks.saturating_sub(1).to_string().len(), screen }
    }

    fn of(&self, rank: Rank) -> Vec<u8> {
        let Self { digits, screen } = *self;
        // Cyan, green, yellow, magenta, blue. Red is left to those who have something to warn of.
        let colour = [36, 32, 33, 35, 34][rank.index() % 5];
        let label = format!("[{:digits$}]", rank.0);
        let label = if screen.is_coloured { format!("\x1b[{colour}m{label}\x1b[0m") } else { label };
        format!("{}{label} ", screen.erase()).into_bytes()
    }
}

/// Makes whole lines of the bytes of one stream.
struct Lines {
    label: Option<Vec<u8>>,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
    /// The last line ended in a carriage return. A newline that follows belongs to it.
    after_return: bool,
}

impl Lines {
    fn new(label: Option<Vec<u8>>) -> Self {
        Self { label, partial: Vec::new(), after_return: false }
    }

    /// Reads once. Tells how many bytes that were and the lines that they complete, or `None` at the end.
    fn read(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<(usize, Vec<u8>)>> {
        // On the stack, so that thousands of silent streams need no memory.
        let mut bytes = [0; READ_BYTES_MAX];
        let count = read(&mut bytes)?;
        Ok((count > 0).then(|| (count, self.push(&bytes[..count]))))
    }

    /// The lines that `bytes` complete.
    fn push(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut block = Vec::with_capacity(self.partial.len() + bytes.len());
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                block.push(first);
                bytes = &bytes[1..];
                continue;
            }
            let room = LINE_BYTES_MAX - self.partial.len();
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let line = match end {
                Some(end) if end <= room => &bytes[..=end],
                _ if bytes.len() > room => &bytes[..room],
                _ => {
                    self.partial.extend_from_slice(bytes);
                    break;
                }
            };
            self.emit(line, &mut block);
            self.after_return = line.last() == Some(&b'\r');
            bytes = &bytes[line.len()..];
        }
        block
    }

    /// What is left when the stream has ended.
    fn finish(mut self) -> Vec<u8> {
        let mut block = Vec::new();
        if !self.partial.is_empty() {
            self.emit(&[], &mut block);
        }
        block
    }

    /// Adds a line that begins with the partial one and ends with `end`.
    fn emit(&mut self, end: &[u8], block: &mut Vec<u8>) {
        block.extend(self.label.iter().flatten());
        block.append(&mut self.partial);
        block.extend_from_slice(end);
        if self.label.is_some() && !matches!(end.last(), Some(b'\n' | b'\r')) {
            block.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Everything that comes out if `input` arrives in pieces of `step` bytes.
    fn through(label: Option<&str>, input: &[u8], step: usize) -> Vec<u8> {
        let mut lines = Lines::new(label.map(Into::into));
        let mut output: Vec<u8> = input.chunks(step).flat_map(|piece| lines.push(piece)).collect();
        output.extend(lines.finish());
        output
    }

    #[test]
    fn every_line_gets_its_prefix_however_it_arrives() {
        let cases: [(&[u8], &[u8]); 8] = [
            (b"", b""),
            (b"a\nbc\n", b"[3] a\n[3] bc\n"),
            (b"\n\n", b"[3] \n[3] \n"),
            (b"no end", b"[3] no end\n"),
            (b"10%\r20%\rdone\n", b"[3] 10%\r[3] 20%\r[3] done\n"),
            (b"from\r\nelsewhere\r\n\r\n", b"[3] from\r\n[3] elsewhere\r\n[3] \r\n"),
            (b"\r", b"[3] \r"),
            (b"\xff\xfe\0\n\x80", b"[3] \xff\xfe\0\n[3] \x80\n"),
        ];
        for (input, expected) in cases {
            for step in 1..=input.len().max(1) {
                let (marked, plain) = (through(Some("[3] "), input, step), through(None, input, step));
                assert_eq!((marked.as_slice(), plain.as_slice()), (expected, input), "by {step}");
            }
        }
    }

    #[test]
    fn a_long_line_is_cut() {
        const MAX: usize = LINE_BYTES_MAX;
        for length in [MAX - 1, MAX, MAX + 1, 5 * MAX / 2] {
            let mut input = vec![b'x'; length];
            input.push(b'\n');
            for step in [1000, MAX, MAX + 1, input.len()] {
                let output = through(Some("> "), &input, step);
                let pieces: Vec<_> = output.split_inclusive(|byte| *byte == b'\n').collect();
                assert_eq!(pieces.len(), length.div_ceil(MAX), "{length} by {step}");
                let is_whole = |piece: &&[u8]| piece.starts_with(b"> x") && piece.ends_with(b"x\n");
                assert!(pieces.iter().all(is_whole), "{length} by {step}");
                assert_eq!(output.iter().filter(|byte| **byte == b'x').count(), length);
                assert_eq!(through(None, &input, step), input);
            }
        }
    }

    #[test]
    fn labels_are_aligned_and_coloured() {
        let label = |ranks, is_coloured, rank| {
            Labels::new(ranks, Screen { is_coloured, ..Screen::default() }).of(Rank(rank))
        };
        assert_eq!(label(1, false, 0), b"[0] ");
        assert_eq!(label(10, false, 9), b"[9] ");
        assert_eq!(label(11, false, 9), b"[ 9] ");
        assert_eq!(label(4096, false, 42), b"[  42] ");
        assert_eq!(label(8, true, 6), b"\x1b[32m[6]\x1b[0m ");
        let screen = Screen { is_overwritten: true, ..Screen::default() };
        assert_eq!(Labels::new(8, screen).of(Rank(6)), b"\x1b[K[6] ");
    }

    /// A stream that takes only so many bytes, and those only in small pieces and at every second attempt.
    struct Reluctant {
        taken: Arc<Mutex<Vec<u8>>>,
        room: usize,
        attempts: usize,
    }

    impl Write for Reluctant {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.attempts += 1;
            let mut taken = self.taken.lock().unwrap();
            if self.attempts.is_multiple_of(2) {
                return Err(io::ErrorKind::WouldBlock.into());
            } else if taken.len() >= self.room {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let count = bytes.len().min(7);
            taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn reluctant(room: usize, labels: Option<Labels>) -> (Stream, Arc<Mutex<Vec<u8>>>) {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let to = Reluctant { taken: taken.clone(), room, attempts: 0 };
        (Stream::start(to, Screen::default(), labels, None).unwrap(), taken)
    }

    /// A disk that has no room for the first `full` blocks.
    struct Disk {
        taken: Arc<Mutex<Vec<u8>>>,
        full: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.full > 0 {
                self.full -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.taken.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_broken_stream_is_drained() {
        let (stream, taken) = reluctant(10, None);
        let (mut writer, forwarder) = stream.open(Rank(0)).unwrap();
        let process = std::thread::spawn(move || writer.write_all(&b"0123456789\n".repeat(100_000)));
        forwarder.run(std::future::pending()).await;
        stream.flush().await;
        process.join().unwrap().unwrap();
        assert_eq!(*taken.lock().unwrap(), b"0123456789\n012");
    }

    #[tokio::test]
    async fn what_is_lost_is_told_once_and_the_next_line_is_tried_again() {
        let (notices, said) = reluctant(usize::MAX, None);
        let taken = Arc::new(Mutex::new(Vec::new()));
        let disk = Disk { taken: taken.clone(), full: 2 };
        let stream = Stream::start(disk, Screen::default(), None, Some(notices.sink())).unwrap();
        for line in ["one\n", "two\n", "three\n"] {
            stream.sink().send(line).await;
        }
        let output = Output { stdout: stream, stderr: notices };
        assert!(output.finish().await);
        assert_eq!(*taken.lock().unwrap(), b"three\n");
        let said = String::from_utf8(said.lock().unwrap().clone()).unwrap();
        assert_eq!(said, notice_of_loss(&io::ErrorKind::StorageFull.into()));
    }

    #[tokio::test]
    async fn a_closed_pipe_is_no_loss() {
        let ((stdout, _), (stderr, said)) = (reluctant(0, None), reluctant(usize::MAX, None));
        stdout.sink().send("nobody reads this\n").await;
        let output = Output { stdout, stderr };
        assert!(!output.finish().await);
        assert!(said.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_an_ended_process_left_is_read_and_nobody_else_is_waited_for() {
        let (stream, taken) = reluctant(usize::MAX, Some(Labels::new(2, Screen::default())));
        let (mut writer, forwarder) = stream.open(Rank(1)).unwrap();
        writer.write_all(b"one\ntwo").unwrap();
        forwarder.run(std::future::ready(())).await;
        stream.flush().await;
        assert_eq!(*taken.lock().unwrap(), b"[1] one\n[1] two\n");
    }
}
