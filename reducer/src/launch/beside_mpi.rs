//! Starting in a program that MPI has started: its ranks tell each other over MPI what everfold has to know.

use std::{io, net::TcpListener, os::unix::fs::MetadataExt, sync::Arc};

use everfold_protocol::{Incarnation, JobId, ProcessId, Rank};
use everfold_runtime::transport::{mpi::MpiWindow, shm};
use mpi::{collective::SystemOperation, traits::*};

use super::{Environment, Launch, LaunchError, Secret, Transport};

impl Launch {
    /// Joins the job that the processes of an MPI communicator are, each with the rank that it has there. A
    /// collective call. MPI is not needed any more afterwards, and goes on beside everfold.
    ///
    /// Where the processes are on several hosts, the name that MPI calls rank 0's host by has to lead to it,
    /// also on that host itself: where it means 127.0.1.1 there, nobody else finds rank 0.
    ///
    /// # Errors
    /// The system has no randomness, or rank 0 no free port.
    pub fn from_mpi(communicator: &impl CommunicatorCollectives) -> Result<Self, LaunchError> {
        let (rank, size) = (communicator.rank(), communicator.size());
        // Whatever fails here, the others wait in the same calls.
        let me = ProcessId::first(rank as u32);
        let host = shm::host_id().and_then(|host| Ok([host, network()?])).unwrap_or_else(|error| {
            tracing::warn!(%error, "this host cannot be told from others: all goes over TCP");
            [shm::host_apart(me); 2]
        });
        let mut hosts = vec![0u64; 2 * size as usize];
        communicator.all_gather_into(&host, &mut hosts[..]);
        let found = match rank {
            0 => found(size == 1 || hosts.chunks(2).all(|other| other == host)),
            _ => Ok(String::new()),
        };
        let mut told = found.as_ref().map_or_else(|_| Vec::new(), |found| found.clone().into_bytes());
        let root = communicator.process_at_rank(0);
        let mut length = told.len() as u64;
        root.broadcast_into(&mut length);
        told.resize(length as usize, 0);
        root.broadcast_into(&mut told[..]);
        found.map_err(LaunchError::Mpi)?;
        let environment = heard(&told, rank as u32, size as u32).ok_or(io::ErrorKind::InvalidData);
        let environment = environment.map_err(|kind| LaunchError::Mpi(kind.into()))?;
        Ok(Self { environment: Some(environment), ..Self::from_env_or_local(size as u32) })
    }

    /// Lets ranks on different hosts read each other's memory by `MPI_Get`, too, where that turns out to be
    /// quicker than TCP. A collective call over the communicator of [`from_mpi`](Self::from_mpi).
    ///
    /// It pays where the network reads memory without the owner's processor, such as InfiniBand. Elsewhere
    /// MPI answers only while the owner is within MPI: such reads bring nothing in time, go over TCP, and are
    /// not tried again. For each host both ways are measured, and the quicker one is taken. What comes by MPI
    /// is not authenticated.
    ///
    /// The first `shown_bytes` bytes of each process's shared memory are shown, which such a network pins
    /// until the process ends; arrays beyond are read over TCP. MPI is needed until [`launch`](super::launch)
    /// returns, and after the death of a rank it may not end by itself: `MPI_Finalize` waits for the dead
    /// with some libraries. Errors of MPI that belong to no communicator are returned to their callers from
    /// now on (the handler of `MPI_COMM_SELF`).
    ///
    /// # Errors
    /// MPI was initialized for fewer threads than `Threading::Multiple`. The ranks of the job are not those
    /// of `communicator`, or they show different numbers of bytes. All ranks hear the same.
    pub fn read_by_mpi(
        mut self,
        communicator: &impl CommunicatorCollectives,
        shown_bytes: u64,
    ) -> Result<Self, LaunchError> {
        let place = self.environment.as_ref().filter(|environment| {
            (environment.rank.0, environment.size) == (communicator.rank() as u32, communicator.size() as u32)
        });
        // Number 0 is no job's.
        let job = place.map_or(0, |environment| environment.job.0);
        let (mine, mut least) = ([job, !job], [0u64; 2]);
        communicator.all_reduce_into(&mine[..], &mut least[..], SystemOperation::min());
        if least[0] == 0 || least[0] != !least[1] {
            let reason = "reads by MPI are for the job of Launch::from_mpi, over the same communicator";
            return Err(LaunchError::Mpi(io::Error::new(io::ErrorKind::InvalidInput, reason)));
        }
        self.second = Some(Arc::new(MpiWindow::create(communicator, shown_bytes).map_err(LaunchError::Mpi)?));
        Ok(self)
    }
}

/// The network of this process. Two containers of one host may have different ones, and do not reach each
/// other's Unix sockets.
fn network() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/self/ns/net")?.ino())
}

/// What rank 0 tells the others of a new job: its number, its secret, and where it is to listen.
fn found(on_one_host: bool) -> io::Result<String> {
    let job = getrandom::u64().map_err(io::Error::other)?;
    let secret = Secret::generate().map_err(io::Error::other)?.to_hex();
    let rendezvous = if on_one_host {
        format!("unix:@everfold-{job:016x}")
    } else {
        let host = mpi::environment::processor_name().map_err(io::Error::other)?;
        let port = TcpListener::bind(("0.0.0.0", 0))?.local_addr()?.port();
        format!("tcp:{host}:{port}")
    };
    Ok(format!("{job:016x} {secret} {rendezvous}"))
}

fn heard(told: &[u8], rank: u32, size: u32) -> Option<Environment> {
    let mut words = std::str::from_utf8(told).ok()?.split(' ');
    Some(Environment {
        rank: Rank(rank),
        incarnation: Incarnation(0),
        size,
        job: JobId(u64::from_str_radix(words.next()?, 16).ok()?),
        secret: Secret::from_hex(words.next()?)?,
        rendezvous: words.next()?.to_owned(),
        transport: Transport::Auto,
        agent: None,
    })
}
