//! What users read of a located fault.

use everfold_locate::{
    place::{Host, Place},
    tfa::{Finding, Seen, Verdict},
};
use everfold_protocol::locating::{Component, HostName, HostRef, Located};

/// A verdict with names that people know.
pub(super) fn located(verdict: &Verdict, hosts: &[HostRef]) -> Located {
    Located {
        fault: verdict.fault.clone(),
        says: verdict.says.clone(),
        component: component(verdict.place, hosts),
        age: verdict.age,
        confidence: (verdict.confidence * 100.0).round() as u8,
        evidence: verdict.evidence.iter().map(|seen| evidence(seen, hosts)).collect(),
        harmless: verdict.harmless,
        over: verdict.finding == Finding::Over,
    }
}

fn evidence(seen: &Seen, hosts: &[HostRef]) -> String {
    let witness = name(seen.witness, hosts).address;
    format!("{} (seen by {witness})", seen.told(&short(seen.place, hosts)))
}

fn short(place: Place, hosts: &[HostRef]) -> String {
    match place {
        Place::Rank { rank, .. } => format!("rank {rank}"),
        Place::Host(host) => name(host, hosts).address,
        Place::Link { from, to } => format!("{} to {}", name(from, hosts).address, name(to, hosts).address),
        Place::Domain(_) => component(place, hosts).to_string(),
    }
}

fn component(place: Place, hosts: &[HostRef]) -> Component {
    match place {
        Place::Rank { rank, .. } => Component::Rank(rank),
        Place::Host(host) => Component::Host(name(host, hosts)),
        Place::Link { from, to } => Component::Link { from: name(from, hosts), to: name(to, hosts) },
        Place::Domain(domain) => {
            let (label, inside) = domains(hosts).into_iter().nth(domain.0 as usize).unwrap_or_default();
            let ranks = inside.iter().flat_map(|host| hosts[host.0 as usize].ranks.iter()).collect();
            Component::Domain { label, ranks }
        }
    }
}

/// The domains of a job by their index, and the hosts in each.
pub(super) fn domains(hosts: &[HostRef]) -> Vec<(String, Vec<Host>)> {
    let mut domains = std::collections::BTreeMap::<String, Vec<Host>>::new();
    for (host, it) in (0..).map(Host).zip(hosts) {
        if let Some(label) = &it.domain {
            domains.entry(label.clone()).or_default().push(host);
        }
    }
    domains.into_iter().collect()
}

pub(super) fn name(host: Host, hosts: &[HostRef]) -> HostName {
    match hosts.get(host.0 as usize) {
        Some(it) => {
            let ip = it.agent.address.rsplit_once(':').map_or(&*it.agent.address, |(ip, _)| ip);
            HostName { address: ip.to_owned(), ranks: it.ranks.clone() }
        }
        None => HostName { address: format!("{}", host.0), ranks: Default::default() },
    }
}
