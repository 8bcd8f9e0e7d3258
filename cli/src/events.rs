//! `everfold run --events`: what happens to a job, as lines of JSON.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use everfold::launch::{JobEvent, Watcher};
use everfold_lab::{EventLine, Failure, note};

/// What adds the events of a job to `path`, each when it happens. Hosts may share the file, so none of them
/// empties it.
///
/// # Errors
/// The file cannot be added to.
pub fn write_to(path: &Path) -> Result<Watcher, Failure> {
    let failure = |error| Failure::new(format!("cannot write events to {}: {error}", path.display()));
    let log = Mutex::new(Log::open(path).map_err(failure)?);
    Ok(Watcher::new(move |event| log.lock().unwrap_or_else(PoisonError::into_inner).write(event)))
}

struct Log {
    path: PathBuf,
    /// Nothing once it could not be written.
    file: Option<File>,
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create(true).open(path)?;
        Ok(Self { path: path.to_owned(), file: Some(file) })
    }

    fn write(&mut self, event: JobEvent) {
        let Some(file) = &mut self.file else { return };
        // In one piece: somebody may be reading.
        if let Err(error) = file.write_all(EventLine::now(event).to_json().as_bytes()) {
            note!("everfold: cannot write events to {}: {error}; there will be no more", self.path.display());
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_share_a_file_lose_nothing() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("events");
        let mut first = Log::open(&path).unwrap();
        first.write(JobEvent::Begun);
        let mut second = Log::open(&path).unwrap();
        second.write(JobEvent::RolledBack { to: None });
        first.write(JobEvent::Begun);
        let lines = EventLine::read_all(&std::fs::read_to_string(&path).unwrap());
        let events: Vec<JobEvent> = lines.into_iter().map(|line| line.event).collect();
        assert_eq!(events, [JobEvent::Begun, JobEvent::RolledBack { to: None }, JobEvent::Begun]);
    }
}
