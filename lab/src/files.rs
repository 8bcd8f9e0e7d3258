//! Files that a user asks for: looked at before something is measured, and named if they cannot be written.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    path::Path,
};

use crate::Failure;

/// Checks that `path` can be written, before there are results to lose. Leaves everything as it was.
pub fn check(path: &Path) -> Result<(), Failure> {
    let opened = match File::options().write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match path.is_file() || path.is_dir() {
            true => File::options().append(true).open(path).map(drop),
            // Who reads a pipe takes it for empty once we close it.
            false => Ok(()),
        },
        Err(error) => Err(error),
    };
    opened.map_err(|error| failure(path, error))
}

/// Writes a file.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    fs::write(path, contents).map_err(|error| failure(path, error))
}

/// Makes a folder, and those above it.
pub fn make_folder(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| failure(path, error))
}

fn failure(path: &Path, error: io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_cannot_be_written_is_named_and_nothing_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let names = || fs::read_dir(folder.path()).unwrap().count();
        for bad in [path("missing/figures.json"), folder.path().to_owned()] {
            for result in [check(&bad), write(&bad, "[]")] {
                let Failure { message, .. } = result.unwrap_err();
                assert!(message.starts_with(&format!("{}: ", bad.display())), "{message}");
            }
        }
        check(&path("new")).unwrap();
        assert_eq!(names(), 0, "it is not there before there is something in it");
        fs::write(path("old"), "figures").unwrap();
        symlink("nowhere", path("link")).unwrap();
        for name in ["old", "link"] {
            check(&path(name)).unwrap();
        }
        assert_eq!((names(), fs::read_to_string(path("old")).unwrap().as_str()), (2, "figures"));
    }
}
