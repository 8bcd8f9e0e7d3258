//! Ranks that come back on other hosts: where they are, and the replicas of their vaults.

use everfold_protocol::{AgentId, Path, ProcessId, Rank, message::Lodging};
use everfold_worker::machine::Event;
use rand::Rng;

use super::{World, returning::Vault};
use crate::{events::Happening, settings::Migrates};

/// A copy of a vault that is under way.
#[derive(Debug)]
pub(super) struct Copying {
    /// Where it goes.
    host: u64,
    number: u64,
    /// What was in the vault when it began.
    vault: Vault,
    /// The latest copy that was asked for meanwhile.
    asked: Option<u64>,
}

impl World {
    /// How ranks come back on other hosts, if they do.
    fn migrating(&self) -> Option<Migrates> {
        self.settings.returns.and_then(|returns| returns.migrates)
    }

    /// Whether ranks may come back on other hosts.
    pub(crate) fn migrates(&self) -> bool {
        self.migrating().is_some()
    }

    /// The host on which a process runs or ran.
    pub(crate) fn host_of(&self, process: ProcessId) -> u64 {
        self.standby_host(process).unwrap_or_else(|| self.of(process).host)
    }

    /// The host of a rank's latest process.
    pub(crate) fn home(&self, rank: Rank) -> u64 {
        self.process(rank).host
    }

    /// Whether the ranks of a group are all on one host, as the master has heard.
    pub(crate) fn is_on_one_host(&self, group: &Path) -> bool {
        let mut hosts = group.iter().map(|rank| self.host_of(self.facts.latest(rank)));
        let first = hosts.next();
        hosts.all(|host| Some(host) == first)
    }

    /// The hosts on which processes of a rank run or ran.
    pub(crate) fn homes(&self, rank: Rank) -> impl Iterator<Item = u64> {
        self.all().filter(move |process| process.id.rank == rank).map(|process| process.host)
    }

    /// The processes that have taken part from a host.
    pub(crate) fn processes_on(&self, host: u64) -> impl Iterator<Item = ProcessId> {
        self.all().filter(move |process| process.host == host && process.plays).map(|process| process.id)
    }

    /// Ranks whose latest processes run or ran on a host.
    pub(super) fn ranks_at(&self, host: u64) -> Vec<Rank> {
        self.processes.iter().filter(|process| process.host == host).map(|process| process.id.rank).collect()
    }

    /// What a host offers to ranks of others.
    pub(super) fn lodging(&self, host: u64) -> Lodging {
        match self.migrates() {
            true => Lodging { address: Some(address(host)), domain: self.settings.domain(host) },
            false => Lodging::default(),
        }
    }

    /// A rank is started on a host where processes have failed again and again, or that has a located fault,
    /// only if there is no host without faults, unless an own detector may have chosen the host.
    pub(super) fn check_target(&mut self, to: &str) {
        if self.settings.has_own_detectors() {
            return;
        }
        let target = self.agents.keys().copied().find(|host| address(*host) == to);
        let Some(target) = target else { return };
        let (is_repeated, is_located) =
            (self.has_repeated_faults(target), self.has_located_fault(target, true));
        if !is_repeated && !is_located {
            return;
        }
        let what = match is_located {
            true => "migrations to hosts with located faults",
            false => "migrations to hosts with repeated faults",
        };
        *self.seen.entry(what).or_default() += 1;
        let good = self.agents.keys().find(|host| self.is_spotless(**host));
        assert!(good.is_none(), "{to} is known to be bad, and there is host {good:?}");
    }

    /// Whether processes of a host have failed again and again, the latest of them so lately that this counts.
    fn has_repeated_faults(&self, host: u64) -> bool {
        let Some(repeated) = self.settings.policy.recoveries.repeated else { return false };
        let of_host = self.facts.failures.iter().filter(|(process, _)| self.host_of(**process) == host);
        let ended = of_host.filter(|(_, (_, evidence))| evidence.leaves_memory());
        let counts = ended.filter(|(_, (at, _))| self.now().since(*at) <= repeated.within);
        counts.count() > repeated.faults as usize
    }

    /// Whether a host can take a rank, nothing ever failed there or in its domain, and no fault is located
    /// there.
    fn is_spotless(&self, host: u64) -> bool {
        let domain = self.settings.domain(host);
        let is_near =
            |other: &u64| *other == host || (domain.is_some() && self.settings.domain(*other) == domain);
        let lost = self.facts.hosts_ended.keys().chain(self.facts.hosts_lost.keys());
        let failed = self.facts.failures.keys().map(|process| self.host_of(*process));
        let has_failed = failed.chain(lost.copied()).any(|other| is_near(&other));
        let is_located = self.has_located_fault(host, false);
        self.facts.has_agent(host) && !has_failed && !is_located && !self.comebacks.starters.contains(&host)
    }

