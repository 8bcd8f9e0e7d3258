//! Measures sides in turns until their ratio is known.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    case::{Case, Exercise},
    field::{Contender, Field, Maker},
    physics::Bound,
    place::Moves,
    statistics::{Quartiles, Ratio},
    team::{Block, Repetition, TeamError},
};
use crate::{Failure, interrupts::Interrupts};

/// A side repeats so long before it is another's turn.
const TURN_S: f64 = 0.25;
/// Most repetitions in a turn.
const TURN_MAX: u64 = 100;

/// When it is enough.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Part of the ratio within which its interval has to be.
    pub precision: f64,
    /// Fewest repetitions of each.
    pub repetitions_min: usize,
    /// Most repetitions of each.
    pub repetitions_max: usize,
    /// Longest time for all.
    pub time: Duration,
}

/// Repetitions, or a request to end.
type Taken = Result<Vec<Repetition>, Failure>;

/// What was measured of a contender.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its number.
    pub contender: usize,
    /// Of each repetition, what counts.
    pub seconds: Vec<f64>,
    /// Of each repetition, what it takes at least; nothing if there is no bound.
    pub bounds_s: Vec<f64>,
    /// Repetitions in a turn, and more before that do not count.
    turn: (u64, u64),
}

/// What is measured, and how.
#[derive(Debug)]
pub struct Measurement<'a, 'place> {
    /// Who, and where.
    pub field: &'a mut Field<'place>,
    /// How long.
    pub rule: Rule,
    /// From which delays are drawn.
    pub seed: u64,
    /// Whether we are to end.
    pub interrupts: &'a Interrupts,
}

impl Measurement<'_, '_> {
    /// Measures all contenders in an exercise: each for a short time, then in turns those that stay and the
    /// fastest of each library. In the end everfold draws one more repetition into `timeline`.
    ///
    /// # Errors
    /// Everfold's side fails, or we are to end.
    pub fn run(&mut self, exercise: &Exercise, timeline: Option<&Path>) -> Result<Vec<Sample>, Failure> {
        let place = self.field.place;
        place.disturbed(exercise.case.disturbance(), |moves| self.run_under(exercise, moves, timeline))
    }

    fn run_under(
        &mut self,
        exercise: &Exercise,
        moves: &Moves,
        timeline: Option<&Path>,
    ) -> Result<Vec<Sample>, Failure> {
        let started = Instant::now();
        let bound = Bound::new(exercise, self.field.place, moves);
        let samples = self.screen(&bound)?;
        let mut samples = self.finalists(samples);
        while !self.is_enough(&samples, started.elapsed()) {
            for sample in &mut samples {
                let (before, counted) = sample.turn;
                let round = sample.seconds.len() as u64;
                let taken = self.block(&bound, sample.contender, before + counted, round)?;
                sample.extend(&bound, &taken[(before as usize).min(taken.len())..]);
            }
            samples.retain(|sample| self.field.teams[self.field.contenders[sample.contender].team].is_some());
        }
        if let Some(file) = timeline {
            self.drawn_block(&bound, 0, 2, 0, Some(file))?;
        }
        Ok(samples)
    }

    /// Lets the ranks compute as long as the fastest side takes if they do not. Tells how long each contender
    /// does.
    ///
    /// # Errors
    /// Everfold's side fails, or we are to end.
    pub fn with_computing(&mut self, exercise: Exercise) -> Result<(Exercise, Vec<Option<f64>>), Failure> {
        // Next to no computing: MPI shall use the same function.
        let quiet = Exercise { compute_us: 1, ..exercise };
        let moves = Moves::default();
        let mut quiet_s = vec![None; self.field.contenders.len()];
        let bound = Bound::new(&quiet, self.field.place, &moves);
        for sample in self.screen(&bound)? {
            quiet_s[sample.contender] = Some(sample.quartiles().median_s);
        }
        let fastest_s = quiet_s.iter().flatten().copied().min_by(f64::total_cmp).unwrap_or(0.0);
        Ok((Exercise { compute_us: (fastest_s * 1e6) as u64, ..exercise }, quiet_s))
    }

