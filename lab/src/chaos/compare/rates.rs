//! Which faults a run gets: a pure function of the seed, the trial and the rates that were asked for.
//!
//! Each component, a host or a domain, fails by itself: the gaps between its faults follow a law of its own, from
//! the beginning of the run on. So a fault is the same whatever other rates are asked for, and whatever recovery
//! meets it.

use std::time::Duration;

use everfold_sim::model::Failures;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::{chaos::schedule::Layout, cluster::Host};

/// Most faults of a run.
const FAULTS_MAX: f64 = 1e5;

/// How often components fail. Nothing is a component that does not.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// Process faults, of each host.
    pub process: Option<Failures>,
    /// Losses of hosts, of each host.
    pub host: Option<Failures>,
    /// Losses of domains, of each domain.
    pub domain: Option<Failures>,
    /// Hosts with so many times as many process faults as others.
    pub bad_hosts: Vec<(u32, f64)>,
    /// Domains whose hosts are lost so many times as often as others.
    pub bad_domains: Vec<(u32, f64)>,
}

/// Something goes wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fault {
    /// When, in seconds since all ranks had joined.
    pub at_s: f64,
    /// What.
    pub what: What,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A process that runs on this host then is killed.
    Process {
        /// Where.
        host: Host,
        /// Chooses one of those that run there.
        choice: u64,
    },
    /// A host is lost, with all that runs there, and does not come back.
    Host(Host),
    /// All hosts of a domain are lost.
    Domain(u32),
}

/// More faults were asked for than a run can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{expected:.0} faults were asked for in a run; {FAULTS_MAX} are the most: take lower rates or a shorter --time-limit"
)]
pub struct TooMany {
    expected: f64,
}

impl Rates {
    /// Whether nothing ever goes wrong.
    pub fn are_zero(&self) -> bool {
        self.process.is_none() && self.host.is_none() && self.domain.is_none()
    }

    /// The faults of a trial `within` a time, the earliest first. Host 0, where the master is, is never lost.
    ///
    /// # Errors
    /// There would be too many.
    pub fn draw(
        &self,
        layout: Layout,
        (seed, trial): (u64, u64),
        within: Duration,
    ) -> Result<Vec<Fault>, TooMany> {
        let components = self.components(layout);
        let within_s = within.as_secs_f64();
        let expected = components.iter().map(|component| within_s / mean_s(component.law)).sum();
        if expected > FAULTS_MAX {
            return Err(TooMany { expected });
        }
        let mut faults = Vec::new();
        for Component { number, law, what } in components {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(trial << 16 | number);
            let mut at_s = law.gap_s(1, &mut random);
            while at_s < within_s {
                // Logarithms differ in their last bits from machine to machine; microseconds do not show it.
                faults.push(Fault { at_s: (at_s * 1e6).floor() / 1e6, what: what(random.random()) });
                at_s += law.gap_s(1, &mut random);
            }
        }
        faults.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        Ok(faults)
    }

    fn components(&self, layout: Layout) -> Vec<Component> {
        let hosts = || (0..layout.hosts).map(Host);
        let mut components = Vec::new();
        for host in hosts() {
            let factor = factor(&self.bad_hosts, Some(host.0));
            let what = move |choice| What::Process { host, choice };
            components.extend(Component::new(0, host.0, self.process, factor, what));
        }
        for host in hosts().filter(|host| *host != Host(0)) {
            let factor = factor(&self.bad_domains, layout.domain(host));
            components.extend(Component::new(1, host.0, self.host, factor, move |_| What::Host(host)));
        }
        let domains = layout.domains.map_or(0, std::num::NonZeroU32::get);
        for domain in (0..domains).filter(|domain| layout.domain(Host(0)) != Some(*domain)) {
            components.extend(Component::new(2, domain, self.domain, 1.0, move |_| What::Domain(domain)));
        }
        components
    }
}

/// What fails by itself.
struct Component {
    /// Tells it from all others.
    number: u64,
    law: Failures,
    /// What its fault is, from a number that is drawn for it.
    what: Box<dyn Fn(u64) -> What>,
}

impl Component {
    fn new(
        kind: u64,
        index: u32,
        law: Option<Failures>,
        factor: f64,
        what: impl Fn(u64) -> What + 'static,
    ) -> Option<Self> {
        let law = law?;
        let law = Failures { node_mtbf_hours: law.node_mtbf_hours / factor, ..law };
        Some(Self { number: kind << 12 | u64::from(index), law, what: Box::new(what) })
    }
}

fn factor(bad: &[(u32, f64)], index: Option<u32>) -> f64 {
    bad.iter().filter(|(other, _)| Some(*other) == index).map(|(_, factor)| factor).product()
}

fn mean_s(law: Failures) -> f64 {
    law.node_mtbf_hours * 3600.0
}

/// Reads `120` or `120/hour`, at a constant rate, or the name of a law such as `lanl-20`.
pub fn parse_rate(text: &str) -> Result<Failures, String> {
    if let Ok(law) = text.parse() {
        return Ok(law);
    }
    let refuse = || {
        let law = text.parse::<Failures>().err().map(|error| error.to_string()).unwrap_or_default();
        format!("write a number of faults per hour, such as 120/hour; or else {law}")
    };
    let number = text.strip_suffix("/hour").or(text.strip_suffix("/h")).unwrap_or(text);
    let per_hour: f64 = number.trim().parse().map_err(|_| refuse())?;
    if !(1e-9..=1e7).contains(&per_hour) {
        return Err(format!("{text:?} is not from 1e-9 to 1e7 per hour; leave the option out for no faults"));
    }
    Ok(Failures { node_mtbf_hours: 1.0 / per_hour, shape: 1.0 })
}

