//! `everfold run --events`: what happens to a job, as lines of JSON.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use everfold::launch::{JobEvent, Watcher};
use everfold_lab::{EventLine, Failure, note};

/// What writes the events of a job to `path`, each when it happens.
///
/// # Errors
/// The file cannot be made.
pub fn write_to(path: &Path) -> Result<Watcher, Failure> {
    let failure = |error| Failure::new(format!("cannot write events to {}: {error}", path.display()));
    let log = Mutex::new(Log { path: path.to_owned(), file: Some(File::create(path).map_err(failure)?) });
    Ok(Watcher::new(move |event| log.lock().unwrap_or_else(PoisonError::into_inner).write(event)))
}

struct Log {
    path: PathBuf,
    /// Nothing once it could not be written.
    file: Option<File>,
}

impl Log {
    fn write(&mut self, event: JobEvent) {
        let Some(file) = &mut self.file else { return };
        // In one piece: somebody may be reading.
        if let Err(error) = file.write_all(EventLine::now(event).to_json().as_bytes()) {
            note!("everfold: cannot write events to {}: {error}; there will be no more", self.path.display());
            self.file = None;
        }
    }
}