    /// A first sample of each, from which it is learnt how long a repetition takes.
    fn screen(&mut self, bound: &Bound) -> Result<Vec<Sample>, Failure> {
        let exercise = bound.exercise;
        let mut samples = Vec::new();
        for contender in 0..self.field.contenders.len() {
            if !self.field.contenders[contender].takes_part(exercise.case) {
                continue;
            }
            let mut sample = Sample { contender, seconds: Vec::new(), bounds_s: Vec::new(), turn: (0, 1) };
            // The first one touches fresh memory and opens connections.
            let warm_up = self.block(bound, contender, 1, 0)?;
            let Some(first) = warm_up.first() else { continue };
            let is_late = exercise.case == Case::Late;
            let repetitions = if is_late { 1 } else { turn(first.counted_s(exercise.case)).clamp(2, 5) };
            let taken = self.block(bound, contender, repetitions, 1)?;
            sample.extend(bound, &taken);
            if sample.seconds.is_empty() {
                continue;
            }
            if !is_late {
                let repetitions = turn(sample.quartiles().median_s);
                sample.turn = (repetitions.div_ceil(10) * u64::from(repetitions > 1), repetitions);
            }
            samples.push(sample);
        }
        Ok(samples)
    }

    /// Those that stay and the fastest of each side.
    fn finalists(&self, mut samples: Vec<Sample>) -> Vec<Sample> {
        samples.sort_by(|a, b| a.quartiles().median_s.total_cmp(&b.quartiles().median_s));
        let mut seen = Vec::new();
        samples.retain(|sample| {
            let Contender { maker, stays, .. } = self.field.contenders[sample.contender];
            let is_fastest = !seen.contains(&maker);
            seen.push(maker);
            is_fastest || stays
        });
        samples.sort_by_key(|sample| sample.contender);
        for sample in &mut samples {
            // Of short ones there are enough; the first are not yet at their pace.
            if sample.turn.1 > 1 {
                sample.seconds.clear();
                sample.bounds_s.clear();
            }
        }
        samples
    }

    fn is_enough(&self, samples: &[Sample], elapsed: Duration) -> bool {
        let Rule { precision, repetitions_min, repetitions_max, time } = self.rule;
        let Some((ours, others)) = samples.split_first() else { return true };
        let counts = || samples.iter().map(|sample| sample.seconds.len());
        let is_known =
            || others.iter().all(|other| Ratio::of(&ours.seconds, &other.seconds).is_within(precision));
        counts().all(|count| count >= repetitions_min)
            && (elapsed >= time || counts().all(|count| count >= repetitions_max) || is_known())
    }

    /// Some repetitions of a contender; none if it fails, and then it is not asked again. That everfold
    /// fails, with whatever bodies, is an error.
    fn block(&mut self, bound: &Bound, number: usize, repetitions: u64, round: u64) -> Taken {
        self.drawn_block(bound, number, repetitions, round, None)
    }

    /// The same. If it is everfold, it draws the last of them into `timeline`.
    fn drawn_block(
        &mut self,
        bound: &Bound,
        number: usize,
        repetitions: u64,
        round: u64,
        timeline: Option<&Path>,
    ) -> Taken {
        let Bound { exercise, moves, .. } = *bound;
        thread::sleep(moves.until_its_moment(round, self.field.place.ranks));
        self.interrupts.check()?;
        let contender = &self.field.contenders[number];
        let Some(team) = &mut self.field.teams[contender.team] else { return Ok(Vec::new()) };
        let block = |delay_us| Block {
            bytes: exercise.bytes,
            repetitions,
            count: exercise.count,
            roots: exercise.roots,
            delay_us,
            compute_us: exercise.compute_us,
            round,
            kind: contender.kind,
            protection: contender.protection,
            timeline: timeline.map(Path::to_owned),
        };
        let delays = exercise.delays_us(self.field.place.ranks, round, self.seed);
        let blocks: Vec<Block> = delays.into_iter().map(block).collect();
        // Generous: as if one body after the other passed at 1 MiB/s.
        let total = exercise.bytes * u64::from(exercise.count) * repetitions;
        let limit = Duration::from_secs(60 + (total >> 20));
        match team.run(&blocks, limit) {
            Ok(taken) => Ok(taken),
            Err(TeamError::Fatal(failure)) => Err(failure),
            Err(TeamError::Lost(why)) => {
                let lost = format!("{} {}: {why}", contender.maker.name(), contender.name);
                if contender.maker == Maker::Everfold {
                    return Err(Failure::new(lost));
                }
                self.field.lost.push(lost);
                self.field.teams[contender.team] = None;
                Ok(Vec::new())
            }
        }
    }
}

