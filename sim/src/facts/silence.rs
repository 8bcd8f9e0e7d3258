//! For how long processes could not be heard.

use std::time::Duration;

use everfold_protocol::{Rank, Timestamp};

use super::Facts;
use crate::{events::Place, settings::Settings};

/// How long the spans last from `from` on, together.
fn covered(spans: impl Iterator<Item = (Timestamp, Timestamp)>, from: Timestamp) -> Duration {
    let mut spans: Vec<_> = spans.filter(|(_, until)| *until > from).collect();
    spans.sort_unstable();
    let (mut sum, mut at) = (Duration::ZERO, from);
    for (since, until) in spans {
        sum += until.since(since.max(at));
        at = at.max(until);
    }
    sum
}

/// A time in which a process could not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hindrance {
    since: Timestamp,
    until: Timestamp,
    /// Whether it did not run. When it runs again it answers at once; what was cut off is under way for a
    /// while.
    is_stop: bool,
}

/// The longest time without an answer among those that last until `from`, if answers are under way for up to
/// `grace`.
fn longest(hindrances: impl Iterator<Item = Hindrance>, from: Timestamp, grace: Duration) -> Duration {
    let mut hindrances: Vec<_> = hindrances.collect();
    hindrances.sort_unstable();
    let (mut longest, mut chain) = (Duration::ZERO, None::<Hindrance>);
    for next in hindrances {
        let follows = |before: &Hindrance| {
            let pause = if before.is_stop && next.is_stop { Duration::ZERO } else { grace };
            next.since <= before.until + pause
        };
        let whole = match chain.filter(follows) {
            Some(before) if before.until > next.until => before,
            Some(before) => Hindrance { since: before.since, ..next },
            None => next,
        };
        if whole.until >= from {
            longest = longest.max(whole.until.since(whole.since));
        }
        chain = Some(whole);
    }
    longest
}

/// Intervals of silence after which the master gives a process up at the earliest, and a process its master.
const INTERVALS: u32 = 3;
/// Of these, those for which the silent process was hindered: it was last heard up to one interval before.
const HINDERED: u32 = 2;

impl Facts {
    /// Whether a process of this host was hindered for long enough before `at` to be given up by the master
    /// for its silence.
    ///
    /// It is heard as soon as it runs and its answers get through: one hindrance has to follow upon the
    /// other. While the master did not run it heard nothing either, and forgives most of that.
    pub fn was_silent(&self, settings: &Settings, (place, host): (Place, u64), at: Timestamp) -> bool {
        self.was_hindered(settings, (place, host), at, HINDERED)
    }

    /// Whether the agent of a host was hindered for long enough before `at` to miss pings, as the master sees
    /// it.
    pub fn missed_pings(&self, settings: &Settings, host: u64, at: Timestamp) -> bool {
        self.was_hindered(settings, (Place::Agent(host), host), at, HINDERED - 1)
    }

    /// Whether a process was hindered for this number of intervals before `at`.
    fn was_hindered(
        &self,
        settings: &Settings,
        (place, host): (Place, u64),
        at: Timestamp,
        intervals: u32,
    ) -> bool {
        let asleep = self.asleep(settings, master(settings), at);
        let grace = self.grace(settings, place);
        let hosts = (host, settings.master_host());
        let hindrance = |is_stop| move |(since, until)| Hindrance { since, until, is_stop };
        let stops = self.stops(place, at).map(hindrance(true));
        let cuts = self.cuts(hosts, at).map(hindrance(false));
        let silence = longest(stops.chain(cuts), before(at, grace + asleep), grace);
        silence + grace >= hindered(settings, asleep, intervals)
    }

    /// Whether the master was hindered for long enough before `at` to be given up by `rank`, of this host,
    /// for its silence.
    ///
    /// Its pings come late one by one if it is stopped again and again.
    pub fn was_left_alone(&self, settings: &Settings, (rank, host): (Rank, u64), at: Timestamp) -> bool {
        let place = Place::Rank(rank);
        let asleep = self.asleep(settings, place, at);
        let hosts = (host, settings.master_host());
        let spans = self.stops(master(settings), at).chain(self.cuts(hosts, at));
        let window = settings.policy.limits.ping_interval * INTERVALS + asleep + self.grace(settings, place);
        covered(spans, before(at, window)) + self.grace(settings, place)
            >= hindered(settings, asleep, HINDERED)
    }

    /// How long messages are under way between the master and a process, there and back, with those that hold
    /// them up.
    fn grace(&self, settings: &Settings, place: Place) -> Duration {
        let late = match place {
            Place::Rank(rank) => self.late.get(&rank).copied().unwrap_or_default(),
            Place::Agent(_) | Place::Master => Duration::ZERO,
        };
        settings.latency.1 * 4 + late * 2 + Duration::from_micros(10)
    }

    /// How long an observer did not run while it took somebody for silent.
    fn asleep(&self, settings: &Settings, observer: Place, at: Timestamp) -> Duration {
        let window = settings.policy.limits.ping_interval * INTERVALS;
        let mut asleep = Duration::ZERO;
        loop {
            let longer = covered(self.stops(observer, at), before(at, window + asleep));
            if longer == asleep {
                return asleep;
            }
            asleep = longer;
        }
    }
}

/// Where the master lives.
fn master(settings: &Settings) -> Place {
    Place::Agent(settings.master_host())
}

/// For how long a process is hindered at least that is silent for one interval more than these.
fn hindered(settings: &Settings, asleep: Duration, intervals: u32) -> Duration {
    // Of each time in which the observer did not run, it does not forgive what passed before its alarm was
    // due.
    let least = if asleep.is_zero() { intervals } else { intervals - 1 };
    settings.policy.limits.ping_interval * least
}

fn before(at: Timestamp, time: Duration) -> Timestamp {
    Timestamp::from_nanos(at.as_nanos().saturating_sub(time.as_nanos() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn after(hindrances: &[(u64, u64, bool)], from: u64) -> u128 {
        let hindrances = hindrances.iter().map(|&(since, until, is_stop)| Hindrance {
            since: ms(since),
            until: ms(until),
            is_stop,
        });
        longest(hindrances, ms(from), Duration::from_millis(2)).as_millis()
    }

    #[test]
    fn hindrances_add_up_if_nothing_is_heard_in_between() {
        assert_eq!(after(&[(0, 10, true), (11, 20, true)], 19), 9, "it has answered when it ran again");
        assert_eq!(after(&[(0, 10, true), (11, 20, false)], 19), 20, "its answer was cut off");
        assert_eq!(after(&[(0, 10, false), (13, 20, false)], 19), 7, "its answer got through");
        assert_eq!(after(&[(0, 30, false), (5, 10, true), (31, 40, true)], 39), 40);
        assert_eq!(after(&[(0, 30, true), (40, 50, true)], 49), 10, "what is long over excuses nothing");
        assert_eq!(after(&[(0, 30, true)], 40), 0);
    }

    #[test]
    fn time_is_covered_once() {
        let spans = [(0, 10), (5, 20), (30, 40)].map(|(since, until)| (ms(since), ms(until)));
        assert_eq!(covered(spans.into_iter(), ms(8)).as_millis(), 22);
    }
}
