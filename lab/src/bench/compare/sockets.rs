//! What plain TCP sockets need for the same: the bound that links without a limit leave.
//!
//! On fast links the processor is the bound, and it cannot be computed. So a reduction is done in the
//! simplest way: one thread per rank, blocking on `poll`, no tasks, no master, no protection, no checksum.
//! Who folds what is fixed. The fastest of three [`Way`]s counts, found anew for each line.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream},
    ops::Range,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::ExitCode,
    thread,
    time::Duration,
};

use clap::{Args, ValueEnum};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, setsockopt, sockopt},
};

use super::{
    case::Roots,
    rank::{Times, check, fill},
    team::Block,
};
use crate::{Failure, clock::now_ns};

/// Elements of a body that pass at a time: they stay in the cache until they are folded.
const PIECE: usize = 16 << 10;
/// Where rank 0 listens of the ranks that go the first way.
const PORT: u16 = 7100;
/// Tries to reach a rank that has yet to listen, and the pause between two of them.
const TRIES: u32 = 2000;
const PAUSE: Duration = Duration::from_millis(5);

/// Who folds what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// All send to rank 0.
    Direct,
    /// Each rank hands what it has folded with what came to it on to the rank before.
    Chain,
    /// Each rank folds its part, which the others send to it.
    Scatter,
}

impl Way {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Chain => "chain",
            Self::Scatter => "scatter",
        }
    }
}

/// One rank of the side of plain sockets.
#[derive(Args)]
pub struct SocketsRank {
    /// Who folds what.
    #[arg(long, value_enum)]
    way: Way,
    /// Which rank this is.
    #[arg(long)]
    rank: usize,
    /// Addresses of all ranks.
    #[arg(long, value_delimiter = ',')]
    hosts: Vec<Ipv4Addr>,
    /// Where the driver listens.
    socket: PathBuf,
}

impl SocketsRank {
    /// Does as a rank what the command that started it asks for.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let mut mesh = Mesh::meet(self.way, self.rank, &self.hosts)?;
        let mut driver = UnixStream::connect(&self.socket)?;
        writeln!(driver, "{}", self.rank)?;
        let mut lines = BufReader::new(driver.try_clone()?).lines();
        while let Some(line) = lines.next().transpose()? {
            let Ok(block) = line.parse::<Block>() else { break };
            match mesh.measure(&block)? {
                Ok(times) => writeln!(driver, "{}", serde_json::to_string(&times)?)?,
                Err(wrong) => writeln!(driver, "!{wrong}")?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Connections of one rank to all others, and its bodies.
struct Mesh {
    way: Way,
    rank: usize,
    /// By rank; none to itself.
    peers: Vec<Option<TcpStream>>,
    /// What has come and is not folded.
    come: Vec<f32>,
}

/// What is left to send to a rank.
type Outgoing<'a> = (usize, &'a [u8]);
/// What is left to receive from one.
type Incoming<'a> = (usize, &'a mut [u8]);

impl Mesh {
    fn meet(way: Way, rank: usize, hosts: &[Ipv4Addr]) -> io::Result<Self> {
        let port = PORT + way as u16;
        let listener = socket()?;
        setsockopt(&listener, sockopt::ReuseAddr, &true)?;
        socket::bind(listener.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(hosts[rank], port)))?;
        socket::listen(&listener, Backlog::MAXALLOWABLE)?;
        let listener = TcpListener::from(listener);
        let mut peers: Vec<Option<TcpStream>> = hosts.iter().map(|_| None).collect();
        for (other, host) in hosts.iter().enumerate().take(rank) {
            let mut stream = reach(SocketAddrV4::new(*host, port))?;
            stream.write_all(&(rank as u32).to_le_bytes())?;
            peers[other] = Some(stream);
        }
        for _ in rank + 1..hosts.len() {
            let (mut stream, _) = listener.accept()?;
            let mut other = [0; 4];
            stream.read_exact(&mut other)?;
            peers[u32::from_le_bytes(other) as usize] = Some(stream);
        }
        for stream in peers.iter().flatten() {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
        }
        Ok(Self { way, rank, peers, come: Vec::new() })
    }

