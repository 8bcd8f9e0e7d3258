//! A process that hails an agent which says anything.

use std::{
    io::IoSlice,
    net::IpAddr,
    os::{
        fd::AsRawFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener as StdUnixListener},
    },
    time::Duration,
};

use everfold_protocol::{AgentId, codec};
use everfold_runtime::{
    agent::{HailError, hail},
    transport::handshake,
};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncWriteExt, net::UnixListener, time::Instant};

use crate::{
    agent::{about, environment, fresh_name},
    input::{Input, piece},
    memory::bounded,
    remains::region_file,
    talk::{JOB, KEY, Raw, next_frame, sealed, wait_for},
};

/// As on the wire.
#[derive(Debug, Serialize, Deserialize)]
struct Welcome {
    id: AgentId,
    board: bool,
}

enum Said {
    Welcome(Welcome),
    Frame(Vec<u8>),
    Bytes(Vec<u8>),
    Descriptors(usize),
}

fn read(input: &mut Input<'_>) -> Said {
    let kind = input.byte();
    match kind % 8 {
        0 => Said::Bytes(input.piece().to_vec()),
        1 | 2 => Said::Frame(input.piece().to_vec()),
        3 | 4 => Said::Descriptors(usize::from(kind / 8) % 4),
        _ => Said::Welcome(Welcome { id: AgentId(input.number()), board: kind & 64 == 0 }),
    }
}

/// # Panics
/// If it takes more memory than was said, or waits for who has hung up.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let board_bytes = input.number().min(1 << 40);
    let said = input.many(12, read);
    let name = fresh_name();
    let listener = StdUnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let most = (512 << 10) + 16 * data.len();
    let outcome = bounded(most, || {
        wait_for(async {
            let listener = UnixListener::from_std(listener).unwrap();
            let deadline = Instant::now() + Duration::from_secs(20);
            let asks = async {
                let mut agent = hail(&environment(&name, 1, 4), about(1), deadline).await?;
                let reference = agent.serve(IpAddr::from([127, 0, 0, 1])).await?;
                drop(format!("{reference:?} {:?}", agent.board()));
                Ok::<_, HailError>(())
            };
            let both = async { tokio::join!(asks, lie(listener, &said, board_bytes)) };
            tokio::time::timeout_at(deadline, both).await.expect("who hangs up is not waited for").0
        })
    });
    if let Err(error) = outcome {
        drop(error.to_string());
    }
}

async fn lie(listener: UnixListener, said: &[Said], board_bytes: u64) {
    let (mut stream, _) = listener.accept().await.unwrap();
    drop(listener);
    let (_, mut seals) = handshake::accept(&mut stream, &KEY, JOB).await.unwrap();
    next_frame(&mut stream).await.expect("it hails");
    for said in said {
        let bytes = match said {
            Said::Welcome(welcome) => sealed(&Ok::<_, ()>(welcome), &mut seals.outward),
            Said::Frame(payload) => sealed(&Raw(payload), &mut seals.outward),
            Said::Bytes(bytes) => bytes.clone(),
            Said::Descriptors(count) => {
                let files: Vec<_> = (0..*count).map(|_| region_file(board_bytes).0).collect();
                let files: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
                let rights = [ControlMessage::ScmRights(&files)];
                let rights = if files.is_empty() { &[][..] } else { &rights };
                let _ = sendmsg::<UnixAddr>(
                    stream.as_raw_fd(),
                    &[IoSlice::new(&[0])],
                    rights,
                    MsgFlags::MSG_NOSIGNAL,
                    None,
                );
                continue;
            }
        };
        if stream.write_all(&bytes).await.is_err() {
            break;
        }
    }
}

pub fn samples() -> Vec<Vec<u8>> {
    let serving = |address: Result<&str, &str>| piece(&codec::encode(&address).unwrap());
    let good = serving(Ok("127.0.0.1:7078"));
    // Why a process is not taken in.
    let taken = piece(&[1, 0]);
    let busy = piece(&codec::encode(&(1u8, 1u8, "busy", Some(98i32))).unwrap());
    vec![
        [&[9, 69, 5, 1][..], &good].concat(),
        [&[9, 5, 5, 11, 1][..], &good].concat(),
        [&[9, 5, 5, 19, 1][..], &good].concat(),
        [&[9, 5, 5, 1][..], &good].concat(),
        [&[9, 69, 5, 1][..], &serving(Err("no"))].concat(),
        [&[9, 1][..], &taken].concat(),
        [&[9, 1][..], &busy].concat(),
        [&[9, 69, 5, 0][..], &piece(&[3; 30])].concat(),
    ]
}
