//! The calls of MPI. Nothing else of this crate makes any.

use std::{ffi::c_int, io, mem::MaybeUninit, ptr::NonNull};

use mpi::ffi::{self, MPI_Comm, MPI_Request, MPI_Win};

/// Most bytes of one call: MPI counts them in a C `int`, and what is done shows that something comes.
pub(super) const BYTES_MAX: u64 = 16 << 20;

/// A dynamic window in which this process may read as long as MPI lasts. Every thread may use it, as MPI was
/// initialized for that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window(MPI_Win);

// SAFETY: a handle of MPI is a number or a pointer to what MPI guards by itself, with `MPI_THREAD_MULTIPLE`.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

/// A get that is under way.
#[derive(Debug)]
pub(super) struct Get(MPI_Request);

impl Window {
    /// A collective call over the communicator.
    ///
    /// It stays until MPI ends: to free it is a collective call, too, in which survivors of a death would
    /// wait for ever.
    pub fn create(communicator: MPI_Comm) -> io::Result<Self> {
        let mut window = MaybeUninit::uninit();
        // SAFETY: MPI is initialized, as there is a communicator; `window` is written before it is read.
        unsafe {
            said(ffi::MPI_Win_create_dynamic(ffi::RSMPI_INFO_NULL, communicator, window.as_mut_ptr()))?;
            let window = window.assume_init();
            said(ffi::MPI_Win_set_errhandler(window, ffi::RSMPI_ERRORS_RETURN))?;
            // Errors of requests belong to no window, and would end the process.
            said(ffi::MPI_Comm_set_errhandler(ffi::RSMPI_COMM_SELF, ffi::RSMPI_ERRORS_RETURN))?;
            // Reads only: nobody needs a lock.
            said(ffi::MPI_Win_lock_all(ffi::MPI_MODE_NOCHECK as c_int, window))?;
            Ok(Self(window))
        }
    }

    /// Lets others read these bytes.
    ///
    /// # Safety
    /// They stay mapped until MPI ends.
    pub unsafe fn attach(&self, shown: NonNull<[u8]>) -> io::Result<()> {
        let bytes = shown.len().try_into().map_err(io::Error::other)?;
        // SAFETY: the caller's promise.
        said(unsafe { ffi::MPI_Win_attach(self.0, shown.as_ptr().cast(), bytes) })
    }

    /// Begins to read what lies at `address` in the memory of `rank`, at most [`BYTES_MAX`].
    ///
    /// # Safety
    /// `into` is neither read, nor written, nor freed until the get is [done](Get::is_done).
    pub unsafe fn get(&self, rank: u32, address: u64, into: *mut [u8]) -> io::Result<Get> {
        let bytes = c_int::try_from(into.len()).map_err(io::Error::other)?;
        let [rank, address] = [u64::from(rank), address].map(i64::try_from);
        let (rank, address) = (rank.map_err(io::Error::other)?, address.map_err(io::Error::other)?);
        let mut request = MaybeUninit::uninit();
        // SAFETY: the caller's promise; `request` is written before it is read.
        unsafe {
            said(ffi::MPI_Rget(
                into.cast(),
                bytes,
                ffi::RSMPI_UINT8_T,
                rank as c_int,
                address as ffi::MPI_Aint,
                bytes,
                ffi::RSMPI_UINT8_T,
                self.0,
                request.as_mut_ptr(),
            ))?;
            Ok(Get(request.assume_init()))
        }
    }
}

impl Get {
    /// Whether the bytes are there. Asked no more once they are.
    pub fn is_done(&mut self) -> io::Result<bool> {
        let mut done = 0;
        // SAFETY: the request is one of MPI's, which sets it to null when it is done.
        said(unsafe { ffi::MPI_Test(&mut self.0, &mut done, ffi::RSMPI_STATUS_IGNORE) })?;
        Ok(done != 0)
    }
}

/// What a call of MPI has said.
fn said(code: c_int) -> io::Result<()> {
    match code as u32 {
        ffi::MPI_SUCCESS => Ok(()),
        _ => Err(io::Error::other(format!("MPI error {code}"))),
    }
}
