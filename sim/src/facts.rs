//! What happened to the processes of a world, and when, apart from what the machines make of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use everfold_master::Notice;
use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, SegmentId, Timestamp,
    message::{Data, Evidence, MASTER_RANK, News, ToMaster, ToWorker},
};
use everfold_worker::machine::Gone;

use crate::{
    faults::Cut,
    world::{MASTER, World},
};

/// Something that lasts, from when on and until when, if it is over.
type Span = (Timestamp, Option<Timestamp>);

/// What happened to processes, and what reached the master.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Whose process ended, or left its job without a word.
    pub ended: BTreeMap<Rank, Timestamp>,
    /// Who gave the master up.
    pub deserted: BTreeMap<Rank, Timestamp>,
    /// Whom the master declared failed, and why.
    pub failed: BTreeMap<Rank, (Timestamp, Evidence)>,
    /// When a rank was first refused a reduction.
    pub refused: BTreeMap<(ReductionId, Rank), Timestamp>,
    /// Originals of which the master said that they have no replica, by the hash of the reduction's name.
    pub unprotected: BTreeSet<(Rank, u64)>,
    /// Contributions that the master took in, and whether they came inlined.
    heard: BTreeMap<(Rank, ReductionId), bool>,
    /// Ranks that were told to copy a result over their contributions.
    pub overwrites: BTreeSet<(Rank, ReductionId)>,
    /// Whose connection the master saw break.
    hung_up: BTreeSet<Rank>,
    /// What the master was last told of partials before their owners hung up; nothing while they were to change.
    told: BTreeMap<(Rank, SegmentId), Path>,
    /// Originals of which somebody told the master that it has a copy, or a part of one.
    kept: BTreeSet<(Rank, ReductionId)>,
    /// When processes did not run.
    stops: BTreeMap<Rank, Vec<Span>>,
    cuts: Vec<(Cut, Span)>,
    /// By how much a message of a rank, or to it, was late at most.
    late: BTreeMap<Rank, Duration>,
}

impl Facts {
    /// Ranks that the master has declared failed by `at`.
    pub fn failed_by(&self, at: Timestamp) -> Path {
        self.failed.iter().filter(|(_, (since, _))| *since <= at).map(|(rank, _)| *rank).collect()
    }

    /// Ranks whose process has ended, which have given the master up, or which it has declared failed by `at`.
    pub fn gone_by(&self, at: Timestamp) -> Path {
        let gone = self.ended.iter().chain(&self.deserted).filter(|(_, since)| **since <= at);
        gone.map(|(rank, _)| *rank).chain(self.failed_by(at).iter()).collect()
    }

    /// Whether the connection of `rank` to the master broke, as far as the master knows.
    pub fn has_hung_up(&self, rank: Rank) -> bool {
        matches!(self.failed.get(&rank), Some((_, Evidence::Disconnected)))
    }

    /// Whether a contribution reached the master in time, and if so, whether it came inlined.
    pub fn heard(&self, rank: Rank, reduction: ReductionId) -> Option<bool> {
        self.heard.get(&(rank, reduction)).copied()
    }

    /// What the master was last told of a partial.
    pub fn told(&self, rank: Rank, segment: SegmentId) -> Option<&Path> {
        self.told.get(&(rank, segment))
    }

    /// Takes in that a process is told to fold something into its partial.
    pub fn task(&mut self, rank: Rank, segment: SegmentId) {
        self.told.remove(&(rank, segment));
    }

    /// Whether there was a copy of an original, or a part of one.
    pub fn was_kept(&self, rank: Rank, reduction: ReductionId) -> bool {
        self.kept.contains(&(rank, reduction))
    }

    pub fn stop(&mut self, at: Timestamp, rank: Rank) {
        self.stops.entry(rank).or_default().push((at, None));
    }

    pub fn thaw(&mut self, at: Timestamp, rank: Rank) {
        end(at, self.stops.get_mut(&rank).and_then(|spans| spans.last_mut()));
    }

    /// Takes in that messages of a rank, and to it, are late by up to `time` from now on.
    pub fn delay(&mut self, rank: Rank, time: Duration) {
        let longest = self.late.entry(rank).or_default();
        *longest = time.max(*longest);
    }

