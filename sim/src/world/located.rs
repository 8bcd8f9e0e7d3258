//! Faults of which the master hears that they were located, rightly or not, and what it is to make of them.

use std::collections::BTreeMap;

use everfold_master::{
    self as master,
    located::{Fault, Place},
    recovery::{Recovery, Repeated},
};
use everfold_protocol::{AgentId, Rank, Timestamp, message::ToAgent};

use super::World;

/// From when on the master has believed in each fault, and until when, if it is over.
type Spans = BTreeMap<(Place, String), (Timestamp, Option<Timestamp>)>;

/// What the master was told of located faults.
#[derive(Debug, Default)]
pub(super) struct Located {
    spans: Spans,
    /// The host that was last to start each rank.
    starters: BTreeMap<Rank, u64>,
}

/// How often a rank has left a host that lives, because a fault was located there.
const LEFT: &str = "migrations from hosts with located faults";

impl World {
    /// Lets the master hear that a fault was located, or is over.
    pub(super) fn hear_located(&mut self, fault: Fault, over: bool) {
        let now = self.now();
        let key = (fault.place.clone(), fault.name.clone());
        let span = self.located.spans.entry(key).or_insert((now, Some(now)));
        *span = match (over, *span) {
            (true, (since, None)) => (since, Some(now)),
            (false, (_, Some(_))) => (now, None),
            (_, same) => same,
        };
        self.driver.hear(master::Event::Located { fault, over });
        self.run_coordinator();
    }

    /// Whether one of the faults that have a recovery of their own is located on a host. What has changed now
    /// the master may have heard before it has decided, or after that: `surely` leaves that out.
    pub(super) fn has_located_fault(&self, host: u64, surely: bool) -> bool {
        let Some(located) = &self.settings.policy.recoveries.located else { return false };
        let now = self.now();
        let holds = |(since, until): &(Timestamp, Option<Timestamp>)| match until {
            None => !surely || *since < now,
            Some(until) => !surely && *until == now,
        };
        let is_there = |place: &Place| matches!(place, Place::Hosts(hosts) if hosts.contains(&AgentId(host)));
        let of_host = self.located.spans.iter().filter(|((place, _), _)| is_there(place));
        of_host.filter(|((_, name), _)| located.faults.contains(name)).any(|(_, span)| holds(span))
    }

    /// A rank leaves a host that lives only if a fault was located there, in worlds where nothing else makes
    /// it leave.
    pub(super) fn check_leave(&mut self, rank: Rank) {
        let choice = &self.settings.policy.recoveries;
        let leaves = |repeated: Repeated| repeated.recovery.contains(Recovery::Migrate);
        let may_leave = choice.ranks_stand_by() || choice.repeated.is_some_and(leaves);
        let from = [Some(self.home(rank)), self.located.starters.get(&rank).copied()];
        let is_lost = |host: &u64| {
            self.facts.hosts_ended.contains_key(host) || self.facts.hosts_lost.contains_key(host)
        };
        if self.settings.has_own_detectors() || may_leave || from.iter().flatten().any(is_lost) {
            return;
        }
        *self.seen.entry(LEFT).or_default() += 1;
        let is_located = from.iter().flatten().any(|host| self.has_located_fault(*host, false));
        assert!(is_located, "rank {rank} leaves {from:?}, where no fault was located");
    }

    /// On a host with a located fault whose recovery is another one no process is started again.
    pub(super) fn check_start(&mut self, host: u64, message: &ToAgent) {
        let ToAgent::Start { process, origin } = message else { return };
        self.located.starters.insert(process.rank, host);
        let (choice, is_restart) = (&self.settings.policy.recoveries, origin.is_none());
        let Some(located) = &choice.located else { return };
        // What is started after a pause was decided before that.
        let is_checked = is_restart && choice.restart.pause.is_zero() && !self.settings.has_own_detectors();
        if is_checked && !located.recovery.contains(Recovery::Restart) {
            let is_located = self.has_located_fault(host, true);
            assert!(!is_located, "{process} is started again on host {host}, where a fault was located");
        }
    }
}
