//! Readers that take nothing of what they have asked for: stopped, cut off, or merely rude.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use everfold_protocol::{
    JobId, ProcessId,
    message::{ByteRange, Peer},
};
use everfold_runtime::{
    memory::{
        buffer::Buffer,
        window::{Content, Windows},
    },
    serving::{ServeError, Server},
    transport::{
        OneSidedRead,
        control::Listener,
        handshake::{self, Key},
        tcp::Tcp,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

const JOB: JobId = JobId(7);
const KEY: Key = Key([3; 32]);
const OWNER: ProcessId = ProcessId { rank: everfold_protocol::Rank(1), ..READER };
const READER: ProcessId =
    ProcessId { rank: everfold_protocol::Rank(0), incarnation: everfold_protocol::Incarnation(0) };
/// Far more than the sockets of a connection hold.
const BYTES: usize = 256 << 20;
/// No test takes longer, on whatever machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Serves `windows`; tells where, and how each connection ended.
async fn serve(server: &Arc<Server>) -> (String, mpsc::UnboundedReceiver<Result<(), ServeError>>) {
    let listener = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.tcp_address().unwrap().unwrap().to_string();
    let (ended, ends) = mpsc::unbounded_channel();
    let server = server.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (server, ended) = (server.clone(), ended.clone());
            tokio::spawn(async move {
                let (hello, seals) = handshake::accept(&mut stream, &KEY, JOB).await.unwrap();
                ended.send(server.serve(hello.process, stream, seals).await)
            });
        }
    });
    (address, ends)
}

/// A way to `place` on which nothing comes back once so many bytes have: as behind a reader that is stopped,
/// or a link that is cut. Tells its own place.
async fn stops_after(bytes: u64, place: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut ways = Vec::new();
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&place).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let mut from_server = from_server.take(bytes);
            tokio::io::copy(&mut from_server, &mut to_client).await.unwrap();
            to_client.flush().await.unwrap();
            ways.push((from_server, to_client));
        }
    });
    own
}

/// A window on a long array, whose reader takes no more than its first bytes; and how it ended for the
/// server.
async fn stuck(
    silence_max: Duration,
) -> (Arc<Server>, Arc<Buffer>, String, mpsc::UnboundedReceiver<Result<(), ServeError>>) {
    let windows = Arc::new(Windows::new(None));
    let buffer = Buffer::new(Box::new(vec![1u8; BYTES]));
    let window = windows.publish(Content::Buffer(buffer.clone())).unwrap();
    let server = Arc::new(Server::new(windows.clone()));
    server.meet(silence_max);
    let (address, ends) = serve(&server).await;
    let peer = Peer {
        process: OWNER,
        host: 0,
        pid: 0,
        region: None,
        bell: None,
        board: None,
        address: stops_after(1 << 20, address.clone()).await,
        domain: None,
        agent: None,
    };
    tokio::spawn(async move {
        let reader = Tcp::new(KEY, JOB, READER);
        reader.read(&peer, &window, ByteRange { start: 0, len: BYTES as u64 }).await
    });
    while buffer.write(0, 1).is_ok() {
        tokio::task::yield_now().await;
    }
    (server, buffer, address, ends)
}

#[tokio::test]
async fn what_a_departed_reader_holds_is_given_back_and_it_is_not_served_again() {
    let (server, buffer, address, mut ends) = stuck(Duration::from_secs(3600)).await;
    server.depart(READER);
    tokio::time::timeout(DEADLINE, buffer.idle()).await.expect("nobody holds it");
    assert!(matches!(ends.recv().await, Some(Err(ServeError::NotAdmitted(_)))));
    let mut stream =
        everfold_runtime::transport::control::connect(&format!("tcp:{address}").parse().unwrap())
            .await
            .unwrap();
    handshake::connect(&mut stream, &KEY, JOB, READER, handshake::Purpose::Data(ProcessId::first(0)))
        .await
        .unwrap();
    assert!(matches!(ends.recv().await, Some(Err(ServeError::NotAdmitted(_)))));
}

#[tokio::test]
async fn a_reader_that_takes_nothing_for_too_long_is_cut_off() {
    // The least that a connection is given.
    let (_server, buffer, _, mut ends) = stuck(Duration::ZERO).await;
    let ended = tokio::time::timeout(DEADLINE, ends.recv()).await.expect("it is cut off");
    assert!(matches!(ended, Some(Err(ServeError::Broken(_)))), "{ended:?}");
    buffer.idle().await;
}
