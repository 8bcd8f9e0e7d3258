//! The processes of one side: started once, they repeat reductions whenever they are told, and sleep in
//! between.

use std::{
    fmt,
    fs::{self, File},
    io::{self, BufRead, BufReader, ErrorKind, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use everfold::Protection;
use nix::{
    sys::socket::{getsockopt, sockopt::PeerCredentials},
    unistd::Pid,
};

use super::case::{Case, Roots};
use crate::{Failure, children::die_with_us, interrupts::Interrupts};

/// How often whoever waits looks whether we are to end.
const GLANCE: Duration = Duration::from_millis(100);
/// How long a side may take to start.
const START_MAX: Duration = Duration::from_secs(60);
/// How long a side may take to end by itself.
const END_MAX: Duration = Duration::from_secs(2);

/// What kind of bodies everfold reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Arrays in memory that other processes can map.
    Array,
    /// `Vec`s.
    Vec,
}

/// Repetitions that are measured without a pause, as one rank is told. In text: numbers, then words.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Size of a body.
    pub bytes: u64,
    /// How often.
    pub repetitions: u64,
    /// Reductions at once.
    pub count: u32,
    /// What goes to whom.
    pub roots: Roots,
    /// How long this rank waits before each.
    pub delay_us: u64,
    /// How long it computes meanwhile.
    pub compute_us: u64,
    /// Number of the first repetition, which decides on the values.
    pub round: u64,
    /// What everfold's bodies are.
    pub kind: Kind,
    /// How everfold protects them.
    pub protection: Protection,
    /// Where everfold draws what happened in the last repetition.
    pub timeline: Option<PathBuf>,
}

impl Block {
    /// Elements of a body.
    pub fn elements(&self) -> usize {
        (self.bytes as usize / size_of::<f32>()).max(1)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bytes,
            repetitions,
            count,
            roots,
            delay_us,
            compute_us,
            round,
            kind,
            protection,
            timeline,
        } = self;
        let (roots, kind) = (*roots as u8, *kind as u8);
        write!(
            f,
            "{bytes} {repetitions} {count} {roots} {delay_us} {compute_us} {round} {kind} {protection}"
        )?;
        timeline.iter().try_for_each(|file| write!(f, " {}", file.display()))
    }
}

impl FromStr for Block {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.splitn(10, ' ');
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or(());
        Ok(Self {
            bytes: number()?,
            repetitions: number()?,
            count: number()? as u32,
            roots: *Roots::ALL.get(number()? as usize).ok_or(())?,
            delay_us: number()?,
            compute_us: number()?,
            round: number()?,
            kind: *[Kind::Array, Kind::Vec].get(number()? as usize).ok_or(())?,
            protection: words.next().and_then(|word| word.parse().ok()).ok_or(())?,
            timeline: words.next().map(PathBuf::from),
        })
    }
}

/// When the ranks began and ended a repetition, in nanoseconds of the clock that all of them share.
#[derive(Clone, Debug)]
pub struct Repetition(Vec<(u64, u64)>);

impl Repetition {
    /// What counts of it, in seconds.
    pub fn counted_s(&self, case: Case) -> f64 {
        match case {
            Case::Late => self.since_last_s(),
            _ => self.slowest_s(),
        }
    }

    /// From its own beginning to its own end, at the slowest rank, in seconds.
    pub fn slowest_s(&self) -> f64 {
        self.0.iter().map(|(start, end)| end - start).max().unwrap_or(0) as f64 / 1e9
    }

    /// From the last one's beginning to the last one's end, in seconds.
    pub fn since_last_s(&self) -> f64 {
        let start = self.0.iter().map(|(start, _)| *start).max().unwrap_or(0);
        let end = self.0.iter().map(|(_, end)| *end).max().unwrap_or(0);
        end.saturating_sub(start) as f64 / 1e9
    }

    /// When the first rank began.
    pub fn started_ns(&self) -> u64 {
        self.0.iter().map(|(start, _)| *start).min().unwrap_or(0)
    }
}

/// Why a side does not go on.
#[derive(Debug)]
pub enum TeamError {
    /// It failed; others can go on.
    Lost(String),
    /// We are to end.
    Fatal(Failure),
}

impl<E: std::error::Error> From<E> for TeamError {
    fn from(error: E) -> Self {
        Self::Lost(error.to_string())
    }
}

/// The processes of one side. They end when it is dropped.
#[derive(Debug)]
pub struct Team {
    children: Vec<Child>,
    ranks: Vec<BufReader<UnixStream>>,
    output: PathBuf,
    interrupts: Interrupts,
}

