//! Which faults a trial gets: a pure function of seed, trial and what was asked for.

use std::{num::NonZeroU32, ops::RangeInclusive};

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::cluster::{Direction, Host};

/// How long a process is stopped or a host is cut off, in seconds.
const SPAN_S: RangeInclusive<f64> = 0.1..=5.0;
/// Which part of the time a slow process may run.
const SLOW_SHARE: RangeInclusive<f64> = 0.02..=0.2;
/// Most bytes that are changed at once.
const CORRUPT_BYTES_MAX: u32 = 64;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A process is killed.
    Kill,
    /// A host is lost: its agent and its processes are killed.
    Lose,
    /// A domain is lost: all its hosts at once.
    LoseDomain,
    /// A rank's program fails.
    Fail,
    /// A process is stopped for a while.
    Stop,
    /// A host is cut off from the others.
    Cut,
    /// A process gets little of the processor.
    Slow,
    /// The disk gets full.
    DiskFull,
    /// Bytes on the disk change.
    Corrupt,
}

/// Something that goes wrong in a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fault {
    /// When, as a part of the window: 0 is its begin and 1 its end.
    pub at: f64,
    /// What.
    pub action: Action,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// SIGKILL.
    Kill {
        /// Who is hit.
        rank: u32,
    },
    /// SIGKILL for a host's agent and all its ranks.
    Lose {
        /// Who is hit.
        host: Host,
    },
    /// SIGKILL for all agents and all ranks of a domain.
    LoseDomain {
        /// Which one, from 0.
        domain: u32,
    },
    /// The built-in program fails on a rank.
    Fail {
        /// Who is hit.
        rank: u32,
        /// How.
        way: Failing,
    },
    /// SIGSTOP, and later SIGCONT.
    Stop {
        /// Who is hit.
        rank: u32,
        /// How long.
        seconds: f64,
    },
    /// Packets of a host are dropped.
    Cut {
        /// Who is hit.
        host: Host,
        /// Which packets.
        direction: Direction,
        /// How long; until the end of the trial if not said.
        seconds: Option<f64>,
    },
    /// SIGSTOP and SIGCONT in turns, until the end of the trial.
    Slow {
        /// Who is hit.
        rank: u32,
        /// Which part of the time it may run.
        share: f64,
    },
    /// The file system under the job's directory has no room left, until the end of the trial.
    DiskFull,
    /// Bytes of one of the job's files change.
    Corrupt {
        /// Chooses file and place.
        choice: u64,
        /// How many.
        bytes: u32,
    },
}

/// How a program fails that is still able to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failing {
    /// It ends in an error.
    Error,
    /// It panics.
    Panic,
    /// It abandons its session, and lives on for a while.
    Abandon,
}

impl Failing {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Error, Self::Panic, Self::Abandon];
}

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kinds to choose from; one that is there twice can be chosen twice.
    pub kinds: Vec<Kind>,
    /// How many of them a trial gets; all if not said.
    pub faults: Option<RangeInclusive<usize>>,
    /// Which ranks may be hit.
    pub victims: Vec<u32>,
    /// Where the ranks are.
    pub layout: Layout,
}

/// Which rank is on which host: in blocks of neighbours.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Number of ranks.
    pub ranks: u32,
    /// Number of hosts.
    pub hosts: u32,
    /// Number of domains, which are blocks of neighbouring hosts. Nothing if hosts have no label.
    pub domains: Option<NonZeroU32>,
}

impl Layout {
    /// The host of `rank`.
    pub fn host(self, rank: u32) -> Host {
        Host((u64::from(rank) * u64::from(self.hosts) / u64::from(self.ranks)) as u32)
    }

    /// The domain of `host`, from 0.
    pub fn domain(self, host: Host) -> Option<u32> {
        let domains = self.domains?.get();
        Some((u64::from(host.0) * u64::from(domains) / u64::from(self.hosts)) as u32)
    }

    /// The hosts of `domain`.
    pub fn hosts_in(self, domain: u32) -> impl Iterator<Item = Host> {
        (0..self.hosts).map(Host).filter(move |host| self.domain(*host) == Some(domain))
    }

    /// The ranks on `host`.
    pub fn ranks_on(self, host: Host) -> impl Iterator<Item = u32> {
        (0..self.ranks).filter(move |rank| self.host(*rank) == host)
    }
}

