//! Carries the output of the processes to our own stdout and stderr, line by line.
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
//!
//! | module | holds |
//! |---|---|
//! | `lines` | makes whole lines of bytes, each with its prefix |
//! | `label` | how ranks are named in front of their lines |
//! | `stream` | one of our two streams, and the thread that writes to it |
//! | `forwarder` | reads what one process prints |

use std::io::{self, Write};

use self::{
    label::{Labels, Screen},
    stream::Stream,
};

mod forwarder;
mod label;
pub mod lines;
mod stream;

pub(super) use self::{forwarder::Forwarder, stream::Sink};

/// Our two streams.
pub(crate) struct Output {
    pub(crate) stdout: Stream,
    pub(crate) stderr: Stream,
}

impl Output {
    /// Unless `quiet`, what cannot be written to stdout is told on stderr.
    pub(crate) fn start(ranks: u32, prefix: bool, quiet: bool) -> io::Result<Self> {
        let start = |to: Box<dyn Write + Send>, screen, notices| {
            Stream::start(to, screen, prefix.then(|| Labels::new(ranks, screen)), notices)
        };
        let stderr = start(Box::new(io::stderr()), Screen::of(&io::stderr()), None)?;
        let notices = (!quiet).then(|| stderr.sink());
        let stdout = start(Box::new(io::stdout()), Screen::of(&io::stdout()), notices)?;
        Ok(Self { stdout, stderr })
    }

    /// Waits until all that was sent so far is written. Returns true if something could not be written.
    pub(crate) async fn finish(&self) -> bool {
        self.stdout.flush().await;
        // By now stdout has told here what it has lost.
        self.stderr.flush().await;
        self.stdout.has_lost() || self.stderr.has_lost()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use everfold_protocol::Rank;

    use super::{stream::notice_of_loss, *};

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
