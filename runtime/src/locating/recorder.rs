//! Writes down what a node sees and decides. `everfold rules learn` reads it, and people do.
//!
//! A thread of its own writes, as a disk may hang, and the agent's thread, where the master may live, must
//! not. Lines are short and few, and written as they come. What cannot be written is told in the log, and
//! then nothing more is recorded: the job goes on.

use std::{
    convert::Infallible,
    fs::File,
    io::{self, Write},
    path::Path,
    sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    time::Duration,
};

use everfold_locate::{
    learn::record::{Event, Line},
    place::Host,
};
use everfold_protocol::{
    JobId, Timestamp,
    locating::{HostName, HostRef},
};

use super::told;

/// A file that is longer is not added to.
const BYTES_MAX: u64 = 16 << 20;
/// Lines that wait for the disk. With more, it is given up.
const LINES_MAX: usize = 4096;
/// How long the end of the job waits until all lines are written.
const PATIENCE: Duration = Duration::from_secs(1);

/// The record of one node, if there is to be one.
#[derive(Debug)]
pub(super) struct Recorder {
    node: u32,
    /// To the thread that writes, as long as it can.
    lines: Option<SyncSender<String>>,
    /// Closed when that thread ends.
    written: Receiver<Infallible>,
}

impl Recorder {
    /// Begins to record in a file, behind what is there.
    pub fn begin(path: Option<&Path>, job: JobId, me: Host, hosts: &[HostRef]) -> Self {
        let node = getrandom::u32().unwrap_or_else(|_| std::process::id());
        let (writing, written) = channel();
        let start = |path: &Path| {
            let (lines, to_write) = sync_channel(LINES_MAX);
            let (path, heading) = (path.to_owned(), heading(node, job, me, hosts));
            let write = move || write_all(&path, &heading, to_write, writing);
            let thread = std::thread::Builder::new().name("everfold-record".to_owned()).spawn(write);
            thread.inspect_err(|error| tracing::warn!(%error, "symptoms are not recorded")).ok()?;
            Some(lines)
        };
        Self { node, lines: path.and_then(start), written }
    }

    /// Adds a line about what happened then, as the node's clock says.
    pub fn note(&mut self, at: Timestamp, event: Event) {
        let Some(lines) = &self.lines else { return };
        let line = Line { node: self.node, at: Duration::from_nanos(at.as_nanos()), event };
        if lines.try_send(format!("{line}\n")).is_err() {
            tracing::warn!("symptoms are recorded no longer");
            self.lines = None;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.lines.take().is_some() {
            let _ = self.written.recv_timeout(PATIENCE);
        }
    }
}

/// Writes the heading and all lines that come. The end of it closes `_writing`.
fn write_all(path: &Path, heading: &str, lines: Receiver<String>, _writing: Sender<Infallible>) {
    let written = open(path).and_then(|(mut file, mut bytes)| {
        for text in std::iter::once(heading.to_owned()).chain(lines) {
            bytes += text.len() as u64;
            if bytes > BYTES_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            file.write_all(text.as_bytes())?;
        }
        Ok(())
    });
    if let Err(error) = written {
        tracing::warn!(path = %path.display(), %error, "symptoms are not recorded");
    }
}

/// The file, and how long it is.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = File::options().append(true).create(true).open(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

/// Says which node it is, and which hosts its job has. The empty line ends one that was cut off.
fn heading(node: u32, JobId(job): JobId, Host(me): Host, hosts: &[HostRef]) -> String {
    let mut text = format!("\n# {node:08x} is the node of host{me} in job {job:x}.\n");
    for host in (0..hosts.len() as u32).map(Host) {
        let HostName { address, ranks } = told::name(host, hosts);
        text += &format!("# host{}: {address}, ranks {ranks}\n", host.0);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use everfold_locate::{learn::record, place::Place, symptom::Kind};

    use super::*;

    fn recorder(path: &Path) -> Recorder {
        Recorder::begin(Some(path), JobId(7), Host(0), &[])
    }

    fn note(recorder: &mut Recorder) {
        let place = Place::Host(Host(0));
        let seen = Event::Seen { kind: Kind::Steal, place, witness: Host(0), value: 0.5 };
        recorder.note(Timestamp::from_nanos(1_500_000_000), seen);
    }

    #[test]
    fn what_was_recorded_can_be_read_also_behind_a_line_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("symptoms");
        note(&mut recorder(&path));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text + "# cut o").unwrap();
        note(&mut recorder(&path));
        let lines = record::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].at, Duration::from_millis(1500));
        assert_ne!(lines[0].node, lines[1].node);
    }

    #[test]
    fn a_file_that_is_full_or_none_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        note(&mut recorder(folder.path()));
        let path = folder.path().join("symptoms");
        let file = File::create(&path).unwrap();
        file.set_len(BYTES_MAX - 100).unwrap();
        let mut recorder = recorder(&path);
        (0..3).for_each(|_| note(&mut recorder));
        drop(recorder);
        let length = fs::metadata(&path).unwrap().len();
        assert!(length > BYTES_MAX - 100, "there is room for the heading");
        assert!(length <= BYTES_MAX, "it gives up");
    }
}