/// There are not enough ranks or hosts to hit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{faults} {what} are to be hit at once, but only {victims} may be; see --victims, --hosts and --domains"
)]
pub struct PlanError {
    what: &'static str,
    faults: usize,
    victims: usize,
}

impl Plan {
    /// Checks that each trial finds as many victims as it may need.
    pub fn validate(&self) -> Result<(), PlanError> {
        let count = |kinds: &[Kind]| self.kinds.iter().filter(|kind| kinds.contains(kind)).count();
        let check = |what, faults, victims| {
            if faults <= victims { Ok(()) } else { Err(PlanError { what, faults, victims }) }
        };
        check("ranks", count(&[Kind::Kill, Kind::Fail, Kind::Stop, Kind::Slow]), self.victims.len())?;
        // A host that is cut off might be the only one that may be lost.
        let hosts = if self.kinds.contains(&Kind::Lose) { self.losable() } else { self.hosts().len() };
        // As many hosts as there can be in a domain may go with each.
        let lost = count(&[Kind::LoseDomain]);
        let spoilt = count(&[Kind::Cut, Kind::Lose]);
        check("hosts", spoilt, hosts)?;
        let domains = self.losable_domains(&self.hosts()).len();
        check("domains", lost, if lost > 0 { domains.saturating_sub(spoilt) } else { domains })
    }

    /// The domains that may be lost, of which all hosts are among `hosts`. Not the one that hosts the master.
    fn losable_domains(&self, hosts: &[Host]) -> Vec<u32> {
        let is_whole = |domain: &u32| {
            let mut of_it = self.layout.hosts_in(*domain);
            of_it.all(|host| host != Host(0) && hosts.contains(&host))
        };
        (0..self.layout.domains.map_or(0, NonZeroU32::get)).filter(is_whole).collect()
    }

    /// The hosts of which every rank may be hit.
    fn hosts(&self) -> Vec<Host> {
        let may_be_hit = |host: &Host| self.layout.ranks_on(*host).all(|rank| self.victims.contains(&rank));
        (0..self.layout.hosts).map(Host).filter(may_be_hit).collect()
    }

    /// How many hosts may be lost: not the one that hosts the master, without which nothing goes on.
    fn losable(&self) -> usize {
        self.hosts().into_iter().filter(|host| *host != Host(0)).count()
    }

    /// The faults of `trial`, the earliest first. No rank and no host is hit by two of them, but a host that
    /// is cut off may have a rank that is hit.
    pub fn draw(&self, seed: u64, trial: u64) -> Vec<Fault> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(trial);
        let (mut kinds, mut victims, mut hosts) = (self.kinds.clone(), self.victims.clone(), self.hosts());
        victims.shuffle(&mut rng);
        hosts.shuffle(&mut rng);
        if let Some(faults) = &self.faults {
            kinds.shuffle(&mut rng);
            kinds.truncate(rng.random_range(faults.clone()));
        }
        let draw = |kind| {
            let at = rng.random::<f64>();
            let action = match kind {
                Kind::Kill => Action::Kill { rank: victims.pop()? },
                Kind::Lose => {
                    let at = hosts.iter().rposition(|host| *host != Host(0))?;
                    Action::Lose { host: hosts.remove(at) }
                }
                Kind::LoseDomain => {
                    let whole = self.losable_domains(&hosts);
                    let of_whole =
                        |host: &Host| self.layout.domain(*host).filter(|domain| whole.contains(domain));
                    let domain = hosts.iter().rev().find_map(of_whole)?;
                    hosts.retain(|host| self.layout.domain(*host) != Some(domain));
                    Action::LoseDomain { domain }
                }
                Kind::Fail => {
                    let way = Failing::ALL[rng.random_range(0..Failing::ALL.len())];
                    Action::Fail { rank: victims.pop()?, way }
                }
                Kind::Stop => Action::Stop { rank: victims.pop()?, seconds: rng.random_range(SPAN_S) },
                Kind::Slow => Action::Slow { rank: victims.pop()?, share: rng.random_range(SLOW_SHARE) },
                Kind::Cut => {
                    let directions = [Direction::Both, Direction::Both, Direction::In, Direction::Out];
                    let direction = directions[rng.random_range(0..directions.len())];
                    let seconds = rng.random_range(SPAN_S);
                    let seconds = rng.random::<bool>().then_some(seconds);
                    Action::Cut { host: hosts.pop()?, direction, seconds }
                }
                Kind::DiskFull => Action::DiskFull,
                Kind::Corrupt => {
                    let bytes = rng.random_range(1..=CORRUPT_BYTES_MAX);
                    Action::Corrupt { choice: rng.random(), bytes }
                }
            };
            Some(Fault { at, action })
        };
        let mut faults: Vec<Fault> = kinds.into_iter().filter_map(draw).collect();
        faults.sort_by(|a, b| a.at.total_cmp(&b.at));
        faults
    }
}

