//! Where and how the processes of an everfold job meet, if we start them ourselves.

use std::{io, process::Command};

use everfold::launch::{Transport, environment::Secret};
use tokio::net::TcpSocket;

use crate::{
    Failure,
    cluster::{Cluster, Host},
};

/// Where the master listens if its host is none of the others'.
const PORT: u16 = 7077;

/// What the processes of one job have to know of each other.
#[derive(Debug)]
pub struct Meeting {
    variables: [(&'static str, String); 5],
    /// Keeps the place free for rank 0.
    _port: Option<TcpSocket>,
}

impl Meeting {
    /// A new job of `ranks` processes, the first of which runs in the first host of `cluster`.
    ///
    /// # Errors
    /// The system refuses a port or random numbers.
    pub fn new(ranks: u32, transport: Transport, cluster: Option<&Cluster>) -> Result<Self, Failure> {
        let id = getrandom::u64()?;
        let (rendezvous, port) = rendezvous(id, transport, cluster)?;
        let variables = [
            ("EVERFOLD_RENDEZVOUS", rendezvous),
            ("EVERFOLD_SIZE", ranks.to_string()),
            ("EVERFOLD_JOB", format!("{id:016x}")),
            ("EVERFOLD_SECRET", Secret::generate()?.to_hex()),
            ("EVERFOLD_TRANSPORT", transport.to_string()),
        ];
        Ok(Self { variables, _port: port })
    }

    /// Makes what `command` starts that rank of the job.
    pub fn join(&self, rank: u32, command: &mut Command) {
        command
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("EVERFOLD_RANK", rank.to_string())
            .env_remove("EVERFOLD_SECRET_FILE")
            .env_remove("EVERFOLD_AGENT")
            .env_remove("EVERFOLD_INCARNATION");
    }

    /// Name of the socket of the agent of that host, if we start it ourselves.
    pub fn agent(&self, host: Host) -> String {
        let [_, _, (_, job), ..] = &self.variables;
        format!("everfold-agent-{job}-{}", host.0)
    }
}

fn rendezvous(
    id: u64,
    transport: Transport,
    cluster: Option<&Cluster>,
) -> io::Result<(String, Option<TcpSocket>)> {
    Ok(match (cluster, transport) {
        (Some(cluster), _) => (format!("tcp:{}:{PORT}", cluster.address(Host(0))), None),
        (None, Transport::Tcp) => {
            // It does not listen, so the master can.
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseport(true)?;
            socket.bind(([127, 0, 0, 1], 0).into())?;
            (format!("tcp:127.0.0.1:{}", socket.local_addr()?.port()), Some(socket))
        }
        (None, Transport::Auto | Transport::Shm) => (format!("unix:@everfold-{id:016x}"), None),
    })
}
