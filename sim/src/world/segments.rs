//! Recovery segments: how ranks go through them, and what they leave and read of their progress.
//!
//! Each rank's ledger decides, as in real jobs. A round is a reduction like any other: its body is kept here
//! beside the evidence, and the value is put together of the bodies of those ranks that the evidence of the
//! result names.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use everfold_protocol::{
    Path, ProcessId, Rank, ReductionId, Timestamp, codec,
    kept::{Search, Sight, Write, checksum},
};
use everfold_segment::{
    Combine,
    folding::Next,
    ledger::{Left, Step},
    partials::Partials,
    round::Round,
};
use everfold_worker::machine::End;

use super::World;
use crate::{
    events::{Call, Happening},
    faults::Reach,
    process::Ended,
    segments::{Deed, Doing, Outcome, Part, Reading, Segment, Value},
};

/// How often a state is looked for that is replaced again and again.
const TRIES: u32 = 8;
/// What a process takes for each step of writing its progress.
const WRITE_TIME: Duration = Duration::from_micros(2);

/// A round of a segment as a reduction.
#[derive(Clone, Debug)]
pub(crate) struct RoundCalls {
    /// Which segment.
    pub segment: usize,
    pub name: String,
    pub sequence: u64,
    pub group: Path,
    pub calls: Vec<(Rank, Timestamp)>,
    /// What each rank has contributed.
    bodies: BTreeMap<Rank, Round<Value>>,
}

/// All segments of a world.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    plans: Vec<Arc<Segment>>,
    pub parts: BTreeMap<(Rank, usize), Part>,
    pub rounds: BTreeMap<ReductionId, RoundCalls>,
    /// When ranks left because a segment ended in an error.
    pub left: BTreeMap<Rank, Timestamp>,
    /// How calls have ended that earlier processes of ranks have made.
    before: BTreeMap<(Rank, usize), Vec<Outcome>>,
    /// What processes have left under which names: in which round, and how many grains, by their commit
    /// marks.
    committed: BTreeMap<(ProcessId, u64), (u64, u64)>,
}

impl World {
    /// Lets ranks call a recovery segment, each after a time of its own.
    pub fn segment(&mut self, segment: Segment, calls: &[(Rank, Duration)]) {
        let index = self.segments.plans.len();
        self.segments.plans.push(Arc::new(segment));
        for &(rank, after) in calls {
            let at = self.now() + after;
            self.plan_segment(at, rank, index);
            self.schedule(at, Happening::Begins(rank, index as u32));
        }
    }

    /// The program of a rank comes to a segment, unless its process has begun it while it repeated its calls.
    pub(super) fn begin_segment(&mut self, rank: Rank, index: usize) {
        if self.process(rank).worker.is_none() || self.segments.parts.contains_key(&(rank, index)) {
            return;
        }
        let (segment, now) = (self.segments.plans[index].clone(), self.now());
        self.segments.parts.insert((rank, index), Part::new(&segment, rank, now));
        self.compute_in(segment.time_of(rank, now), self.process(rank).id, index as u32);
    }

    /// A later process of a rank begins each segment anew. What an earlier one has heard is remembered.
    pub(super) fn forget_segments(&mut self, rank: Rank) {
        let Segments { parts, before, plans, .. } = &mut self.segments;
        for key in (0..plans.len()).map(|index| (rank, index)) {
            let Some(Part { outcomes, .. }) = parts.remove(&key) else { continue };
            let before = before.entry(key).or_default();
            let known = before.iter().take_while(|outcome| outcome.is_final()).count();
            if known < outcomes.len() {
                before.splice(known.., outcomes.into_iter().skip(known));
            }
        }
    }

    /// What has become of recovery segments.
    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Reductions that segments have called.
    pub(crate) fn segment_calls(&self) -> u64 {
        self.segments.rounds.values().map(|round| round.calls.len() as u64).sum()
    }

