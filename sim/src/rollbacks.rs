//! Jobs whose ranks save together into directories, and go back together when one of them dies.
//!
//! What ranks vote, when all save, what is complete, from which generation all go on and how often is decided
//! by the rules that decide in real jobs: `everfold_planner::together` and
//! `everfold_master::recovery::rollback`. A seed draws everything else: how long it takes to reduce, to write
//! a part or a manifest, also far longer than a few checkpoints, which of them cannot be written, who dies
//! when, also while all go back, and whether each host has a directory of its own.
//!
//! What has to hold:
//! - ranks go on from a generation only if the parts of all ranks are there, of one job and of one call;
//! - a generation that was complete at all hosts is not lost: ranks go on from there, or from a newer one;
//! - all comes to its end, with the values of a run without deaths.
//!
//! Deliberately absent: how a reduction comes about, which [`World`](crate::World) has, and torn files, which
//! the tests of the storage have. A file is there as a whole or not at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use everfold_master::recovery::{
    Restart,
    rollback::{Next, Rollbacks},
};
use everfold_planner::together::{
    progress::Progress,
    resume::{self, Round},
    vote::{Settled, Tally, Verdict, Written},
};
use everfold_protocol::Timestamp;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use xxhash_rust::xxh3::xxh3_64;

use crate::heap::Heap;

/// What came of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// How often all ranks went back.
    pub back: u32,
    /// How often they went on from a generation, and how often from one that was not the newest of all hosts.
    pub resumed: (u32, u32),
    /// Generations that were complete at all hosts, and those that a rank could not write.
    pub settled: (u32, u32),
    /// Deaths while all were going back already.
    pub deaths_on_the_way: u32,
}

/// What a rank has computed: a value, after a number of steps.
type State = (u64, u64);
/// A generation, and the job that has saved it.
type Saved = (u64, u64);

/// A directory of checkpoints.
#[derive(Clone, Debug, Default)]
struct Directory {
    parts: BTreeMap<(Saved, usize), State>,
    manifests: BTreeMap<Saved, Vec<u64>>,
}

impl Directory {
    fn newest(&self) -> Option<Saved> {
        self.newest_up_to(u64::MAX)
    }

    /// Of two with one number, what was complete last.
    fn newest_up_to(&self, most: u64) -> Option<Saved> {
        self.manifests.keys().rfind(|saved| saved.0 <= most).copied()
    }

    /// What is older than `newest` goes, but for what is common.
    fn tidy(&mut self, newest: u64, common: Option<u64>) {
        let stays = |saved: &Saved| saved.0 >= newest || common.is_none_or(|common| saved.0 == common);
        self.manifests.retain(|saved, _| stays(saved));
        self.parts.retain(|(saved, _), _| stays(saved));
    }

    /// A job goes on from a generation: what other jobs have saved behind it counts no more.
    fn remove_after(&mut self, saved: Saved, job: u64) {
        let stays = |other: &Saved| other.0 <= saved.0 || other.1 == job;
        self.manifests.retain(|other, _| stays(other));
        self.parts.retain(|(other, _), _| stays(other));
    }
}

/// Why ranks reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    Work,
    Vote,
    Parts,
    Resume,
}

#[derive(Debug)]
enum What {
    /// A rank's process is there.
    Starts(usize),
    /// A rank hears what a reduction has come to.
    Hears(usize, Call, Vec<u64>),
    /// A rank's part is written, or cannot be.
    Part(usize, u64, bool),
    /// The manifest of a generation is written, by the lowest rank of a host, or cannot be.
    Manifest(usize, u64, Option<Vec<u64>>),
    /// What is there of a generation that was given up is removed, by the lowest rank of a host.
    Removal(usize, u64),
    /// A rank dies.
    Dies(usize),
    /// All go back.
    Back,
}

