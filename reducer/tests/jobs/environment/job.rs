//! A job whose ranks are started one by one.

use std::{
    net::SocketAddr,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddress, UnixStream},
    },
    process::Command,
};

use everfold_protocol::JobId;
use everfold_runtime::transport::handshake::Key;

use crate::{
    process::{Mark, Process, job, wait_until},
    strangers::Target,
};

pub(super) const RANKS: u32 = 3;

const SECRET: [u8; 32] = [0xa5; 32];

/// The value of one of our variables.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(format!("EVERFOLD_{name}")).unwrap()
}

/// A job whose ranks are started one by one.
pub(super) struct Job {
    pub(super) mark: Mark,
    number: JobId,
    pub(super) rendezvous: String,
    program: &'static str,
    /// Keeps the port for rank 0, without listening.
    _port: Option<tokio::net::TcpSocket>,
}

impl Job {
    pub(super) fn new(scheme: &str, program: &'static str) -> Self {
        let mark = Mark::new();
        let number = JobId(crate::values::scramble(u64::from(std::process::id())) ^ mark.number());
        let (rendezvous, port) = match scheme {
            "unix" => (format!("unix:@everfold-test-{:x}", number.0), None),
            _ => {
                let socket = tokio::net::TcpSocket::new_v4().unwrap();
                socket.set_reuseport(true).unwrap();
                socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
                (format!("tcp:{}", socket.local_addr().unwrap()), Some(socket))
            }
        };
        Self { mark, number, rendezvous, program, _port: port }
    }

    /// The command of a rank without its variables for the secret.
    pub(super) fn command(&self, rank: u32) -> Command {
        let mut command = job(self.program, RANKS, "auto");
        command.envs(self.variables(rank, RANKS));
        command
    }

    pub(super) fn variables(&self, rank: u32, size: u32) -> [(&'static str, String); 4] {
        [
            ("EVERFOLD_RENDEZVOUS", self.rendezvous.clone()),
            ("EVERFOLD_RANK", rank.to_string()),
            ("EVERFOLD_SIZE", size.to_string()),
            ("EVERFOLD_JOB", format!("{:x}", self.number.0)),
        ]
    }

    pub(super) fn secret() -> String {
        "a5".repeat(32)
    }

    pub(super) fn start(&self, rank: u32) -> Process {
        self.spawn(self.command(rank).env("EVERFOLD_SECRET", Self::secret()))
    }

    pub(super) fn spawn(&self, command: &mut Command) -> Process {
        Process::spawn_marked(command, self.mark.clone())
    }

    pub(super) fn target(&self) -> Target {
        Target { address: self.address(), job: self.number, key: Key(SECRET) }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.rendezvous.strip_prefix("tcp:").unwrap().parse().unwrap()
    }

    /// Waits until rank 0 listens.
    pub(super) fn wait_for_master(&self) {
        wait_until("rank 0 listens", || match self.rendezvous.strip_prefix("unix:@") {
            Some(name) => UnixStream::connect_addr(&UnixAddress::from_abstract_name(name).unwrap()).is_ok(),
            None => std::net::TcpStream::connect(self.address()).is_ok(),
        });
    }

    /// All of `processes` come to their end, rank by rank, and nothing is left.
    #[track_caller]
    pub(super) fn assert_done(&self, processes: Vec<(u32, Process)>) {
        for (rank, mut process) in processes {
            process.ended().assert_done([rank]);
        }
        assert_eq!(self.mark.living(), []);
    }

    /// None of `processes` gets into the job, and each says why.
    #[track_caller]
    pub(super) fn assert_refused(&self, processes: Vec<Process>, why: &str) {
        for mut process in processes {
            let end = process.ended();
            assert_eq!(end.code, 1, "{end:?}");
            assert!(end.said.iter().any(|line| line.contains(why)), "{end:?}");
        }
        assert_eq!(self.mark.living(), []);
    }
}