    /// Lets a process bring its replica up to date, once the copy is over that is under way.
    pub(super) fn ask_for_copy(&mut self, process: ProcessId, agent: AgentId, number: u64) {
        match self.comebacks.copying.get_mut(&process).filter(|copying| copying.host == agent.0) {
            Some(copying) => copying.asked = Some(number),
            None => self.begin_copy(process, agent.0, number),
        }
    }

    /// Lets a process begin to copy what is in its vault now.
    fn begin_copy(&mut self, process: ProcessId, host: u64, number: u64) {
        let Some(migrates) = self.migrating() else { return };
        let vault = self.vault(process.rank);
        self.comebacks.copying.insert(process, Copying { host, number, vault, asked: None });
        let at = self.now() + self.some_time(migrates.copy_time);
        self.schedule(at, Happening::Copied(process, number));
    }

    /// Takes in that a copy is over: the replica has what was in the vault when it began, or now, or there is
    /// none.
    pub(super) fn copied(&mut self, process: ProcessId, number: u64) {
        // The vault may be copied to another host by now.
        let is_it = |copying: &Copying| copying.number == number;
        if !self.comebacks.copying.get(&process).is_some_and(is_it) {
            return;
        }
        let Some(Copying { host, vault, asked, .. }) = self.comebacks.copying.remove(&process) else {
            return;
        };
        let me = self.process(process.rank);
        let (Some(migrates), true) = (self.migrating(), me.worker.is_some() && me.keeper == Some(host))
        else {
            return;
        };
        let lives = self.agents.get(&host).is_some_and(|agent| agent.lives() && !agent.is_done());
        let fails = self.courier.random().random_ratio(migrates.copy_failures, 100);
        *self.seen.entry("copies of vaults").or_default() += 1;
        let agent = AgentId(host);
        if !lives || fails {
            *self.seen.entry("copies of vaults that failed").or_default() += 1;
            // With it fails what was asked for meanwhile.
            let (number, result) = (asked.unwrap_or(number), Err("it fails".to_owned()));
            return self.tell_worker(process.rank, Event::Copied { agent, number, result });
        }
        let now = self.vault(process.rank);
        *self.seen.entry("copies of vaults that lack what was noted meanwhile").or_default() +=
            u64::from(vault.log.len() < now.log.len());
        // Behind a checkpoint that was saved meanwhile the copy is begun anew.
        let is_old = vault.generation == now.generation && self.courier.random().random();
        let mut replica = if is_old { vault } else { now };
        // What is only added to a replica says nothing of what the vault lacks since.
        let before = self.comebacks.replicas.get(&(host, process));
        if before.is_some_and(|before| before.generation == replica.generation && before.is_whole()) {
            replica.unnoted.clear();
        }
        self.comebacks.replicas.insert((host, process), replica);
        if let Some(number) = asked {
            self.begin_copy(process, host, number);
        }
        self.tell_worker(process.rank, Event::Copied { agent, number, result: Ok(()) });
    }

    /// What is in the vault of a rank.
    fn vault(&self, rank: Rank) -> Vault {
        self.comebacks.vaults.get(&rank).cloned().unwrap_or_default()
    }

    /// Lets an agent hold a replica no longer.
    pub(super) fn drop_replica(&mut self, host: u64, process: ProcessId) {
        self.comebacks.replicas.remove(&(host, process));
    }

    /// Takes the replicas away that went with a host.
    pub(super) fn lose_replicas(&mut self, host: u64) {
        self.comebacks.replicas.retain(|(at, _), _| *at != host);
    }

    /// Fills the vault of a process that is started, if it comes from another host. Returns false if it is
    /// not there, or lacks an outcome.
    pub(super) fn take_vault(&mut self, host: u64, process: ProcessId) -> bool {
        let left = self.comebacks.left.get(&(host, process.rank)).cloned();
        let origin = self.comebacks.origins.get(&process).copied().flatten();
        let vault = match origin {
            Some((of, at)) => self.comebacks.replicas.get(&(at, of)).cloned(),
            None => Some(left.unwrap_or_else(|| self.vault(process.rank))),
        };
        let is_whole = vault.as_ref().is_none_or(Vault::is_whole);
        *self.seen.entry("processes that could not go on from their vaults").or_default() +=
            u64::from(!is_whole);
        // One that lacks an outcome stays where it is: the agent hands it to each process that comes.
        let Some(vault) = vault.filter(|_| is_whole) else { return false };
        self.comebacks.left.remove(&(host, process.rank));
        *self.seen.entry(MIGRATIONS).or_default() += u64::from(origin.is_some());
        self.comebacks.vaults.insert(process.rank, vault);
        true
    }
}

/// How often a process was started on another host.
pub(crate) const MIGRATIONS: &str = "processes started from replicas";

fn address(host: u64) -> String {
    format!("host {host}")
}