/// A rank's process.
#[derive(Debug)]
struct Process {
    state: State,
    progress: Progress,
    /// Its vault: the generation, and what was saved.
    vault: (u64, State),
    /// How far its part is, or the manifest of its host.
    written: Written,
    /// What was voted, while the parts are compared.
    tally: Option<Tally>,
    /// Whether it waits for what it writes before it votes once more.
    waits: bool,
    /// What it has found to go on from, while ranks look for what they have in common.
    found: Option<Saved>,
    calls: BTreeMap<Call, u64>,
}

/// Ranks and their hosts.
struct Run {
    random: ChaCha8Rng,
    heap: Heap<(u64, What)>,
    now: Timestamp,
    hosts: Vec<usize>,
    directories: Vec<Directory>,
    job: u64,
    processes: Vec<Option<Process>>,
    called: BTreeMap<(Call, u64), BTreeMap<usize, Vec<u64>>>,
    rollbacks: Rollbacks<Saved>,
    is_going_back: bool,
    steps: u64,
    due_every: u64,
    /// How many of a hundred parts cannot be written, and how many manifests.
    failures: u32,
    /// How long a manifest takes at most.
    manifest_us: u64,
    /// The newest generation that was complete at all hosts.
    common: u64,
    ended: BTreeSet<usize>,
    course: Course,
}

fn mix(numbers: &[u64]) -> u64 {
    xxh3_64(&numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>())
}

/// Runs a job that is drawn from `seed`.
///
/// # Errors
/// What does not hold.
pub fn run(seed: u64) -> Result<Course, String> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let ranks: usize = random.random_range(1..=6);
    let count = random.random_range(1..=3usize);
    let hosts: Vec<usize> = (0..ranks).map(|rank| rank % count).collect();
    let limits = Restart { starts_max: 100, fruitless_max: 50, ..Restart::USUAL };
    let mut run = Run {
        heap: Heap::new(),
        now: Timestamp::ZERO,
        // One directory for all, or one for each host.
        hosts: if random.random_bool(0.5) { hosts } else { vec![0; ranks] },
        directories: vec![Directory::default(); count],
        job: 0,
        processes: Vec::new(),
        called: BTreeMap::new(),
        rollbacks: Rollbacks::new(limits, None),
        is_going_back: false,
        steps: random.random_range(5..60),
        due_every: random.random_range(1..8),
        failures: [0, 0, 10][random.random_range(0..3)],
        manifest_us: [400, 400, 20_000][random.random_range(0..3)],
        common: 0,
        ended: BTreeSet::new(),
        course: Course::default(),
        random,
    };
    for _ in 0..run.random.random_range(0..8) {
        let (at, rank) = (run.some(40_000), run.random.random_range(0..ranks));
        run.plan(at, What::Dies(rank));
    }
    run.start(Duration::ZERO);
    run.go()
}

impl Run {
    fn some(&mut self, most_us: u64) -> Duration {
        Duration::from_micros(self.random.random_range(0..most_us))
    }

    fn plan(&mut self, after: Duration, what: What) {
        self.heap.push(self.now + after, (self.job, what));
    }

    fn ranks(&self) -> usize {
        self.hosts.len()
    }

    fn directory(&mut self, rank: usize) -> &mut Directory {
        &mut self.directories[self.hosts[rank]]
    }

    fn lowest_of_host(&self, rank: usize) -> bool {
        self.hosts.iter().position(|host| *host == self.hosts[rank]) == Some(rank)
    }

    /// Starts all ranks, after a pause.
    fn start(&mut self, pause: Duration) {
        self.job += 1;
        self.called.clear();
        self.ended.clear();
        self.is_going_back = false;
        self.processes = (0..self.ranks()).map(|_| None).collect();
        for rank in 0..self.ranks() {
            let after = pause + self.some(500);
            self.plan(after, What::Starts(rank));
        }
    }