    fn size(&self) -> usize {
        self.peers.len()
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.size()).filter(move |other| *other != rank)
    }

    /// All repetitions of a block, or what is wrong with a result.
    fn measure(&mut self, block: &Block) -> io::Result<Result<Vec<Times>, String>> {
        let mut body = vec![0.0; block.elements()];
        let (mut times, mut checked) = (Vec::new(), Ok(()));
        for round in block.round..block.round + block.repetitions {
            fill(&mut body, self.rank as u32, round);
            self.barrier()?;
            let started = now_ns();
            self.reduce(&mut body, block.roots == Roots::All)?;
            times.push((started, now_ns()));
            self.barrier()?;
            if self.rank == 0 || block.roots == Roots::All {
                checked = checked.and_then(|()| check(&body, self.size() as u32, round));
            }
        }
        Ok(checked.map(|()| times))
    }

    /// Folds the bodies of all ranks into that of rank 0, or of all.
    fn reduce(&mut self, body: &mut [f32], for_all: bool) -> io::Result<()> {
        match self.way {
            Way::Direct => {
                self.fold_at_root(body)?;
                if for_all { self.spread(body) } else { Ok(()) }
            }
            Way::Chain if !for_all => self.fold_along_chain(body),
            Way::Chain => self.fold_along_ring(body),
            Way::Scatter => {
                let pieces = body.len().div_ceil(PIECE * self.size());
                for number in 0..pieces {
                    let piece = part(0..body.len(), number, pieces);
                    self.scatter(body, piece, for_all)?;
                }
                Ok(())
            }
        }
    }

    /// All send to rank 0, which folds one piece of each after the other.
    fn fold_at_root(&mut self, body: &mut [f32]) -> io::Result<()> {
        if self.rank > 0 {
            return self.exchange(&mut [(0, bytemuck::cast_slice(body))], &mut []);
        }
        for piece in body.chunks_mut(PIECE) {
            self.fold_from_others(piece)?;
        }
        Ok(())
    }

    /// Rank 0 sends to all.
    fn spread(&mut self, body: &mut [f32]) -> io::Result<()> {
        if self.rank > 0 {
            return self.exchange(&mut [], &mut [(0, bytemuck::cast_slice_mut(body))]);
        }
        let bytes = bytemuck::cast_slice(body);
        let mut out: Vec<Outgoing> = self.others().map(|other| (other, bytes)).collect();
        self.exchange(&mut out, &mut [])
    }

    /// Folds what all others send of a piece.
    fn fold_from_others(&mut self, piece: &mut [f32]) -> io::Result<()> {
        let mut come = std::mem::take(&mut self.come);
        come.resize(piece.len() * (self.size() - 1), 0.0);
        let places = come.chunks_mut(piece.len().max(1)).map(bytemuck::cast_slice_mut);
        let mut incoming: Vec<Incoming> = self.others().zip(places).collect();
        let done = self.exchange(&mut [], &mut incoming);
        come.chunks(piece.len().max(1)).for_each(|other| add(piece, other));
        self.come = come;
        done
    }

    /// The last rank sends to the one before, which folds, and so on down to rank 0, piece by piece.
    fn fold_along_chain(&mut self, body: &mut [f32]) -> io::Result<()> {
        let mut come = std::mem::take(&mut self.come);
        come.resize(PIECE, 0.0);
        for piece in body.chunks_mut(PIECE) {
            if self.rank + 1 < self.size() {
                let come = &mut come[..piece.len()];
                self.exchange(&mut [], &mut [(self.rank + 1, bytemuck::cast_slice_mut(come))])?;
                add(piece, come);
            }
            if self.rank > 0 {
                self.exchange(&mut [(self.rank - 1, bytemuck::cast_slice(piece))], &mut [])?;
            }
        }
        self.come = come;
        Ok(())
    }

    /// Parts go round, first to be folded, then as they are in the end.
    fn fold_along_ring(&mut self, body: &mut [f32]) -> io::Result<()> {
        let (size, rank) = (self.size(), self.rank);
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        let whole = 0..body.len();
        let mut come = std::mem::take(&mut self.come);
        for step in 0..2 * (size - 1) {
            let sent = part(whole.clone(), (rank + 2 * size - step) % size, size);
            let taken = part(whole.clone(), (rank + 2 * size - step - 1) % size, size);
            come.resize(taken.len(), 0.0);
            let out = bytemuck::cast_slice(&body[sent]);
            self.exchange(&mut [(next, out)], &mut [(previous, bytemuck::cast_slice_mut(&mut come))])?;
            if step < size - 1 {
                add(&mut body[taken], &come);
            } else {
                body[taken].copy_from_slice(&come);
            }
        }
        self.come = come;
        Ok(())
    }

    /// Each rank folds its part of a piece, and sends it to rank 0, or to all.
    fn scatter(&mut self, body: &mut [f32], piece: Range<usize>, for_all: bool) -> io::Result<()> {
        let (size, rank) = (self.size(), self.rank);
        let part_of = |rank| part(piece.clone(), rank, size);
        let mine = part_of(rank);
        let mut come = std::mem::take(&mut self.come);
        come.resize(mine.len() * (size - 1), 0.0);
        let send = |other| (other, bytemuck::cast_slice(&body[part_of(other)]));
        let mut out: Vec<Outgoing> = self.others().map(send).collect();
        let places = come.chunks_mut(mine.len().max(1)).map(bytemuck::cast_slice_mut);
        let mut incoming: Vec<Incoming> = self.others().zip(places).collect();
        self.exchange(&mut out, &mut incoming)?;
        come.chunks(mine.len().max(1)).for_each(|other| add(&mut body[mine.clone()], other));
        self.come = come;
        self.collect(body, part_of, for_all)
    }

    /// Rank 0, or all, receive the parts of the others.
    fn collect(
        &self,
        body: &mut [f32],
        part_of: impl Fn(usize) -> Range<usize>,
        for_all: bool,
    ) -> io::Result<()> {
        let mine = body[part_of(self.rank)].to_vec();
        let bytes = bytemuck::cast_slice(&mine);
        let takes = |rank| for_all || rank == 0;
        let mut out: Vec<Outgoing> =
            self.others().filter(|other| takes(*other)).map(|other| (other, bytes)).collect();
        let (mut incoming, mut rest, mut at) = (Vec::new(), body, 0);
        for other in self.others().filter(|_| takes(self.rank)) {
            let Range { start, end } = part_of(other);
            let (place, after) = std::mem::take(&mut rest).split_at_mut(end - at);
            incoming.push((other, bytemuck::cast_slice_mut(&mut place[start - at..])));
            (rest, at) = (after, end);
        }
        self.exchange(&mut out, &mut incoming)
    }

    /// Nobody goes on before all are here.
    fn barrier(&mut self) -> io::Result<()> {
        let mut word = [0.0];
        self.fold_at_root(&mut word)?;
        self.spread(&mut word)
    }

    /// Sends and receives until all of it has passed.
    fn exchange(&self, out: &mut [Outgoing], incoming: &mut [Incoming]) -> io::Result<()> {
        loop {
            for (other, bytes) in &mut *out {
                *bytes = &bytes[self.send(*other, bytes)?..];
            }
            for (other, place) in &mut *incoming {
                let received = self.receive(*other, place)?;
                *place = &mut std::mem::take(place)[received..];
            }
            let left = out.iter().filter(|(_, bytes)| !bytes.is_empty());
            let awaited = incoming.iter().filter(|(_, place)| !place.is_empty());
            let mut events: Vec<PollFd> = left
                .map(|(other, _)| self.event(*other, PollFlags::POLLOUT))
                .chain(awaited.map(|(other, _)| self.event(*other, PollFlags::POLLIN)))
                .collect();
            if events.is_empty() {
                return Ok(());
            }
            poll(&mut events, PollTimeout::NONE)?;
        }
    }

    fn peer(&self, other: usize) -> &TcpStream {
        self.peers[other].as_ref().expect("nobody talks to itself")
    }

    fn event(&self, other: usize, flags: PollFlags) -> PollFd<'_> {
        PollFd::new(self.peer(other).as_fd(), flags)
    }

    /// How many bytes pass at once.
    fn send(&self, other: usize, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() { Ok(0) } else { at_once(self.peer(other).write(bytes)) }
    }

    /// How many bytes are there.
    fn receive(&self, other: usize, place: &mut [u8]) -> io::Result<usize> {
        if place.is_empty() {
            return Ok(0);
        }
        match self.peer(other).read(place) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            read => at_once(read),
        }
    }
}

