//! How a question is simulated.

use std::time::Duration;

use everfold::Protection;
use everfold_lab::sim::{figure::Point, parallel};
use everfold_sim::{collective::Arrivals, experiment::Experiment, model::Failures};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::question::Question;

/// Ranks call within so much time of each other, as after a barrier.
const SKEW: Duration = Duration::from_micros(100);

/// Jobs whose failures are drawn, for each size.
const JOBS: u32 = 1000;
/// Longer jobs count as so many mean times between two failures.
const FAILURES_MOST: f64 = 1000.0;

/// What was found for one size.
#[derive(Clone, Debug)]
pub struct Answer {
    pub bytes: u64,
    /// Time in which the root's link carries one body.
    pub bound_s: f64,
    pub unprotected_s: Point,
    pub protected_s: Point,
    /// Time of those reductions that a death met and that came to a result.
    pub with_death_s: Option<Point>,
    pub deaths: u32,
    /// Deaths that cost the result.
    pub lost: u32,
    /// Probability that a node fails while one reduction runs that begins at any moment.
    pub death_probability: f64,
    /// The same for one that begins right after a failure.
    pub death_probability_after_failure: f64,
    /// Probability that one of all reductions of the job is lost.
    pub loss_probability: f64,
}

impl Answer {
    /// What protection adds, in parts of the time without.
    pub fn overhead(&self) -> f64 {
        self.protected_s.mean / self.unprotected_s.mean - 1.0
    }
}

/// Probability that one of the failures is fatal that a job of so long meets, if each is with probability `fatal`.
fn loss_probability(failures: &Failures, ranks: u32, job: Duration, fatal: f64, seed: u64) -> f64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut lost = || 1.0 - (1.0 - fatal).powf(failures.draw(ranks, job, &mut random).len() as f64);
    failures.probability(ranks, job) * (0..JOBS).map(|_| lost()).sum::<f64>() / f64::from(JOBS)
}

/// One run.
#[derive(Clone, Copy)]
struct Run {
    bytes: u64,
    protection: Protection,
    number: u32,
    /// The time in which a rank dies, if one does.
    within: Option<Duration>,
}

/// Simulates all sizes, each `repeat` times with and without protection, and with `deaths` deaths.
pub fn simulate(question: &Question, repeat: u32, deaths: u32, seed: u64) -> Vec<Answer> {
    let cluster = question.cluster();
    let of_level = |protection| {
        let runs = question.sizes.iter().flat_map(move |&bytes| {
            (0..repeat).map(move |number| Run { bytes, protection, number, within: None })
        });
        let runs: Vec<Run> = runs.collect();
        let what = if protection == Protection::None { "unprotected" } else { "protected" };
        let times = parallel::map(what, &runs, |run| run_one(question, seed, *run));
        times.chunks(repeat as usize).map(|times| spread(times).expect("nobody dies")).collect::<Vec<_>>()
    };
    let unprotected = of_level(Protection::None);
    let protected = of_level(question.protection);
    let dying: Vec<Run> = question
        .sizes
        .iter()
        .zip(&protected)
        .flat_map(|(&bytes, time)| {
            let within = Some(Duration::from_secs_f64(time.mean));
            let protection = question.protection;
            (0..deaths).map(move |number| Run { bytes, protection, number, within })
        })
        .collect();
    let met = parallel::map("deaths", &dying, |run| run_one(question, seed, *run));
    let (failures, ranks) = (question.failures(), question.ranks);
    let answer = |(index, &bytes): (usize, &u64)| {
        let at = |point: Point| Point { x: bytes as f64, ..point };
        let met = &met[index * deaths as usize..(index + 1) * deaths as usize];
        let protected_s = at(protected[index]);
        let lost = met.iter().filter(|time| time.is_none()).count() as u32;
        let one = Duration::from_secs_f64(protected_s.mean);
        let job_s = protected_s.mean * question.reductions as f64;
        let most_s = FAILURES_MOST * failures.node_mtbf_hours * 3600.0 / f64::from(ranks);
        let job = Duration::from_secs_f64(job_s.min(most_s));
        let fatal = f64::from(lost) / f64::from(deaths);
        Answer {
            bytes,
            bound_s: bytes as f64 * cluster.link.ns_per_byte / 1e9,
            unprotected_s: at(unprotected[index]),
            protected_s,
            with_death_s: spread(met).map(at),
            deaths,
            lost,
            death_probability: failures.probability(ranks, one),
            death_probability_after_failure: failures.probability_after_failure(ranks, one),
            loss_probability: loss_probability(&failures, ranks, job, fatal, seed),
        }
    };
    question.sizes.iter().enumerate().map(answer).collect()
}

/// The time of a run, if it came to a result.
fn run_one(question: &Question, seed: u64, run: Run) -> Option<Duration> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(u64::from(run.number) << 1 | u64::from(run.within.is_some()));
    let mut within =
        |time: Duration| Duration::from_nanos(random.random_range(0..time.as_nanos().max(1) as u64));
    let after: Vec<Duration> = (0..question.ranks).map(|_| within(SKEW)).collect();
    let moment = run.within.map(within);
    let victim = everfold::Rank(random.random_range(0..question.ranks));
    let mut experiment = Experiment::new(question.ranks, run.bytes, question.cluster());
    experiment.arrivals = Arrivals { after, reductions: 1 };
    experiment.protection = run.protection;
    experiment.death = moment.map(|moment| (victim, moment));
    experiment.seed = random.random();
    experiment.run().time()
}

/// Those that came to a result, if any did.
fn spread(times: &[Option<Duration>]) -> Option<Point> {
    let times: Vec<f64> = times.iter().flatten().map(Duration::as_secs_f64).collect();
    (!times.is_empty()).then(|| Point::new(0.0, &times))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Vec<Answer> {
        simulate(&toml::from_str(text).unwrap(), 2, 8, 1)
    }

    #[test]
    fn time_grows_with_size_and_protection_costs_something() {
        let answers = ask("ranks = 8\nsizes = [\"1MiB\", \"8MiB\"]\nprotection = \"commit-first\"");
        assert!(answers[0].protected_s.mean < answers[1].protected_s.mean);
        for answer in &answers {
            assert!(answer.overhead() > 0.0, "{answer:?}");
            assert!(answer.bound_s < answer.unprotected_s.mean, "{answer:?}");
            assert!(answer.death_probability > 0.0 && answer.death_probability < 1e-3, "{answer:?}");
        }
    }

    #[test]
    fn more_is_lost_in_longer_jobs_and_less_where_failures_come_in_bursts() {
        let constant = Failures { node_mtbf_hours: 1000.0, shape: 1.0 };
        let bursts = Failures { shape: 0.6, ..constant };
        let lost =
            |failures, hours: u64| loss_probability(failures, 100, Duration::from_secs(hours * 3600), 0.5, 1);
        // A failure every 10 h, of which every other is fatal.
        for hours in [1, 10, 40] {
            let formula = -(-(hours as f64) / 20.0).exp_m1();
            assert!((lost(&constant, hours) / formula - 1.0).abs() < 0.05, "{hours} h");
            assert!(lost(&bursts, hours) < lost(&constant, hours), "{hours} h");
        }
        assert_eq!(loss_probability(&constant, 100, Duration::from_secs(3600), 0.0, 1), 0.0);
    }
}