    fn go(mut self) -> Result<Course, String> {
        while self.ended.len() < self.ranks() {
            let Some((at, (job, what))) = self.heap.pop() else {
                return Err(format!("job {} has not come to its end", self.job));
            };
            self.now = at;
            match what {
                What::Dies(rank) => self.die(rank),
                // Those of earlier jobs have ended.
                _ if job != self.job => {}
                What::Back => self.go_back()?,
                What::Starts(rank) => self.begin(rank),
                What::Hears(rank, call, numbers) => self.hear(rank, call, &numbers)?,
                What::Part(rank, generation, is_written) => self.write_part(rank, generation, is_written),
                What::Manifest(rank, generation, parts) => self.write_manifest(rank, generation, parts),
                What::Removal(rank, generation) => self.remove(rank, generation),
            }
        }
        let alone = self.undisturbed();
        let other = self.processes.iter().flatten().find(|process| process.state != alone);
        if let Some(process) = other {
            return Err(format!("it ends with {:?} instead of {alone:?}", process.state));
        }
        self.course.back = self.rollbacks.all();
        Ok(self.course)
    }

    /// What all ranks come to if nobody dies.
    fn undisturbed(&self) -> State {
        let step = |value: u64, step: u64| {
            let given = (0..self.ranks()).map(|rank| mix(&[rank as u64, step, value]));
            mix(&[value, mix(&given.collect::<Vec<_>>())])
        };
        (self.steps, (0..self.steps).fold(1, step))
    }

    fn die(&mut self, rank: usize) {
        if self.ended.contains(&rank) {
            return;
        }
        self.processes[rank] = None;
        if self.is_going_back {
            self.course.deaths_on_the_way += 1;
            return;
        }
        self.is_going_back = true;
        // The others go on until they are ended.
        let after = self.some(300);
        self.plan(after, What::Back);
    }

    fn go_back(&mut self) -> Result<(), String> {
        let newest = self.directories[0].newest();
        match self.rollbacks.decide(newest, |saved| saved.0) {
            Next::Back(_, pause) => self.start(pause),
            next => return Err(format!("they go back no more: {next:?}")),
        }
        Ok(())
    }

    /// A process begins: ranks find what they go on from.
    fn begin(&mut self, rank: usize) {
        if self.is_going_back {
            return;
        }
        self.processes[rank] = Some(Process {
            state: (0, 1),
            progress: Progress::from(0),
            vault: (0, (0, 1)),
            written: Written::There,
            tally: None,
            waits: false,
            found: None,
            calls: BTreeMap::new(),
        });
        self.look_for(rank, u64::MAX);
    }

    /// A rank looks for what it may go on from.
    fn look_for(&mut self, rank: usize, most: u64) {
        let found = self.directory(rank).newest_up_to(most);
        if let Some(process) = &mut self.processes[rank] {
            process.found = found;
        }
        self.call(rank, Call::Resume, resume::numbers(found).to_vec());
    }

    /// A rank contributes. When all have, each hears what has come of it.
    fn call(&mut self, rank: usize, call: Call, numbers: Vec<u64>) {
        let ranks = self.ranks();
        let Some(process) = &mut self.processes[rank] else { return };
        let sequence = process.calls.entry(call).or_default();
        *sequence += 1;
        let key = (call, *sequence);
        if call == Call::Work {
            process.progress.see_call(1, key.1);
        }
        let given = self.called.entry(key).or_default();
        given.insert(rank, numbers);
        if given.len() < ranks {
            return;
        }
        let all: Vec<Vec<u64>> = given.values().cloned().collect();
        let least = |at: usize| all.iter().map(|numbers| numbers[at]).min().unwrap_or_default();
        let result: Vec<u64> = match call {
            Call::Work => vec![mix(&all.concat())],
            Call::Parts => all.concat(),
            Call::Vote | Call::Resume => (0..all[0].len()).map(least).collect(),
        };
        for rank in 0..ranks {
            let after = self.some(200);
            self.plan(after, What::Hears(rank, call, result.clone()));
        }
    }

