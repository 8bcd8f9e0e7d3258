//! What `everfold bench compare` can be told, and what it does then.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use everfold::{DEFAULT_PROTECTION, Protection};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    case::{Case, Exercise, Roots},
    field::Field,
    measure::{Measurement, Rule},
    peers::{Library, Peer},
    place::{Place, side_folder},
    plot,
    report::{self, Document, Measured},
};
use crate::{
    Failure, clock,
    cluster::{HOSTS_MAX, Rate},
    files,
    interrupts::Interrupts,
    machine::Machine,
    scratch::Scratch,
    size,
};

/// Bodies of the case with many reductions.
const CONCURRENT_BYTES: u64 = 8 << 20;
/// Bodies of the case in which ranks compute meanwhile.
const OVERLAP_BYTES: u64 = 32 << 20;

/// Others who use a larger part of the processor time disturb.
const BUSY: f64 = 0.05;
/// Fewest repetitions of a line, however long it takes.
const REPETITIONS_MIN: usize = 3;
/// Longest time for a line, if none is given.
const SECONDS: Duration = Duration::from_secs(30);
/// The same with --quick.
const SECONDS_QUICK: Duration = Duration::from_secs(3);

/// Measure everfold beside Open MPI and MPICH.
///
/// Measures everfold beside Open MPI and MPICH, in turns, on the same hosts: sums of f32, and f32 that are
/// gathered, exchanged and broadcast, from a barrier to the return on the slowest rank. Every value is checked.
///
/// The libraries are installed from the Python package index into the cache if they are missing. Each is
/// measured as it comes and, in reductions, with the fastest of a few named algorithms, found anew for each
/// line by a short trial. Hosts are network namespaces on a bridge, one rank on each, whose links are limited
/// both ways; they need root. What cannot be measured is left out, and said; but if everfold fails, or a
/// value of it is wrong, the command ends with exit code 1.
///
/// A line is repeated until the 95 % interval of each ratio of medians (bootstrap) is within ±5 % of the
/// ratio, but at most 1000 times and for 30 s (--precision, --repetitions, --seconds), and at least 3 times
/// however long it takes.
///
/// Example: everfold bench compare --cases a,b --hosts 4 --sizes 1m,32m --json compare.json
#[derive(Args)]
pub struct Compare {
    /// What is measured.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "CASES",
        default_value = "a,b,c,d,e,f,g,h,i,j,k"
    )]
    cases: Vec<Case>,
    /// Numbers of ranks on one host [default: 2,4,8,16 unless --hosts is given].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=512))]
    ranks: Vec<u32>,
    /// Numbers of hosts [default: 4,8 unless --ranks is given].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=i64::from(HOSTS_MAX)))]
    hosts: Vec<u32>,
    /// Sizes of bodies in all cases but f and g [default: 8,1k,64k,1m,8m,32m,128m in cases a and h,
    /// 1k,64k,1m,8m,32m in i, j and k, 1m,8m,32m in the others].
    #[arg(long, value_delimiter = ',', value_parser = size::parse)]
    sizes: Vec<u64>,
    /// Reductions at once in case f [default: 4,8,16,28].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    counts: Vec<u32>,
    /// What each link carries each way.
    #[arg(long, default_value = "500mbit")]
    rate: Rate,
    /// The libraries that everfold is measured beside.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "openmpi,mpich")]
    peers: Vec<Library>,
    /// Measure everfold alone.
    #[arg(long, conflicts_with = "peers")]
    no_peers: bool,
    /// Beside case a on several hosts, tell what the simulator says of everfold there. Its link is the one
    /// that is found: half the round trip of a short message, and the time per byte of a long one.
    #[arg(long)]
    simulated: bool,
    /// How everfold protects contributions: none, memory, disk or commit-first.
    #[arg(long, value_name = "LEVEL", default_value_t = DEFAULT_PROTECTION)]
    protection: Protection,
    /// Width of the interval of a ratio at which it is known well enough, in per cent to each side.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    precision: f64,
    /// Most repetitions of a line.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    repetitions: usize,
    /// Longest time for a line [default: 30, or 3 with --quick].
    #[arg(long, value_name = "T", value_parser = clock::parse_seconds)]
    seconds: Option<Duration>,
    /// Be rough: a shorter time for a line, and fewer ranks, hosts and sizes, unless they are given.
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
    /// Measures what was asked for, and prints it.
    ///
    /// # Errors
    /// A [`Failure`] that tells why there are no results.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let interrupts = Interrupts::listen()?;
        for folder in self.svg.iter().chain(&self.timelines) {
            files::make_folder(folder)?;
        }
        self.json.iter().try_for_each(|path| files::check(path))?;
        let scratch = Scratch::new_in(&std::env::temp_dir())?;
        let mut document = Document {
            machine: Machine::here(),
            peers: Vec::new(),
            rule: self.rule_in_words(),
            protection: self.protection.to_string(),
            results: Vec::new(),
            left_out: Vec::new(),
        };
        say!(
            "{} ({} cores), kernel {}, everfold {}",
            document.machine.processor,
            document.machine.cores,
            document.machine.kernel,
            document.machine.everfold
        )?;
        if document.machine.busy > BUSY {
            say!("others use {:.0} % of this machine: times are noisy", document.machine.busy * 100.0)?;
        }
        let measured = self.measure(scratch.path(), &interrupts, &mut document);
        // What is there is kept if we are asked to end.
        let json = serde_json::to_vec_pretty(&document)?;
        let written = self.json.iter().try_for_each(|path| files::write(path, &json));
        let said = written.and_then(|()| self.name_files());
        measured.and(said).map(|()| ExitCode::SUCCESS)
    }

    /// Says where the files are.
    fn name_files(&self) -> Result<(), Failure> {
        for folder in self.svg.iter().chain(&self.timelines) {
            say!("pictures: {}", folder.display())?;
        }
        self.json.iter().try_for_each(|path| say!("figures: {}", path.display()))
    }

    /// All cases in all places.
    fn measure(
        &self,
        scratch: &Path,
        interrupts: &Interrupts,
        document: &mut Document,
    ) -> Result<(), Failure> {
        let mut peers = Vec::new();
        let wanted = if self.no_peers { &[][..] } else { &self.peers };
        for &library in wanted {
            match Peer::install(library, scratch) {
                Ok(peer) => {
                    document.peers.push(library.package());
                    peers.push((library, peer));
                }
                Err(why) => document.leave_out(format!("{}: {why}", library.name())),
            }
        }
        for ranks in self.ranks() {
            let folder = side_folder(scratch, &format!("ranks-{ranks}"))?;
            let place = Place::one_host(ranks);
            self.measure_place(&place, &peers, &folder, interrupts, document)?;
        }
        for hosts in self.hosts() {
            let folder = side_folder(scratch, &format!("hosts-{hosts}"))?;
            match Place::network(hosts, self.rate, &folder, self.simulated) {
                Ok(place) => self.measure_place(&place, &peers, &folder, interrupts, document)?,
                Err(failure) => document.leave_out(format!("{hosts} hosts: {}", failure.message)),
            }
        }
        Ok(())
    }

    /// All cases in one place.
    fn measure_place(
        &self,
        place: &Place,
        peers: &[(Library, Peer)],
        folder: &Path,
        interrupts: &Interrupts,
        document: &mut Document,
    ) -> Result<(), Failure> {
        let mut field = Field::start(place, peers, self.protection, folder, interrupts)?;
        let progress = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{elapsed_precise} {msg}");
        progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        for &case in &self.cases {
            let (letter, words) = case.words();
            let title = format!("{}: {words}", place);
            if let Some(why) = place.lacks(case.disturbance()) {
                document.leave_out(format!("case {letter} on {}: {why}", place));
                continue;
            }
            let mut results = Vec::new();
            for exercise in self.exercises(case) {
                progress.set_message(format!("{title}, {}", report::what(&exercise)));
                let measured = self.measure_exercise(&mut field, exercise, interrupts, document)?;
                results.push(measured);
            }
            progress.suspend(|| say!("\n({letter}) {title}\n{}", report::table(&results)))?;
            if let Some(folder) = &self.svg {
                plot::draw_all(
                    &title,
                    &results,
                    &folder.join(format!("{letter}-{}", field.place.file_name())),
                )?;
            }
            document.results.extend(results);
        }
        progress.finish_and_clear();
        Ok(())
    }

    fn measure_exercise(
        &self,
        field: &mut Field,
        exercise: Exercise,
        interrupts: &Interrupts,
        document: &mut Document,
    ) -> Result<Measured, Failure> {
        let mut measurement = Measurement { field, rule: self.rule(), seed: self.seed, interrupts };
        let (exercise, quiet_s) = match exercise.case {
            Case::Overlap => measurement.with_computing(exercise)?,
            _ => (exercise, Vec::new()),
        };
        let file = format!("{}-{}.svg", exercise.file_name(), measurement.field.place.file_name());
        let timeline = self.timelines.as_ref().map(|folder| folder.join(file));
        let samples = measurement.run(&exercise, timeline.as_deref())?;
        field.lost.drain(..).for_each(|lost| document.leave_out(lost));
        Ok(Measured::new(field, exercise, samples, &quiet_s))
    }

    fn exercises(&self, case: Case) -> Vec<Exercise> {
        let sizes =
            |default: &[u64]| if self.sizes.is_empty() { default.to_vec() } else { self.sizes.clone() };
        let (k, m) = (1 << 10, 1 << 20);
        match case {
            Case::Allgather | Case::Exchange | Case::Broadcast if self.quick => sizes(&[64 * k, m, 8 * m]),
            Case::Allgather | Case::Exchange | Case::Broadcast => sizes(&[k, 64 * k, m, 8 * m, 32 * m]),
            Case::Quiet | Case::Allreduce if self.quick => sizes(&[8, 64 * k, m, 8 * m]),
            Case::Quiet | Case::Allreduce => sizes(&[8, k, 64 * k, m, 8 * m, 32 * m, 128 * m]),
            Case::Overlap => return vec![Exercise::single(case, OVERLAP_BYTES)],
            Case::Concurrent => {
                let counts: &[u32] = match (&self.counts[..], self.quick) {
                    ([], true) => &[4],
                    ([], false) => &[4, 8, 16, 28],
                    (counts, _) => counts,
                };
                let both = |&count| {
                    let one_root = Exercise { count, ..Exercise::single(case, CONCURRENT_BYTES) };
                    [one_root, Exercise { roots: Roots::Rotating, ..one_root }]
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
            time: self.seconds.unwrap_or(if self.quick { SECONDS_QUICK } else { SECONDS }),
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        compare: Compare,
    }

    fn read(words: &str) -> Result<Compare, clap::Error> {
        let words = ["compare"].into_iter().chain(words.split_whitespace());
        Line::try_parse_from(words).map(|line| line.compare)
    }

    #[test]
    fn the_time_for_a_line_is_what_is_asked_for() {
        for (words, seconds) in
            [("", 30.0), ("--quick", 3.0), ("--quick --seconds 10", 10.0), ("--seconds 0.5", 0.5)]
        {
            assert_eq!(read(words).unwrap().rule().time, Duration::from_secs_f64(seconds), "{words}");
        }
        for time in ["-1", "inf", "nan", "1e40", "30s", ""] {
            assert!(read(&format!("--seconds={time}")).is_err(), "{time}");
        }
    }
}