    /// Which ranks have called which of them.
    pub(super) fn round_calls(&self) -> impl Iterator<Item = (Rank, ReductionId)> {
        let all = self.segments.rounds.iter();
        all.flat_map(|(id, round)| round.calls.iter().map(|(rank, _)| (*rank, *id)))
    }

    /// Whether a later process of a rank is on its way that begins its segments anew.
    fn repeats(&self, rank: Rank) -> bool {
        let is_done = self.closed().contains(&rank) || self.segments.left.contains_key(&rank);
        self.settings.returns.is_some() && !is_done && self.comes_back(rank)
    }

    /// Whether no rank that lives, or comes back, is in a segment.
    pub(crate) fn segments_are_over(&self) -> bool {
        let lives = |rank: &Rank| self.process(*rank).worker.is_some();
        let is_over = |part: &Part| matches!(part.doing, Doing::Over);
        let mut members = self.segments.plans.iter().flat_map(|plan| plan.group.iter());
        self.segments.parts.iter().all(|((rank, _), part)| is_over(part) || !lives(rank))
            && !members.any(|rank| self.repeats(rank))
    }

    /// Lets a rank go on with a segment.
    pub(super) fn compute(&mut self, process: ProcessId, index: u32) {
        let (rank, key) = (process.rank, (process.rank, index as usize));
        if self.process(rank).worker.is_none() {
            return;
        }
        let segment = self.segments.plans[index as usize].clone();
        let Some(mut part) = self.segments.parts.remove(&key) else { return };
        let doing = std::mem::replace(&mut part.doing, Doing::Over);
        let after = match doing {
            Doing::Folding { folding, since, deeds } if !deeds.is_empty() => {
                self.save(&segment, &mut part, rank, Doing::Folding { folding, since, deeds })
            }
            Doing::Folding { folding, since, .. } => {
                self.fold_grain(&segment, &mut part, rank, (folding, since))
            }
            Doing::Reading(reading) => self.read_progress(&segment, &mut part, rank, reading),
            doing => {
                part.doing = doing;
                None
            }
        };
        let is_reducing = matches!(part.doing, Doing::Reducing(_));
        self.segments.parts.insert(key, part);
        match after {
            Some(after) => self.compute_in(after, process, index),
            None if is_reducing => self.reduce_round(&segment, rank, index as usize),
            None => {}
        }
    }

    fn compute_in(&mut self, after: Duration, process: ProcessId, index: u32) {
        self.schedule(self.now() + after, Happening::Compute(process, index));
    }

    /// The value of the next grain is there.
    fn fold_grain(
        &mut self,
        segment: &Segment,
        part: &mut Part,
        rank: Rank,
        (mut folding, since): (everfold_segment::folding::Folding<Value>, Timestamp),
    ) -> Option<Duration> {
        let elapsed = self.now().since(since);
        let Some(indices) = folding.grain() else {
            return self.contribute_round(segment, part, rank, folding.into_round(elapsed));
        };
        if self.writes_progress(rank) {
            // One state after the other is replaced.
            part.doing = Doing::Folding { folding, since, deeds: [].into() };
            return Some(WRITE_TIME);
        }
        match folding.fold(Value::of(indices), elapsed) {
            Next::Contribute => self.contribute_round(segment, part, rank, folding.into_round(elapsed)),
            Next::Fold => {
                part.doing = Doing::Folding { folding, since, deeds: [].into() };
                Some(segment.time_of(rank, self.now()))
            }
            Next::Save => {
                let bytes = codec::encode(folding.partials()).expect("it can be encoded");
                let replacing = self.process_mut(rank).kept.begin(part.progress(segment), bytes.len());
                let (block, half) = (replacing.block, bytes.len() / 2);
                let place = (block as u64, bytes.len() as u64, checksum(&bytes));
                let first = Deed::Copy(block, 0, bytes[..half].to_vec());
                let second = Deed::Copy(block, half, bytes[half..].to_vec());
                part.doing = Doing::Folding {
                    folding,
                    since,
                    deeds: [first, second, Deed::Commit(replacing, place)].into(),
                };
                Some(WRITE_TIME)
            }
        }
    }