    fn hear(&mut self, rank: usize, call: Call, numbers: &[u64]) -> Result<(), String> {
        if self.processes[rank].is_none() {
            return Ok(());
        }
        match call {
            Call::Resume => self.resume(rank, numbers)?,
            Call::Work => {
                let Some(process) = &mut self.processes[rank] else { return Ok(()) };
                process.state = (process.state.0 + 1, mix(&[process.state.1, numbers[0]]));
                match process.progress.votes(false) {
                    true => self.vote(rank),
                    false => self.work(rank),
                }
            }
            Call::Vote => {
                let tally = Tally::of(numbers);
                let Some(process) = &mut self.processes[rank] else { return Ok(()) };
                match tally.settled {
                    Some((generation, Settled::Listed)) => {
                        process.tally = Some(tally);
                        let saved = (generation, self.job);
                        let part =
                            self.directory(rank).parts.get(&(saved, rank)).map_or(0, |it| mix(&[it.0, it.1]));
                        self.call(rank, Call::Parts, vec![part]);
                    }
                    _ => self.follow(rank, &tally)?,
                }
            }
            Call::Parts => {
                let Some(tally) = self.processes[rank].as_mut().and_then(|it| it.tally.take()) else {
                    return Ok(());
                };
                if let (Some((generation, _)), true) = (tally.settled, self.lowest_of_host(rank)) {
                    let (takes, fails) = (self.some(self.manifest_us), self.fails());
                    let parts = (!fails).then(|| numbers.to_vec());
                    self.begin_writing(rank, takes, What::Manifest(rank, generation, parts));
                }
                self.follow(rank, &tally)?;
            }
        }
        Ok(())
    }

    fn work(&mut self, rank: usize) {
        let Some(process) = &self.processes[rank] else { return };
        let (step, value) = process.state;
        match step < self.steps {
            true => self.call(rank, Call::Work, vec![mix(&[rank as u64, step, value])]),
            false => drop(self.ended.insert(rank)),
        }
    }

    fn vote(&mut self, rank: usize) {
        let due_every = self.due_every;
        let Some(process) = &mut self.processes[rank] else { return };
        let until_due = due_every.saturating_sub(process.progress.calls());
        let vote = process.progress.vote(process.vault.0, process.written, until_due, (false, false));
        self.call(rank, Call::Vote, vote.numbers());
    }

    /// Does what all have come to.
    fn follow(&mut self, rank: usize, tally: &Tally) -> Result<(), String> {
        let (fails, takes) = (self.fails(), self.some(2000));
        if let (0, Some((_, settled))) = (rank, tally.settled) {
            self.course.settled.0 += u32::from(settled == Settled::Complete);
            self.course.settled.1 += u32::from(matches!(settled, Settled::Failed(_)));
        }
        if let (Some((generation, Settled::Failed(_))), true) = (tally.settled, self.lowest_of_host(rank)) {
            let takes = self.some(1000);
            self.begin_writing(rank, takes, What::Removal(rank, generation));
        }
        let Some(process) = &mut self.processes[rank] else { return Ok(()) };
        process.progress.take(tally);
        match tally.verdict {
            Verdict::Save(generation) => {
                process.progress.save(generation);
                process.vault = (generation, process.state);
                process.progress.begin(generation);
                self.begin_writing(rank, takes, What::Part(rank, generation, !fails));
                self.work(rank);
            }
            Verdict::Wait => process.waits = true,
            Verdict::NotDue(_) => self.work(rank),
            Verdict::Apart => return Err(format!("rank {rank} is not at the same call as the others")),
        }
        Ok(())
    }

    /// Whether something cannot be written.
    fn fails(&mut self) -> bool {
        let failures = self.failures;
        self.random.random_ratio(failures, 100)
    }

    /// A rank begins to write, or to remove, which takes so long.
    fn begin_writing(&mut self, rank: usize, takes: Duration, what: What) {
        if let Some(process) = &mut self.processes[rank] {
            process.written = Written::Writing;
        }
        self.plan(takes, what);
    }

