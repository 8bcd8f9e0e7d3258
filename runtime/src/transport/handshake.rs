//! Proof that both ends of a connection know the job's secret.
//!
//! ```text
//! client                                server
//!   │ Hello { job, process, purpose, …, nonce } │
//!   │ ──────────────────────────────────────▶ │
//!   │        Challenge { nonce, proof }       │   proof = keyed hash of "server", hello and nonce
//!   │ ◀────────────────────────────────────── │
//!   │              Proof                      │   proof = keyed hash of "client", hello and nonce
//!   │ ──────────────────────────────────────▶ │
//!   │             Verdict                     │
//!   │ ◀────────────────────────────────────── │
//! ```
//! The secret never travels; both nonces are fresh, so a recorded conversation proves nothing. Both sides
//! prove themselves, so a worker does not hand its data to a stranger that listens there.
//!
//! What follows is [sealed](everfold_protocol::seal), with a key for each direction: a keyed hash of the
//! direction, hello and nonce. So it depends on the secret, on both nonces, and on who talks to whom and why.
//! It is not encrypted.

use std::{fmt, io};

use everfold_protocol::{
    AgentId, JobId, ProcessId,
    frame::FrameError,
    seal::{KEY_BYTES, Seal},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::control::{Stream, read_frame, write_frame};

pub use super::error::{ByteOrder, HandshakeError, TIMEOUT};

/// Largest frame that a stranger may send, in bytes.
const STRANGER_BYTES_MAX: u64 = 1 << 10;

/// The key that all processes of a job share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// What a connection is for, and with which process: one that is led elsewhere on its way is refused there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Messages between worker and master.
    Control,
    /// Reads of the windows of this process.
    Data(ProcessId),
    /// Messages between a member of a team and its deputy, which this process hosts.
    Team(ProcessId),
    /// Messages between this agent and the master.
    Agent(AgentId),
    /// A process asks the agent of its host to hold its memory.
    Hail,
    /// Reads of what this process has left with its agent.
    Remains(ProcessId),
    /// A process keeps a replica with this agent, or takes one.
    Replica(AgentId),
    /// Messages to the node of this agent's host that locates faults.
    Locate(AgentId),
    /// Bytes from this agent, to measure the way from it.
    Link(AgentId),
}

/// Who connects, to what job, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The job that the client belongs to.
    pub job: JobId,
    /// Who it is.
    pub process: ProcessId,
    /// What it wants.
    pub purpose: Purpose,
    /// How its arrays are to be read.
    pub byte_order: ByteOrder,
    nonce: [u8; 32],
}

#[derive(Debug, Serialize, Deserialize)]
enum Challenge {
    Prove { nonce: [u8; 32], proof: [u8; 32] },
    ForeignJob { job: JobId },
    OtherByteOrder { byte_order: ByteOrder },
}

#[derive(Debug, Serialize, Deserialize)]
struct Proof([u8; 32]);

#[derive(Debug, Serialize, Deserialize)]
enum Verdict {
    Welcome,
    WrongSecret,
}

fn nonce() -> io::Result<[u8; 32]> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

/// What both sides seal and check after the handshake.
#[derive(Debug)]
pub struct Seals {
    /// Of what this side says.
    pub outward: Seal,
    /// Of what the other side says.
    pub inward: Seal,
}

impl Seals {
    /// As the client has them, or the other way round.
    fn agree(key: &Key, hello: &Hello, nonce: &[u8; 32], is_client: bool) -> Result<Self, FrameError> {
        let seal = |direction| {
            let hash = prove(key, direction, hello, nonce)?;
            let mut key = [0; KEY_BYTES];
            key.copy_from_slice(&hash.as_bytes()[..KEY_BYTES]);
            Ok::<_, FrameError>(Seal::new(key))
        };
        let (client, server) = (seal("frames of the client")?, seal("frames of the server")?);
        let (outward, inward) = if is_client { (client, server) } else { (server, client) };
        Ok(Self { outward, inward })
    }
}

async fn tell<T: Serialize>(stream: &mut impl Stream, value: &T) -> Result<(), HandshakeError> {
    write_frame(stream, value, STRANGER_BYTES_MAX, &mut Seal::of_strangers()).await
}

async fn hear<T: DeserializeOwned>(stream: &mut impl Stream) -> Result<T, HandshakeError> {
    read_frame(stream, STRANGER_BYTES_MAX, &mut Seal::of_strangers()).await
}

