//! `everfold bench compare`: everfold and MPI in turns, on the same hosts, in the same run.
//!
//! | to know | see |
//! |---|---|
//! | what is measured, and what physics allows | [`case`], [`physics`] |
//! | where, and what disturbs it | [`place`], [`quota`] |
//! | the MPI libraries and their algorithms | [`peers`], `peer.c` |
//! | everfold's ranks | [`rank`] |
//! | how both sides are driven | [`team`] |
//! | in which order, and how often | [`measure`], [`statistics`] |
//! | what is told, and drawn | [`report`], [`plot`] |
//!
//! All ranks of all sides are there all the time. Those whose turn it is not sleep in a system call, because MPI would
//! otherwise poll and take the cores from the others.

mod case;
mod measure;
mod peers;
mod physics;
mod place;
mod plot;
mod quota;
mod rank;
mod report;
mod statistics;
mod team;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use everfold::Protection;
use indicatif::{ProgressBar, ProgressStyle};

pub use self::rank::CompareRank;
use self::{
    case::{Case, Exercise},
    measure::{Contender, Measurement, Rule},
    peers::{Algorithm, Library, Peer},
    place::{Place, side_folder},
    report::{Document, Measured},
    team::{Interrupts, Kind, Team, TeamError},
};
use super::machine::Machine;
use crate::{
    Failure,
    cluster::{HOSTS_MAX, Rate},
    scratch::Scratch,
    size,
};

/// Bodies of the case with many reductions.
const CONCURRENT_BYTES: u64 = 8 << 20;
/// How many there are at once.
const CONCURRENT: [u32; 4] = [4, 8, 16, 28];
/// Bodies of the case in which ranks compute meanwhile.
const OVERLAP_BYTES: u64 = 32 << 20;

/// Others who use a larger part of the processor time disturb.
const BUSY: f64 = 0.05;
/// Fewest repetitions of a line, however long it takes.
const REPETITIONS_MIN: usize = 3;

/// Measures everfold beside Open MPI and MPICH, in turns, on the same hosts: sums of f32, from a barrier to the return
/// on the slowest rank. Every value is checked.
///
/// The libraries are installed from the Python package index into the cache if they are missing. Each is measured as it
/// comes and with the fastest of a few named algorithms, found anew for each line by a short trial. Hosts are network
/// namespaces on a bridge, one rank on each, whose links are limited both ways; they need root. What cannot be measured
/// is left out, and said.
///
/// A line is repeated until the 95 % interval of each ratio of medians (bootstrap) is within ±5 % of the ratio, but at
/// most 1000 times and for 30 s (--precision, --repetitions, --seconds), and at least 3 times however long it takes.
///
/// Example: everfold bench compare --cases a,b --hosts 4 --sizes 1m,32m --json compare.json
#[derive(Args)]
pub struct Compare {
    /// What is measured.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CASES", default_value = "a,b,c,d,e,f,g")]
    cases: Vec<Case>,
    /// Numbers of ranks on one host [default: 2,4,8,16 unless --hosts is given].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=512))]
    ranks: Vec<u32>,
    /// Numbers of hosts [default: 4,8 unless --ranks is given].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=i64::from(HOSTS_MAX)))]
    hosts: Vec<u32>,
    /// Sizes of bodies in cases a to e [default: 8,1k,64k,1m,8m,32m,128m in case a, 1m,8m,32m in the others].
    #[arg(long, value_delimiter = ',', value_parser = size::parse)]
    sizes: Vec<u64>,
    /// What each link carries each way.
    #[arg(long, default_value = "500mbit")]
    rate: Rate,
    /// The libraries that everfold is measured beside.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "openmpi,mpich")]
    peers: Vec<Library>,
    /// Measure everfold alone.
    #[arg(long, conflicts_with = "peers")]
    no_peers: bool,
    /// How everfold protects contributions: none, memory, disk or commit-first.
    #[arg(long, value_name = "LEVEL", default_value = "disk")]
    protection: Protection,
    /// Width of the interval of a ratio at which it is known well enough, in per cent to each side.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    precision: f64,
    /// Most repetitions of a line.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    repetitions: usize,
    /// Longest time for a line.
    #[arg(long, value_name = "T", default_value_t = 30.0)]
    seconds: f64,
    /// Be rough: --seconds 3, and fewer ranks, hosts and sizes unless they are given.
    #[arg(long)]
    quick: bool,
    /// From which it is drawn how late ranks come.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also write all figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw times over sizes, a picture for each case in each place, into this folder.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Draw what happened in one of everfold's repetitions of each line into this folder.
    #[arg(long, value_name = "DIR")]
    timelines: Option<PathBuf>,
}

