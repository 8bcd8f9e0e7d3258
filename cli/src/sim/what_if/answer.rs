//! How a question is simulated.

use std::{cmp::Reverse, time::Duration};

use everfold::Protection;
use everfold_lab::sim::{figure::Point, parallel};
use everfold_sim::{
    collective::Arrivals,
    experiment::{Death, Experiment},
    model::Failures,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::question::Question;

/// Ranks call within so much time of each other, as after a barrier.
const SKEW: Duration = Duration::from_micros(100);

/// Jobs whose failures are drawn, for each size.
const JOBS: u32 = 1000;
/// Longer jobs count as so many mean times between two failures.
const FAILURES_MOST: f64 = 1000.0;

/// Deaths of each size that are simulated in any case, and those that are where they take little.
pub const DEATHS_LEAST: u32 = 20;
pub const DEATHS_MOST: u32 = 200;
/// Events that all deaths of a question may take together, unless their number is asked for: some ten seconds
/// on two cores. Events are counted, as seconds would make the answer depend on the machine.
const EVENTS: u64 = 30_000_000;

/// How much is simulated of each size.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Runs in which nobody dies.
    pub repeat: u32,
    /// Runs in which a rank dies, if it was said how many.
    pub deaths: Option<u32>,
}

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
    /// Probability that one of all reductions of the job is lost, by either end of what a death may cost.
    pub loss_probability: [f64; 2],
}

impl Answer {
    /// What protection adds, in parts of the time without.
    pub fn overhead(&self) -> f64 {
        self.protected_s.mean / self.unprotected_s.mean - 1.0
    }

    /// Probability that a death costs the result.
    pub fn fatal(&self) -> [f64; 2] {
        interval(self.lost, self.deaths)
    }
}

/// The 95 % interval of a probability of which `of` samples show `count` (Wilson's).
fn interval(count: u32, of: u32) -> [f64; 2] {
    let (of, z) = (f64::from(of), 1.96);
    let part = f64::from(count) / of;
    let centre = part + z * z / (2.0 * of);
    let half = z * (part * (1.0 - part) / of + z * z / (4.0 * of * of)).sqrt();
    [centre - half, centre + half].map(|end| (end / (1.0 + z * z / of)).clamp(0.0, 1.0))
}

/// Probability that a job of this length meets a fatal failure, for each probability that a failure is fatal.
fn loss_probability<const N: usize>(
    failures: &Failures,
    ranks: u32,
    job: Duration,
    fatal: [f64; N],
    seed: u64,
) -> [f64; N] {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let met: Vec<f64> = (0..JOBS).map(|_| failures.draw(ranks, job, &mut random).len() as f64).collect();
    let any = failures.probability(ranks, job) / f64::from(JOBS);
    fatal.map(|fatal| any * met.iter().map(|met| 1.0 - (1.0 - fatal).powf(*met)).sum::<f64>())
}

/// One run.
#[derive(Clone, Copy)]
struct Run {
    /// Index of the size.
    size: usize,
    protection: Protection,
    number: u32,
    /// The time in which a rank dies, if one does.
    within: Option<Duration>,
}

/// What came of it.
#[derive(Clone, Copy)]
struct Ran {
    /// Its time, if it came to a result.
    time: Option<Duration>,
    events: u64,
}

/// A question as it is being answered.
struct Inquiry<'a> {
    question: &'a Question,
    effort: Effort,
    seed: u64,
}

