//! Where standbys are, in a master that is driven by hand.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::{iter, time::Duration};

use everfold_master::{
    Action, Event, Master, Policy,
    recovery::{Chain, Recoveries, Recovery, Repeated},
};
use everfold_protocol::{
    AgentId, Epoch, JobId, ProcessId, Rank, Timestamp,
    message::{AgentRef, Ending, FromAgent, Header, Lodging, Peer, ToMaster, ToWorker},
    spec::Limits,
};

const JOB: JobId = JobId(1);
/// The first host has two of them, and two more hosts have one each.
const RANKS: u32 = 4;
const HOSTS: u32 = 3;
/// This host has no ranks.
const SPARE: u32 = HOSTS;
/// After one process fault of a host, the next one is repeated.
const REPEATED: Repeated =
    Repeated { faults: 1, within: Duration::from_secs(3600), recovery: Chain::of(Recovery::Restart) };

fn agent(host: u32) -> AgentId {
    AgentId(100 + u64::from(host))
}

struct Job {
    master: Master,
}

impl Job {
    fn new(process_faults: Chain, repeated: Option<Repeated>) -> Self {
        let limits = Limits { ranks_return: true, replica_bytes_max: 1 << 20, ..Limits::default() };
        let recoveries = Recoveries { process: process_faults, repeated, ..Recoveries::MIGRATE };
        let policy = Policy { limits, recoveries, ..Policy::default() };
        let mut job = Self { master: Master::new(Timestamp::ZERO, JOB, RANKS, policy) };
        for host in 0..=SPARE {
            let lodging = Lodging { address: Some(format!("host{host}:1")), domain: None };
            job.hear(Event::Agent(agent(host), FromAgent::Join(lodging)));
        }
        (0..RANKS).for_each(|rank| job.join(ProcessId::first(Rank(rank))));
        job
    }

    /// Lets the master hear of something. Returns where ranks are told to keep their replicas.
    fn hear(&mut self, event: Event) -> Vec<(ProcessId, AgentId)> {
        self.master.handle_event(Timestamp::ZERO, event);
        let actions: Vec<Action> = iter::from_fn(|| self.master.poll_action()).collect();
        self.master.check();
        let place = |action| match action {
            Action::Send { to: process, message: ToWorker::Replicate { to } } => Some((process, to.id)),
            _ => None,
        };
        actions.into_iter().filter_map(place).collect()
    }

    fn join(&mut self, process: ProcessId) {
        let host = process.rank.0 % HOSTS;
        let agent = Some(AgentRef { id: agent(host), address: String::new() });
        let (region, bell, board) = (None, None, None);
        let (address, domain) = (String::new(), None);
        let peer = Peer { process, host: host.into(), pid: 1, region, bell, board, address, domain, agent };
        let header = Header { job: JOB, epoch: Epoch(0), sender: process };
        self.hear(Event::Message { header, message: ToMaster::Join { peer, size: RANKS } });
    }

    /// Both ranks of the first host end. Then the host is lost that has the replica of rank 2. Returns where
    /// that is kept next, and where once that host is lost, too.
    fn replica_after_faults(mut self) -> [AgentId; 2] {
        for rank in [0, HOSTS] {
            let (process, ending) = (ProcessId::first(Rank(rank)), Ending::Signal(9));
            self.hear(Event::Agent(agent(0), FromAgent::Ended { process, ending }));
        }
        let of_rank_2 = |told: Vec<(ProcessId, AgentId)>| {
            told.into_iter().find(|(process, _)| process.rank == Rank(2)).unwrap().1
        };
        let next = of_rank_2(self.hear(Event::AgentLost(agent(SPARE))));
        [next, of_rank_2(self.hear(Event::AgentLost(next)))]
    }
}

#[test]
fn a_host_with_repeated_faults_has_standbys_only_if_no_other_can() {
    let promotes = Chain::then(Recovery::Promote, Recovery::Restart);
    let without = Job::new(promotes, None).replica_after_faults();
    assert_eq!(without, [agent(0), agent(1)]);
    let with = Job::new(promotes, Some(REPEATED)).replica_after_faults();
    assert_eq!(with, [agent(1), agent(0)]);
    // Where nobody stands by, it matters that the host is there, and not what its processes do.
    let migrates = Chain::of(Recovery::Restart);
    assert_eq!(Job::new(migrates, Some(REPEATED)).replica_after_faults(), [agent(0), agent(1)]);
}
