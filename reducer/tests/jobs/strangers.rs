//! Whoever else talks to the ports of a job does not disturb it.
//!
//! The messages of the handshake are written out here once more, because the library only ever sends good
//! ones.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};

use everfold::{Session, Sum};
use everfold_protocol::{
    JobId, ProcessId,
    frame::{self, MAGIC, VERSION},
    message::{Header, ToWorker},
    seal::Seal,
};
use everfold_runtime::transport::{
    control::{self, Address},
    handshake::{self, ByteOrder, HandshakeError, Key, Purpose},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::AsyncReadExt;

use crate::{environment::variable, suite::Suite};

pub(crate) fn add_to(suite: &mut Suite) {
    // Over shared memory there is no port to find.
    suite.program("strangers::at_the_master", at_the_master);
    suite.program("strangers::at_a_worker", at_a_worker);
    suite.program("strangers::in_a_crowd", in_a_crowd);
    suite.test("strangers::a_crowd_before_processes_with_few_descriptors", a_crowd);
    for name in ["strangers::at_the_master", "strangers::at_a_worker"] {
        suite.test(format!("{name}::tcp"), move || {
            crate::process::Process::spawn(crate::process::job(name, 4, "tcp")).end().assert_done(0..4);
        });
    }
}

/// Hello of the handshake.
#[derive(Clone, Copy, Serialize)]
struct Hello {
    job: JobId,
    process: ProcessId,
    purpose: Purpose,
    byte_order: ByteOrder,
    nonce: [u8; 32],
}

#[derive(Debug, Deserialize)]
enum Challenge {
    Prove { nonce: [u8; 32], proof: [u8; 32] },
    ForeignJob { job: JobId },
    OtherByteOrder { byte_order: ByteOrder },
}

#[derive(Debug, PartialEq, Deserialize)]
enum Verdict {
    Welcome,
    WrongSecret,
}

/// What a stranger knows.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) job: JobId,
    pub(crate) key: Key,
}

impl Target {
    /// The master of the job that this rank belongs to.
    fn of_this_job() -> Self {
        let rendezvous = variable("RENDEZVOUS");
        let secret = variable("SECRET");
        let digits = |index: usize| u8::from_str_radix(&secret[2 * index..2 * index + 2], 16).unwrap();
        Self {
            address: rendezvous.strip_prefix("tcp:").unwrap().parse().unwrap(),
            job: JobId(u64::from_str_radix(&variable("JOB"), 16).unwrap()),
            key: Key(std::array::from_fn(digits)),
        }
    }

    fn hello(self) -> Hello {
        let (process, purpose) = (ProcessId::first(2), Purpose::Control);
        Hello { job: self.job, process, purpose, byte_order: ByteOrder::OURS, nonce: [7; 32] }
    }