/// The proof of knowing `key` for one conversation; `what` it proves is no beginning of what another one
/// does. Comparing two of them takes the same time wherever they differ.
fn prove(key: &Key, what: &str, hello: &Hello, nonce: &[u8; 32]) -> Result<blake3::Hash, FrameError> {
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    hasher.update(what.as_bytes());
    hasher.update(&everfold_protocol::codec::encode(hello)?);
    hasher.update(nonce);
    Ok(hasher.finalize())
}

/// The client's part. Returns what everything is sealed with from now on.
///
/// # Errors
/// Any [`HandshakeError`]; the connection is then of no use.
pub async fn connect(
    stream: &mut impl Stream,
    key: &Key,
    job: JobId,
    process: ProcessId,
    purpose: Purpose,
) -> Result<Seals, HandshakeError> {
    let conversation = async {
        let hello = Hello { job, process, purpose, byte_order: ByteOrder::OURS, nonce: nonce()? };
        tell(stream, &hello).await?;
        let (nonce, proof) = match hear(stream).await? {
            Challenge::Prove { nonce, proof } => (nonce, proof),
            Challenge::ForeignJob { job: theirs } => {
                return Err(HandshakeError::ForeignJob { theirs, ours: job });
            }
            Challenge::OtherByteOrder { byte_order: theirs } => {
                return Err(HandshakeError::OtherByteOrder { theirs, ours: hello.byte_order });
            }
        };
        if prove(key, "server", &hello, &nonce)? != blake3::Hash::from(proof) {
            return Err(HandshakeError::WrongSecret);
        }
        let proof = prove(key, "client", &hello, &nonce)?;
        tell(stream, &Proof(proof.into())).await?;
        match hear(stream).await? {
            Verdict::Welcome => Ok(Seals::agree(key, &hello, &nonce, true)?),
            Verdict::WrongSecret => Err(HandshakeError::WrongSecret),
        }
    };
    tokio::time::timeout(TIMEOUT, conversation).await.unwrap_or(Err(HandshakeError::TimedOut))
}

/// The server's part. Tells who has connected, and returns what everything is sealed with from now on.
///
/// # Errors
/// Any [`HandshakeError`]; the connection is then to be closed.
pub async fn accept(
    stream: &mut impl Stream,
    key: &Key,
    job: JobId,
) -> Result<(Hello, Seals), HandshakeError> {
    accept_if(stream, key, job, |_| true).await
}

/// The same, if this side `admits` what the other one wants. If not, it says nothing: that may be tried again.
///
/// # Errors
/// Any [`HandshakeError`]; the connection is then to be closed.
pub async fn accept_if(
    stream: &mut impl Stream,
    key: &Key,
    job: JobId,
    admits: impl Fn(Purpose) -> bool,
) -> Result<(Hello, Seals), HandshakeError> {
    let conversation = async {
        let hello: Hello = match hear(stream).await {
            Err(error @ HandshakeError::Frame(FrameError::Version(_))) => {
                // Any frame of ours tells the other side which version we speak.
                tell(stream, &Verdict::WrongSecret).await?;
                return Err(error);
            }
            other => other?,
        };
        if hello.job != job {
            tell(stream, &Challenge::ForeignJob { job }).await?;
            return Err(HandshakeError::ForeignJob { theirs: hello.job, ours: job });
        }
        if hello.byte_order != ByteOrder::OURS {
            let (theirs, ours) = (hello.byte_order, ByteOrder::OURS);
            tell(stream, &Challenge::OtherByteOrder { byte_order: ours }).await?;
            return Err(HandshakeError::OtherByteOrder { theirs, ours });
        }
        if !admits(hello.purpose) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "it comes too early").into());
        }
        let nonce = nonce()?;
        let proof = prove(key, "server", &hello, &nonce)?.into();
        tell(stream, &Challenge::Prove { nonce, proof }).await?;
        let Proof(proof) = hear(stream).await?;
        let genuine = prove(key, "client", &hello, &nonce)? == blake3::Hash::from(proof);
        let verdict = if genuine { Verdict::Welcome } else { Verdict::WrongSecret };
        tell(stream, &verdict).await?;
        match genuine {
            true => Ok((hello, Seals::agree(key, &hello, &nonce, false)?)),
            false => Err(HandshakeError::WrongSecret),
        }
    };
    tokio::time::timeout(TIMEOUT, conversation).await.unwrap_or(Err(HandshakeError::TimedOut))
}
