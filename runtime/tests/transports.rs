//! All implementations of one-sided reads pass one suite; connections of both kinds pass another.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use everfold_protocol::{
    Epoch, JobId, ProcessId,
    frame::{self, FrameError},
    message::{ByteRange, Header, Peer, ToMaster},
    seal::Seal,
};
use everfold_runtime::{
    memory::{region::Region, window::Windows},
    transport::{
        OneSidedRead, ReadError, conformance,
        control::{Address, BoxStream, Listener, connect, encode_batch, read_frame, write_frame},
        handshake::{self, ByteOrder, HandshakeError, Key, Purpose, Seals},
        shm::{self, Shm},
        tcp::Tcp,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

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
        agent: None,
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
    let window = windows.publish(everfold_runtime::memory::window::Content::Encoded("x".into())).unwrap();
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
        let (mut outward, mut inward) = (Seal::new([1; 16]), Seal::new([1; 16]));
        let writing = tokio::spawn(async move {
            for batch in sent {
                let mut bytes = Vec::new();
                encode_batch(&header, &batch, 1 << 20, &mut outward, &mut bytes).unwrap();
                client.write_all(&bytes).await.unwrap();
            }
        });
        for batch in expected {
            let received: (Header, Vec<ToMaster>) =
                read_frame(&mut server, 1 << 20, &mut inward).await.unwrap();
            assert_eq!(received, (header, batch));
        }
        writing.await.unwrap();
        let ended = read_frame::<(Header, Vec<ToMaster>)>(&mut server, 1 << 20, &mut inward).await;
        assert!(matches!(ended, Err(HandshakeError::Io(_))), "a connection that ends is an error: {ended:?}");
    }
}