    /// Whether a rank is writing progress of some segment.
    fn writes_progress(&self, rank: Rank) -> bool {
        let of_rank = self.segments.parts.range((rank, 0)..=(rank, usize::MAX));
        let mut doing = of_rank.map(|(_, part)| &part.doing);
        doing.any(|doing| matches!(doing, Doing::Folding { deeds, .. } if !deeds.is_empty()))
    }

    /// Does the next of what leaves progress.
    fn save(&mut self, segment: &Segment, part: &mut Part, rank: Rank, doing: Doing) -> Option<Duration> {
        let Doing::Folding { folding, since, mut deeds } = doing else { unreachable!("it folds") };
        let tag = part.ledger.rounds() as u64;
        let process = self.process_mut(rank);
        let (id, kept) = (process.id, &mut process.kept);
        match deeds.pop_front() {
            Some(Deed::Copy(block, start, bytes)) => kept.copy(block, start, &bytes),
            Some(Deed::Commit(replacing, place)) => {
                deeds.extend(kept.slots.commit(replacing, tag, place).map(Deed::Write));
            }
            Some(Deed::Write(write)) => {
                kept.write(write);
                if matches!(write, Write::Open(..)) {
                    let (name, grains) = (part.progress(segment), folding.partials().grains().count());
                    self.segments.committed.insert((id, name), (tag, grains));
                }
            }
            None => {}
        }
        let after = if deeds.is_empty() { segment.time_of(rank, self.now()) } else { WRITE_TIME };
        part.doing = Doing::Folding { folding, since, deeds };
        Some(after)
    }

    /// Looks for what a dead rank has left, or reads what it has found.
    fn read_progress(
        &mut self,
        segment: &Segment,
        part: &mut Part,
        rank: Rank,
        mut reading: Reading,
    ) -> Option<Duration> {
        let Some(next) = reading.left.front().cloned() else {
            return self.contribute_round(segment, part, rank, reading.found);
        };
        let (owner, name) = (self.process(next.of).id, part.progress(segment));
        let mut pause = self.some_time(self.settings.latency.1);
        match self.reaches_kept(rank, owner) {
            // Who does not answer is given up after a silence.
            Reach::Later if reading.tries == 0 => {
                (reading.entry, reading.tries) = (None, 1);
                pause = pause.max(self.settings.policy.limits.silence_max());
            }
            Reach::Now if reading.tries < TRIES => {
                let kept = &self.process(next.of).kept;
                match reading.entry.take() {
                    None => {
                        let search = reading.search.get_or_insert_with(|| Search::new(name));
                        match search.look(&kept.catalogue()) {
                            Sight::Unsure => reading.tries += 1,
                            Sight::Nothing => {
                                reading.go_on(self.progress_of(segment, &next, owner, name, None))
                            }
                            Sight::Kept(entry) => reading.entry = Some(entry),
                        }
                    }
                    Some(entry) => {
                        let bytes = kept.read(entry.offset(), entry.bytes());
                        match entry.is(&bytes) {
                            // It was replaced meanwhile.
                            false => reading.tries += 1,
                            true => {
                                let found = Some((entry.tag, bytes));
                                reading.go_on(self.progress_of(segment, &next, owner, name, found));
                            }
                        }
                    }
                }
            }
            // It is replaced again and again, or damaged.
            Reach::Now => reading.go_on(self.progress_of(segment, &next, owner, name, None)),
            _ => reading.go_on(None),
        }
        part.doing = Doing::Reading(reading);
        Some(pause)
    }

