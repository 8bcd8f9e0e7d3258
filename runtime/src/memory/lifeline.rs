//! Learning of a death on the same host before the kernel has cleared up behind it.
//!
//! A killed process's sockets close only after its memory was freed, which takes long where there is much of
//! it and the cores are busy. A robust mutex (`pthread_mutexattr_setrobust`) passes on as soon as the thread
//! that holds it ends: each process's I/O thread holds one in its region as long as it takes part, and an
//! observer waits for it. Other threads of that process may run on for a moment; without the I/O thread
//! nothing that they do is heard of.

use std::{fs::File, io, marker::PhantomData, mem::MaybeUninit, sync::Arc};

use everfold_protocol::message::RegionRef;
use nix::sys::mman::ProtFlags;

use super::{
    mapping::{self, Mapping},
    region::Region,
};

/// Held by the thread whose end is to be noticed. Dropping it is a good end.
#[derive(Debug)]
pub struct Lifeline {
    region: Arc<Region>,
    /// The thread that has locked a mutex unlocks it.
    not_send: PhantomData<*const ()>,
}

impl Lifeline {
    /// Ties the calling thread's life to `region`. A region has one lifeline, once.
    ///
    /// # Errors
    /// The system has no robust mutexes.
    pub fn hold(region: &Arc<Region>) -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised by the first call; the mutex lies in memory that was made
        // for it, lives as long as the region, and is not in use by anyone before it is initialised.
        unsafe {
            check(libc::pthread_mutexattr_init(attributes.as_mut_ptr()))?;
            check(libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED))?;
            check(libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST))?;
            check(libc::pthread_mutex_init(region.lifeline(), attributes.as_ptr()))?;
            libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
            check(libc::pthread_mutex_lock(region.lifeline()))?;
        }
        Ok(Self { region: region.clone(), not_send: PhantomData })
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        // SAFETY: this thread has locked it.
        let unlocked = unsafe { libc::pthread_mutex_unlock(self.region.lifeline()) };
        debug_assert_eq!(unlocked, 0);
    }
}

/// How a watched thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was finished.
    Good,
    /// It was killed, or has panicked.
    Death,
}

/// Waits until the process `pid` lets go of its lifeline, which lies in `region`. Blocks the calling thread.
///
/// # Errors
/// The region cannot be mapped: the process is gone, or belongs to another user.
pub fn outlive(pid: u32, region: &RegionRef) -> io::Result<Ending> {
    let file = mapping::open(pid, region, File::options().read(true).write(true))?;
    let mapping = Mapping::new(&file, Mapping::BLOCKS, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
    let mutex = mapping.lifeline();
    // SAFETY: its owner has initialised it before it told the master of its region, and nobody but the master
    // comes here; the mapping outlives this call.
    let ending = match unsafe { libc::pthread_mutex_lock(mutex) } {
        0 => Ending::Good,
        libc::EOWNERDEAD => Ending::Death,
        error => return Err(io::Error::from_raw_os_error(error)),
    };
    // SAFETY: this thread has just locked it; one that is not made consistent before is of no use to anyone,
    // as it should be.
    unsafe { libc::pthread_mutex_unlock(mutex) };
    Ok(ending)
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

impl Mapping {
    fn lifeline(&self) -> *mut libc::pthread_mutex_t {
        const { assert!(size_of::<libc::pthread_mutex_t>() <= Mapping::LIFELINE_BYTES) };
        self.at(Self::LIFELINE).cast().as_ptr()
    }
}

impl Region {
    fn lifeline(&self) -> *mut libc::pthread_mutex_t {
        self.mapping().lifeline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_thread_is_noticed_and_tells_how_it_was() {
        for (good, expected) in [(true, Ending::Good), (false, Ending::Death)] {
            let region = Region::new().unwrap();
            let held = region.clone();
            let (tell, told) = std::sync::mpsc::channel();
            let (end, may_end) = std::sync::mpsc::channel::<()>();
            let thread = std::thread::spawn(move || {
                let lifeline = Lifeline::hold(&held).unwrap();
                tell.send(()).unwrap();
                may_end.recv().unwrap();
                if good { drop(lifeline) } else { std::mem::forget(lifeline) }
            });
            told.recv().unwrap();
            let handle = region.handle();
            let watcher = std::thread::spawn(move || outlive(std::process::id(), &handle).unwrap());
            end.send(()).unwrap();
            assert_eq!(watcher.join().unwrap(), expected);
            thread.join().unwrap();
        }
    }
}