fn reach(at: SocketAddrV4) -> io::Result<TcpStream> {
    let mut tries = 0;
    loop {
        let socket = socket()?;
        match socket::connect(socket.as_raw_fd(), &SockaddrIn::from(at)) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::ECONNREFUSED) if tries < TRIES => tries += 1,
            Err(error) => return Err(error.into()),
        }
        thread::sleep(PAUSE);
    }
}

/// A socket that is about to connect or to listen, under the congestion control that everfold asks for, if
/// the system has it: one that paces itself by timers takes up to half as long again on fast links.
fn socket() -> io::Result<OwnedFd> {
    let socket = socket::socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let _ = setsockopt(&socket, sockopt::TcpCongestion, &"cubic".into());
    Ok(socket)
}

fn at_once(passed: io::Result<usize>) -> io::Result<usize> {
    match passed {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        passed => passed,
    }
}

/// One of `count` parts of a range.
fn part(whole: Range<usize>, number: usize, count: usize) -> Range<usize> {
    let at = |number| whole.start + whole.len() * number / count;
    at(number)..at(number + 1)
}

fn add(body: &mut [f32], other: &[f32]) {
    body.iter_mut().zip(other).for_each(|(mine, other)| *mine += other);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_of_it_once() {
        for (len, count) in [(0, 4), (1, 4), (3, 4), (16, 4), (1001, 7)] {
            let parts: Vec<usize> = (0..count).flat_map(|number| part(5..5 + len, number, count)).collect();
            assert_eq!(parts, (5..5 + len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn all_ways_lead_to_the_same_sum() {
        for way in [Way::Direct, Way::Chain, Way::Scatter] {
            for elements in [1, 2, 5, 100_003] {
                let hosts =
                    (1..=3).map(|host| Ipv4Addr::new(127, 7, way as u8 + 1, host)).collect::<Vec<_>>();
                thread::scope(|scope| {
                    for rank in 0..hosts.len() {
                        let hosts = &hosts;
                        scope.spawn(move || sums(way, rank, hosts, elements));
                    }
                });
            }
        }
    }

    fn sums(way: Way, rank: usize, hosts: &[Ipv4Addr], elements: usize) {
        let mut mesh = Mesh::meet(way, rank, hosts).expect("the loopback device is there");
        for for_all in [false, true] {
            let mut body = vec![0.0; elements];
            fill(&mut body, rank as u32, 1);
            mesh.reduce(&mut body, for_all).expect("the others are there");
            if for_all || rank == 0 {
                assert_eq!(check(&body, hosts.len() as u32, 1), Ok(()), "{way:?}, {elements}");
            }
        }
    }
}
