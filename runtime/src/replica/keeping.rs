//! Keeps a replica of this process's vault up to date.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use everfold_protocol::{JobId, ProcessId, message::AgentRef};
use everfold_storage::vault::{Extent, MARK_BYTES, SEAL_AT};
use tokio::{sync::mpsc, time::timeout};

use super::{Answer, Ask, CHUNK_BYTES, Line, Patch};
use crate::{
    result_log::{LogError, ResultLog},
    transport::{
        control::{Address, connect},
        handshake::{HandshakeError, Key, Purpose},
        lobby,
    },
};

/// Longest time for a connection to be made, and least time for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Who talks to whom, and what both know.
#[derive(Clone, Debug)]
pub(crate) struct Partner {
    pub key: Key,
    pub job: JobId,
    pub me: ProcessId,
    pub agent: AgentRef,
    /// How long the agent may be silent.
    pub silence_max: Duration,
}

impl Partner {
    /// Connects to the agent.
    pub(super) async fn connect(&self) -> Result<Line, HandshakeError> {
        let address = Address::Tcp(self.agent.address.clone());
        let purpose = Purpose::Replica(self.agent.id);
        let knock = lobby::knock(|| connect(&address), &self.key, self.job, self.me, purpose);
        let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        let (stream, seals) = timeout(self.patience(), knock).await.map_err(late)??;
        stream.bound_silence(self.silence_max)?;
        Ok(Line::new(stream, seals))
    }

    pub(super) fn patience(&self) -> Duration {
        self.silence_max.max(PATIENCE)
    }
}

