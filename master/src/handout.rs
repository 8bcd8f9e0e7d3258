//! The ranks that copy a result, have it, or lend it.
//!
//! It knows ranks and the bytes that they hold, and no segments: the consequences for a reduction are in
//! `reduction::result`.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use core::time::Duration;

use everfold_protocol::{
    Path, ProcessId, Rank, Timestamp,
    message::{ByteRange, Data, HalfBody},
    report::{FailureRecord, Report},
};

use crate::{membership::Membership, queue::Ready, tries::TimeTried};

/// Ranks that lend the result they have until all have it: if one of them dies, the other is left. They are
/// on as many hosts, if there are: of two hosts a rank reaches one, if any two cannot reach each other.
const LENDERS: usize = 2;

/// How far a result is handed out. It may be handed out several times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handout {
    /// Ranks that still copy the result out of other ranks' windows; nothing while it is not handed out.
    waiting: Option<Path>,
    /// Of these, those that could not reach all of it and wait to be told more.
    returned: Path,
    /// Of these, those whose processes have died, and that come back.
    away: Path,
    /// Whether they wait for a pause to pass before they try again.
    pauses: bool,
    /// Ranks that have the result. They fold nothing any more.
    have_it: Path,
    /// Ranks whose processes have died when they had been told the result, and may have noted it.
    doubtful: Path,
    /// What ranks that wait could not reach of it.
    misses: BTreeMap<Rank, Misses>,
    /// The report that was told with the result.
    told: Option<Told>,
    /// The only rank that is to receive the result, if there is one, and it was told.
    receiver: Option<Rank>,
    /// The bodies of ranks that could not copy the whole result, or that lend it.
    bodies: BTreeMap<Rank, (ProcessId, HalfBody)>,
    /// Dead processes whose memory did not outlive them, although it could have. Later processes of their ranks are
    /// others.
    gone: BTreeSet<ProcessId>,
}

/// The part of the report that stays the same from the first hand-out on: some calls have ended with it.
#[derive(Clone, Debug)]
struct Told {
    survived: Path,
    protected: Path,
    failures: Vec<FailureRecord>,
}

/// The tries of a rank to copy a part of the result.
#[derive(Clone, Debug)]
pub(crate) struct Misses {
    /// Bytes of the result that it had when it missed something last.
    collected: u64,
    /// For how long it has got no further.
    tried: TimeTried,
    /// Ranks that live and hold a piece, and that it could not reach or whose bytes were damaged, with the
    /// number of the miss: the highest is that of the latest.
    missed: BTreeMap<Rank, u32>,
    /// How many misses there were.
    count: u32,
}

impl Misses {
    /// Takes in that the rank has missed a piece, when it had `collected` bytes of the result.
    pub fn again(&mut self, now: Timestamp, collected: u64, patience: Duration) {
        if collected > self.collected {
            (self.collected, self.tried) = (collected, TimeTried::default());
        }
        self.tried.again(now, patience);
    }

    /// Takes in that it got no bytes, or damaged ones, of `owner`, which lives.
    pub fn miss(&mut self, owner: Rank) {
        self.count += 1;
        self.missed.insert(owner, self.count);
    }

    /// When it is `owner`'s turn to be tried, less than that of others whom it has missed later: first those
    /// whom it has never missed.
    pub fn turn(&self, owner: Rank) -> u32 {
        self.missed.get(&owner).copied().unwrap_or_default()
    }

    /// Whether it has got no further for longer than `most`.
    pub fn exceed(&self, most: Duration) -> bool {
        self.tried.exceeds(most)
    }

    /// How long to wait before its next try.
    pub fn pause(&self) -> Duration {
        self.tried.pause()
    }
}

impl Handout {
    /// Ranks that still copy the result, if it is handed out.
    pub fn waiting(&self) -> Option<&Path> {
        self.waiting.as_ref()
    }

