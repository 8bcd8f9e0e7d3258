//! Connections between the members of a team and its deputy, and the deputy that this process hosts.
//!
//! Both are made when they are first needed. A deputy decides on the I/O thread.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use everfold_master::{Action, Deputy, Policy};
use everfold_protocol::{
    Epoch, JobId, ProcessId, Timestamp,
    message::{Evidence, Header, Peer, Task, ToMaster, ToWorker},
    seal::Seal,
    spec::Limits,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncWriteExt, ReadHalf, WriteHalf},
    sync::mpsc,
};

use crate::transport::{
    control::{Address, BoxStream, connect, encode_batch, read_frame},
    handshake::{HandshakeError, Key, Purpose, Seals},
    lobby,
};

/// The deputy that this process hosts, and the ways to the members of its team and to other deputies.
pub(crate) struct Deputies {
    policy: Policy,
    me: ProcessId,
    job: JobId,
    key: Key,
    hosted: Mutex<Hosted>,
    ways: Mutex<BTreeMap<ProcessId, mpsc::UnboundedSender<ToMaster>>>,
}

/// The deputy that this process hosts, and its peers.
#[derive(Default)]
struct Hosted {
    /// The peers of the job, and its limits.
    job: Option<(Arc<[Peer]>, Limits)>,
    /// The processes that were declared failed before there was a deputy.
    departed: Vec<(ProcessId, Evidence)>,
    deputy: Option<Deputy>,
    members: BTreeMap<ProcessId, mpsc::UnboundedSender<Task>>,
    /// Whether this process takes part no more.
    over: bool,
}

impl Hosted {
    /// Carries out the deputy's actions for members; returns the messages for the master.
    fn act(&mut self) -> Vec<ToMaster> {
        let mut reports = Vec::new();
        while let Some(action) = self.deputy.as_mut().and_then(Deputy::poll_action) {
            match action {
                Action::Report(report) => reports.push(report),
                // Without its member nothing comes of the attempt, and it will be dissolved.
                Action::Send { to, message: ToWorker::Task(task) } => {
                    drop(self.members.get(&to).map(|member| member.send(task)));
                }
                // All else that there is to be told is the master's affair.
                _ => {}
            }
        }
        reports
    }
}

impl Deputies {
    pub fn new(policy: Policy, job: JobId, me: ProcessId, key: Key) -> Self {
        Self { policy, me, job, key, hosted: Mutex::default(), ways: Mutex::default() }
    }

    fn hosted(&self) -> MutexGuard<'_, Hosted> {
        self.hosted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in the peers and limits of the job.
    pub fn meet(&self, peers: Arc<[Peer]>, limits: Limits) {
        self.hosted().job = Some((peers, limits));
    }

    /// Lets the deputy here, if there is one, take an event in; returns the messages for the master.
    pub fn tell(&self, tell: impl FnOnce(&mut Deputy)) -> Vec<ToMaster> {
        let mut hosted = self.hosted();
        if let Some(deputy) = &mut hosted.deputy {
            tell(deputy);
        }
        hosted.act()
    }

    /// Takes in that a process was declared failed.
    pub fn depart(&self, now: Timestamp, process: ProcessId, evidence: Evidence) -> Vec<ToMaster> {
        let mut hosted = self.hosted();
        hosted.departed.push((process, evidence));
        hosted.members.remove(&process);
        drop(hosted);
        self.tell(|deputy| deputy.depart(now, process, evidence))
    }

    /// When the deputy here is to see that time has passed.
    pub fn due(&self) -> Option<Timestamp> {
        self.hosted().deputy.as_ref().and_then(Deputy::poll_timeout)
    }

    /// Hosts nothing any more: members see their connections end.
    pub fn end(&self) {
        *self.hosted() = Hosted { over: true, ..Hosted::default() };
    }

    /// Takes in messages of a member of the team here; returns the messages for the master.
    fn hear(&self, now: Timestamp, member: ProcessId, messages: Vec<ToMaster>) -> Vec<ToMaster> {
        let mut hosted = self.hosted();
        let Hosted { job: Some((peers, limits)), departed, deputy, over: false, .. } = &mut *hosted else {
            return Vec::new();
        };
        let deputy = deputy.get_or_insert_with(|| {
            let policy = Policy { limits: *limits, ..self.policy.clone() };
            let mut deputy = Deputy::new(now, self.job, self.me.rank, peers.clone(), policy);
            departed.iter().for_each(|(process, evidence)| deputy.depart(now, *process, *evidence));
            deputy
        });
        messages.into_iter().for_each(|message| deputy.hear(now, member, message));
        hosted.act()
    }