impl Compare {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let interrupts = Interrupts::listen()?;
        for folder in self.svg.iter().chain(&self.timelines) {
            fs::create_dir_all(folder)?;
        }
        let scratch = Scratch::new_in(&std::env::temp_dir())?;
        let mut document = Document {
            machine: Machine::here(),
            peers: Vec::new(),
            rule: self.rule_in_words(),
            protection: self.protection.to_string(),
            results: Vec::new(),
            left_out: Vec::new(),
        };
        println!(
            "{} ({} cores), kernel {}, everfold {}",
            document.machine.processor,
            document.machine.cores,
            document.machine.kernel,
            document.machine.everfold
        );
        if document.machine.busy > BUSY {
            println!("others use {:.0} % of this machine: times are noisy", document.machine.busy * 100.0);
        }
        let mut peers = Vec::new();
        let wanted = if self.no_peers { &[][..] } else { &self.peers };
        for &library in wanted {
            match Peer::install(library, scratch.path()) {
                Ok(peer) => {
                    document.peers.push(library.package());
                    peers.push((library, peer));
                }
                Err(why) => leave_out(&mut document, format!("{}: {why}", library.name())),
            }
        }
        for ranks in self.ranks() {
            let folder = side_folder(scratch.path(), &format!("ranks-{ranks}"))?;
            self.measure(&Place::one_host(ranks), &peers, &folder, &interrupts, &mut document)?;
        }
        for hosts in self.hosts() {
            let folder = side_folder(scratch.path(), &format!("hosts-{hosts}"))?;
            match Place::network(hosts, self.rate, &folder) {
                Ok(place) => self.measure(&place, &peers, &folder, &interrupts, &mut document)?,
                Err(failure) => leave_out(&mut document, format!("{hosts} hosts: {}", failure.message)),
            }
        }
        for folder in self.svg.iter().chain(&self.timelines) {
            println!("pictures: {}", folder.display());
        }
        if let Some(path) = &self.json {
            fs::write(path, serde_json::to_vec_pretty(&document)?)?;
            println!("figures: {}", path.display());
        }
        Ok(ExitCode::SUCCESS)
    }

    /// All cases in one place.
    fn measure(
        &self,
        place: &Place,
        peers: &[(Library, Peer)],
        folder: &Path,
        interrupts: &Interrupts,
        document: &mut Document,
    ) -> Result<(), Failure> {
        let progress = ProgressBar::new_spinner();
        progress.set_style(
            ProgressStyle::with_template("{elapsed_precise} {msg}")
                .unwrap_or(ProgressStyle::default_spinner()),
        );
        progress.set_message("starting");
        let (mut teams, contenders) = self.start(place, peers, folder, interrupts, document)?;
        for &case in &self.cases {
            let disturbance = case.disturbance();
            if let Some(why) = place.lacks(disturbance) {
                leave_out(document, format!("case {} on {}: {why}", case.words().0, heading(place)));
                continue;
            }
            let mut results = Vec::new();
            for exercise in self.exercises(case) {
                progress.set_message(format!(
                    "{}: {}, {}",
                    heading(place),
                    case.words().1,
                    report::what(&exercise)
                ));
                let mut measurement = Measurement {
                    place,
                    teams: &mut teams,
                    contenders: &contenders,
                    rule: self.rule(),
                    seed: self.seed,
                    interrupts,
                    lost: Vec::new(),
                };
                let (exercise, quiet_s) = match case {
                    Case::Overlap => with_computing(exercise, &mut measurement)?,
                    _ => (exercise, Vec::new()),
                };
                let timeline = self.timelines.as_ref().map(|folder| folder.join(file_name(&exercise, place)));
                let samples = place
                    .disturbed(disturbance, |moves| measurement.run(&exercise, moves, timeline.as_deref()))?;
                let lost = measurement.lost;
                lost.into_iter().for_each(|lost| leave_out(document, lost));
                results.push(Measured::new(place, exercise, &contenders, samples, &quiet_s));
            }
            progress.suspend(|| {
                println!("\n({}) {}: {}", case.words().0, heading(place), case.words().1);
                println!("{}", report::table(&results));
            });
            if let Some(folder) = &self.svg {
                for rotate in [false, true] {
                    let alike: Vec<&Measured> =
                        results.iter().filter(|one| one.exercise.rotate == rotate).collect();
                    let roots = if rotate { ", all roots" } else { "" };
                    let title = format!("{}: {}{roots}", heading(place), case.words().1);
                    let name = format!(
                        "{}-{}{}.svg",
                        case.words().0,
                        place.file_name(),
                        roots.replace(", ", "-").replace(' ', "-")
                    );
                    plot::draw(&title, &alike, &contenders, &folder.join(name))?;
                }
            }
            document.results.extend(results);
        }
        progress.finish_and_clear();
        Ok(())
    }

    /// Starts all sides.
    fn start(
        &self,
        place: &Place,
        peers: &[(Library, Peer)],
        folder: &Path,
        interrupts: &Interrupts,
        document: &mut Document,
    ) -> Result<(Vec<Option<Team>>, Vec<Contender>), Failure> {
        let everfold = place.start_everfold(&side_folder(folder, "everfold")?, interrupts);
        let mut teams = vec![Some(everfold.map_err(|error| match error {
            TeamError::Fatal(failure) => failure,
            TeamError::Lost(why) => Failure::new(format!("everfold: {why}")),
        })?)];
        let mut contenders = Vec::new();
        let over_network = place.link_bytes_per_s().is_some();
        let mut ours = vec![("array", Kind::Array, self.protection), ("Vec", Kind::Vec, self.protection)];
        if self.protection != Protection::None {
            ours.push(("array, unprotected", Kind::Array, Protection::None));
        }
        for (name, kind, protection) in ours {
            let name = name.to_owned();
            contenders.push(Contender { library: None, name, stays: true, kind, protection, team: 0 });
        }
        for (library, peer) in peers {
            for algorithm in library.algorithms(over_network) {
                match self.start_peer(place, (peer, algorithm), folder, interrupts) {
                    Ok(team) => {
                        contenders.push(Contender {
                            library: Some(*library),
                            name: algorithm.name.to_owned(),
                            stays: algorithm.is_default(),
                            kind: Kind::Vec,
                            protection: Protection::None,
                            team: teams.len(),
                        });
                        teams.push(Some(team));
                    }
                    Err(TeamError::Fatal(failure)) => return Err(failure),
                    Err(TeamError::Lost(why)) => {
                        leave_out(document, format!("{} {}: {why}", library.name(), algorithm.name));
                    }
                }
            }
        }
        Ok((teams, contenders))
    }

    /// Starts a peer. On a busy machine, one in many runs out of time while its ranks connect: it gets a second chance.
    fn start_peer(
        &self,
        place: &Place,
        (peer, algorithm): (&Peer, &Algorithm),
        folder: &Path,
        interrupts: &Interrupts,
    ) -> Result<Team, TeamError> {
        let start = |attempt: &str| {
            let name = format!("{} {}{attempt}", algorithm.library.name(), algorithm.name).replace(' ', "-");
            place.start_peer(peer, algorithm, &side_folder(folder, &name)?, interrupts)
        };
        match start("") {
            Err(TeamError::Lost(_)) => start(" again"),
            other => other,
        }
    }

    fn exercises(&self, case: Case) -> Vec<Exercise> {
        let sizes =
            |default: &[u64]| if self.sizes.is_empty() { default.to_vec() } else { self.sizes.clone() };
        let (k, m) = (1 << 10, 1 << 20);
        match case {
            Case::Quiet if self.quick => sizes(&[8, 64 * k, m, 8 * m]),
            Case::Quiet => sizes(&[8, k, 64 * k, m, 8 * m, 32 * m, 128 * m]),
            Case::Overlap => return vec![Exercise::single(case, OVERLAP_BYTES)],
            Case::Concurrent => {
                let counts = if self.quick { &CONCURRENT[..1] } else { &CONCURRENT };
                let both = |&count| {
                    let one_root = Exercise { count, ..Exercise::single(case, CONCURRENT_BYTES) };
                    [one_root, Exercise { rotate: true, ..one_root }]
                };
                return counts.iter().flat_map(both).collect();
            }
            _ if self.quick => sizes(&[m]),
            _ => sizes(&[m, 8 * m, 32 * m]),
        }
        .into_iter()
        .map(|bytes| Exercise::single(case, bytes))
        .collect::<Vec<_>>()
    }

    fn ranks(&self) -> Vec<u32> {
        match (self.ranks.is_empty() && self.hosts.is_empty(), self.quick) {
            (false, _) => self.ranks.clone(),
            (true, true) => vec![4],
            (true, false) => vec![2, 4, 8, 16],
        }
    }

    fn hosts(&self) -> Vec<u32> {
        match (self.ranks.is_empty() && self.hosts.is_empty(), self.quick) {
            (false, _) => self.hosts.clone(),
            (true, true) => vec![4],
            (true, false) => vec![4, 8],
        }
    }

    fn rule(&self) -> Rule {
        Rule {
            precision: self.precision / 100.0,
            repetitions_min: REPETITIONS_MIN,
            repetitions_max: self.repetitions,
            time: Duration::from_secs_f64(if self.quick { self.seconds.min(3.0) } else { self.seconds }),
        }
    }

    fn rule_in_words(&self) -> String {
        let Rule { repetitions_min, repetitions_max, time, .. } = self.rule();
        format!(
            "until the 95 % interval of each ratio of medians is within ±{} % of the ratio, {repetitions_min} to \
             {repetitions_max} repetitions, at most {time:?}",
            self.precision
        )
    }
}

