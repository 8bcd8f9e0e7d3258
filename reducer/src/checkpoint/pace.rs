//! Who decides when a checkpoint is due: an interval, or a rule of the program's own.

use std::{fmt, sync::Arc, time::Duration};

use everfold_protocol::message::News;
use tokio::sync::broadcast::{Receiver, error::TryRecvError};

use super::interval::Interval;

/// Decides when checkpoints of a rank are due: a checkpoint protocol of the program's own (FR-4).
///
/// [`Launch::checkpoint_pace`](crate::Launch::checkpoint_pace) adds it to a program, by a name. The recovery
/// file (`checkpoint.pace`) or [`Config::checkpoint_pace`](crate::Config::checkpoint_pace) chooses it by that
/// name, in place of an [`Interval`]. Each process has one, which begins anew when the rank comes back. Where
/// all ranks save together, they save as soon as a checkpoint is due for one of them, and ask each other at
/// least once in 64 calls.
///
/// A pace decides when, and nothing else: whatever it says, a rank goes on from its last complete checkpoint. It
/// must not use the session, whose calls would wait for the pace. When half of the room for outcomes is taken, a
/// checkpoint is due early. A [plan](crate::plan) that is followed takes precedence.
///
/// ```
/// use std::time::Duration;
/// use everfold::{CheckpointPace, Launch, News};
///
/// /// Saves once an hour, and as soon as a fault was located: more may follow.
/// #[derive(Debug, Default)]
/// struct Wary {
///     is_warned: bool,
/// }
///
/// impl CheckpointPace for Wary {
///     fn interval(&mut self, _cost: Option<Duration>) -> Duration {
///         if self.is_warned { Duration::ZERO } else { Duration::from_secs(3600) }
///     }
///
///     fn hear(&mut self, news: &News) {
///         self.is_warned |= matches!(news, News::Located(_));
///     }
///
///     fn saved(&mut self, _cost: Duration) {
///         self.is_warned = false;
///     }
/// }
///
/// let launch = Launch::from_env_or_local(4).checkpoint_pace("wary", Wary::default);
/// ```
pub trait CheckpointPace: fmt::Debug + Send {
    /// How long after the last checkpoint, or the beginning of the session, the next one is due.
    /// [`Duration::ZERO`]: now. [`Duration::MAX`]: not at all. `cost` is the time that the last checkpoint of
    /// this process took, if there was one.
    ///
    /// It is asked at each call of [`Session::checkpoint`](crate::Session::checkpoint) and
    /// [`Session::checkpoint_due`](crate::Session::checkpoint_due), or where all ranks save together, when they
    /// ask each other. The program waits meanwhile.
    fn interval(&mut self, cost: Option<Duration>) -> Duration;

    /// Takes in news of the job that [`Session::events`](crate::Session::events) tells, before
    /// [`interval`](Self::interval) is asked. Of more than 1024 items in between it misses the oldest.
    fn hear(&mut self, _news: &News) {}

    /// Takes in that this rank has saved a checkpoint, and how long that took.
    fn saved(&mut self, _cost: Duration) {}
}

impl CheckpointPace for Interval {
    fn interval(&mut self, cost: Option<Duration>) -> Duration {
        self.after(cost)
    }
}

/// The pace of a session.
#[derive(Debug)]
pub(crate) struct Pacing {
    pace: Box<dyn CheckpointPace>,
    /// What a pace of the program's own hears.
    news: Option<Receiver<News>>,
}

impl Pacing {
    pub fn of(interval: Interval) -> Self {
        Self { pace: Box::new(interval), news: None }
    }

    pub fn own(pace: Box<dyn CheckpointPace>, news: Receiver<News>) -> Self {
        Self { pace, news: Some(news) }
    }

    /// Whether news may make a checkpoint due at any time.
    pub fn hears(&self) -> bool {
        self.news.is_some()
    }

    /// How long after the last checkpoint the next one is due.
    pub fn interval(&mut self, cost: Option<Duration>) -> Duration {
        self.listen();
        self.pace.interval(cost)
    }

    pub fn saved(&mut self, cost: Duration) {
        self.pace.saved(cost);
    }

