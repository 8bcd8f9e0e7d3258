//! Ranks that come late, die or stay away before the job is complete.

use everfold_protocol::{
    AgentId, Epoch, JobId, ProcessId,
    message::{FromAgent, Header, Lodging, MASTER, Peer, ToAgent, ToMaster},
};
use everfold_runtime::transport::{
    control::{self, Address, BoxStream},
    handshake::{self, Purpose, Seals},
    lobby,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::Instant,
};

use super::{
    job::{Job, RANKS},
    refused::TOLD,
};
use crate::{process::DEADLINE, strangers::Target};

/// Two jobs cannot meet at one place: the second says so at once.
pub(super) fn a_rendezvous_in_use(scheme: &str) {
    let job = Job::new(scheme, "environment::sums");
    let first = job.start(0);
    job.wait_for_master();
    // The same place in another job.
    let end = job.spawn(job.command(0).env("EVERFOLD_SECRET", "00".repeat(32))).ended();
    assert_eq!(end.code, 1, "{end:?}");
    assert!(end.said.iter().any(|line| line.contains(&job.rendezvous) && line.contains("in use")), "{end:?}");
    job.assert_done(vec![(0, first), (1, job.start(1)), (2, job.start(2))]);
}

/// Strangers knock before the job has come together, and some of them stay.
pub(super) fn strangers_come_first() {
    let job = Job::new("tcp", "environment::sums");
    let first = job.start(0);
    job.wait_for_master();
    let silent: Vec<_> = (0..50).map(|_| std::net::TcpStream::connect(job.address()).unwrap()).collect();
    job.target().attack_without_the_secret();
    job.assert_done(vec![(0, first), (1, job.start(1)), (2, job.start(2))]);
    drop(silent);
}

/// An agent whose first connection failed comes anew: what is seen of the first one, however late, is not its end.
pub(super) fn an_agent_that_comes_twice() {
    let job = Job::new("tcp", "environment::until_told");
    let told = std::env::temp_dir().join(format!("everfold-agents-{}", std::process::id()));
    let start = |rank| job.spawn(job.command(rank).env("EVERFOLD_SECRET", Job::secret()).env(TOLD, &told));
    let mut processes = [start(0), start(1), start(2)];
    processes.iter_mut().for_each(|process| process.wait_for(1, "it runs"));
    let target = job.target();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let agents = runtime.block_on(async {
        let mut agents = Vec::new();
        for (agent, has_joined) in [(AgentId(17), false), (AgentId(18), true)] {
            let mut earlier = Knocking::at(&target, agent).await;
            if has_joined {
                earlier.join().await;
                earlier.answer_ping().await;
            }
            let mut present = Knocking::at(&target, agent).await;
            present.join().await;
            present.answer_ping().await;
            drop(earlier);
            // The master goes on to ask whether the agent lives.
            present.answer_ping().await;
            present.answer_ping().await;
            agents.push(present);
        }
        agents
    });
    std::fs::write(&told, "").unwrap();
    job.assert_done((0..).zip(processes).collect());
    std::fs::remove_file(told).unwrap();
    drop(agents);
}

/// A connection of an agent.
struct Knocking {
    stream: BoxStream,
    seals: Seals,
    job: JobId,
}

impl Knocking {
    async fn at(target: &Target, agent: AgentId) -> Self {
        let mut stream = control::connect(&Address::Tcp(target.address.to_string())).await.unwrap();
        let purpose = Purpose::Agent(agent);
        let seals = handshake::connect(&mut stream, &target.key, target.job, MASTER, purpose).await.unwrap();
        Self { stream, seals, job: target.job }
    }

    async fn join(&mut self) {
        self.tell(FromAgent::Join(Lodging::default())).await;
    }

    async fn answer_ping(&mut self) {
        loop {
            let frame = control::read_frame::<(Header, Vec<ToAgent>)>(
                &mut self.stream,
                1 << 16,
                &mut self.seals.inward,
            );
            let (_, messages) = frame.await.expect("the master listens to the present connection");
            for message in messages {
                if let ToAgent::Ping { number } = message {
                    return self.tell(FromAgent::Pong { number }).await;
                }
            }
        }
    }

    async fn tell(&mut self, message: FromAgent) {
        let (header, mut bytes) = (Header { job: self.job, epoch: Epoch(0), sender: MASTER }, Vec::new());
        control::encode_batch(&header, &[message], 1 << 20, &mut self.seals.outward, &mut bytes).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }
}

/// The first rank has failed, and the last one does not come: everyone hears of it.
pub(super) fn a_rank_dies_before_the_others_come() {
    let job = Job::new("tcp", "environment::impatient");
    let first = job.start(0);
    job.wait_for_master();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(join_and_die(&job.target(), ProcessId::first(1)));
    job.assert_refused(vec![first, job.start(2)], "{1}");
}

/// Everyone who has come hears who has not.
pub(super) fn a_rank_that_never_comes(scheme: &str) {
    let job = Job::new(scheme, "environment::impatient");
    job.assert_refused(vec![job.start(0), job.start(2)], "ranks {1} did not join within 1s");
    let job = Job::new(scheme, "environment::impatient");
    job.assert_refused(vec![job.start(0)], "ranks {1-2} did not join within 1s");
}

/// Without rank 0 nobody knows who else is there.
pub(super) fn the_first_rank_never_comes(scheme: &str) {
    let job = Job::new(scheme, "environment::impatient");
    let why = format!("no master at {} within 1s", job.rendezvous);
    job.assert_refused(vec![job.start(1), job.start(2)], &why);
}

/// Joins as a rank would, and hangs up; returns when the master has noticed.
async fn join_and_die(target: &Target, process: ProcessId) {
    let (mut stream, _) = join(target, process, RANKS).await;
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "the master says nothing before all are there");
}

/// Joins as a rank of a job of `size` would: rank 0 listens before it lets ranks in.
pub(super) async fn join(target: &Target, process: ProcessId, size: u32) -> (BoxStream, Seals) {
    let address = Address::Tcp(target.address.to_string());
    let (mut stream, mut seals) = lobby::knock_until(
        &address,
        Instant::now() + DEADLINE,
        (&target.key, target.job, process),
        Purpose::Control,
    )
    .await
    .unwrap();
    let header = Header { job: target.job, epoch: Epoch(0), sender: process };
    let peer = Peer {
        process,
        host: 0,
        pid: 1,
        region: None,
        bell: None,
        board: None,
        address: "127.0.0.1:1".to_owned(),
        domain: None,
        agent: None,
    };
    let mut bytes = Vec::new();
    let join = ToMaster::Join { peer, size };
    control::encode_batch(&header, &[join], 1 << 20, &mut seals.outward, &mut bytes).unwrap();
    stream.write_all(&bytes).await.unwrap();
    (stream, seals)
}
