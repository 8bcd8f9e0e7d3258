//! Takes the replica of what an earlier process has left.

use std::{fs::File, os::unix::fs::FileExt, time::Duration};

use everfold_protocol::{JobId, ProcessId, message::Origin};
use tokio::time::timeout;

use super::{Answer, Ask, keeping::Partner};
use crate::{result_log::LogError, transport::handshake::Key};

/// Fills the files of a vault, which are empty, with what lies at `origin`.
///
/// # Errors
/// It cannot be had from there.
pub(crate) async fn take(
    origin: &Origin,
    (key, job, me): (Key, JobId, ProcessId),
    silence_max: Duration,
    files: &[File; 2],
) -> Result<(), LogError> {
    let agent = origin.agent.clone();
    let failed = |reason: String| LogError::Replica { agent: origin.agent.address.clone(), reason };
    let partner = Partner { key, job, me, agent, silence_max };
    let mut line = partner.connect().await.map_err(|error| failed(error.to_string()))?;
    line.tell(&Ask::Take(origin.process)).await.map_err(|error| failed(error.to_string()))?;
    loop {
        let answer = timeout(partner.patience(), line.hear()).await;
        match answer
            .map_err(|_| failed("no answer".to_owned()))?
            .map_err(|error| failed(error.to_string()))?
        {
            Answer::Done => return Ok(()),
            Answer::Refused(reason) => return Err(failed(reason)),
            Answer::Level | Answer::Log { .. } => return Err(failed("it answers something else".to_owned())),
            Answer::Piece(patch) => {
                let file = files.get(usize::from(patch.half));
                let file = file.ok_or_else(|| failed("it names a third file".to_owned()))?;
                file.write_all_at(&patch.bytes, patch.offset).map_err(LogError::Io)?;
            }
        }
    }
}