    /// Lets the pace hear the news so far.
    pub fn listen(&mut self) {
        let Some(news) = &mut self.news else { return };
        loop {
            match news.try_recv() {
                Ok(news) => self.pace.hear(&news),
                Err(TryRecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "a pace of checkpoints is asked seldom")
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }
}

/// Makes a pace for a process.
type Make = Arc<dyn Fn() -> Box<dyn CheckpointPace> + Send + Sync>;

/// Paces of the program's own, by their names.
#[derive(Clone, Default)]
pub(crate) struct Paces(Vec<(String, Make)>);

/// No [pace](CheckpointPace) with this name was added to the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no pace of checkpoints `{name}` in this program{}: add it with Launch::checkpoint_pace, or choose \
     another one (`checkpoint.pace` in the recovery file, Config::checkpoint_pace)",
    told(known)
)]
pub struct UnknownPace {
    /// Its name.
    pub name: String,
    /// The names of those that are there.
    pub known: Vec<String>,
}

fn told(known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    format!(", which has {}", names.join(", "))
}

impl Paces {
    /// Adds a pace. Of two with the same name the later one counts.
    pub fn add<P: CheckpointPace + 'static>(
        &mut self,
        name: String,
        make: impl Fn() -> P + Send + Sync + 'static,
    ) {
        self.0.retain(|(other, _)| *other != name);
        self.0.push((name, Arc::new(move || Box::new(make()))));
    }

    /// One with this name, for a process.
    pub fn make(&self, name: &str) -> Result<Box<dyn CheckpointPace>, UnknownPace> {
        let found = self.0.iter().find(|(other, _)| other == name);
        let known = || self.0.iter().map(|(name, _)| name.clone()).collect();
        let unknown = || UnknownPace { name: name.to_owned(), known: known() };
        found.map(|(_, make)| make()).ok_or_else(unknown)
    }
}

impl fmt::Debug for Paces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use everfold_protocol::Rank;
    use tokio::sync::broadcast;

    use super::*;

    /// Says what happens to it.
    #[derive(Debug)]
    struct Scribe(mpsc::Sender<String>);

    impl CheckpointPace for Scribe {
        fn interval(&mut self, cost: Option<Duration>) -> Duration {
            self.0.send(format!("asked {cost:?}")).unwrap();
            Duration::MAX
        }

        fn hear(&mut self, news: &News) {
            self.0.send(format!("{news}")).unwrap();
        }

        fn saved(&mut self, cost: Duration) {
            self.0.send(format!("saved {cost:?}")).unwrap();
        }
    }

    fn some(rank: u32) -> News {
        News::PlanMisfit { rank: Rank(rank), reason: "it differs".to_owned() }
    }

    #[test]
    fn a_pace_hears_all_news_before_it_is_asked_but_none_while_a_checkpoint_is_saved() {
        let ((told, tells), (teller, news)) = (mpsc::channel(), broadcast::channel(2));
        let mut pacing = Pacing::own(Box::new(Scribe(told)), news);
        teller.send(some(1)).unwrap();
        teller.send(some(2)).unwrap();
        assert_eq!(pacing.interval(None), Duration::MAX);
        teller.send(some(3)).unwrap();
        let second = Duration::from_secs(1);
        pacing.listen();
        teller.send(some(4)).unwrap();
        pacing.saved(second);
        pacing.interval(Some(second));
        let heard: Vec<String> = tells.try_iter().collect();
        let [first, second, third, fourth] = [1, 2, 3, 4].map(|rank| some(rank).to_string());
        let expected = [&*first, &second, "asked None", &third, "saved 1s", &fourth, "asked Some(1s)"];
        assert_eq!(heard, expected);
    }

    #[test]
    fn a_pace_that_has_missed_news_hears_the_rest_also_after_the_end() {
        let ((told, tells), (teller, news)) = (mpsc::channel(), broadcast::channel(2));
        let mut pacing = Pacing::own(Box::new(Scribe(told)), news);
        (1..=5).for_each(|rank| {
            teller.send(some(rank)).unwrap();
        });
        drop(teller);
        pacing.interval(None);
        let heard: Vec<String> = tells.try_iter().collect();
        assert_eq!(heard, [some(4).to_string(), some(5).to_string(), "asked None".to_owned()]);
    }

    #[test]
    fn of_two_paces_with_a_name_the_later_one_counts_and_another_name_is_unknown() {
        let mut paces = Paces::default();
        for seconds in [1, 2] {
            paces.add("steady".to_owned(), move || Interval::Fixed(Duration::from_secs(seconds)));
        }
        assert_eq!(paces.make("steady").unwrap().interval(None), Duration::from_secs(2));
        let unknown = paces.make("hasty").unwrap_err();
        assert_eq!(unknown.known, ["steady"]);
        assert!(
            unknown.to_string().contains("`hasty` in this program, which has `steady`: add it"),
            "{unknown}"
        );
    }
}
