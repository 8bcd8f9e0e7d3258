//! A process without a single descriptor left. The only test of its process: the limit is that of all
//! threads.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::{
    io::Read,
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
};

use bytes::Bytes;
use everfold_protocol::{Epoch, JobId, ProcessId, message::Header, seal::Seal};
use everfold_runtime::{descriptors::is_scarcity, transport::line::Outlet};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// A worker that has joined says all that it has to say, also what its connection does not take at once.
#[tokio::test]
async fn what_is_blocked_is_sent_without_a_further_descriptor() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut outlet: Outlet<Bytes> = Outlet::new(Arc::new(OwnedFd::from(ours)), Seal::of_strangers());
    outlet.prepare().unwrap();
    let (other, _) = UnixStream::pair().unwrap();
    let mut unprepared: Outlet<Bytes> = Outlet::new(Arc::new(OwnedFd::from(other)), Seal::of_strangers());
    // Less than are open.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 4, hard).unwrap();
    assert!(is_scarcity(&unprepared.register().unwrap_err()));

    let header = Header { job: JobId(1), epoch: Epoch(0), sender: ProcessId::first(1) };
    (0..64).for_each(|_| outlet.push(Bytes::from(vec![u8::MAX; 10_000])));
    outlet.send(&header, 1 << 20).unwrap();
    assert!(outlet.is_blocked(), "it is more than the connection takes");
    let reader = std::thread::spawn(move || {
        let (mut theirs, mut bytes) = (theirs, Vec::new());
        theirs.read_to_end(&mut bytes).unwrap();
        bytes.len()
    });
    while outlet.is_blocked() {
        let line = outlet.register().unwrap();
        drop(line.writable().await.unwrap());
        drop(line);
        outlet.go_on();
    }
    outlet.close(Shutdown::Write);
    assert!(reader.join().unwrap() > 64 * 10_000);
}
