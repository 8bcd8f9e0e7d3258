//! Where connections wait until both ends have proved that they belong to the job.
//!
//! Anybody who reaches a port can connect and say nothing. So there is a bound on connections that have
//! proved nothing yet. A new one always gets in; if there are too many then, the oldest leaves of the origin
//! that has the most here. Strangers thus displace each other, and a process of the job, which needs
//! milliseconds, is hardly ever the oldest. If it is, it [knocks](knock) again.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use everfold_protocol::{JobId, ProcessId};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{
    control::{Address, BoxStream, Listener, Origin, Stream, connect_until},
    handshake::{self, HandshakeError, Hello, Key, Purpose, Seals},
};
use crate::descriptors;

/// Most connections that have proved nothing yet, besides one for each process of the job, as all may come at
/// once. They take up to this part of all descriptors.
const GUESTS_MAX: u64 = 256;
const DESCRIPTORS_PART: u64 = 4;

/// How often a process of the job knocks, and how long it waits after the first time. It doubles.
const KNOCKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(5);
/// The longest pause where it is not known how often it has to knock.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// All connections to one listener that have proved nothing yet.
#[derive(Clone, Debug)]
pub struct Lobby {
    guests: Arc<Mutex<Guests>>,
    most: usize,
}

#[derive(Debug, Default)]
struct Guests {
    /// Of each origin, in the order in which they came. Dropping what stands here asks a guest to leave.
    here: BTreeMap<Origin, BTreeMap<u64, oneshot::Sender<()>>>,
    count: usize,
    next: u64,
}

/// The place of one connection.
#[derive(Debug)]
pub struct Guest {
    lobby: Lobby,
    origin: Origin,
    number: u64,
    asked_to_leave: oneshot::Receiver<()>,
}

impl Lobby {
    /// A lobby that fits a job of `size` processes, and the limit of descriptors.
    pub fn for_job(size: u32) -> Self {
        let wanted = GUESTS_MAX + u64::from(size);
        Self::new(wanted.min(descriptors::limit() / DESCRIPTORS_PART).max(1) as usize)
    }

    fn new(most: usize) -> Self {
        Self { guests: Arc::default(), most }
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the next connection in, and another one out if there are too many.
    pub async fn next(&self, listener: &Listener) -> (BoxStream, Guest) {
        loop {
            match listener.accept().await {
                Ok((stream, origin)) => {
                    let (guest, is_full) = self.admit(origin);
                    if is_full {
                        // A guest that has to leave closes its connection now.
                        tokio::task::yield_now().await;
                    }
                    return (stream, guest);
                }
                Err(error) => {
                    // Out of descriptors, most likely: give those in use a chance to be closed.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(descriptors::PAUSE).await;
                }
            }
        }
    }

    fn admit(&self, origin: Origin) -> (Guest, bool) {
        let mut guests = self.guests();
        let (number, asked_to_leave) = guests.add(origin);
        let is_full = guests.count > self.most;
        if is_full && let Some((origin, oldest)) = guests.oldest_of_the_most() {
            guests.remove(origin, oldest);
        }
        (Guest { lobby: self.clone(), origin, number, asked_to_leave }, is_full)
    }
}

impl Guests {
    fn add(&mut self, origin: Origin) -> (u64, oneshot::Receiver<()>) {
        let number = self.next;
        self.next += 1;
        let (stay, asked_to_leave) = oneshot::channel();
        self.here.entry(origin).or_default().insert(number, stay);
        self.count += 1;
        (number, asked_to_leave)
    }

    fn remove(&mut self, origin: Origin, number: u64) {
        let Some(here) = self.here.get_mut(&origin) else { return };
        self.count -= usize::from(here.remove(&number).is_some());
        if here.is_empty() {
            self.here.remove(&origin);
        }
    }

    fn oldest_of_the_most(&self) -> Option<(Origin, u64)> {
        let oldest = |here: &BTreeMap<u64, _>| here.keys().next().copied().unwrap_or_default();
        let most = self.here.iter().max_by_key(|(_, here)| (here.len(), u64::MAX - oldest(here)));
        most.map(|(origin, here)| (*origin, oldest(here)))
    }
}

impl Guest {
    /// Lets the other side prove that it belongs to the job, unless its place is needed.
    ///
    /// # Errors
    /// Any [`HandshakeError`]; the connection is then to be closed.
    pub async fn prove(
        self,
        stream: &mut impl Stream,
        key: &Key,
        job: JobId,
    ) -> Result<(Hello, Seals), HandshakeError> {
        self.prove_if(stream, key, job, |_| true).await
    }

