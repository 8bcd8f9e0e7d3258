//! Founds a job: its number, its secret, and where its ranks meet.

use std::io;

use everfold_protocol::{Incarnation, JobId, Rank};
use tokio::net::TcpSocket;

use super::{Local, LocalError, RANKS_MAX};
use crate::launch::{
    environment::{Environment, Secret, Transport},
    hosts::Hosts,
};

impl Local {
    /// A new job as rank 0 is to see it, and what keeps its rendezvous free for rank 0.
    pub(super) fn found_job(&self) -> Result<(Environment, Option<TcpSocket>), LocalError> {
        let agent = Some(format!("everfold-agent-{:016x}", getrandom::u64()?));
        if let Some(Hosts { count, index, rendezvous, job, secret, .. }) = self.hosts.clone() {
            let size = self.ranks.checked_mul(count).filter(|size| *size <= RANKS_MAX);
            let size = size.ok_or(LocalError::Ranks { ranks: self.ranks.saturating_mul(count) })?;
            let (rank, incarnation) = (Rank(index.saturating_mul(self.ranks)), Incarnation(0));
            let transport = self.transport;
            return Ok((
                Environment { rank, incarnation, size, job, secret, rendezvous, transport, agent },
                None,
            ));
        }
        let job = JobId(getrandom::u64()?);
        let (rendezvous, port) = match self.transport {
            Transport::Tcp => {
                let (socket, port) = reserve_port()?;
                (format!("tcp:127.0.0.1:{port}"), Some(socket))
            }
            Transport::Auto | Transport::Shm => (format!("unix:@everfold-{:016x}", job.0), None),
        };
        let environment = Environment {
            rank: Rank(0),
            incarnation: Incarnation(0),
            size: self.ranks,
            job,
            secret: Secret::generate()?,
            rendezvous,
            transport: self.transport,
            agent,
        };
        Ok((environment, port))
    }
}

/// A port that is ours alone as long as the socket lives. It does not listen, so that the master can: with
/// `SO_REUSEPORT`.
fn reserve_port() -> io::Result<(TcpSocket, u16)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let port = socket.local_addr()?.port();
    Ok((socket, port))
}
