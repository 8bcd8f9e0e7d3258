//! All implementations of one-sided reads pass one suite; connections of both kinds pass another.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use everfold_protocol::{
    Epoch, JobId, ProcessId,
    frame::FrameError,
    message::{Header, Peer, ToMaster},
};
use everfold_worker::{
    memory::{region::Region, window::Windows},
    transport::{
        OneSidedRead, ReadError, conformance,
        control::{Address, BoxStream, Listener, connect, encode_batch, read_frame, write_frame},
        handshake::{self, HandshakeError, Key, Purpose},
        shm::{self, Shm},
        tcp::Tcp,
    },
};
use tokio::io::AsyncWriteExt;

const JOB: JobId = JobId(7);
const KEY: Key = Key([3; 32]);

fn peer(windows: &Windows, address: String) -> Peer {
    Peer {
        process: ProcessId::first(1),
        host: shm::host_id().unwrap(),
        pid: std::process::id(),
        region: windows.region().map(|region| region.handle()),
        bell: None,
        board: None,
        address,
        domain: None,
    }
}

#[tokio::test]
async fn shm_conforms() {
    let windows = Arc::new(Windows::new(Some(Region::new().unwrap())));
    conformance::check(&Shm::new(), &peer(&windows, String::new()), &windows).await;
    assert!(windows.is_empty());
}

#[tokio::test]
async fn tcp_conforms() {
    for region in [None, Some(Region::new().unwrap())] {
        let windows = Arc::new(Windows::new(region));
        let address = support::serve(&windows, KEY, JOB).await;
        let reader = Tcp::new(KEY, JOB, ProcessId::first(0));
        conformance::check(&reader, &peer(&windows, address), &windows).await;
        assert!(windows.is_empty());
    }
}

#[tokio::test]
async fn a_dead_peer_is_unreachable() {
    let windows = Windows::new(Some(Region::new().unwrap()));
    let listener = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.tcp_address().unwrap().unwrap().to_string();
    drop(listener);
    let mut dead = peer(&windows, address);
    dead.pid = u32::MAX >> 2;
    let window = windows.publish(everfold_worker::memory::window::Content::Encoded("x".into())).unwrap();
    let range = everfold_protocol::message::ByteRange { start: 0, len: 1 };
    let readers: [Box<dyn OneSidedRead>; 2] =
        [Box::new(Shm::new()), Box::new(Tcp::new(KEY, JOB, ProcessId::first(0)))];
    for reader in readers {
        let result = reader.read(&dead, &window, range).await;
        assert!(matches!(result, Err(ReadError::Unreachable(_))), "{result:?}");
    }
}

/// Both ends of a connection of each kind.
async fn pairs() -> Vec<(BoxStream, BoxStream)> {
    let mut pairs = Vec::new();
    let name = format!("unix:@everfold-test-{}-{:p}", std::process::id(), &pairs);
    for address in ["tcp:127.0.0.1:0".to_owned(), name] {
        let mut address: Address = address.parse().unwrap();
        let listener = Listener::bind(&address).await.unwrap();
        if let Some(bound) = listener.tcp_address().unwrap() {
            address = Address::Tcp(bound.to_string());
        }
        let (client, server) = tokio::join!(connect(&address), listener.accept());
        pairs.push((client.unwrap(), server.unwrap().0));
    }
    pairs
}

#[tokio::test]
async fn control_messages_arrive_whole_and_in_order() {
    for (mut client, mut server) in pairs().await {
        let header = Header { job: JOB, epoch: Epoch(4), sender: ProcessId::first(2) };
        let sent: Vec<Vec<ToMaster>> = (0..50).map(|number| vec![ToMaster::Pong { number }; 3]).collect();
        let expected = sent.clone();
        let writing = tokio::spawn(async move {
            for batch in sent {
                let mut bytes = Vec::new();
                encode_batch(&header, &batch, 1 << 20, &mut bytes).unwrap();
                client.write_all(&bytes).await.unwrap();
            }
        });
        for batch in expected {
            let received: (Header, Vec<ToMaster>) = read_frame(&mut server, 1 << 20).await.unwrap();
            assert_eq!(received, (header, batch));
        }
        writing.await.unwrap();
        let ended = read_frame::<(Header, Vec<ToMaster>)>(&mut server, 1 << 20).await;
        assert!(matches!(ended, Err(HandshakeError::Io(_))), "a connection that ends is an error: {ended:?}");
    }
}