/// Lets the ranks compute as long as the fastest side takes if they do not. Tells how long each side does.
fn with_computing(
    exercise: Exercise,
    measurement: &mut Measurement,
) -> Result<(Exercise, Vec<Option<f64>>), Failure> {
    // Next to no computing: MPI shall use the same function.
    let quiet_s = measurement.quiet_s(&Exercise { compute_us: 1, ..exercise })?;
    let fastest_s = quiet_s.iter().flatten().copied().min_by(f64::total_cmp).unwrap_or(0.0);
    Ok((Exercise { compute_us: (fastest_s * 1e6) as u64, ..exercise }, quiet_s))
}

/// Of the timeline of an exercise.
fn file_name(exercise: &Exercise, place: &Place) -> String {
    let Exercise { case, bytes, count, rotate, .. } = exercise;
    let roots = if *rotate { "-all-roots" } else { "" };
    format!("{}-{}-{count}x{bytes}{roots}.svg", case.words().0, place.file_name())
}

/// Where, for people.
fn heading(place: &Place) -> String {
    match place.name() {
        place::PlaceName::OneHost { ranks } => format!("one host, {ranks} ranks"),
        place::PlaceName::Network { hosts, bits_per_s } => {
            format!("{hosts} hosts, links of {} Mbit/s", bits_per_s / 1_000_000)
        }
    }
}

fn leave_out(document: &mut Document, what: String) {
    eprintln!("left out: {what}");
    document.left_out.push(what);
}