/// Why a replica is not up to date.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeepError {
    #[error("{0}")]
    Line(#[from] HandshakeError),
    #[error("{0}")]
    Log(#[from] LogError),
    #[error("{0}")]
    Refused(String),
    #[error("no answer")]
    Late,
}

/// Asks for copies. Dropping it ends the connection to the agent.
#[derive(Debug)]
pub(crate) struct Mirror {
    partner: Partner,
    asked: Option<mpsc::UnboundedSender<u64>>,
}

impl Mirror {
    /// Keeps replicas with this agent from now on.
    pub fn new(partner: Partner) -> Self {
        Self { partner, asked: None }
    }

    /// Brings the replica up to date; `told` hears with the number whether it is. Earlier numbers may be left
    /// out. To be called in a runtime.
    pub fn copy<T>(&mut self, number: u64, log: &Arc<ResultLog>, told: T)
    where
        T: Fn(u64, Result<(), String>) + Send + 'static,
    {
        let is_kept = |asked: &mpsc::UnboundedSender<u64>| asked.send(number).is_ok();
        if self.asked.as_ref().is_some_and(is_kept) {
            return;
        }
        let (asked, requests) = mpsc::unbounded_channel();
        let _ = asked.send(number);
        self.asked = Some(asked);
        tokio::spawn(keep(self.partner.clone(), log.clone(), requests, told));
    }
}

/// Keeps a replica until something goes wrong, or nobody asks any more.
async fn keep<T>(partner: Partner, log: Arc<ResultLog>, mut requests: mpsc::UnboundedReceiver<u64>, told: T)
where
    T: Fn(u64, Result<(), String>) + Send + 'static,
{
    let mut replica = None;
    while let Some(mut number) = requests.recv().await {
        while let Ok(later) = requests.try_recv() {
            number = later;
        }
        let copied = async {
            let replica = match &mut replica {
                Some(replica) => replica,
                none => none.insert(Replica::begin(&partner).await?),
            };
            replica.catch_up(&log).await
        };
        let result: Result<(), KeepError> = copied.await;
        let is_over = result.is_err();
        if is_over {
            // Whoever asks from now on asks anew.
            requests.close();
            while let Ok(later) = requests.try_recv() {
                number = later;
            }
        }
        told(number, result.map_err(|error| format!("{}: {error}", partner.agent.address)));
        if is_over {
            return;
        }
    }
}

/// The replica as this process knows it.
pub(super) struct Replica {
    line: Line,
    patience: Duration,
    /// What it has, and in which file.
    has: Option<(Extent, u8)>,
}

impl Replica {
    async fn begin(partner: &Partner) -> Result<Self, KeepError> {
        Self::over(partner.connect().await?, partner.patience()).await
    }

    pub(super) async fn over(mut line: Line, patience: Duration) -> Result<Self, KeepError> {
        line.tell(&Ask::Begin).await?;
        Ok(Self { line, patience, has: None })
    }

    /// Copies all that is in the vault and not in the replica.
    pub(super) async fn catch_up(&mut self, log: &ResultLog) -> Result<(), KeepError> {
        while !self.copy(log).await? {}
        self.ask(&Ask::Confirm).await?;
        match timeout(self.patience, self.line.hear()).await {
            Ok(Ok(Answer::Done)) => Ok(()),
            Ok(Ok(Answer::Refused(reason))) => Err(KeepError::Refused(reason)),
            Ok(Ok(Answer::Piece(_) | Answer::Level | Answer::Log { .. })) => {
                Err(KeepError::Refused("it answers something else".to_owned()))
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(KeepError::Late),
        }
    }

    /// Copies what the vault has now. Returns false if a newer generation is in force by then.
    async fn copy(&mut self, log: &ResultLog) -> Result<bool, KeepError> {
        let extent = log.extent();
        match self.has {
            Some((has, half)) if has.generation == extent.generation => {
                // The byte that says that the log ends there comes last, if not all fits into one frame.
                let end = has.bytes - 1;
                let is_short = extent.bytes - end <= CHUNK_BYTES as u64;
                let ranges = if is_short {
                    [end..extent.bytes, end..end]
                } else {
                    [has.bytes..extent.bytes, end..has.bytes]
                };
                for range in ranges {
                    if !self.copy_range(log, extent, half, range).await? {
                        return Ok(false);
                    }
                }
                self.has = Some((extent, half));
            }
            has => {
                let half = has.map_or(0, |(_, half)| 1 - half);
                let marks = MARK_BYTES as u64;
                if !self.copy_range(log, extent, half, marks..extent.bytes).await? {
                    return Ok(false);
                }
                let mut mark = vec![0; MARK_BYTES];
                if !log.read_raw(extent, 0, &mut mark)? {
                    return Ok(false);
                }
                let mut patches = vec![Patch { half, offset: 0, bytes: mark.into() }];
                if has.is_some() {
                    let bytes = Bytes::from_static(&[0]);
                    patches.push(Patch { half: 1 - half, offset: SEAL_AT, bytes });
                }
                self.ask(&Ask::Write(patches)).await?;
                self.has = Some((extent, half));
            }
        }
        Ok(true)
    }

    /// Copies a part of the generation in force. Returns false if another one is by then.
    async fn copy_range(
        &mut self,
        log: &ResultLog,
        extent: Extent,
        half: u8,
        range: std::ops::Range<u64>,
    ) -> Result<bool, KeepError> {
        let mut offset = range.start;
        while offset < range.end {
            let mut bytes = vec![0; (range.end - offset).min(CHUNK_BYTES as u64) as usize];
            if !log.read_raw(extent, offset, &mut bytes)? {
                return Ok(false);
            }
            let next = offset + bytes.len() as u64;
            self.ask(&Ask::Write(vec![Patch { half, offset, bytes: bytes.into() }])).await?;
            offset = next;
        }
        Ok(true)
    }

    /// Tells the agent something. If that takes nothing more, it may have said why.
    async fn ask(&mut self, what: &Ask) -> Result<(), KeepError> {
        let Err(error) = self.line.tell(what).await else { return Ok(()) };
        match timeout(self.patience, self.line.hear()).await {
            Ok(Ok(Answer::Refused(reason))) => Err(KeepError::Refused(reason)),
            _ => Err(error.into()),
        }
    }
}