impl Team {
    /// Starts processes that come to `folder/socket`, whose path they are given as their last argument. To be
    /// called from the main thread.
    ///
    /// # Errors
    /// They do not come in time.
    pub fn start(
        commands: Vec<Command>,
        ranks: u32,
        folder: &Path,
        interrupts: &Interrupts,
    ) -> Result<Self, TeamError> {
        let (socket, output) = (folder.join("socket"), folder.join("output"));
        let listener = UnixListener::bind(&socket)?;
        listener.set_nonblocking(true)?;
        let log = File::create(&output)?;
        let mut team =
            Self { children: Vec::new(), ranks: Vec::new(), output, interrupts: interrupts.clone() };
        for mut command in commands {
            command.arg(&socket).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
            die_with_us(&mut command);
            team.children.push(command.spawn()?);
        }
        team.welcome(&listener, ranks)?;
        Ok(team)
    }

    fn welcome(&mut self, listener: &UnixListener, ranks: u32) -> Result<(), TeamError> {
        let deadline = Instant::now() + START_MAX;
        let mut come = Vec::new();
        while come.len() < ranks as usize {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    stream.set_read_timeout(Some(GLANCE))?;
                    let mut stream = BufReader::new(stream);
                    let line = self.line(&mut stream, deadline)?;
                    let rank =
                        line.parse::<u32>().map_err(|_| TeamError::Lost(format!("it said {line:?}")))?;
                    come.push((rank, stream));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.interrupts.check().map_err(TeamError::Fatal)?;
                    if Instant::now() > deadline || self.has_ended() {
                        return Err(self.lost("it did not start"));
                    }
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error.into()),
            }
        }
        come.sort_by_key(|(rank, _)| *rank);
        self.ranks = come.into_iter().map(|(_, stream)| stream).collect();
        Ok(())
    }

    fn has_ended(&mut self) -> bool {
        self.children.iter_mut().any(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// What the processes printed last says why.
    fn lost(&self, what: &str) -> TeamError {
        let said = fs::read(&self.output).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        TeamError::Lost([&[what], &said[said.len().saturating_sub(12)..]].concat().join("\n    "))
    }

    /// Process numbers of the ranks.
    pub fn pids(&self) -> io::Result<Vec<Pid>> {
        let credentials = self.ranks.iter().map(|rank| getsockopt(rank.get_ref(), PeerCredentials));
        Ok(credentials.map(|one| one.map(|one| Pid::from_raw(one.pid()))).collect::<nix::Result<_>>()?)
    }

    /// Lets all ranks do a block, each with its own delay, and tells their times.
    ///
    /// # Errors
    /// They did not do it within `limit`, or a result was wrong.
    pub fn run(&mut self, blocks: &[Block], limit: Duration) -> Result<Vec<Repetition>, TeamError> {
        let deadline = Instant::now() + limit;
        let mut streams = std::mem::take(&mut self.ranks);
        for (stream, block) in streams.iter().zip(blocks) {
            stream.get_ref().write_all(format!("{block}\n").as_bytes())?;
        }
        let mut by_rank: Vec<Vec<(u64, u64)>> = Vec::new();
        for stream in &mut streams {
            let line = self.line(stream, deadline)?;
            by_rank.push(serde_json::from_str(&line).map_err(|_| TeamError::Lost(line))?);
        }
        self.ranks = streams;
        let repetitions = by_rank.first().map_or(0, Vec::len);
        let at = |index: usize| by_rank.iter().filter_map(|times| times.get(index).copied()).collect();
        Ok((0..repetitions).map(at).map(Repetition).collect())
    }

    fn line(&self, stream: &mut BufReader<UnixStream>, deadline: Instant) -> Result<String, TeamError> {
        let mut line = Vec::new();
        loop {
            match stream.read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => {
                    return Ok(String::from_utf8_lossy(&line).trim().to_owned());
                }
                Ok(_) => return Err(self.lost("a rank has ended")),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    self.interrupts.check().map_err(TeamError::Fatal)?;
                    if Instant::now() > deadline {
                        return Err(self.lost("it took too long"));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // The ranks end when nobody is there any more whom to obey.
        self.ranks.clear();
        let deadline = Instant::now() + END_MAX;
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_read_what_the_driver_writes() {
        for timeline in [None, Some(PathBuf::from("/tmp/a b.svg"))] {
            let block = Block {
                bytes: 64,
                repetitions: 3,
                count: 2,
                roots: Roots::All,
                delay_us: 5,
                compute_us: 6,
                round: 7,
                kind: Kind::Vec,
                protection: Protection::CommitFirst,
                timeline,
            };
            assert_eq!(block.to_string().parse(), Ok(block));
        }
        assert_eq!("64 3 2".parse::<Block>(), Err(()));
    }
}