/// Simulates all sizes with and without protection, and with deaths.
pub fn simulate(question: &Question, effort: Effort, seed: u64) -> Vec<Answer> {
    let inquiry = Inquiry { question, effort, seed };
    let (unprotected, protected) = inquiry.without_deaths();
    let met = inquiry.with_deaths(&protected);
    let (cluster, failures, ranks) = (question.cluster(), question.failures(), question.ranks);
    let answer = |(index, &bytes): (usize, &u64)| {
        let at = |point: Point| Point { x: bytes as f64, ..point };
        let protected_s = at(protected[index]);
        let deaths = met[index].len() as u32;
        let lost = met[index].iter().filter(|ran| ran.time.is_none()).count() as u32;
        let one = Duration::from_secs_f64(protected_s.mean);
        let job_s = protected_s.mean * question.reductions as f64;
        let most_s = FAILURES_MOST * failures.node_mtbf_hours * 3600.0 / f64::from(ranks);
        let job = Duration::from_secs_f64(job_s.min(most_s));
        Answer {
            bytes,
            bound_s: bytes as f64 * cluster.link.ns_per_byte / 1e9,
            unprotected_s: at(unprotected[index]),
            protected_s,
            with_death_s: spread(&met[index]).map(at),
            deaths,
            lost,
            death_probability: failures.probability(ranks, one),
            death_probability_after_failure: failures.probability_after_failure(ranks, one),
            loss_probability: loss_probability(&failures, ranks, job, interval(lost, deaths), seed),
        }
    };
    question.sizes.iter().enumerate().map(answer).collect()
}

impl Inquiry<'_> {
    /// The times of all sizes without protection and with it.
    fn without_deaths(&self) -> (Vec<Point>, Vec<Point>) {
        let Question { sizes, protection, .. } = self.question;
        let mut levels = vec![Protection::None, *protection];
        levels.dedup();
        let mut runs = Vec::new();
        for &protection in &levels {
            for size in 0..sizes.len() {
                let numbers = 0..self.effort.repeat;
                runs.extend(numbers.map(|number| Run { size, protection, number, within: None }));
            }
        }
        let ran = self.run_all("nobody dies", &runs);
        let points = ran.chunks(self.effort.repeat as usize).map(|ran| spread(ran).expect("nobody dies"));
        let points: Vec<Point> = points.collect();
        let (unprotected, protected) = (&points[..sizes.len()], &points[points.len() - sizes.len()..]);
        (unprotected.to_vec(), protected.to_vec())
    }

    /// What came of deaths, by size: of as many as were asked for, or else of as many as take not too long.
    fn with_deaths(&self, usual: &[Point]) -> Vec<Vec<Ran>> {
        let first = self.effort.deaths.unwrap_or(DEATHS_LEAST);
        let mut met = vec![Vec::new(); usual.len()];
        self.add_deaths("a rank dies", usual, &vec![first; usual.len()], &mut met);
        if self.effort.deaths.is_none() {
            let events: Vec<u64> = met.iter().map(|met| met.iter().map(|ran| ran.events).sum()).collect();
            self.add_deaths("a rank dies, to be surer", usual, &affordable(&events), &mut met);
        }
        met
    }

    /// Simulates deaths until there are `wanted` of each size.
    fn add_deaths(&self, what: &'static str, usual: &[Point], wanted: &[u32], met: &mut [Vec<Ran>]) {
        let protection = self.question.protection;
        let mut runs = Vec::new();
        for (size, (usual, wanted)) in usual.iter().zip(wanted).enumerate() {
            let within = Some(Duration::from_secs_f64(usual.mean));
            let numbers = met[size].len() as u32..*wanted;
            runs.extend(numbers.map(|number| Run { size, protection, number, within }));
        }
        for (run, ran) in runs.iter().zip(self.run_all(what, &runs)) {
            met[run.size].push(ran);
        }
    }

    /// Runs them all, those that take longest first: no core is to wait for another in the end.
    fn run_all(&self, what: &'static str, runs: &[Run]) -> Vec<Ran> {
        let mut order: Vec<usize> = (0..runs.len()).collect();
        order.sort_by_key(|&index| Reverse(runs[index].size));
        let ran = parallel::map(what, &order, |&index| self.run_one(runs[index]));
        let mut ran: Vec<(usize, Ran)> = order.into_iter().zip(ran).collect();
        ran.sort_by_key(|(index, _)| *index);
        ran.into_iter().map(|(_, ran)| ran).collect()
    }

    fn run_one(&self, run: Run) -> Ran {
        let question = self.question;
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(u64::from(run.number) << 1 | u64::from(run.within.is_some()));
        let mut within =
            |time: Duration| Duration::from_nanos(random.random_range(0..time.as_nanos().max(1) as u64));
        let after: Vec<Duration> = (0..question.ranks).map(|_| within(SKEW)).collect();
        let moment = run.within.map(within);
        let victim = everfold::Rank(random.random_range(0..question.ranks));
        let bytes = question.sizes[run.size];
        let mut experiment = Experiment::new(question.ranks, bytes, question.cluster());
        experiment.arrivals = Arrivals { after, reductions: 1 };
        experiment.protection = run.protection;
        experiment.death = moment.map(|moment| (Death::Host(victim), moment));
        experiment.seed = random.random();
        let measured = experiment.run();
        Ran { time: measured.time(), events: measured.events }
    }
}