#[tokio::test]
async fn those_who_know_the_secret_are_let_in() {
    for (mut client, mut server) in pairs().await {
        let process = ProcessId::first(5);
        let (connected, accepted) = tokio::join!(
            handshake::connect(&mut client, &KEY, JOB, process, Purpose::Data(ProcessId::first(0))),
            handshake::accept(&mut server, &KEY, JOB),
        );
        connected.unwrap();
        let (hello, _) = accepted.unwrap();
        assert_eq!((hello.process, hello.purpose), (process, Purpose::Data(ProcessId::first(0))));
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
            let hello = (JOB, ProcessId::first(1), Purpose::Control, ByteOrder::OURS, [9u8; 32]);
            let seal = Seal::of_strangers;
            write_frame(&mut client, &hello, 1 << 10, &mut seal()).await.unwrap();
            let _: (u32, [u8; 32], [u8; 32]) = read_frame(&mut client, 1 << 10, &mut seal()).await.unwrap();
            write_frame(&mut client, &[1u8; 32], 1 << 10, &mut seal()).await.unwrap();
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
async fn another_byte_order_is_refused_by_the_server() {
    let other = match ByteOrder::OURS {
        ByteOrder::LittleEndian => ByteOrder::BigEndian,
        ByteOrder::BigEndian => ByteOrder::LittleEndian,
    };
    for (mut client, mut server) in pairs().await {
        let hello = (JOB, ProcessId::first(1), Purpose::Control, other, [9u8; 32]);
        write_frame(&mut client, &hello, 1 << 10, &mut Seal::of_strangers()).await.unwrap();
        let accepted = handshake::accept(&mut server, &KEY, JOB).await;
        assert!(
            matches!(accepted, Err(HandshakeError::OtherByteOrder { theirs, ours }) if theirs == other && ours == ByteOrder::OURS),
            "{accepted:?}"
        );
    }
}

#[tokio::test]
async fn strangers_are_refused_for_what_they_are() {
    let mut foreign_version = Vec::new();
    frame::encode_into(&1u8, 100, &mut Seal::of_strangers(), &mut foreign_version).unwrap();
    foreign_version[4] = 99;
    let mut oversized = foreign_version.clone();
    oversized[4] = everfold_protocol::frame::VERSION as u8;
    oversized[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut damaged = foreign_version.clone();
    damaged[4] = everfold_protocol::frame::VERSION as u8;
    *damaged.last_mut().unwrap() ^= 1;
    type Expected = fn(&HandshakeError) -> bool;
    let cases: [(&[u8], Expected); 5] = [
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", |e| {
            matches!(e, HandshakeError::Frame(FrameError::Magic(_)))
        }),
        (b"evf", |e| matches!(e, HandshakeError::Io(_))),
        (&foreign_version, |e| matches!(e, HandshakeError::Frame(FrameError::Version(99)))),
        (&oversized, |e| matches!(e, HandshakeError::Frame(FrameError::TooLong { .. }))),
        (&damaged, |e| matches!(e, HandshakeError::Frame(FrameError::NotGenuine(_)))),
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

/// Both ends of a connection after the handshake, with what each seals and checks.
async fn trusted(
    (mut client, mut server): (BoxStream, BoxStream),
) -> ((BoxStream, Seals), (BoxStream, Seals)) {
    let (connected, accepted) = tokio::join!(
        handshake::connect(&mut client, &KEY, JOB, ProcessId::first(5), Purpose::Control),
        handshake::accept(&mut server, &KEY, JOB),
    );
    ((client, connected.unwrap()), (server, accepted.unwrap().1))
}

fn sealed(number: u64, seal: &mut Seal) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode_into(&number, 100, seal, &mut bytes).unwrap();
    bytes
}

/// What somebody on the way, who has let the handshake pass, makes of two frames of the client and one of the
/// server.
type Tamper = fn(first: &[u8], second: &[u8], of_server: &[u8]) -> Vec<u8>;

#[tokio::test]
async fn nothing_is_believed_that_the_other_side_has_not_said_next() {
    let made_up = |_: &[u8], _: &[u8], _: &[u8]| sealed(1, &mut Seal::of_strangers());
    let changed = |first: &[u8], _: &[u8], _: &[u8]| {
        let mut changed = first.to_vec();
        *changed.last_mut().unwrap() ^= 1;
        changed
    };
    let cases: [(&str, usize, Tamper); 6] = [
        ("made up", 0, made_up),
        ("changed", 0, changed),
        ("repeated", 1, |first, _, _| [first, first].concat()),
        ("in another order", 0, |first, second, _| [second, first].concat()),
        ("left out", 0, |_, second, _| second.to_vec()),
        ("sent back", 0, |_, _, of_server| of_server.to_vec()),
    ];
    for (what, believed, tamper) in cases {
        for pair in pairs().await {
            let ((mut client, mut ours), (mut server, mut theirs)) = trusted(pair).await;
            let (first, second) = (sealed(1, &mut ours.outward), sealed(2, &mut ours.outward));
            let of_server = sealed(1, &mut theirs.outward);
            client.write_all(&tamper(&first, &second, &of_server)).await.unwrap();
            for _ in 0..believed {
                read_frame::<u64>(&mut server, 100, &mut theirs.inward).await.unwrap();
            }
            let refused = read_frame::<u64>(&mut server, 100, &mut theirs.inward).await;
            let not_genuine = matches!(refused, Err(HandshakeError::Frame(FrameError::NotGenuine(_))));
            assert!(not_genuine, "{what}: {refused:?}");
        }
    }
}

#[tokio::test]
async fn a_frame_of_another_connection_is_not_believed() {
    for pair in pairs().await {
        let ((_, mut earlier), _) = trusted(pair).await;
        let recorded = sealed(1, &mut earlier.outward);
        for pair in pairs().await {
            let ((mut client, _), (mut server, mut theirs)) = trusted(pair).await;
            client.write_all(&recorded).await.unwrap();
            let refused = read_frame::<u64>(&mut server, 100, &mut theirs.inward).await;
            assert!(matches!(refused, Err(HandshakeError::Frame(FrameError::NotGenuine(_)))), "{refused:?}");
        }
    }
}

/// A way to `place` on which a bit is turned over in what comes back, after so many bytes. Tells its own
/// place.
async fn turns_a_bit(after: u64, place: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let server = TcpStream::connect(&place).await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (from_server, mut to_server) = server.into_split();
        tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
        let mut before = from_server.take(after);
        tokio::io::copy(&mut before, &mut to_client).await.unwrap();
        let mut from_server = before.into_inner();
        let turned = from_server.read_u8().await.unwrap() ^ 1;
        to_client.write_u8(turned).await.unwrap();
        tokio::io::copy(&mut from_server, &mut to_client).await.unwrap();
    });
    own
}

#[tokio::test]
async fn a_bit_that_is_turned_over_in_a_window_is_noticed() {
    const BYTES: usize = 1 << 20;
    let windows = Arc::new(Windows::new(None));
    let content = everfold_runtime::memory::window::Content::Encoded(vec![1u8; BYTES].into());
    let window = windows.publish(content).unwrap();
    let address = support::serve(&windows, KEY, JOB).await;
    let peer = peer(&windows, turns_a_bit(BYTES as u64 / 2, address).await);
    let reader = Tcp::new(KEY, JOB, ProcessId::first(0));
    let read = reader.read(&peer, &window, ByteRange { start: 0, len: BYTES as u64 }).await;
    assert!(matches!(read, Err(ReadError::Checksum)), "{read:?}");
}