/// Reads `1:20`: component 1, 20 times.
pub fn parse_bad(text: &str) -> Result<(u32, f64), String> {
    let refuse = || format!("{text:?} is not NUMBER:FACTOR, such as 1:20");
    let (number, factor) = text.split_once(':').ok_or_else(refuse)?;
    let factor = factor.parse().ok().filter(|factor| (1e-3..=1e6).contains(factor)).ok_or_else(refuse)?;
    Ok((number.parse().map_err(|_| refuse())?, factor))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const LAYOUT: Layout = Layout { ranks: 8, hosts: 4, domains: NonZeroU32::new(2) };
    const HOUR: Duration = Duration::from_secs(3600);

    fn rate(text: &str) -> Option<Failures> {
        Some(parse_rate(text).expect("it is a rate"))
    }

    fn all() -> Rates {
        let [process, host, domain] = ["60/hour", "30", "lanl-16"].map(rate);
        let domain = domain.map(|law| Failures { node_mtbf_hours: 0.1, ..law });
        Rates { process, host, domain, bad_hosts: vec![(1, 10.0)], bad_domains: vec![(1, 5.0)] }
    }

    fn draw(rates: &Rates, seed: u64, trial: u64) -> Vec<Fault> {
        rates.draw(LAYOUT, (seed, trial), HOUR).expect("there are not too many")
    }

    #[test]
    fn the_same_seed_and_trial_give_the_same_faults_and_others_do_not() {
        assert_eq!(draw(&all(), 7, 0), draw(&all(), 7, 0));
        assert_ne!(draw(&all(), 7, 0), draw(&all(), 8, 0));
        assert_ne!(draw(&all(), 7, 0), draw(&all(), 7, 1));
        assert!(draw(&all(), 7, 0).is_sorted_by(|a, b| a.at_s <= b.at_s));
    }

    #[test]
    fn a_component_fails_by_itself() {
        let process = |faults: Vec<Fault>| -> Vec<Fault> {
            faults.into_iter().filter(|fault| matches!(fault.what, What::Process { .. })).collect()
        };
        let alone = Rates { host: None, domain: None, ..all() };
        assert_eq!(process(draw(&all(), 3, 0)), draw(&alone, 3, 0), "whatever else is asked for");
    }

    /// With 60 faults per hour and host, 100 hours have 6000 each; their spread is less than 80.
    #[test]
    fn rates_are_as_asked_for() {
        let mut counts = [[0u32; 4]; 2];
        let mut domains = [0u32; 2];
        for trial in 0..100 {
            for fault in draw(&all(), 1, trial) {
                assert!((0.0..3600.0).contains(&fault.at_s));
                match fault.what {
                    What::Process { host, .. } => counts[0][host.0 as usize] += 1,
                    What::Host(host) => counts[1][host.0 as usize] += 1,
                    What::Domain(domain) => domains[domain as usize] += 1,
                }
            }
        }
        let expected = [[6000, 60_000, 6000, 6000], [0, 3000, 15_000, 15_000]];
        for (counts, expected) in counts.into_iter().flatten().zip(expected.into_iter().flatten()) {
            assert!(
                (f64::from(counts) / f64::max(1.0, f64::from(expected)) - 1.0).abs() < 0.05
                    || expected == counts
            );
        }
        assert_eq!(domains[0], 0, "the master's host is in it");
        // In bursts their number is spread more, and those that begin at a failure come a little sooner.
        assert!((900..1200).contains(&domains[1]), "{}", domains[1]);
    }

    #[test]
    fn a_shape_below_one_means_bursts() {
        let gaps = |shape| {
            let law = Failures { node_mtbf_hours: 1.0 / 600.0, shape };
            let rates = Rates { process: Some(law), ..Rates::default() };
            let layout = Layout { hosts: 1, ..LAYOUT };
            let faults = rates.draw(layout, (1, 0), HOUR * 10).expect("there are not too many");
            let short = faults.windows(2).filter(|pair| pair[1].at_s - pair[0].at_s < 0.6).count();
            short as f64 / faults.len() as f64
        };
        // A tenth of the mean: 1 - exp(-0.1) of the gaps are shorter at a constant rate.
        assert!((gaps(1.0) - 0.095).abs() < 0.02, "{}", gaps(1.0));
        assert!(gaps(0.5) > 0.3, "{}", gaps(0.5));
    }

    #[test]
    fn rates_and_factors_are_read() {
        assert_eq!(parse_rate("120/hour"), Ok(Failures { node_mtbf_hours: 1.0 / 120.0, shape: 1.0 }));
        assert_eq!(parse_rate("lanl-20").map(|law| law.shape), Ok(0.647));
        for text in ["", "0", "-1", "lanl", "1/day", "inf"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        assert_eq!(parse_bad("1:20"), Ok((1, 20.0)));
        for text in ["1", "a:2", "1:0", "1:-3", ":"] {
            assert!(parse_bad(text).is_err(), "{text}");
        }
        let rates = Rates { process: rate("10000000"), ..Rates::default() };
        assert!(rates.draw(LAYOUT, (1, 0), HOUR).is_err());
    }
}
