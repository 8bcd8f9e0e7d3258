//! Hooks: libraries and device code save state beside the application.

/// The error of a [hook](CheckpointHook).
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// Bytes that are live at a point: needed to go on from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// In the host's memory.
    pub host_bytes: u64,
    /// In a device's memory.
    pub device_bytes: u64,
}

/// Saves state that the application does not know, such as that of a library or of a device. Register it with
/// [`Session::on_checkpoint`](crate::Session::on_checkpoint). A hook must not save a checkpoint itself: that
/// would wait for ever.
///
/// ```
/// use everfold::{CheckpointHook, HookError};
///
/// /// A random number generator that a library keeps to itself.
/// struct Generator {
///     state: u64,
/// }
///
/// impl CheckpointHook for Generator {
///     fn save(&mut self, into: &mut Vec<u8>) -> Result<(), HookError> {
///         into.extend(self.state.to_le_bytes());
///         Ok(())
///     }
///
///     fn restore(&mut self, saved: &[u8]) -> Result<(), HookError> {
///         self.state = u64::from_le_bytes(saved.try_into()?);
///         Ok(())
///     }
/// }
/// ```
pub trait CheckpointHook: Send + 'static {
    /// A checkpoint is about to be saved: end work under way, such as that of a device, and copy the data
    /// that changes from then on. With [`Checkpoint::start`](crate::Checkpoint::start) the device goes on
    /// afterwards.
    ///
    /// # Errors
    /// Nothing is saved then, and the checkpoint before stays in force.
    fn before(&mut self) -> Result<(), HookError> {
        Ok(())
    }

    /// The number of bytes that [`save`](Self::save) would give now, for a profile. The default saves to find
    /// out, and counts the bytes as the host's.
    ///
    /// # Errors
    /// The checkpoint ends in it.
    fn live(&mut self) -> Result<Live, HookError> {
        self.before()?;
        let mut saved = Vec::new();
        self.save(&mut saved)?;
        Ok(Live { host_bytes: saved.len() as u64, device_bytes: 0 })
    }

    /// Puts the state `into` an empty buffer. The buffer has the memory of an earlier checkpoint, if there
    /// was one; a hook with a copy of its own may swap them. It may be called several times after one
    /// [`before`](Self::before).
    ///
    /// # Errors
    /// Nothing is saved then, and the checkpoint before stays in force.
    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), HookError>;

    /// Restores the state that [`save`](Self::save) has given, in a process that comes back.
    ///
    /// # Errors
    /// [`Session::resume`](crate::Session::resume) ends in it.
    fn restore(&mut self, saved: &[u8]) -> Result<(), HookError>;
}
