//! A temporary folder for one run, and the removal of those of runs that were killed.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use tempfile::TempDir;

const PREFIX: &str = "everfold-scratch-";

/// A folder that is removed with this value. While it exists it is locked; the kernel unlocks it when this
/// process ends, however it ends.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// Removes what killed runs left in `parent`, and makes a new folder there.
    pub fn new_in(parent: &Path) -> io::Result<Self> {
        remove_orphans(parent)?;
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            let lock = File::open(folder.path())?;
            // Another run may take it for an orphan until it is locked.
            if lock.try_lock().is_ok() && is_at(&lock, folder.path()) {
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn remove_orphans(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|metadata| metadata.is_dir());
        if is_ours
            && let Ok(lock) = File::open(entry.path())
            && lock.try_lock().is_ok()
        {
            // What cannot be removed now, such as another user's, is left for later.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let there = fs::metadata(path).map(identity);
    file.metadata().map(identity).is_ok_and(|ours| there.is_ok_and(|there| there == ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orphans_are_removed_and_the_living_are_not() {
        let parent = tempfile::tempdir().unwrap();
        let living = Scratch::new_in(parent.path()).unwrap();
        let orphan = parent.path().join("everfold-scratch-orphan");
        fs::create_dir_all(orphan.join("trial")).unwrap();
        let foreign = parent.path().join("something else");
        fs::create_dir(&foreign).unwrap();
        let second = Scratch::new_in(parent.path()).unwrap();
        assert!(living.path().is_dir() && second.path().is_dir() && foreign.is_dir());
        assert!(!orphan.exists());
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
    }
}