    /// What counts of what a reader has found: no less than what was committed before the process died.
    fn progress_of(
        &mut self,
        segment: &Segment,
        left: &Left,
        owner: ProcessId,
        name: u64,
        found: Option<(u64, Vec<u8>)>,
    ) -> Option<Round<Value>> {
        let found = found.filter(|(tag, _)| left.is_of_round(*tag));
        let partials = found.and_then(|(_, bytes)| codec::decode::<Partials<Value>>(&bytes).ok());
        let round = partials.and_then(|it| left.counts(it, segment.rules.is_fixed, &segment.grains));
        let counts = round.as_ref().map_or(0, |round| round.partials.grains().count());
        let committed = self.segments.committed.get(&(owner, name)).filter(|(tag, _)| left.is_of_round(*tag));
        let committed = committed.map_or(0, |(_, grains)| *grains);
        // Who lives may replace it meanwhile.
        let has_died = self.process(owner.rank).worker.is_none();
        assert!(
            !has_died || counts >= committed,
            "of rank {} {counts} grains were read, {committed} were committed",
            left.of
        );
        *self.seen.entry("progress of dead ranks that counts").or_default() += u64::from(counts > 0);
        round
    }

    /// A process whose program has failed takes back what it has left of its progress.
    pub(super) fn take_progress_back(&mut self, process: ProcessId) {
        let names: Vec<u64> =
            self.segments.committed.keys().filter(|(of, _)| *of == process).map(|(_, name)| *name).collect();
        names.into_iter().for_each(|name| self.release_progress(process, name));
    }

    fn release_progress(&mut self, process: ProcessId, name: u64) {
        let kept = &mut self.process_mut(process.rank).kept;
        kept.slots.release(name).into_iter().for_each(|write| kept.write(write));
        self.segments.committed.remove(&(process, name));
    }

    /// The agent of a host gives back what a process has left there, but for what it keeps.
    pub(super) fn release_but_kept(&mut self, host: u64, process: ProcessId) {
        let keeps_something = self.of(process).kept.keeps_something();
        let agent = self.agents.get_mut(&host).filter(|_| keeps_something);
        if let Some(agent) = agent {
            agent.kept.insert(process);
        }
    }

    /// Whether `reader` gets at what the latest process of a rank keeps, at the agent of its host.
    fn reaches_kept(&self, reader: Rank, owner: ProcessId) -> Reach {
        let (home, host) = (self.home(reader), self.host_of(owner));
        match () {
            () if !self.settings.agents => Reach::Never,
            () if self.process(reader).hosts_lost.contains(&host) => Reach::Never,
            () if let Some(reach) = self.cut_between(home, host) => reach,
            () => self.agents[&host].shows_kept(owner),
        }
    }

    /// A rank contributes to a round.
    fn contribute_round(
        &mut self,
        segment: &Segment,
        part: &mut Part,
        rank: Rank,
        body: Round<Value>,
    ) -> Option<Duration> {
        let (name, sequence) = segment.round(part.number, part.ledger.rounds());
        let id = ReductionId::new(&name, sequence);
        let index = self.segments.plans.iter().position(|plan| plan.name == segment.name);
        let round = self.segments.rounds.entry(id).or_insert_with(|| RoundCalls {
            segment: index.expect("it is one of them"),
            name,
            sequence,
            group: part.group.clone(),
            calls: Vec::new(),
            bodies: BTreeMap::new(),
        });
        // What a later process contributes counts as what the earlier one has. It is the same, unless it
        // depends on the clock, or on what can be read.
        let is_same_again = !segment.rules.balance && matches!(part.step, Step::Compute { .. });
        match round.bodies.entry(rank) {
            Entry::Vacant(entry) => {
                round.calls.push((rank, self.agenda.now()));
                entry.insert(body);
            }
            Entry::Occupied(before) => {
                let partials = |round: &Round<Value>| codec::encode(&round.partials).ok();
                assert!(
                    !is_same_again || partials(before.get()) == partials(&body),
                    "I9: rank {rank} contributes something else to {id:?} than before"
                );
            }
        }
        part.doing = Doing::Reducing(id);
        None
    }

    fn reduce_round(&mut self, segment: &Segment, rank: Rank, index: usize) {
        let part = &self.segments.parts[&(rank, index)];
        let Doing::Reducing(id) = part.doing else { return };
        let spec = segment.spec(&part.group);
        let round = &self.segments.rounds[&id];
        let (name, sequence) = (round.name.clone(), round.sequence);
        self.happen_call(Call { rank, name, sequence, spec, inline: segment.inline });
    }