    /// Whether `rank` still copies the result.
    pub fn awaits(&self, rank: Rank) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.contains(rank))
    }

    /// Ranks that have the result.
    pub fn have_it(&self) -> &Path {
        &self.have_it
    }

    /// Lets `ranks` copy the result.
    pub fn begin(&mut self, ranks: Path, away: Path) {
        self.overwrite();
        self.returned = Path::empty();
        self.away = away;
        self.misses.clear();
        self.waiting = Some(ranks);
    }

    /// Lets no rank copy the result any more.
    pub fn end(&mut self) {
        self.waiting = None;
    }

    /// Takes in that all living ranks have the result.
    pub fn complete(&mut self) {
        self.waiting = Some(Path::empty());
    }

    /// Notes that `rank` copies nothing more. Returns whether it did.
    pub fn stop(&mut self, rank: Rank) -> bool {
        let waited = self.waiting.as_mut().is_some_and(|waiting| waiting.remove(rank));
        if waited {
            self.away.remove(rank);
            self.returned.remove(rank);
            self.misses.remove(&rank);
        }
        waited
    }

    /// Takes in that the process of `rank` has died, and that the rank comes back.
    pub fn leave(&mut self, rank: Rank) {
        if self.awaits(rank) {
            let was_told = !self.returned.remove(rank) && !self.is_away(rank);
            if was_told {
                self.doubtful.insert(rank).ok();
            }
            self.misses.remove(&rank);
            self.away.insert(rank).ok();
        }
    }

    /// Takes in that `rank` is there again, and lacks the result.
    pub fn come_back(&mut self, rank: Rank) {
        self.away.remove(rank);
        self.doubtful.remove(rank);
    }

    /// Takes in that `rank`, if it is waited for, has yet to hear where the result lies.
    pub fn ask_again(&mut self, rank: Rank) {
        if self.awaits(rank) {
            self.returned.insert(rank).ok();
        }
    }

    /// Whether `rank` is waited for until it comes back.
    pub fn is_away(&self, rank: Rank) -> bool {
        self.away.contains(rank)
    }

    /// Notes that `rank`, which has copied the result, has it.
    pub fn serve(&mut self, rank: Rank) {
        self.have_it.insert(rank).expect("it has waited");
        self.doubtful.remove(rank);
    }

    /// Takes in that `rank` has the result, if that is news.
    pub fn know(&mut self, rank: Rank) {
        self.have_it.insert(rank).ok();
        self.doubtful.remove(rank);
    }

    /// Whether a part of the result lies where a contribution has lain, of a rank that lacks the rest.
    pub fn has_overwritten(&self) -> bool {
        self.bodies.values().any(|(_, half)| half.untouched > 0)
    }

    /// Takes in that a rank has missed a piece, when it had `collected` bytes of the result.
    pub fn miss(&mut self, rank: Rank, collected: u64) -> &mut Misses {
        self.returned.insert(rank).expect("it was told once");
        let first = || Misses { collected, tried: TimeTried::default(), missed: BTreeMap::new(), count: 0 };
        self.misses.entry(rank).or_insert_with(first)
    }

    /// What `rank` has missed, if it was not to be had although its owner lives.
    pub fn missed(&self, rank: Rank) -> Option<&Misses> {
        self.misses.get(&rank).filter(|misses| !misses.missed.is_empty())
    }

    /// Begins a pause before those try again that have missed something. Returns false if there is one.
    pub fn pause(&mut self) -> bool {
        !core::mem::replace(&mut self.pauses, true)
    }

    /// Ends that pause. Returns whether there are ranks to try again.
    pub fn go_on(&mut self) -> bool {
        self.pauses = false;
        !self.returned.is_empty()
    }

    /// Whether all ranks that still copy the result have missed a piece, or are away.
    pub fn is_stuck(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| match self.returned.is_empty() {
            // Mostly so, and asked whenever a rank has the result: the first rank that copies answers it.
            true => waiting.is_subset(&self.away),
            false => waiting.difference(&self.away) == self.returned,
        })
    }

    /// Whether ranks that have missed a piece were not told anew when their pause was over: the piece was not
    /// to be had then, and other ranks still copied the result.
    pub fn is_put_off(&self) -> bool {
        !self.pauses && !self.returned.is_empty()
    }

    /// Takes the ranks that have missed a piece, to tell them anew where the result lies.
    pub fn take_returned(&mut self) -> Path {
        self.overwrite();
        core::mem::take(&mut self.returned)
    }

    /// Notes that the memory of `dead` did not outlive it.
    pub fn lose(&mut self, dead: ProcessId) {
        self.gone.insert(dead);
    }

    /// Dead processes whose memory did not outlive them.
    pub fn gone(&self) -> &BTreeSet<ProcessId> {
        &self.gone
    }

    /// The report of a result, with the part that was told first.
    pub fn tell(&mut self, report: Report) -> Report {
        let Report { survived, protected, failures, .. } = &report;
        let told =
            || Told { survived: survived.clone(), protected: protected.clone(), failures: failures.clone() };
        let Told { survived, protected, failures } = self.told.get_or_insert_with(told).clone();
        Report { survived, protected, failures, ..report }
    }

    /// Ranks that may have noted the result before their processes died, and have not said so.
    pub fn doubtful(&self) -> &Path {
        &self.doubtful
    }

    /// The only rank that is to receive the result, if it was told.
    pub fn receiver(&self) -> Option<Rank> {
        self.receiver
    }

    /// Takes in that `rank` alone is to receive the result. No rank that takes part has heard another report if
    /// it was another rank before.
    pub fn choose(&mut self, rank: Rank) {
        if self.receiver.replace(rank) != Some(rank) {
            self.told = None;
        }
    }

    /// Takes in that there will be another result, with other contributors: copied parts of this one are of
    /// no use any more.
    pub fn start_over(&mut self) {
        self.bodies.clear();
        self.told = None;
        self.receiver = None;
        self.doubtful = Path::empty();
    }

    /// Notes the content of the body of `process`.
    pub fn keep(&mut self, process: ProcessId, body: HalfBody) {
        self.bodies.insert(process.rank, (process, body));
    }

    /// Keeps that `process` lends the whole result, which lies there.
    pub fn lend(&mut self, process: ProcessId, data: Data) {
        self.keep(process, HalfBody { data, collected: u64::MAX, untouched: u64::MAX });
    }

    /// Whether that is where `process` lends the whole result.
    pub fn is_lent(&self, process: ProcessId, data: &Data) -> bool {
        self.bodies.get(&process.rank).is_some_and(|(owner, half)| *owner == process && half.data == *data)
    }

    /// Forgets the content of the body of `rank`.
    pub fn drop_body(&mut self, rank: Rank) {
        self.bodies.remove(&rank);
    }

    /// Forgets the content of the body of `process`.
    pub fn drop_body_of(&mut self, process: ProcessId) {
        if self.bodies.get(&process.rank).is_some_and(|(owner, _)| *owner == process) {
            self.drop_body(process.rank);
        }
    }

    /// Whether the content of the body of `rank` is known.
    pub fn keeps(&self, rank: Rank) -> bool {
        self.bodies.contains_key(&rank)
    }

    /// Whether no body holds a part of the result.
    pub fn keeps_nothing(&self) -> bool {
        self.bodies.is_empty()
    }

    /// What bodies hold of a segment that lies in `range`: all of it, which is of `group`, or their owner's
    /// contribution.
    pub fn of_segment<'a>(
        &'a self,
        range: ByteRange,
        group: &'a Path,
    ) -> impl Iterator<Item = Arc<Ready>> + 'a {
        self.bodies.iter().filter_map(move |(&rank, (process, half))| {
            let path = match () {
                () if half.collected >= range.end() => group.clone(),
                () if half.untouched <= range.start => Path::single(rank),
                () => return None,
            };
            Some(Arc::new(Ready { process: *process, path, data: half.data.clone() }))
        })
    }

    /// The living processes that lend the whole result.
    pub fn lenders<'a>(&'a self, members: &'a Membership) -> impl Iterator<Item = ProcessId> + 'a {
        let whole = self.bodies.values().filter(|(_, half)| half.collected == u64::MAX);
        whole.map(|(process, _)| *process).filter(|process| members.lives(*process))
    }

    /// Whether it takes one lender more, besides those there are: `rank`.
    pub fn wants_lender(&self, rank: Rank, members: &Membership) -> bool {
        let hosts: BTreeSet<_> = self.lenders(members).map(|lender| members.host(lender.rank)).collect();
        let is_elsewhere = hosts.len() < LENDERS && !hosts.contains(&members.host(rank));
        let is_missed = || self.misses.values().any(|misses| !misses.missed.is_empty());
        self.lenders(members).count() < LENDERS || is_elsewhere || is_missed()
    }

    /// Takes in that bodies are about to be written: no contribution is left in them.
    fn overwrite(&mut self) {
        for (_, half) in self.bodies.values_mut() {
            half.untouched = u64::MAX;
        }
    }
}
