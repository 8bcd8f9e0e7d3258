//! File descriptors: how many this process may have open, and what to do when there are none.

use std::{io, time::Duration};

use nix::{
    libc,
    sys::resource::{Resource, getrlimit, setrlimit},
};

/// Most descriptors that are asked for: about three per peer of the largest jobs. Some programs, which
/// inherit the limit, look at each possible descriptor.
const MOST: u64 = 1 << 16;

/// How long to wait for others to close theirs.
pub const PAUSE: Duration = Duration::from_millis(10);

/// Raises the soft limit as far as the hard one allows, up to 65 536. It is never lowered. Processes that
/// this one starts inherit it.
pub fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| match soft < hard.min(MOST) {
        true => setrlimit(Resource::RLIMIT_NOFILE, hard.min(MOST), hard),
        false => Ok(()),
    });
    if let Err(error) = raised {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// How many this process may have open.
pub fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft)
}

/// Whether `error` says that something is used up that others give back, such as descriptors.
pub fn is_scarcity(error: &io::Error) -> bool {
    let scarce = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::ENOSPC];
    error.raw_os_error().is_some_and(|error| scarce.contains(&error))
}

/// Calls `open` until it works, or fails for another reason than scarcity.
///
/// # Errors
/// That reason.
pub async fn patiently<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match open() {
            Err(error) if is_scarcity(&error) => {
                tracing::debug!(%error, "trying again");
                tokio::time::sleep(PAUSE).await;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_scarce_is_tried_again() {
        let mut answers = [Some(libc::EMFILE), Some(libc::ENFILE), None].into_iter();
        let open = || match answers.next().expect("no more than is needed") {
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None => Ok(7),
        };
        assert_eq!(patiently(open).await.unwrap(), 7);
        let broken = || Err::<(), _>(io::Error::from_raw_os_error(libc::EBADF));
        assert_eq!(patiently(broken).await.unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
