//! What libraries and device code save beside the application.

/// What a [hook](CheckpointHook) says if it cannot do what it is to do.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// Saves state that the application does not know, such as that of a library or of a device. Registered with
/// [`Session::on_checkpoint`](crate::Session::on_checkpoint). It saves no checkpoint by itself: that would wait
/// for ever.
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
///     fn save(&mut self) -> Result<Vec<u8>, HookError> {
///         Ok(self.state.to_le_bytes().to_vec())
///     }
///
///     fn restore(&mut self, saved: &[u8]) -> Result<(), HookError> {
///         self.state = u64::from_le_bytes(saved.try_into()?);
///         Ok(())
///     }
/// }
/// ```
pub trait CheckpointHook: Send + 'static {
    /// A checkpoint is about to be saved: end what is under way, such as work on a device.
    ///
    /// # Errors
    /// Nothing is saved then, and the checkpoint before stays in force.
    fn before(&mut self) -> Result<(), HookError> {
        Ok(())
    }

    /// What is to be saved.
    ///
    /// # Errors
    /// Nothing is saved then, and the checkpoint before stays in force.
    fn save(&mut self) -> Result<Vec<u8>, HookError>;

    /// Takes back what [`save`](Self::save) has given, in a process that comes back.
    ///
    /// # Errors
    /// [`Session::resume`](crate::Session::resume) ends in it.
    fn restore(&mut self, saved: &[u8]) -> Result<(), HookError>;
}
