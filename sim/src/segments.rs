//! Recovery segments as programs of ranks: what is folded, how far a rank is, and what a process keeps.

use std::{collections::VecDeque, time::Duration};

use everfold_protocol::{
    Path, Rank, ReductionId, ReductionSpec, Timestamp,
    kept::{CLOSED, Entry, Replacing, Search, Slots, WORDS, Write, checksum},
    spec::{BodyKind, Delivery, Order, Protection},
};
use everfold_segment::{
    Combine,
    folding::{Folding, salvages},
    grains::Grains,
    ledger::{Ledger, LedgerError, Left, Rules, Step},
    partials::Partials,
    report::SegmentReport,
    round::Round,
};
use everfold_worker::machine::End;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// How many states a process may keep at once, and one more.
const ENTRIES: usize = 8;
/// How long slow ranks are slow, and then fast.
const SLOW_NANOS: u64 = 10_000_000;

/// A recovery segment that ranks call.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Its name.
    pub name: String,
    /// How often the ranks call it in a row; the dead leave their group.
    pub times: u64,
    /// Who calls it, at first.
    pub group: Path,
    /// How the indices are cut.
    pub grains: Grains,
    /// What ranks agree on beside the indices.
    pub rules: Rules,
    /// Time that a rank takes for a grain.
    pub grain_time: Duration,
    /// Ranks that take eight times as long in every other 10 ms.
    pub slow: Vec<Rank>,
    /// What of a contribution outlives its owner.
    pub protection: Protection,
    /// How long a round may take from its first call on.
    pub deadline: Option<Duration>,
    /// Whether bodies travel in messages.
    pub inline: bool,
}

impl Segment {
    /// How long `rank` takes for a grain that it begins now.
    pub(crate) fn time_of(&self, rank: Rank, now: Timestamp) -> Duration {
        let is_slow = self.slow.contains(&rank) && (now.as_nanos() / SLOW_NANOS) % 2 == 1;
        if is_slow { self.grain_time * 8 } else { self.grain_time }
    }

    /// What the ranks of `group` agree on when they call a round.
    pub(crate) fn spec(&self, group: &Path) -> ReductionSpec {
        ReductionSpec {
            group: group.clone(),
            delivery: Delivery::All,
            kind: BodyKind::Object { type_name: "evidence".to_owned() },
            order: Order::Arrival,
            deadline: self.deadline,
            protection: self.protection,
            allow_missing: true,
            trace: false,
        }
    }

    /// The name and number of the reduction of a round of call `number`.
    pub(crate) fn round(&self, number: u64, round: usize) -> (String, u64) {
        match round {
            0 => (self.name.clone(), number),
            round => (format!("{} (call {number}, round {round})", self.name), 0),
        }
    }
}

/// The value of grains: which indices are in it, and as which expression it came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Value {
    pub indices: Vec<u64>,
    pub expression: u64,
}

impl Value {
    /// That of one grain.
    pub fn of(indices: std::ops::Range<u64>) -> Self {
        let ends = [indices.start.to_le_bytes(), indices.end.to_le_bytes()];
        Self { indices: indices.collect(), expression: xxh3_64(&ends.concat()) }
    }

    /// That of all grains, if one rank folds them alone.
    pub fn alone(grains: &Grains, is_fixed: bool) -> Self {
        let mut all = Partials::new(is_fixed);
        let add = |grain| all.add(grain, Self::of(grains.indices(grain))).expect("each comes once");
        grains.all().for_each(add);
        all.into_value().expect("there are grains")
    }
}

impl Combine for Value {
    fn combine(&mut self, mut other: Self) {
        self.indices.append(&mut other.indices);
        let both = [self.expression.to_le_bytes(), other.expression.to_le_bytes()];
        self.expression = xxh3_64(&both.concat());
    }
}

/// What a process keeps in its region: it outlives the process.
#[derive(Debug)]
pub(crate) struct Kept {
    pub slots: Slots<usize>,
    words: Vec<u64>,
    blocks: Vec<Vec<u8>>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { slots: Slots::new(ENTRIES), words: vec![0; ENTRIES * WORDS], blocks: Vec::new() }
    }
}

impl Kept {
    /// Where the bytes of a new state go; no entry names it.
    pub fn begin(&mut self, name: u64, len: usize) -> Replacing<usize> {
        let Self { slots, blocks, .. } = self;
        let fits = |block: &usize| blocks[*block].len() >= len;
        let spare = slots.begin(name, fits, || None);
        let replacing = spare.or_else(|| slots.begin(name, |_| true, || Some(blocks.len())));
        let replacing = replacing.expect("there is a block");
        if replacing.block == blocks.len() {
            blocks.push(vec![0; len.next_power_of_two()]);
        }
        replacing
    }