impl Action {
    /// The ranks that it hits in a way for which the others may take them for dead.
    pub fn suspects(&self, layout: Layout) -> Vec<u32> {
        match self {
            Self::Kill { rank } | Self::Fail { rank, .. } | Self::Stop { rank, .. } => vec![*rank],
            Self::Cut { host, .. } | Self::Lose { host } => layout.ranks_on(*host).collect(),
            Self::LoseDomain { domain } => {
                layout.hosts_in(*domain).flat_map(|host| layout.ranks_on(host)).collect()
            }
            Self::Slow { .. } | Self::DiskFull | Self::Corrupt { .. } => Vec::new(),
        }
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kill { rank } => write!(f, "kill rank {rank}"),
            Self::Lose { host } => write!(f, "kill host {host} as a whole"),
            Self::LoseDomain { domain } => write!(f, "kill domain {domain} as a whole"),
            Self::Fail { rank, way: Failing::Error } => write!(f, "end rank {rank} in an error"),
            Self::Fail { rank, way: Failing::Panic } => write!(f, "let rank {rank} panic"),
            Self::Fail { rank, way: Failing::Abandon } => write!(f, "let rank {rank} abandon its session"),
            Self::Stop { rank, seconds } => write!(f, "stop rank {rank} for {seconds:.2} s"),
            Self::Cut { host, direction, seconds } => {
                let packets = match direction {
                    Direction::Both => "cut off host",
                    Direction::In => "drop all packets to host",
                    Direction::Out => "drop all packets from host",
                };
                write!(f, "{packets} {host}")?;
                seconds.map_or(Ok(()), |seconds| write!(f, " for {seconds:.2} s"))
            }
            Self::Slow { rank, share } => {
                write!(f, "let rank {rank} run {:.0} % of the time", share * 100.0)
            }
            Self::DiskFull => f.write_str("fill the disk"),
            Self::Corrupt { bytes, .. } => write!(f, "change {bytes} bytes of a file"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plan(kinds: &[Kind], faults: Option<RangeInclusive<usize>>) -> Plan {
        let layout = Layout { ranks: 8, hosts: 4, domains: NonZeroU32::new(2) };
        Plan { kinds: kinds.to_vec(), faults, victims: (1..8).collect(), layout }
    }

    const ALL: [Kind; 6] = [Kind::Kill, Kind::Stop, Kind::Cut, Kind::Slow, Kind::DiskFull, Kind::Corrupt];

    #[test]
    fn the_same_seed_and_trial_give_the_same_faults_and_others_do_not() {
        let plan = plan(&ALL, Some(1..=4));
        let draws = |seed| (0..50).map(|trial| plan.draw(seed, trial)).collect::<Vec<_>>();
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        assert_eq!(plan.draw(7, 49), draws(7)[49], "a trial does not depend on those before it");
        let different: BTreeSet<String> = draws(7).iter().map(|faults| format!("{faults:?}")).collect();
        assert_eq!(different.len(), 50);
    }

    /// What a seed means does not change from one version to the next without somebody noticing.
    #[test]
    fn a_known_seed_gives_known_faults() {
        let faults = plan(&[Kind::Kill, Kind::Stop], None).draw(1, 0);
        let shown: Vec<String> =
            faults.iter().map(|fault| format!("{:.4}: {}", fault.at, fault.action)).collect();
        assert_eq!(shown, KNOWN);
    }

    const KNOWN: [&str; 2] = ["0.0804: kill rank 7", "0.5966: stop rank 2 for 1.17 s"];

    #[test]
    fn faults_are_as_asked_for() {
        let kinds = [Kind::Kill, Kind::Kill, Kind::Stop, Kind::Slow, Kind::Cut, Kind::Cut];
        for trial in 0..300 {
            let faults = plan(&kinds, None).draw(3, trial);
            assert_eq!(faults.len(), kinds.len());
            assert!(faults.is_sorted_by(|a, b| a.at <= b.at));
            let (mut ranks, mut hosts) = (BTreeSet::new(), BTreeSet::new());
            for Fault { at, action } in &faults {
                assert!((0.0..1.0).contains(at));
                match action {
                    Action::Kill { rank } => assert!(ranks.insert(*rank) && *rank != 0),
                    Action::Stop { rank, seconds } => {
                        assert!(ranks.insert(*rank) && *rank != 0 && SPAN_S.contains(seconds));
                    }
                    Action::Slow { rank, share } => {
                        assert!(ranks.insert(*rank) && *rank != 0 && SLOW_SHARE.contains(share));
                    }
                    Action::Cut { host, seconds, .. } => {
                        assert!(hosts.insert(*host) && *host != Host(0), "rank 0 is on host 0");
                        assert!(seconds.is_none_or(|seconds| SPAN_S.contains(&seconds)));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn the_number_of_faults_is_in_its_range() {
        let plan = plan(&ALL, Some(2..=4));
        let counts: BTreeSet<usize> = (0..200).map(|trial| plan.draw(5, trial).len()).collect();
        assert_eq!(counts, BTreeSet::from([2, 3, 4]));
    }

    #[test]
    fn moments_are_uniform() {
        let plan = plan(&[Kind::Kill], None);
        let moments: Vec<f64> = (0..2000).map(|trial| plan.draw(11, trial)[0].at).collect();
        for tenth in 0..10 {
            let range = f64::from(tenth) / 10.0..f64::from(tenth + 1) / 10.0;
            let count = moments.iter().filter(|at| range.contains(at)).count();
            assert!((140..260).contains(&count), "{count} in {range:?}");
        }
    }

    #[test]
    fn there_have_to_be_enough_victims() {
        assert_eq!(plan(&[Kind::Kill; 7], None).validate(), Ok(()));
        assert!(plan(&[Kind::Kill; 8], None).validate().is_err());
        assert_eq!(plan(&[Kind::Cut; 3], None).validate(), Ok(()));
        assert!(plan(&[Kind::Cut; 4], None).validate().is_err());
    }

    #[test]
    fn a_domain_is_lost_as_a_whole_and_never_the_one_of_the_master() {
        let layout = Layout { ranks: 8, hosts: 4, domains: NonZeroU32::new(2) };
        assert_eq!(layout.hosts_in(1).collect::<Vec<_>>(), [Host(2), Host(3)]);
        for trial in 0..50 {
            let [Fault { action, .. }] = &plan(&[Kind::LoseDomain], None).draw(2, trial)[..] else {
                panic!()
            };
            assert_eq!(*action, Action::LoseDomain { domain: 1 });
            assert_eq!(action.suspects(layout), [4, 5, 6, 7]);
        }
        assert!(plan(&[Kind::LoseDomain, Kind::LoseDomain], None).validate().is_err());
        assert!(
            plan(&[Kind::LoseDomain, Kind::Lose], None).validate().is_err(),
            "it might be one of its hosts"
        );
        let none = Plan { layout: Layout { domains: None, ..layout }, ..plan(&[Kind::LoseDomain], None) };
        assert!(none.validate().is_err(), "hosts have no label");
    }

    #[test]
    fn ranks_are_spread_in_blocks() {
        let layout = Layout { ranks: 8, hosts: 3, domains: None };
        let hosts: Vec<u32> = (0..8).map(|rank| layout.host(rank).0).collect();
        assert_eq!(hosts, [0, 0, 0, 1, 1, 1, 2, 2]);
        assert_eq!(layout.ranks_on(Host(1)).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(Action::Kill { rank: 3 }.suspects(layout), [3]);
        let cut = Action::Cut { host: Host(2), direction: Direction::In, seconds: None };
        assert_eq!(cut.suspects(layout), [6, 7]);
    }
}