    /// A rank has written something of a generation, or could not.
    fn end_writing(&mut self, rank: usize, generation: u64, is_there: bool) {
        let Some(process) = &mut self.processes[rank] else { return };
        if process.progress.open() != Some(generation) {
            return;
        }
        process.written = if is_there { Written::There } else { Written::Failed(rank as u32) };
        if std::mem::take(&mut process.waits) {
            self.vote(rank);
        }
    }

    /// A rank copies into the directory what its vault has by then.
    fn write_part(&mut self, rank: usize, generation: u64, is_written: bool) {
        let job = self.job;
        let Some(process) = &self.processes[rank] else { return };
        let (in_force, state) = process.vault;
        let is_there = is_written && in_force == generation;
        if is_there {
            self.directory(rank).parts.insert(((generation, job), rank), state);
        }
        self.end_writing(rank, generation, is_there);
    }

    /// The lowest rank of a host says that a generation is complete there.
    fn write_manifest(&mut self, rank: usize, generation: u64, parts: Option<Vec<u64>>) {
        let saved = (generation, self.job);
        let Some(process) = &self.processes[rank] else { return };
        let common = process.progress.common();
        let is_there = parts.is_some();
        if let Some(parts) = parts {
            let directory = self.directory(rank);
            directory.manifests.insert(saved, parts);
            directory.tidy(generation, common);
        }
        if self.hosts.iter().all(|host| self.directories[*host].manifests.contains_key(&saved)) {
            self.common = generation;
        }
        self.end_writing(rank, generation, is_there);
    }

    fn remove(&mut self, rank: usize, generation: u64) {
        let given_up = (generation, self.job);
        if self.processes[rank].is_some() {
            let directory = self.directory(rank);
            directory.manifests.remove(&given_up);
            directory.parts.retain(|(saved, _), _| *saved != given_up);
        }
        self.end_writing(rank, generation, true);
    }

    /// A round of looking for what all ranks have in common.
    fn resume(&mut self, rank: usize, least: &[u64]) -> Result<(), String> {
        let least = <[u64; 4]>::try_from(least).expect("all give four numbers");
        let (round, common) = (resume::judge(least), self.common);
        let lost = |from| format!("they go on from {from}, and generation {common} was at all hosts");
        match round {
            Round::UpTo(most) => {
                self.look_for(rank, most);
                Ok(())
            }
            Round::Nothing if common == 0 => {
                self.work(rank);
                Ok(())
            }
            Round::From(generation) if generation >= common => self.adopt(rank),
            Round::Nothing => Err(lost(0)),
            Round::From(generation) => Err(lost(generation)),
        }
    }

    /// A rank goes on from the generation on which all have agreed.
    fn adopt(&mut self, rank: usize) -> Result<(), String> {
        let Some(saved) = self.processes[rank].as_mut().and_then(|process| process.found.take()) else {
            return Err(format!("rank {rank} does not find what the others have"));
        };
        let parts: Vec<Option<State>> = (0..self.ranks())
            .map(|other| self.directories[self.hosts[other]].parts.get(&(saved, other)).copied())
            .collect();
        let listed: Vec<u64> = parts.iter().map(|part| part.map_or(0, |it| mix(&[it.0, it.1]))).collect();
        let state = parts[rank].filter(|state| parts.iter().all(|part| *part == Some(*state)));
        let Some(state) = state.filter(|_| self.directory(rank).manifests.get(&saved) == Some(&listed))
        else {
            return Err(format!("generation {saved:?} is not complete: {parts:?}"));
        };
        let is_newest = self.hosts.iter().all(|host| self.directories[*host].newest() == Some(saved));
        self.course.resumed.0 += u32::from(rank == 0);
        self.course.resumed.1 += u32::from(rank == 0 && !is_newest);
        let job = self.job;
        if self.lowest_of_host(rank) {
            self.directory(rank).remove_after(saved, job);
        }
        if let Some(process) = &mut self.processes[rank] {
            process.state = state;
            process.vault = (saved.0, state);
            process.progress.go_on_from(saved.0, true);
        }
        self.work(rank);
        Ok(())
    }
}
