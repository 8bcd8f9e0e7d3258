//! An agent that is hailed by processes of its job that say anything.

use std::{
    os::{fd::AsRawFd, unix::net::UnixStream as StdUnixStream},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use everfold_master::Policy;
use everfold_protocol::{codec, message::RegionRef, spec::Limits};
use everfold_runtime::{
    agent::{About, AgentConfig, AgentThread, hail},
    launch::{Environment, Secret, Transport},
    transport::{
        control::Address,
        handshake::{self, Purpose},
    },
};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncWriteExt, net::UnixStream, time::Instant};

use crate::{
    input::{Input, piece},
    remains::region_file,
    talk::{JOB, KEY, Raw, next_frame, process, sealed, wait_for},
};

/// As on the wire.
#[derive(Debug, Serialize, Deserialize)]
struct Hail {
    size: u32,
    region: Option<RegionRef>,
    policy: Policy,
    detectors: Vec<String>,
    board: bool,
}

/// Anything that is said to an agent after the handshake.
enum Said {
    Hail(Box<Hail>),
    Frame(Vec<u8>),
    Bytes(Vec<u8>),
    Descriptors(usize),
}

/// A name in the abstract namespace that nobody has had.
pub(crate) fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("everfold-fuzz-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn connect(name: &str) -> std::io::Result<UnixStream> {
    use std::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};
    let stream = StdUnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// What leads a process to the agent with this name.
pub(crate) fn environment(name: &str, rank: u32, size: u32) -> Environment {
    let secret: String = KEY.0.iter().map(|byte| format!("{byte:02x}")).collect();
    Environment {
        rank: process(rank).rank,
        incarnation: process(rank).incarnation,
        size,
        job: JOB,
        secret: Secret::from_hex(&secret).unwrap(),
        rendezvous: format!("unix:@{name}-master"),
        transport: Transport::Auto,
        agent: Some(name.to_owned()),
    }
}

pub(crate) fn about(rank: u32) -> About<'static> {
    static POLICY: LazyLock<Policy> = LazyLock::new(Policy::default);
    let (process, detectors) = (process(rank), &[][..]);
    About { key: &KEY, job: JOB, process, size: 4, policy: &POLICY, detectors, region: None, board: true }
}

fn read(input: &mut Input<'_>) -> Said {
    let kind = input.byte();
    match kind % 8 {
        0 => Said::Bytes(input.piece().to_vec()),
        1 => Said::Frame(input.piece().to_vec()),
        2 => Said::Descriptors(usize::from(kind / 8) % 4),
        _ => {
            let time = Duration::from_nanos(input.number()).saturating_mul(input.number() as u32);
            let time = if kind & 64 == 0 { Limits::default().ping_interval } else { time };
            let limits = Limits { ping_interval: time, ..Limits::default() };
            let region = region_file(1 << 21).1;
            let region = RegionRef { bytes: region.bytes + u64::from(kind / 128), ..region };
            Said::Hail(Box::new(Hail {
                size: 2 + u32::from(kind / 8 % 4),
                region: (kind & 32 != 0).then_some(region),
                policy: Policy { limits, ..Policy::default() },
                detectors: Vec::new(),
                board: kind & 16 != 0,
            }))
        }
    }
}

/// # Panics
/// If an honest process is not taken in afterwards.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    // Rank 0 would bring the master.
    let rank = 1 + u32::from(input.byte() % 2);
    let said = input.many(12, read);
    let name = fresh_name();
    let config = AgentConfig {
        rules: Default::default(),
        symptoms: None,
        components: Default::default(),
        name: name.clone(),
        job: JOB,
        key: KEY,
        size: 4,
        rendezvous: Address::Unix(format!("{name}-master")),
        parent: None,
        has_others: false,
        is_first: false,
        is_spare: false,
        domain: None,
    };
    let agent = AgentThread::start(config).unwrap();
    wait_for(async {
        lie(&name, rank, &said).await;
        let deadline = Instant::now() + Duration::from_secs(20);
        let environment = environment(&name, 3, 4);
        let hailed = hail(&environment, about(3), deadline);
        let own = tokio::time::timeout_at(deadline, hailed).await.expect("it answers").unwrap();
        assert!(own.board().is_none(), "the master is not here");
    });
    drop(agent);
}

/// Says all that, and listens until the agent has said something or hung up.
async fn lie(name: &str, rank: u32, said: &[Said]) {
    let mut stream = connect(name).unwrap();
    let mut seals = handshake::connect(&mut stream, &KEY, JOB, process(rank), Purpose::Hail).await.unwrap();
    for said in said {
        let bytes = match said {
            Said::Hail(hail) => sealed(hail, &mut seals.outward),
            Said::Frame(payload) => sealed(&Raw(payload), &mut seals.outward),
            Said::Bytes(bytes) => bytes.clone(),
            Said::Descriptors(count) => {
                let files: Vec<_> = (0..*count).map(|_| region_file(1 << 21).0).collect();
                let files: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
                let rights = [ControlMessage::ScmRights(&files)];
                let rights = if files.is_empty() { &[][..] } else { &rights };
                let byte = [std::io::IoSlice::new(&[0])];
                let _ = sendmsg::<UnixAddr>(stream.as_raw_fd(), &byte, rights, MsgFlags::MSG_NOSIGNAL, None);
                continue;
            }
        };
        if stream.write_all(&bytes).await.is_err() {
            break;
        }
    }
    let _ = stream.shutdown().await;
    while next_frame(&mut stream).await.is_some() {}
}

pub fn samples() -> Vec<Vec<u8>> {
    let detectors = vec!["cautious".to_owned()];
    let hail = Hail { size: 4, region: None, policy: Policy::default(), detectors, board: true };
    let hail = piece(&codec::encode(&hail).unwrap());
    // Where to serve, as it follows.
    let serve = piece(&codec::encode(&std::net::IpAddr::from([127, 0, 0, 1])).unwrap());
    vec![
        [&[0, 1][..], &hail].concat(),
        [&[0, 1][..], &hail, &[1], &serve].concat(),
        [&[1, 1][..], &hail, &[1], &hail, &[0], &piece(&[1; 40])].concat(),
        // A region, and its descriptor.
        vec![0, 35, 1, 1, 10],
        vec![0, 35, 1, 1, 18],
        vec![0, 35, 1, 1, 2, 163, 1, 1, 10],
        // It may be silent for very long.
        vec![0, 67, 240, 0, 240, 0],
    ]
}