    pub fn cut(&mut self, at: Timestamp, cut: Cut) {
        self.cuts.push((cut, (at, None)));
    }

    pub fn heal(&mut self, at: Timestamp, cut: &Cut) {
        let same = self.cuts.iter_mut().find(|(other, (_, until))| other == cut && until.is_none());
        end(at, same.map(|(_, span)| span));
    }

    /// When `rank` did not run, up to `by`.
    fn stops(&self, rank: Rank, by: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        self.stops.get(&rank).into_iter().flatten().filter_map(move |span| clip(span, by))
    }

    /// When nothing or not everything got through between two hosts, up to `by`.
    fn cuts(&self, hosts: (u64, u64), by: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let (one, other) = hosts;
        let parts = move |cut: &Cut| cut.severs(one, other) || cut.severs(other, one);
        self.cuts.iter().filter(move |(cut, _)| parts(cut)).filter_map(move |(_, span)| clip(span, by))
    }
}

fn end(at: Timestamp, span: Option<&mut Span>) {
    if let Some((_, until @ None)) = span {
        *until = Some(at);
    }
}

fn clip((since, until): &Span, by: Timestamp) -> Option<(Timestamp, Timestamp)> {
    (*since < by).then(|| (*since, until.map_or(by, |until| until.min(by))))
}

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
    /// Whether it did not run. When it runs again it answers at once; what was cut off is under way for a while.
    is_stop: bool,
}

/// The longest time without an answer among those that last until `from`, if answers are under way for up to `grace`.
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

impl World {
    /// Whether the process of `rank` was hindered for long enough before `at` to be given up by the master for its silence.
    ///
    /// It is heard as soon as it runs and its answers get through: one hindrance has to follow upon the other. While the
    /// master did not run it heard nothing either, and forgives most of that.
    pub(crate) fn was_silent(&self, rank: Rank, at: Timestamp) -> bool {
        let asleep = self.asleep(MASTER_RANK, at);
        let grace = self.grace(rank);
        let hosts = (self.settings.host(rank), self.settings.host(MASTER_RANK));
        let hindrance = |is_stop| move |(since, until)| Hindrance { since, until, is_stop };
        let stops = self.facts.stops(rank, at).map(hindrance(true));
        let cuts = self.facts.cuts(hosts, at).map(hindrance(false));
        let silence = longest(stops.chain(cuts), before(at, grace + asleep), grace);
        silence + grace >= self.hindered(asleep)
    }

    /// Whether the master was hindered for long enough before `at` to be given up by `rank` for its silence.
    ///
    /// Its pings come late one by one if it is stopped again and again.
    pub(crate) fn was_left_alone(&self, rank: Rank, at: Timestamp) -> bool {
        let asleep = self.asleep(rank, at);
        let hosts = (self.settings.host(rank), self.settings.host(MASTER_RANK));
        let spans = self.facts.stops(MASTER_RANK, at).chain(self.facts.cuts(hosts, at));
        let window = self.settings.policy.limits.ping_interval * INTERVALS + asleep + self.grace(rank);
        covered(spans, before(at, window)) + self.grace(rank) >= self.hindered(asleep)
    }

    fn hindered(&self, asleep: Duration) -> Duration {
        // Of each time in which the observer did not run, it does not forgive what passed before its alarm was due.
        let least = if asleep.is_zero() { HINDERED } else { HINDERED - 1 };
        self.settings.policy.limits.ping_interval * least
    }

    /// How long messages are under way between the master and `rank`, there and back, with those that hold them up.
    fn grace(&self, rank: Rank) -> Duration {
        let late = self.facts.late.get(&rank).copied().unwrap_or_default();
        self.settings.latency.1 * 4 + late * 2 + Duration::from_micros(10)
    }

    /// How long an observer did not run while it took somebody for silent.
    fn asleep(&self, observer: Rank, at: Timestamp) -> Duration {
        let window = self.settings.policy.limits.ping_interval * INTERVALS;
        let mut asleep = Duration::ZERO;
        loop {
            let longer = covered(self.facts.stops(observer, at), before(at, window + asleep));
            if longer == asleep {
                return asleep;
            }
            asleep = longer;
        }
    }