impl Sample {
    fn extend(&mut self, bound: &Bound, taken: &[Repetition]) {
        self.seconds.extend(taken.iter().map(|repetition| repetition.counted_s(bound.exercise.case)));
        self.bounds_s.extend(taken.iter().filter_map(|repetition| bound.of(repetition)));
    }

    /// The middle half of its times.
    pub fn quartiles(&self) -> Quartiles {
        Quartiles::of(&self.seconds)
    }
}

/// Repetitions in a turn if one takes so long.
fn turn(seconds: f64) -> u64 {
    ((TURN_S / seconds.max(1e-9)) as u64).clamp(1, TURN_MAX)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        os::unix::net::UnixStream,
    };

    use everfold::Protection;

    use super::*;
    use crate::bench::compare::{
        peers::Library,
        place::Place,
        team::{Kind, Team},
    };

    /// A rank that comes to `socket`, and says of each block that a value was wrong.
    fn answer_wrongly(socket: &Path) {
        let mut driver = loop {
            match UnixStream::connect(socket) {
                Ok(driver) => break driver,
                Err(_) => thread::yield_now(),
            }
        };
        writeln!(driver, "0").unwrap();
        for _ in BufReader::new(driver.try_clone().unwrap()).lines().map_while(Result::ok) {
            writeln!(driver, "!an element is wrong").unwrap();
        }
    }

    /// What comes of a measurement of one side, whose only rank has wrong values.
    fn measure_wrong(maker: Maker) -> (Result<Vec<Sample>, Failure>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let (place, interrupts) = (Place::one_host(1), Interrupts::default());
        thread::scope(|scope| {
            scope.spawn(|| answer_wrongly(&folder.path().join("socket")));
            let team = Team::start(Vec::new(), 1, folder.path(), &interrupts).unwrap();
            let name = "that errs";
            let contender = Contender {
                maker,
                name,
                allreduce: name,
                stays: true,
                kind: Kind::Vec,
                protection: Protection::None,
                team: 0,
            };
            let (contenders, teams) = (vec![contender], vec![Some(team)]);
            let mut field = Field { place: &place, contenders, lost: Vec::new(), teams };
            let rule = Rule { precision: 1.0, repetitions_min: 1, repetitions_max: 1, time: Duration::ZERO };
            let mut measurement = Measurement { field: &mut field, rule, seed: 1, interrupts: &interrupts };
            let measured = measurement.run(&Exercise::single(Case::Quiet, 8), None);
            field.teams.clear();
            (measured, field.lost)
        })
    }

    #[test]
    fn without_everfold_there_are_no_results_and_others_are_left_out() {
        let (measured, lost) = measure_wrong(Maker::Everfold);
        let why = measured.expect_err("everfold has failed").message;
        assert_eq!(why, "everfold that errs: !an element is wrong");
        assert!(lost.is_empty(), "{lost:?}");
        let (measured, lost) = measure_wrong(Maker::Library(Library::OpenMpi));
        assert!(measured.expect("others may fail").is_empty());
        assert_eq!(lost.len(), 1, "{lost:?}");
        assert!(lost[0].ends_with("that errs: !an element is wrong"), "{lost:?}");
    }
}
