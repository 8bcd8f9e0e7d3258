//! What a job stores, and how it is spoilt.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::statvfs::statvfs,
};

/// Gives this process mounts of its own, which the kernel removes with it. To be called before there are
/// threads.
pub fn keep_mounts_to_ourselves() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    Ok(mount(None::<&Path>, "/", None::<&Path>, private, None::<&Path>)?)
}

/// The folder that a job stores in.
#[derive(Debug)]
pub struct Storage {
    folder: PathBuf,
    is_mounted: bool,
}

impl Storage {
    /// Makes `folder`; on a file system of its own if it `can_be_filled`, for which
    /// [`keep_mounts_to_ourselves`] is necessary.
    pub fn new(folder: PathBuf, can_be_filled: bool) -> io::Result<Self> {
        fs::create_dir(&folder)?;
        if can_be_filled {
            mount(Some("tmpfs"), &folder, Some("tmpfs"), MsFlags::empty(), Some("mode=700"))?;
        }
        Ok(Self { folder, is_mounted: can_be_filled })
    }

    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Leaves no room: the file system becomes as small as what is in it.
    pub fn fill(&self) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            let used = statvfs(&self.folder)?;
            let used_bytes = (used.blocks() - used.blocks_free()).max(1) * used.fragment_size();
            let size = format!("size={used_bytes}");
            match mount(None::<&Path>, &self.folder, None::<&Path>, MsFlags::MS_REMOUNT, Some(&size[..])) {
                // More has been written meanwhile.
                Err(Errno::EINVAL) => {}
                result => return Ok(result?),
            }
        }
        Err(io::Error::other("the job writes faster than its disk can be filled"))
    }

    /// Changes up to `bytes` bytes somewhere in a file. False if there is none.
    pub fn corrupt(&self, choice: u64, bytes: u32) -> io::Result<Option<PathBuf>> {
        let mut files: Vec<(PathBuf, u64)> = walkdir::WalkDir::new(&self.folder)
            .sort_by_file_name()
            .into_iter()
            // Files come and go.
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_file())
            .filter_map(|entry| Some((entry.path().to_owned(), entry.metadata().ok()?.len())))
            .filter(|(_, length)| *length > 0)
            .collect();
        if files.is_empty() {
            return Ok(None);
        }
        let (path, length) = files.swap_remove((choice % files.len() as u64) as usize);
        let file = match File::options().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let begin = choice.rotate_left(32) % length;
        let mut changed = vec![0; u64::from(bytes).min(length - begin) as usize];
        let count = file.read_at(&mut changed, begin)?;
        for (index, byte) in changed[..count].iter_mut().enumerate() {
            // Never zero, so each of them changes.
            *byte ^= (choice.rotate_right(index as u32) as u8) | 1;
        }
        file.write_all_at(&changed[..count], begin)?;
        let name = path.strip_prefix(&self.folder).unwrap_or(&path);
        Ok(Some(name.to_owned()))
    }
}

/// How often a file system that grows is made smaller.
const ATTEMPTS: u32 = 1000;

impl Drop for Storage {
    fn drop(&mut self) {
        if self.is_mounted {
            // It goes as soon as nobody uses it.
            let _ = umount2(&self.folder, MntFlags::MNT_DETACH);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, thread};

    use super::*;

    #[test]
    fn a_few_bytes_of_one_file_change() {
        let parent = tempfile::tempdir().unwrap();
        let storage = Storage::new(parent.path().join("storage"), false).unwrap();
        assert_eq!(storage.corrupt(1, 8).unwrap(), None);
        fs::write(storage.path().join("empty"), []).unwrap();
        assert_eq!(storage.corrupt(1, 8).unwrap(), None);
        fs::create_dir(storage.path().join("sub")).unwrap();
        let content: BTreeMap<&str, Vec<u8>> =
            [("a", vec![7; 1000]), ("b", vec![9; 3]), ("sub/c", vec![0; 100])].into();
        for choice in (0..64).map(|number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            for (name, bytes) in &content {
                fs::write(storage.path().join(name), bytes).unwrap();
            }
            let hit = storage.corrupt(choice, 8).unwrap().unwrap();
            for (name, bytes) in &content {
                let now = fs::read(storage.path().join(name)).unwrap();
                assert_eq!(now.len(), bytes.len());
                let changed = now.iter().zip(bytes).filter(|(a, b)| a != b).count();
                assert_eq!((1..=8).contains(&changed), hit == Path::new(name), "{name}: {changed}");
            }
        }
    }

    #[test]
    fn a_full_disk_takes_no_more() {
        let test = || {
            if let Err(error) = keep_mounts_to_ourselves() {
                return crate::leave_out(error);
            }
            let parent = tempfile::tempdir().unwrap();
            let folder = parent.path().join("storage");
            let storage = Storage::new(folder.clone(), true).unwrap();
            fs::write(folder.join("before"), vec![1; 100_000]).unwrap();
            storage.fill().unwrap();
            let refused = fs::write(folder.join("after"), vec![1; 100_000]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
            assert_eq!(fs::read(folder.join("before")).unwrap(), vec![1; 100_000]);
            drop(storage);
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "the file system is gone");
        };
        // The mounts of the other tests stay as they are.
        thread::spawn(test).join().unwrap();
    }
}
