//! Messages between a process and the agent of its host, over a Unix socket that carries descriptors.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use everfold_master::Policy;
use everfold_protocol::{
    AgentId,
    message::{Origin, RegionRef},
    seal::Seal,
};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{io::Interest, net::UnixStream};

use crate::{
    components::UnknownDetector,
    transport::{
        control::{read_frame, write_frame},
        handshake::{HandshakeError, Seals},
    },
};

/// Largest frame between a process and its agent, in bytes.
const FRAME_BYTES_MAX: u64 = 64 << 10;

/// A process wants its memory held. The descriptor of its region follows.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hail {
    /// Number of processes in the job.
    pub size: u32,
    /// Its region, if it has one.
    pub region: Option<RegionRef>,
    /// How the master schedules, should this agent host it.
    pub policy: Policy,
    /// The names of own detectors that the master asks, should this agent host it.
    pub detectors: Vec<String>,
    /// Whether the job may have a board.
    pub board: bool,
}

/// What an agent answers. The descriptor of the board follows, if there is one, and then those of the vault.
pub(super) type Answer = Result<Welcome, NoAgent>;

/// The memory of the process is held.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Welcome {
    pub id: AgentId,
    pub board: bool,
    /// Whether the files of the rank's vault follow.
    pub vault: bool,
    /// The replica from which the empty vault is to be filled, if any.
    pub origin: Option<Origin>,
    /// Whether the process stands by: it follows the one at that origin, which lives.
    pub stands_by: bool,
}

/// Why an agent does not take a process in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NoAgent {
    /// Another process has that place, or a later one of its rank was started, or this one was seen to end.
    #[error(
        "another process has its rank already, or was started in its place. Give each process a rank of its own \
         (EVERFOLD_RANK). If this one was started by a process of the job, it has inherited EVERFOLD_RENDEZVOUS, \
         EVERFOLD_RANK and EVERFOLD_SIZE: unset them to start a job of its own"
    )]
    PlaceTaken,
    /// The master is to run there and cannot.
    #[error("it cannot listen at the rendezvous: {reason}")]
    CannotListen {
        /// What the system says, in words.
        reason: String,
        /// The same as a number, if there is one.
        code: Option<i32>,
    },
    /// The master is to run there, and to ask a detector that is not there.
    #[error(transparent)]
    UnknownDetector(#[from] UnknownDetector),
    /// The master has ended, or was lost.
    #[error(
        "the job is over before this process has joined: a process of it has ended or did not come in time, or the host of \
         rank 0 is lost. Start the job again"
    )]
    NoMaster,
}

/// The process asks where its memory can be read from other hosts, to whom this host has that address.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Serve {
    pub ip: IpAddr,
}

/// There: `host:port`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Serving {
    pub address: Result<String, String>,
}

/// One end of such a connection.
#[derive(Debug)]
pub(super) struct Line {
    stream: UnixStream,
    outward: Seal,
    inward: Seal,
}

impl Line {
    /// Over `stream`, which has passed the handshake.
    pub fn new(stream: UnixStream, Seals { outward, inward }: Seals) -> Self {
        Self { stream, outward, inward }
    }

    /// Says something.
    pub async fn tell<T: Serialize>(&mut self, what: &T) -> Result<(), HandshakeError> {
        write_frame(&mut self.stream, what, FRAME_BYTES_MAX, &mut self.outward).await
    }

    /// Hears the next message.
    pub async fn hear<T: DeserializeOwned>(&mut self) -> Result<T, HandshakeError> {
        read_frame(&mut self.stream, FRAME_BYTES_MAX, &mut self.inward).await
    }

    /// Hands a descriptor over.
    pub async fn hand_over(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let send = || {
            let descriptors = [descriptor.as_raw_fd()];
            let rights = [ControlMessage::ScmRights(&descriptors)];
            let socket = self.stream.as_raw_fd();
            sendmsg::<UnixAddr>(socket, &[IoSlice::new(&[0])], &rights, MsgFlags::MSG_NOSIGNAL, None)?;
            Ok(())
        };
        self.stream.async_io(Interest::WRITABLE, send).await
    }

    /// Takes a descriptor.
    ///
    /// # Errors
    /// There is none where one should be, or the connection broke.
    pub async fn take(&self) -> io::Result<OwnedFd> {
        let mut taken = self.stream.async_io(Interest::READABLE, || receive(self.stream.as_fd())).await?;
        match (taken.pop(), taken.is_empty()) {
            (Some(descriptor), true) => Ok(descriptor),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "one descriptor should have come")),
        }
    }
}

fn receive(socket: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let mut room = nix::cmsg_space!([i32; 4]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut bytes, Some(&mut room), flags)?;
    if message.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut taken = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            // SAFETY: the system has just opened them for this process, and nobody else knows of them.
            taken.extend(descriptors.into_iter().map(|it| unsafe { OwnedFd::from_raw_fd(it) }));
        }
    }
    Ok(taken)
}