    fn connect(self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends bytes that are no conversation, and waits until the other side hangs up.
    fn is_hung_up_on(self, bytes: &[u8]) {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        assert_hung_up(&mut stream);
    }

    /// Everything that somebody without the secret could send.
    pub(crate) fn attack_without_the_secret(self) {
        let noise: Vec<u8> = (0..100_000u64).map(|index| crate::values::scramble(index) as u8).collect();
        self.is_hung_up_on(&noise);
        self.is_hung_up_on(b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8.0\r\n\r\n");
        self.is_hung_up_on(&[0; 64]);
        // Hangs up itself: at once, in the prelude, in the payload.
        let hello = framed(&self.hello());
        for end in [0, 3, frame::PRELUDE_BYTES - 1, frame::PRELUDE_BYTES, hello.len() - 1] {
            let mut stream = self.connect();
            stream.write_all(&hello[..end]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_hung_up(&mut stream);
        }
        // A length that would fill the memory.
        let mut oversize = hello.clone();
        oversize[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        self.is_hung_up_on(&oversize);
        // Damaged, and not a hello at all.
        let mut damaged = hello.clone();
        *damaged.last_mut().unwrap() ^= 1;
        self.is_hung_up_on(&damaged);
        self.is_hung_up_on(&framed(&"hello"));
        // Another version hears which one is spoken here.
        let mut foreign = hello.clone();
        foreign[4..6].copy_from_slice(&(VERSION + 1).to_le_bytes());
        let mut stream = self.connect();
        stream.write_all(&foreign).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!((&answer[..4], &answer[4..6]), (&MAGIC[..], &VERSION.to_le_bytes()[..]));
        // Another job hears that it is one.
        let mut stream = self.connect();
        stream.write_all(&framed(&Hello { job: JobId(self.job.0 ^ 1), ..self.hello() })).unwrap();
        match receive(&mut stream) {
            Challenge::ForeignJob { job } => assert_eq!(job, self.job),
            other => panic!("{other:?}"),
        }
        assert_hung_up(&mut stream);
        // A machine of another kind hears that its arrays mean something else here.
        let mut stream = self.connect();
        stream.write_all(&framed(&Hello { byte_order: ByteOrder::BigEndian, ..self.hello() })).unwrap();
        match receive(&mut stream) {
            Challenge::OtherByteOrder { byte_order } => assert_eq!(byte_order, ByteOrder::OURS),
            other => panic!("{other:?}"),
        }
        assert_hung_up(&mut stream);
        // A proof that proves nothing: made up, and the server's own sent back.
        for reflect in [false, true] {
            let mut stream = self.connect();
            stream.write_all(&framed(&self.hello())).unwrap();
            let Challenge::Prove { nonce, proof } = receive(&mut stream) else { panic!("the job is right") };
            assert_ne!(nonce, self.hello().nonce);
            stream.write_all(&framed(&if reflect { proof } else { [0; 32] })).unwrap();
            assert_eq!(receive::<Verdict>(&mut stream), Verdict::WrongSecret);
            assert_hung_up(&mut stream);
        }
    }

    /// The library's own handshake with a wrong secret or job says what is wrong.
    async fn refuses_the_handshake(self) {
        let address = Address::Tcp(self.address.to_string());
        let me = ProcessId::first(2);
        let mut stream = control::connect(&address).await.unwrap();
        let wrong = handshake::connect(&mut stream, &Key([0; 32]), self.job, me, Purpose::Control).await;
        assert!(matches!(wrong, Err(HandshakeError::WrongSecret)), "{wrong:?}");
        let mut stream = control::connect(&address).await.unwrap();
        let foreign = JobId(self.job.0 + 1);
        match handshake::connect(&mut stream, &self.key, foreign, me, Purpose::Control).await {
            Err(HandshakeError::ForeignJob { theirs, ours }) => {
                assert_eq!((theirs, ours), (self.job, foreign))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Passes the handshake as `process`, and is hung up on nevertheless.
    async fn has_no_business(self, process: ProcessId, purpose: Purpose) {
        let mut stream = control::connect(&Address::Tcp(self.address.to_string())).await.unwrap();
        let mut seals = handshake::connect(&mut stream, &self.key, self.job, process, purpose).await.unwrap();
        // It may be told why, and nothing else.
        let told = control::read_frame::<(Header, Vec<ToWorker>)>(&mut stream, 1 << 10, &mut seals.inward);
        if let Ok((_, messages)) = told.await {
            assert!(
                matches!(messages[..], [ToWorker::Unwelcome { .. }]),
                "{process:?} {purpose:?}: {messages:?}"
            );
        }
        let read = stream.read(&mut [0]).await;
        assert!(matches!(read, Ok(0)) || read.is_err(), "{process:?} {purpose:?} is not hung up on");
    }
}

fn framed(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode_into(value, u64::MAX, &mut Seal::of_strangers(), &mut bytes).unwrap();
    bytes
}

fn receive<T: DeserializeOwned>(stream: &mut TcpStream) -> T {
    let mut prelude = [0; frame::PRELUDE_BYTES];
    stream.read_exact(&mut prelude).unwrap();
    let prelude = frame::Prelude::parse(&prelude, 1 << 10).unwrap();
    let mut payload = vec![0; prelude.payload_bytes as usize];
    stream.read_exact(&mut payload).unwrap();
    prelude.decode(&payload, &mut Seal::of_strangers()).unwrap()
}

/// The other side ends the conversation without another word.
#[track_caller]
fn assert_hung_up(stream: &mut TcpStream) {
    match stream.read(&mut [0; 1]) {
        Ok(0) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        other => panic!("not hung up: {other:?}"),
    }
}

/// A reduction is under way all the time, and small ones run meanwhile.
async fn disturbed(session: &Session, disturb: impl AsyncFnOnce() -> ()) -> everfold::Result<()> {
    let long = || session.allreduce("long", Sum(vec![1u64; 300_000])).start();
    let small = || session.allreduce("small", Sum(vec![1u64]));
    let early = if session.rank() == 1 { None } else { Some(long()?) };
    small().await?;
    if session.rank() == 1 {
        disturb().await;
    }
    let long = match early {
        Some(future) => future,
        None => long()?,
    };
    for _ in 0..20 {
        assert_eq!(small().await?.value, Sum(vec![4]));
    }
    assert_eq!(long.await?.value, Sum(vec![4; 300_000]));
    Ok(())
}

async fn at_the_master(session: Session) -> everfold::Result<()> {
    let target = Target::of_this_job();
    // Some stay without a word.
    let silent: Vec<_> =
        if session.rank() == 3 { (0..50).map(|_| target.connect()).collect() } else { Vec::new() };
    disturbed(&session, async || {
        tokio::task::spawn_blocking(move || target.attack_without_the_secret()).await.unwrap();
        target.refuses_the_handshake().await;
    })
    .await?;
    disturbed(&session, async || {
        // With the secret, but the rank has a connection already, or does not exist, or the port is not for
        // that.
        for rank in 0..4 {
            target.has_no_business(ProcessId::first(rank), Purpose::Control).await;
        }
        target.has_no_business(ProcessId::first(4), Purpose::Control).await;
        target.has_no_business(ProcessId::first(2), Purpose::Data(ProcessId::first(0))).await;
        let later = ProcessId { rank: 2.into(), incarnation: 1.into() };
        target.claims_a_life(later).await;
    })
    .await?;
    drop(silent);
    Ok(())
}

impl Target {
    /// A later incarnation of a rank that lives: nobody has declared the first one dead.
    async fn claims_a_life(self, process: ProcessId) {
        let mut stream = control::connect(&Address::Tcp(self.address.to_string())).await.unwrap();
        handshake::connect(&mut stream, &self.key, self.job, process, Purpose::Control).await.unwrap();
        drop(stream);
    }
}

/// The port at which this process hands out its windows.
fn own_port() -> SocketAddr {
    *own_ports().first().expect("a rank listens for its peers")
}

/// All ports at which this process listens.
fn own_ports() -> Vec<SocketAddr> {
    ports_of("self")
}

/// All ports at which a process listens.
fn ports_of(process: &str) -> Vec<SocketAddr> {
    let inodes: Vec<String> = std::fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()?.into_os_string().into_string().ok())
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let listening = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let ours = fields[3] == "0A" && inodes.iter().any(|inode| inode == fields[9]);
        let port = fields[1].split_once(':')?.1;
        ours.then(|| ([127, 0, 0, 1], u16::from_str_radix(port, 16).unwrap()).into())
    });
    listening.collect()
}

/// Exists once the crowd is there.
const CROWD: &str = "EVERFOLD_TEST_CROWD";
/// Connections of the crowd at each port.
const CROWD_SIZE: usize = 150;

/// Talks with all others for the first time when strangers stand before every port.
async fn in_a_crowd(session: Session) -> everfold::Result<()> {
    let mut ports = own_ports();
    if session.rank() == 0 {
        // The agent's, with that of the master.
        ports.extend(ports_of(&std::os::unix::process::parent_id().to_string()));
    }
    let ports: Vec<_> = ports.iter().map(SocketAddr::to_string).collect();
    println!("ports: {}", ports.join(" "));
    let crowd = std::env::var_os(CROWD).unwrap();
    loop {
        let is_there = std::path::Path::new(&crowd).exists();
        let seen = session.allreduce("the crowd is there", Sum(vec![u8::from(is_there)])).await?.value;
        if seen == Sum(vec![4]) {
            break;
        }
    }
    for _ in 0..3 {
        let long = session.allreduce("long", Sum(vec![1u64; 300_000])).await?.value;
        assert_eq!(long, Sum(vec![4; 300_000]));
    }
    Ok(())
}

/// Hundreds who connect and say nothing, where a process may have 64 descriptors: nobody ends for it, and
/// nobody waits.
fn a_crowd() {
    let file = std::env::temp_dir().join(format!("everfold-crowd-{}", std::process::id()));
    let job = crate::process::job("strangers::in_a_crowd", 4, "tcp");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$@\"", "sh"]).arg(job.get_program()).args(job.get_args());
    let mut process =
        crate::process::Process::spawn_marked(command.env(CROWD, &file), crate::process::Mark::new());
    process.wait_for(4, "ports: ");
    let ports = process.said().iter().filter_map(|line| line.split_once("ports: "));
    let ports: Vec<SocketAddr> =
        ports.flat_map(|(_, ports)| ports.split(' ')).map(|port| port.parse().unwrap()).collect();
    assert_eq!(ports.len(), 6, "the master, the agent and four workers");
    everfold_runtime::descriptors::raise_limit();
    let crowd: Vec<_> =
        ports.iter().flat_map(|port| (0..CROWD_SIZE).map(|_| TcpStream::connect(*port).unwrap())).collect();
    std::fs::write(&file, "").unwrap();
    process.end().assert_done(0..4);
    drop(crowd);
    std::fs::remove_file(file).unwrap();
}

async fn at_a_worker(session: Session) -> everfold::Result<()> {
    // Rank 0 listens for the job as well, so this is another one's.
    let target = Target {
        address: if session.rank() == 1 { own_port() } else { ([0; 4], 0).into() },
        ..Target::of_this_job()
    };
    disturbed(&session, async || {
        let silent: Vec<_> = (0..50).map(|_| target.connect()).collect();
        tokio::task::spawn_blocking(move || target.attack_without_the_secret()).await.unwrap();
        target.refuses_the_handshake().await;
        // Led astray on its way: it was to read from another rank.
        let mut stream = control::connect(&Address::Tcp(target.address.to_string())).await.unwrap();
        let (me, purpose) = (ProcessId::first(3), Purpose::Data(ProcessId::first(2)));
        handshake::connect(&mut stream, &target.key, target.job, me, purpose).await.unwrap();
        let read = stream.read(&mut [0]).await;
        assert!(matches!(read, Ok(0)) || read.is_err(), "{read:?}");
        // With the secret, but then nonsense, or a window that never was.
        for nonsense in [&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], &framed(&"nonsense"), &[0; 100]] {
            let mut stream = control::connect(&Address::Tcp(target.address.to_string())).await.unwrap();
            let me = ProcessId::first(3);
            handshake::connect(&mut stream, &target.key, target.job, me, Purpose::Data(ProcessId::first(1)))
                .await
                .unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, nonsense).await.unwrap();
            let read = stream.read(&mut [0]).await;
            assert!(matches!(read, Ok(0)) || read.is_err(), "{read:?}");
        }
        drop(silent);
    })
    .await
}