    /// Takes in what the master tells its watchers.
    pub(crate) fn hear_notice(&mut self, notice: Notice) {
        let at = self.now;
        if self.teller.is_heard() {
            self.teller.notice(at, &notice);
        }
        self.check_loss(&notice);
        self.note_notice(&notice);
        match &notice {
            Notice::Failed { process, evidence } => {
                self.facts.failed.insert(process.rank, (at, *evidence));
            }
            Notice::Refused { reduction, ranks, .. } => {
                let refused = ranks.iter().map(|rank| (*reduction, rank));
                refused.for_each(|call| {
                    self.facts.refused.entry(call).or_insert(at);
                });
            }
            Notice::News(News::Unprotected { rank, name, .. }) => {
                self.facts.unprotected.insert((*rank, ReductionId::new(name, 0).name));
            }
            _ => {}
        }
        self.notices.push(notice);
    }

    /// Notes that the connection of a process breaks before the master's eyes.
    pub(crate) fn note_end(&mut self, process: ProcessId) {
        self.facts.hung_up.insert(process.rank);
    }

    /// Notes what the master is about to take in. Returns of which call it hears, and whether that comes inlined.
    pub(crate) fn note_coming(
        &mut self,
        process: ProcessId,
        message: &ToMaster,
    ) -> Option<(ReductionId, Rank, bool)> {
        self.note_message(process, message);
        let sender = process.rank;
        self.copies.hear(sender, message);
        match message {
            ToMaster::Contribute(contribution) => {
                Some((contribution.reduction, sender, matches!(contribution.data, Data::Inline(_))))
            }
            // Nobody knows what was told by a process that has hung up.
            ToMaster::PartialReady(done) if !self.facts.hung_up.contains(&sender) => {
                self.facts.told.insert((sender, done.segment), done.path.clone());
                None
            }
            ToMaster::Kept(kept) if kept.result.is_ok() => {
                self.facts.kept.insert((kept.owner.rank, kept.reduction));
                None
            }
            _ => None,
        }
    }

    /// Notes that the master has heard of a call.
    pub(crate) fn note_heard(&mut self, (id, sender, inline): (ReductionId, Rank, bool)) {
        self.note_call(id, sender);
        let reduction = self.master().reductions().find(|(open, _)| **open == id);
        // What it refuses counts nowhere.
        if reduction.is_some_and(|(_, reduction)| reduction.arrived().contains(sender)) {
            self.facts.heard.entry((sender, id)).or_insert(inline);
        }
    }

    /// Notes what the master does not count on any more once it has said so to `rank`.
    pub(crate) fn give_up(&mut self, rank: Rank, said: &ToWorker) {
        if let ToWorker::Task(task) = said {
            self.facts.task(rank, task.segment);
        }
        match said {
            ToWorker::Task(task) if task.own.is_empty() => {
                self.process_mut(rank).given_up.insert(task.segment);
            }
            ToWorker::Finished(finished) if !finished.result.is_empty() && !finished.beside => {
                self.facts.overwrites.insert((rank, finished.reduction));
            }
            ToWorker::HandOver { reduction } => {
                let Some(share) = self.process(rank).shares.get(reduction) else { return };
                let segments = self.segments(*reduction, &share.spec);
                let given = segments.map(|(index, _)| SegmentId { reduction: *reduction, index });
                self.process_mut(rank).given_up.extend(given);
            }
            _ => {}
        }
    }

    /// Notes that a rank takes part no more.
    pub(crate) fn note_gone(&mut self, rank: Rank, gone: Gone) {
        if gone == Gone::MasterLost {
            self.facts.deserted.entry(rank).or_insert(self.now);
        }
    }

    /// Whether the master's process has ended by `at`.
    pub(crate) fn master_had_died(&self, at: Timestamp) -> bool {
        self.facts.ended.get(&MASTER.rank).is_some_and(|since| *since <= at)
    }
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
