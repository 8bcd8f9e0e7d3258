//! Follows an earlier process of this rank, which lives, by the replica of its vault.

use std::{fs::File, os::unix::fs::FileExt};

use everfold_protocol::{JobId, ProcessId, message::Origin};
use everfold_storage::vault::{Generation, KeyAndValue, LogStream, MarkBytes};
use tokio::time::timeout;

use super::{Answer, Ask, Line, keeping::Partner};
use crate::{result_log::LogError, transport::handshake::Key};

/// The replica that is followed.
pub(crate) struct Followed {
    line: Line,
    address: String,
    log: Option<LogStream>,
}

/// What comes next.
pub(crate) enum Next {
    /// The earlier process has noted these behind this generation.
    Outcomes(Generation, Vec<KeyAndValue>),
    /// It has died, and has noted no more than what has come.
    Promoted,
}

/// Fills the files of a vault, which are empty, with what lies at `origin` now, and follows what comes.
///
/// # Errors
/// It cannot be had from there.
pub(crate) async fn follow(
    origin: &Origin,
    (key, job, me): (Key, JobId, ProcessId),
    silence_max: std::time::Duration,
    files: &[File; 2],
) -> Result<Followed, LogError> {
    let (agent, address) = (origin.agent.clone(), origin.agent.address.clone());
    let partner = Partner { key, job, me, agent, silence_max };
    let failed = |reason: String| LogError::Replica { agent: address.clone(), reason };
    let mut line = partner.connect().await.map_err(|error| failed(error.to_string()))?;
    line.tell(&Ask::Follow(origin.process)).await.map_err(|error| failed(error.to_string()))?;
    loop {
        let answer = timeout(partner.patience(), line.hear()).await;
        let answer = answer.map_err(|_| failed("no answer".to_owned()))?;
        match answer.map_err(|error| failed(error.to_string()))? {
            Answer::Level => return Ok(Followed { line, address, log: None }),
            Answer::Piece(patch) => {
                let file = files.get(usize::from(patch.half));
                let file = file.ok_or_else(|| failed("it names a third file".to_owned()))?;
                file.write_all_at(&patch.bytes, patch.offset).map_err(LogError::Io)?;
            }
            Answer::Refused(reason) => return Err(failed(reason)),
            Answer::Done | Answer::Log { .. } => return Err(failed("it answers something else".to_owned())),
        }
    }
}

impl Followed {
    /// Waits for what comes next.
    ///
    /// # Errors
    /// Nothing comes any more, or what comes is damaged.
    pub async fn next(&mut self) -> Result<Next, LogError> {
        let failed = |reason: String| LogError::Replica { agent: self.address.clone(), reason };
        match self.line.hear().await.map_err(|error| failed(error.to_string()))? {
            Answer::Log { mark, at, bytes } => {
                let mark: &MarkBytes =
                    mark[..].try_into().map_err(|_| failed("a mark of another length".to_owned()))?;
                let log = match self.log.take().filter(|log| log.goes_on_with(mark, at)) {
                    Some(log) => log,
                    None => LogStream::new(mark, at)?,
                };
                let log = self.log.insert(log);
                log.push(&bytes);
                let mut outcomes = Vec::new();
                while let Some(outcome) = log.next_outcome()? {
                    outcomes.push(outcome);
                }
                Ok(Next::Outcomes(log.generation(), outcomes))
            }
            Answer::Done if self.log.as_ref().is_some_and(LogStream::is_within_a_record) => {
                Err(failed("the last outcome has not come as a whole".to_owned()))
            }
            Answer::Done => Ok(Next::Promoted),
            Answer::Refused(reason) => Err(failed(reason)),
            Answer::Piece(_) | Answer::Level => Err(failed("it answers something else".to_owned())),
        }
    }
}