    /// Takes in how a round has ended, if a segment has called it.
    pub(super) fn end_round(&mut self, rank: Rank, reduction: ReductionId, ended: &Ended) {
        let Some(round) = self.segments.rounds.get(&reduction) else { return };
        let index = round.segment;
        let segment = self.segments.plans[index].clone();
        let now = self.now();
        let value = match (&ended.end, &ended.value) {
            (End::Received(report), Some(value)) => {
                let mut all = Round::nothing(segment.rules.is_fixed);
                let ranks = value.iter().flatten();
                ranks.filter_map(|rank| round.bodies.get(rank)).for_each(|body| all.combine(body.clone()));
                Some((all, report.clone()))
            }
            _ => None,
        };
        let part = self.segments.parts.get_mut(&(rank, index)).expect("it has called it");
        let step = part.step.clone();
        let entered = value.map(|(round, report)| part.ledger.enter(&step, round, report));
        let outcome = match entered {
            Some(Ok(None)) => {
                part.begin_round(&segment, rank, now);
                let folds = matches!(part.doing, Doing::Folding { .. });
                let after = if folds { segment.time_of(rank, self.now()) } else { WRITE_TIME };
                return self.compute_in(after, self.process(rank).id, index as u32);
            }
            Some(Ok(Some(value))) => {
                let ledger =
                    everfold_segment::ledger::Ledger::new(&part.group, segment.grains.clone(), segment.rules);
                let ledger = std::mem::replace(&mut part.ledger, ledger);
                let report = ledger.close(&part.group);
                for (what, number) in [
                    ("recovery segments that ended with a value", 1),
                    ("recovery segments with ranks lost", u64::from(!report.lost.is_empty())),
                    ("recovery segments with progress of dead ranks", u64::from(report.salvaged > 0)),
                    ("recovery segments with slow ranks relieved", u64::from(report.relieved > 0)),
                ] {
                    *self.seen.entry(what).or_default() += number;
                }
                Outcome::Value(value, report)
            }
            Some(Err(error)) => Outcome::NoValue(error),
            None => Outcome::Refused(ended.end.clone()),
        };
        self.end_segment(&segment, rank, index, outcome);
    }

    /// A call has ended.
    fn end_segment(&mut self, segment: &Segment, rank: Rank, index: usize, outcome: Outcome) {
        let (now, process) = (self.now(), self.process(rank).id);
        let part = self.segments.parts.get_mut(&(rank, index)).expect("it was called");
        let progress = part.progress(segment);
        part.doing = Doing::Over;
        let mut before = self.segments.before.get(&(rank, index)).into_iter().flatten();
        if let Some(before) = before.nth(part.outcomes.len()).filter(|before| before.is_final()) {
            *self.seen.entry("recovery segments that ended as they had ended before").or_default() += 1;
            assert!(
                outcome.is_same(before),
                "I9: a recovery segment of rank {rank} ends otherwise than before: {outcome:?}, {before:?}"
            );
        }
        part.outcomes.push(outcome.clone());
        let (is_final, mut goes_on) = (outcome.is_final(), false);
        if let Outcome::Value(_, report) = &outcome
            && report.survivors.contains(rank)
            && part.number + 1 < segment.times
        {
            part.begin_call(segment, rank, report.survivors.clone(), now);
            goes_on = true;
        }
        self.release_progress(process, progress);
        match outcome {
            Outcome::Value(..) if goes_on => {
                self.compute_in(segment.time_of(rank, self.now()), process, index as u32)
            }
            Outcome::Value(..) => {}
            // A later process of the rank may go on.
            Outcome::Refused(_) if self.settings.returns.is_some() && !is_final => {}
            // A rank that hears an error leaves the job: others may not have heard it.
            Outcome::NoValue(_) | Outcome::Refused(_) => {
                self.segments.left.entry(rank).or_insert(now);
                self.schedule(now, Happening::Close(rank));
            }
        }
    }
}