#[tokio::test]
async fn those_who_know_the_secret_are_let_in() {
    for (mut client, mut server) in pairs().await {
        let process = ProcessId::first(5);
        let (connected, accepted) = tokio::join!(
            handshake::connect(&mut client, &KEY, JOB, process, Purpose::Data),
            handshake::accept(&mut server, &KEY, JOB),
        );
        connected.unwrap();
        let hello = accepted.unwrap();
        assert_eq!((hello.process, hello.purpose), (process, Purpose::Data));
    }
}

#[tokio::test]
async fn a_wrong_secret_is_refused_by_both_sides() {
    for (mut client, mut server) in pairs().await {
        let connecting = async {
            let result =
                handshake::connect(&mut client, &Key([4; 32]), JOB, ProcessId::first(1), Purpose::Control)
                    .await;
            drop(client);
            result
        };
        let (connected, accepted) = tokio::join!(connecting, handshake::accept(&mut server, &KEY, JOB));
        assert!(
            matches!(connected, Err(HandshakeError::WrongSecret)),
            "the server proves itself first: {connected:?}"
        );
        assert!(accepted.is_err());
    }
}

#[tokio::test]
async fn a_forged_proof_is_refused() {
    for (mut client, mut server) in pairs().await {
        let forging = async {
            // A client that skips the check of the server and guesses its own proof.
            let hello = (JOB, ProcessId::first(1), Purpose::Control, [9u8; 32]);
            write_frame(&mut client, &hello, 1 << 10).await.unwrap();
            let _: (u32, [u8; 32], [u8; 32]) = read_frame(&mut client, 1 << 10).await.unwrap();
            write_frame(&mut client, &[1u8; 32], 1 << 10).await.unwrap();
        };
        let ((), accepted) = tokio::join!(forging, handshake::accept(&mut server, &KEY, JOB));
        assert!(matches!(accepted, Err(HandshakeError::WrongSecret)), "{accepted:?}");
    }
}

#[tokio::test]
async fn a_foreign_job_is_refused_by_both_sides() {
    for (mut client, mut server) in pairs().await {
        let (connected, accepted) = tokio::join!(
            handshake::connect(&mut client, &KEY, JobId(8), ProcessId::first(1), Purpose::Control),
            handshake::accept(&mut server, &KEY, JOB),
        );
        assert!(
            matches!(connected, Err(HandshakeError::ForeignJob { theirs: JOB, ours: JobId(8) })),
            "{connected:?}"
        );
        assert!(
            matches!(accepted, Err(HandshakeError::ForeignJob { theirs: JobId(8), ours: JOB })),
            "{accepted:?}"
        );
    }
}

#[tokio::test]
async fn strangers_are_refused_for_what_they_are() {
    let mut foreign_version = Vec::new();
    everfold_protocol::frame::encode_into(&1u8, 100, &mut foreign_version).unwrap();
    foreign_version[4] = 99;
    let mut oversized = foreign_version.clone();
    oversized[4] = everfold_protocol::frame::VERSION as u8;
    oversized[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut damaged = foreign_version.clone();
    damaged[4] = everfold_protocol::frame::VERSION as u8;
    *damaged.last_mut().unwrap() ^= 1;
    type Expected = fn(&HandshakeError) -> bool;
    let cases: [(&[u8], Expected); 5] = [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", |e| matches!(e, HandshakeError::Frame(FrameError::Magic(_)))),
        (b"evf", |e| matches!(e, HandshakeError::Io(_))),
        (&foreign_version, |e| matches!(e, HandshakeError::Frame(FrameError::Version(99)))),
        (&oversized, |e| matches!(e, HandshakeError::Frame(FrameError::TooLong { .. }))),
        (&damaged, |e| matches!(e, HandshakeError::Frame(FrameError::Checksum { .. }))),
    ];
    for (bytes, expected) in cases {
        for (mut client, mut server) in pairs().await {
            client.write_all(bytes).await.unwrap();
            client.shutdown().await.unwrap();
            let error = handshake::accept(&mut server, &KEY, JOB).await.unwrap_err();
            assert!(expected(&error), "{error}");
        }
    }
}
