//! What libraries and device code save beside the application.

/// What a [hook](CheckpointHook) says if it cannot do what it is to do.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// Bytes that are live at a point: needed to go on from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// In the host's memory.
    pub host_bytes: u64,
    /// In a device's memory.
    pub device_bytes: u64,
}

/// Saves state that the application does not know, such as that of a library or of a device. Registered with
/// [`Session::on_checkpoint`](crate::Session::on_checkpoint). It saves no checkpoint by itself: that would
/// wait for ever.
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
    /// A checkpoint is about to be saved: end what is under way, such as work on a device, and take what
    /// changes from then on. [`Checkpoint::start`](crate::Checkpoint::start) lets the device go on behind it.
    ///
    /// # Errors
    /// Nothing is saved then, and the checkpoint before stays in force.
    fn before(&mut self) -> Result<(), HookError> {
        Ok(())
    }

    /// How many bytes [`save`](Self::save) would give now: what is recorded in a profile. Unless it is told
    /// here, it is found by saving, and counts as the host's.
    ///
    /// # Errors
    /// The checkpoint ends in it.
    fn live(&mut self) -> Result<Live, HookError> {
        self.before()?;
        let mut saved = Vec::new();
        self.save(&mut saved)?;
        Ok(Live { host_bytes: saved.len() as u64, device_bytes: 0 })
    }

    /// Puts the state to be saved `into` a buffer, which is empty. The buffer is that of an earlier checkpoint,
    /// if there was one, with its memory; a hook with a copy of its own may swap them. It may be asked for
    /// several times after one [`before`](Self::before).
    ///
    /// # Errors
    /// Nothing is saved then, and the checkpoint before stays in force.
    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), HookError>;

    /// Takes back what [`save`](Self::save) has given, in a process that comes back.
    ///
    /// # Errors
    /// [`Session::resume`](crate::Session::resume) ends in it.
    fn restore(&mut self, saved: &[u8]) -> Result<(), HookError>;
}
