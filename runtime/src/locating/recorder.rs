//! Writes down what a node sees and decides. `everfold rules learn` reads it, and people do.
//!
//! Lines are short and few, and written at once, so that a host that is killed has told all. What cannot be written is told in
//! the log, and then nothing more is recorded: the job goes on.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
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

/// The record of one node, if there is to be one.
#[derive(Debug)]
pub(super) struct Recorder {
    file: Option<File>,
    node: u32,
    bytes: u64,
}

impl Recorder {
    /// Begins to record in a file, behind what is there.
    pub fn begin(path: Option<&Path>, job: JobId, me: Host, hosts: &[HostRef]) -> Self {
        let node = getrandom::u32().unwrap_or_else(|_| std::process::id());
        let mut recorder = Self { file: None, node, bytes: 0 };
        let Some(path) = path else { return recorder };
        match open(path) {
            Ok((file, bytes)) => (recorder.file, recorder.bytes) = (Some(file), bytes),
            Err(error) => tracing::warn!(path = %path.display(), %error, "symptoms are not recorded"),
        }
        recorder.write(&heading(node, job, me, hosts));
        recorder
    }

    /// Adds a line about what happened then, as the node's clock says.
    pub fn note(&mut self, at: Timestamp, event: Event) {
        let line = Line { node: self.node, at: Duration::from_nanos(at.as_nanos()), event };
        self.write(&format!("{line}\n"));
    }

    fn write(&mut self, text: &str) {
        let Some(file) = &mut self.file else { return };
        self.bytes += text.len() as u64;
        let written = match self.bytes {
            ..=BYTES_MAX => file.write_all(text.as_bytes()),
            _ => Err(io::ErrorKind::FileTooLarge.into()),
        };
        if let Err(error) = written {
            tracing::warn!(%error, "symptoms are recorded no longer");
            self.file = None;
        }
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
        let length = || fs::metadata(&path).unwrap().len();
        let begun = length();
        assert!(begun > BYTES_MAX - 100, "there is room for the heading");
        (0..3).for_each(|_| note(&mut recorder));
        assert!(length() <= BYTES_MAX);
        assert!(recorder.file.is_none(), "it gives up");
    }
}