    /// Writes bytes into a block.
    pub fn copy(&mut self, block: usize, start: usize, bytes: &[u8]) {
        self.blocks[block][start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes into the catalogue.
    pub fn write(&mut self, write: Write) {
        match write {
            Write::Fill(entry, filled) => {
                self.words[entry * WORDS + 1..][..filled.len()].copy_from_slice(&filled);
            }
            Write::Open(entry, generation) => self.words[entry * WORDS] = generation,
            Write::Close(entry) => self.words[entry * WORDS] = CLOSED,
        }
    }

    /// Whether an entry names something.
    pub fn keeps_something(&self) -> bool {
        Entry::all(&self.catalogue()).next().is_some()
    }

    /// What a reader finds where the catalogue is.
    pub fn catalogue(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// What a reader finds in a block.
    pub fn read(&self, block: u64, len: u64) -> Vec<u8> {
        let block = usize::try_from(block).ok().and_then(|block| self.blocks.get(block));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        block.map_or_else(Vec::new, |block| block[..len.min(block.len())].to_vec())
    }
}

/// Something that a process does to leave its progress.
#[derive(Debug)]
pub(crate) enum Deed {
    /// Bytes get into a block.
    Copy(usize, usize, Vec<u8>),
    /// All are there.
    Commit(Replacing<usize>, (u64, u64, u64)),
    /// It writes into its catalogue.
    Write(Write),
}

/// A rank reads what others have left.
#[derive(Debug)]
pub(crate) struct Reading {
    /// What it has not read yet.
    pub left: VecDeque<Left>,
    /// How it looks for the first of these.
    pub search: Option<Search>,
    /// What it has found, and reads.
    pub entry: Option<Entry>,
    pub tries: u32,
    /// What it has read that counts.
    pub found: Round<Value>,
}

impl Reading {
    /// Takes in what was read, and goes on with what another rank has left.
    pub fn go_on(&mut self, round: Option<Round<Value>>) {
        round.into_iter().for_each(|round| self.found.combine(round));
        self.left.pop_front();
        (self.search, self.entry, self.tries) = (None, None, 0);
    }
}

/// What a rank is doing in a round.
#[derive(Debug)]
pub(crate) enum Doing {
    /// It folds its share.
    Folding { folding: Folding<Value>, since: Timestamp, deeds: VecDeque<Deed> },
    /// It reads what others have left.
    Reading(Reading),
    /// It has contributed.
    Reducing(ReductionId),
    /// Nothing more.
    Over,
}

/// How a call has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// With the value.
    Value(Value, SegmentReport),
    /// There is none.
    NoValue(LedgerError),
    /// A round has ended without one.
    Refused(End),
}

impl Outcome {
    /// Whether a later process of the rank hears the same.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Refused(end) => matches!(end, End::Refused(_)),
            Self::Value(..) | Self::NoValue(_) => true,
        }
    }

    /// Whether an application sees no difference.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(value, report), Self::Value(other, told)) => {
                value == other && is_told_alike(report, told)
            }
            _ => self == other,
        }
    }
}

/// Whether two ranks, or two processes of one, are told the same. The reports of rounds may tell other times.
pub(crate) fn is_told_alike(one: &SegmentReport, other: &SegmentReport) -> bool {
    let told = |report: &SegmentReport| SegmentReport { rounds: Vec::new(), ..report.clone() };
    told(one) == told(other) && one.rounds.len() == other.rounds.len()
}

/// A rank's part in a segment.
#[derive(Debug)]
pub(crate) struct Part {
    /// Who goes on with it.
    pub group: Path,
    /// Which call it is.
    pub number: u64,
    pub ledger: Ledger<Value>,
    pub step: Step,
    pub doing: Doing,
    /// How calls have ended.
    pub outcomes: Vec<Outcome>,
}

impl Part {
    /// A rank calls a segment.
    pub fn new(segment: &Segment, rank: Rank, now: Timestamp) -> Self {
        let ledger = Ledger::new(&segment.group, segment.grains.clone(), segment.rules);
        let step = ledger.step();
        let group = segment.group.clone();
        let mut part = Self { group, number: 0, ledger, step, doing: Doing::Over, outcomes: Vec::new() };
        part.begin_round(segment, rank, now);
        part
    }

    /// Begins with what the ledger says.
    pub fn begin_round(&mut self, segment: &Segment, rank: Rank, now: Timestamp) {
        self.step = self.ledger.step();
        self.doing = match &self.step {
            Step::Compute { .. } => Doing::Folding {
                folding: Folding::new(rank, &self.step, segment.rules, &segment.grains),
                since: now,
                deeds: VecDeque::new(),
            },
            Step::Salvage(_) => Doing::Reading(Reading {
                left: salvages(&self.step, rank).into_iter().cloned().collect(),
                search: None,
                entry: None,
                tries: 0,
                found: Round::nothing(segment.rules.is_fixed),
            }),
        };
    }

    /// Begins with the next call.
    pub fn begin_call(&mut self, segment: &Segment, rank: Rank, group: Path, now: Timestamp) {
        self.number += 1;
        self.ledger = Ledger::new(&group, segment.grains.clone(), segment.rules);
        self.group = group;
        self.begin_round(segment, rank, now);
    }

    /// Under which name it leaves its progress.
    pub fn progress(&self, segment: &Segment) -> u64 {
        checksum(format!("progress {} (call {})", segment.name, self.number).as_bytes())
    }
}