    /// The same, if this side `admits` what the other one wants.
    ///
    /// # Errors
    /// Any [`HandshakeError`]; the connection is then to be closed.
    pub async fn prove_if(
        mut self,
        stream: &mut impl Stream,
        key: &Key,
        job: JobId,
        admits: impl Fn(Purpose) -> bool,
    ) -> Result<(Hello, Seals), HandshakeError> {
        tokio::select! {
            biased;
            accepted = handshake::accept_if(stream, key, job, admits) => accepted,
            _ = &mut self.asked_to_leave => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "too many others have connected").into())
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.lobby.guests().remove(self.origin, self.number);
    }
}

/// Connects to a process of the job and proves to belong to it; returns what everything is sealed with from
/// then on. If the other side hangs up, because it had to make room, that is tried again a few times.
///
/// # Errors
/// Nobody listens there, or any [`HandshakeError`].
pub async fn knock<C: Future<Output = io::Result<BoxStream>>>(
    connect: impl Fn() -> C,
    key: &Key,
    job: JobId,
    me: ProcessId,
    purpose: Purpose,
) -> Result<(BoxStream, Seals), HandshakeError> {
    let mut pause = PAUSE;
    for _ in 1..KNOCKS {
        let mut stream = connect().await?;
        match handshake::connect(&mut stream, key, job, me, purpose).await {
            Err(HandshakeError::Io(error)) if is_hang_up(&error) => {
                tracing::debug!(%error, "knocking again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            result => return result.map(|seals| (stream, seals)),
        }
    }
    let mut stream = connect().await?;
    handshake::connect(&mut stream, key, job, me, purpose).await.map(|seals| (stream, seals))
}

/// The same with a process that may not be there yet, or lets nobody in yet, until `deadline`.
///
/// # Errors
/// It was not there in time ([`HandshakeError::Io`]), or any other [`HandshakeError`].
pub async fn knock_until(
    address: &Address,
    deadline: Instant,
    (key, job, me): (&Key, JobId, ProcessId),
    purpose: Purpose,
) -> Result<(BoxStream, Seals), HandshakeError> {
    let mut pause = PAUSE;
    loop {
        let mut stream = connect_until(address, deadline).await?;
        let late =
            |_| io::Error::new(io::ErrorKind::TimedOut, "who listens there does not finish the handshake");
        let proving = handshake::connect(&mut stream, key, job, me, purpose);
        match timeout_at(deadline, proving).await.map_err(late)? {
            Err(HandshakeError::Io(error)) if is_hang_up(&error) && Instant::now() + pause < deadline => {
                tracing::debug!(%error, "knocking again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            result => return result.map(|seals| (stream, seals)),
        }
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    const STRANGER: Origin = Origin::User(1);
    const OURS: Origin = Origin::User(2);

    /// Which of `origins`, who come one after the other, have to leave.
    fn displaced(most: usize, origins: &[Origin]) -> Vec<usize> {
        let lobby = Lobby::new(most);
        let mut guests: Vec<_> = origins.iter().map(|origin| lobby.admit(*origin).0).collect();
        let is_displaced = |guest: &mut Guest| guest.asked_to_leave.try_recv() == Err(TryRecvError::Closed);
        let displaced =
            guests.iter_mut().enumerate().filter_map(|(at, guest)| is_displaced(guest).then_some(at));
        displaced.collect()
    }

    #[test]
    fn the_oldest_of_those_who_have_the_most_leave() {
        assert_eq!(displaced(3, &[STRANGER, OURS, STRANGER]), [0; 0]);
        assert_eq!(displaced(3, &[OURS, STRANGER, STRANGER, STRANGER, STRANGER]), [1, 2]);
        assert_eq!(displaced(3, &[STRANGER, STRANGER, STRANGER, OURS]), [0]);
        assert_eq!(displaced(2, &[OURS, OURS, OURS]), [0]);
        assert_eq!(displaced(1, &[OURS, STRANGER]), [0]);
    }

    #[test]
    fn a_place_is_given_back() {
        let lobby = Lobby::new(1);
        drop(lobby.admit(OURS));
        let (mut guest, is_full) = lobby.admit(OURS);
        assert!(!is_full && guest.asked_to_leave.try_recv() == Err(TryRecvError::Empty));
    }

    #[tokio::test]
    async fn who_says_nothing_is_waited_for_until_the_deadline() {
        let address = Address::Unix(format!("everfold-test-{}-silent", std::process::id()));
        let _silent = Listener::bind(&address).await.unwrap();
        let who = (&Key([1; 32]), JobId(1), ProcessId::first(0));
        let knocked = knock_until(&address, Instant::now(), who, Purpose::Control).await.map(drop);
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        assert!(matches!(&knocked, Err(HandshakeError::Io(error)) if is_late(error)), "{knocked:?}");
    }

    #[test]
    fn a_host_of_ipv6_is_one_origin_whatever_it_calls_itself() {
        let origin = |address: &str| Origin::from(address.parse::<std::net::IpAddr>().unwrap());
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:2"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_eq!(origin("::ffff:10.0.0.1"), origin("10.0.0.1"));
        assert_ne!(origin("10.0.0.1"), origin("10.0.0.2"));
    }
}