/// How many deaths of each size are simulated, given the events of its first [`DEATHS_LEAST`]. Sizes that
/// need less than an equal share of [`EVENTS`] leave the rest to the others.
fn affordable(events: &[u64]) -> Vec<u32> {
    let mut deaths = vec![DEATHS_MOST; events.len()];
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by_key(|&index| events[index]);
    let mut left = EVENTS;
    for (place, &index) in order.iter().enumerate() {
        let share = left / (order.len() - place) as u64;
        let each = (events[index] / u64::from(DEATHS_LEAST)).max(1);
        let afforded = (share / each).clamp(u64::from(DEATHS_LEAST), u64::from(DEATHS_MOST));
        deaths[index] = afforded as u32;
        left = left.saturating_sub(afforded * each);
    }
    deaths
}

/// Those that came to a result, if any did.
fn spread(ran: &[Ran]) -> Option<Point> {
    let times: Vec<f64> = ran.iter().filter_map(|ran| ran.time).map(|time| time.as_secs_f64()).collect();
    (!times.is_empty()).then(|| Point::new(0.0, &times))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Vec<Answer> {
        simulate(&toml::from_str(text).unwrap(), Effort { repeat: 2, deaths: Some(8) }, 1)
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
        let hours_of = |hours: u64| Duration::from_secs(hours * 3600);
        let lost = |failures, hours| loss_probability(failures, 100, hours_of(hours), [0.5], 1)[0];
        // A failure every 10 h, of which every other is fatal.
        for hours in [1, 10, 40] {
            let formula = -(-(hours as f64) / 20.0).exp_m1();
            assert!((lost(&constant, hours) / formula - 1.0).abs() < 0.05, "{hours} h");
            assert!(lost(&bursts, hours) < lost(&constant, hours), "{hours} h");
        }
        let [none, some] = loss_probability(&constant, 100, hours_of(1), [0.0, 0.1], 1);
        assert!(none == 0.0 && some > 0.0);
    }

    #[test]
    fn intervals_are_wilsons() {
        for (count, of, ends) in [
            (0, 10, [0.0, 0.2775]),
            (5, 10, [0.2366, 0.7634]),
            (166, 200, [0.7718, 0.8757]),
            (1, 1, [0.2065, 1.0]),
        ] {
            let found = interval(count, of);
            assert!((0..2).all(|end| (found[end] - ends[end]).abs() < 1e-4), "{count} of {of}: {found:?}");
        }
    }

    #[test]
    fn deaths_that_take_little_leave_events_to_the_others() {
        let first = u64::from(DEATHS_LEAST);
        assert_eq!(affordable(&[first * 1000, first]), [DEATHS_MOST, DEATHS_MOST]);
        assert_eq!(affordable(&[first * EVENTS, first]), [DEATHS_LEAST, DEATHS_MOST]);
        // What the small one leaves is enough for 100 of the others together.
        let each = (EVENTS - 200) / 100;
        assert_eq!(affordable(&[first * each, first, first * each]), [50, DEATHS_MOST, 50]);
    }
}