    /// Talks with a member of the team here until the connection ends. `report`: the master is to hear this.
    pub async fn host(
        &self,
        member: ProcessId,
        (stream, Seals { outward, inward }): (BoxStream, Seals),
        limits: Limits,
        now: impl Fn() -> Timestamp,
        report: impl Fn(Vec<ToMaster>),
    ) {
        let (tell, tasks) = mpsc::unbounded_channel();
        {
            let mut hosted = self.hosted();
            if hosted.over || hosted.departed.iter().any(|(process, _)| *process == member) {
                return;
            }
            hosted.members.insert(member, tell);
        }
        if let Err(error) = stream.bound_silence(limits.silence_max()) {
            tracing::debug!(%member, %error, "a frozen member keeps its connection");
        }
        let (reader, writer) = tokio::io::split(stream);
        let header = self.header();
        let heard = |messages| report(self.hear(now(), member, messages));
        let ended = tokio::select! {
            told = say((writer, outward), header, tasks, limits.frame_bytes_max) => told,
            heard = listen((reader, inward), limits.frame_bytes_max, heard) => heard,
        };
        tracing::debug!(%member, ?ended, "a member of the team hangs up");
        // It may have come back meanwhile.
        self.hosted().members.retain(|_, member| !member.is_closed());
    }

    /// Tells a deputy something. Returns the conversation with it, to be led, if it begins with this.
    pub fn say(&self, to: ProcessId, message: ToMaster) -> Option<mpsc::UnboundedReceiver<ToMaster>> {
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(mpsc::error::SendError(message)) = (match ways.get(&to) {
            Some(way) => way.send(message),
            None => Err(mpsc::error::SendError(message)),
        }) else {
            return None;
        };
        // That conversation has ended, or there was none.
        let (way, messages) = mpsc::unbounded_channel();
        let _ = way.send(message);
        ways.insert(to, way);
        Some(messages)
    }

    /// Talks with a deputy until the connection ends. `each` hears its tasks.
    pub async fn talk(
        &self,
        deputy: Peer,
        messages: mpsc::UnboundedReceiver<ToMaster>,
        limits: Limits,
        each: impl Fn(Task),
    ) {
        let address = Address::Tcp(deputy.address.clone());
        let connect = || connect(&address);
        let connected = async {
            let purpose = Purpose::Team(deputy.process);
            let (stream, seals) = lobby::knock(connect, &self.key, self.job, self.me, purpose).await?;
            stream.bound_silence(limits.silence_max())?;
            Ok::<_, HandshakeError>((stream, seals))
        };
        let ended = match connected.await {
            Ok((stream, Seals { outward, inward })) => {
                let (reader, writer) = tokio::io::split(stream);
                let heard = |tasks: Vec<Task>| tasks.into_iter().for_each(&each);
                tokio::select! {
                    told = say((writer, outward), self.header(), messages, limits.frame_bytes_max) => told,
                    heard = listen((reader, inward), limits.frame_bytes_max, heard) => heard,
                }
            }
            Err(error) => Err(error),
        };
        tracing::debug!(deputy = %deputy.process, ?ended, "the conversation with a deputy ends");
    }

    fn header(&self) -> Header {
        Header { job: self.job, epoch: Epoch(0), sender: self.me }
    }
}

/// Sends messages together that there are at once, until there will be none.
async fn say<M: Serialize>(
    (mut writer, mut seal): (WriteHalf<BoxStream>, Seal),
    header: Header,
    mut messages: mpsc::UnboundedReceiver<M>,
    limit: u64,
) -> Result<(), HandshakeError> {
    let (mut batch, mut bytes) = (Vec::new(), Vec::new());
    while messages.recv_many(&mut batch, 1024).await > 0 {
        bytes.clear();
        encode_batch(&header, &batch, limit, &mut seal, &mut bytes)?;
        batch.clear();
        writer.write_all(&bytes).await?;
    }
    Ok(())
}

/// Tells each batch of messages until the other side hangs up.
async fn listen<M: DeserializeOwned>(
    (mut reader, mut seal): (ReadHalf<BoxStream>, Seal),
    limit: u64,
    each: impl Fn(Vec<M>),
) -> Result<(), HandshakeError> {
    loop {
        let (_, messages): (Header, Vec<M>) = read_frame(&mut reader, limit, &mut seal).await?;
        each(messages);
    }
}
