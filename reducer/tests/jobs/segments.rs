//! Recovery segments: whoever dies and whenever, the survivors compute all indices, each once, and to the
//! same bits.
//!
//! A plan in the environment says which rank dies in which step, and how many grains it has folded by then.

use std::{cell::Cell, collections::BTreeSet, ops::Range, time::Duration};

use everfold::{
    Aspect, Config, Folded, Group, Order, Path, Rank, ReduceError, ReducerBody, Refusal, SegmentError,
    SegmentReport, Session, Sum,
};
use nix::{
    sys::signal::{Signal, kill, raise},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use crate::{
    come_back,
    process::{End, Process, job},
    suite::{Suite, TRANSPORTS},
};

const PLAN: &str = "SEGMENTS_PLAN";
/// After how many grains ranks leave their progress, if they do.
const PROGRESS: &str = "SEGMENTS_PROGRESS";
const RANKS: u32 = 6;
const STEPS: u64 = 4;
const INDICES: Range<u64> = 5..605;
/// The last grain is shorter than the others.
const GRAIN: u64 = 7;
/// What a rank folds before anybody has died: 86 grains in all.
const SHARE: u64 = 14;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.program("segments::steps", steps);
    for (name, plan) in PLANS {
        for transport in TRANSPORTS {
            suite.test(format!("segments::{name}::{transport}"), move || survives(plan, None, transport));
            let test = format!("segments::{name}_and_progress_counts::{transport}");
            suite.test(test, move || survives(plan, Some(2), transport));
        }
    }
    for transport in TRANSPORTS {
        suite.test(format!("segments::at_random_moments::{transport}"), move || {
            (0..6)
                .for_each(|seed| survives(&drawn(seed), Some(seed).filter(|seed| seed % 2 == 0), transport));
        });
    }
    suite.program_with(come_back::config(), "segments::coming_back", steps);
    suite.test("segments::where_ranks_come_back_nothing_is_computed_by_others", || {
        let mut command = job("segments::coming_back", RANKS, "shm");
        command.env(PLAN, "1.1.3 4.2.sent");
        Process::spawn(command).end().assert_done(0..RANKS);
    });
    suite.job("segments::more_ranks_than_indices", 5, more_ranks_than_indices);
    suite.job("segments::serial_values_are_compared", 5, serial);
    suite.job("segments::a_flipped_bit_is_outvoted_and_named", 5, a_bit_flips);
    suite.program("segments::serial_voters_die", serial_voters_die);
    for transport in TRANSPORTS {
        suite.test(format!("segments::serial_voters_die::{transport}"), move || {
            let died = Process::spawn(job("segments::serial_voters_die", 5, transport)).end();
            died.assert_ended(137, [2, 4]);
        });
    }
    suite.job("segments::makes_no_sense", 3, makes_no_sense);
    suite.job("segments::ranks_that_disagree", 3, disagree);
    let quick = Config::default().ping_interval(PING);
    suite.job_with(quick, "segments::the_share_of_a_frozen_rank_goes_to_others", 4, frozen);
}

/// Who dies where: `rank.step.grains`; at `sent`, when it has contributed.
const PLANS: &[(&str, &str)] = &[
    ("nobody_dies", ""),
    ("at_its_first_grain", "1.0.0"),
    ("in_the_middle_of_its_share", "3.2.7"),
    ("with_all_of_its_share", "2.1.sent"),
    ("rank_0", "0.1.5"),
    ("two_at_once", "2.1.3 4.1.9"),
    ("one_after_the_other", "2.0.3 4.2.1 1.3.0"),
    // What is more than a share is a part of another rank's.
    ("while_it_computes_what_another_has_left", "2.1.3 4.1.15"),
    ("three_in_a_chain", "1.0.0 2.0.14 3.0.18"),
    ("one_has_contributed_and_one_has_not", "5.1.sent 3.1.7"),
    ("all_but_one_at_once", "0.1.1 1.1.2 2.1.3 4.1.4 5.1.5"),
    ("all_but_one_in_turn", "5.0.0 4.1.3 0.2.4 2.2.9 1.3.2"),
];

/// A plan that chance has made: one rank or several die.
fn drawn(seed: u64) -> String {
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let count = 1 + draw(u64::from(RANKS) - 1);
    let mut victims = BTreeSet::new();
    while (victims.len() as u64) < count {
        victims.insert(draw(u64::from(RANKS)));
    }
    let plan = victims.into_iter().map(|rank| format!("{rank}.{}.{}", draw(STEPS), draw(SHARE + 3)));
    plan.collect::<Vec<_>>().join(" ")
}

/// The ranks that die come to nothing, and all others to their end.
fn survives(plan: &str, progress: Option<u64>, transport: &str) {
    let mut command = job("segments::steps", RANKS, transport);
    command.env(PLAN, plan).envs(progress.map(|grains| (PROGRESS, grains.to_string())));
    let End { code, said } = Process::spawn(command).end();
    let said = said.join("\n  ");
    let ended: BTreeSet<u32> =
        (0..RANKS).filter(|rank| said.contains(&format!("{}{rank}", crate::process::DONE))).collect();
    let (mut may_die, mut must_die) = (BTreeSet::new(), BTreeSet::new());
    for point in plan.split(' ').filter(|point| !point.is_empty()) {
        let [rank, _, when] = point.split('.').collect::<Vec<_>>()[..] else { panic!("{point}") };
        may_die.insert(rank.parse::<u32>().unwrap());
        // How much of another rank's share a rank is given depends on how fast it was.
        if when.parse().is_ok_and(|grains: u64| grains >= SHARE) {
            continue;
        }
        must_die.insert(rank.parse::<u32>().unwrap());
    }
    assert!((0..RANKS).all(|rank| may_die.contains(&rank) || ended.contains(&rank)), "{plan}:\n  {said}");
    assert!(must_die.is_disjoint(&ended), "{plan}:\n  {said}");
    assert_eq!(code, if ended.len() == RANKS as usize { 0 } else { 137 }, "{plan}:\n  {said}");
}

/// What is planned for this process.
struct Fate {
    rank: u32,
    plan: Vec<String>,
    /// Grains folded in this step.
    folded: Cell<u64>,
}

impl Fate {
    fn of(session: &Session) -> Self {
        let lives_again = std::env::var("EVERFOLD_INCARNATION").is_ok_and(|life| life != "0");
        let plan = if lives_again { String::new() } else { std::env::var(PLAN).unwrap_or_default() };
        let plan = plan.split(' ').map(str::to_owned).collect();
        Self { rank: session.rank().0, plan, folded: Cell::new(0) }
    }

    fn is(&self, step: u64, when: &str) -> bool {
        self.plan.contains(&format!("{}.{step}.{when}", self.rank))
    }

    fn folds(&self, step: u64) {
        if self.is(step, &self.folded.get().to_string()) {
            die();
        }
        self.folded.set(self.folded.get() + 1);
    }
}

pub(crate) fn die() -> ! {
    raise(Signal::SIGKILL).unwrap();
    unreachable!("it is dead")
}

/// Which indices are in it, and a sum whose bits depend on the order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) indices: Vec<u64>,
    sum: f64,
}

impl Seen {
    pub(crate) fn of(step: u64, indices: Range<u64>) -> Self {
        let sum = indices.clone().map(|index| 1.0 / (index * 7 + step) as f64).sum();
        Self { indices: indices.collect(), sum }
    }
}

impl ReducerBody for Seen {
    fn combine(&mut self, other: Self) {
        self.indices.extend(other.indices);
        self.sum += other.sum;
    }
}

/// The same by one rank.
async fn alone(session: &Session, step: u64) -> everfold::Result<Seen> {
    let me = session.rank();
    let call = session.segment(format!("alone {me}"), INDICES).grain(GRAIN).order(Order::Fixed);
    Ok(call.among(&mut Group::of([me])).fold(|indices| Seen::of(step, indices)).await?.value)
}

async fn steps(session: Session) -> everfold::Result<()> {
    let _: Option<()> = session.resume().await?;
    let fate = Fate::of(&session);
    let progress: Option<u64> = std::env::var(PROGRESS).ok().map(|grains| grains.parse().unwrap());
    let mut team = session.world();
    for step in 0..STEPS {
        fate.folded.set(0);
        let before = team.clone();
        let expected = alone(&session, step).await?;
        let all = session.segment("all", INDICES).grain(GRAIN).order(Order::Fixed).among(&mut team);
        let all = progress.into_iter().fold(all, |all, grains| all.progress(grains));
        let mut all = Box::pin(all.fold(|indices| {
            fate.folds(step);
            Seen::of(step, indices)
        }));
        if fate.is(step, "sent") {
            // The first look at it computes and contributes.
            assert!(futures::poll!(&mut all).is_pending(), "the others have yet to come");
            session.allreduce("sent", Sum(vec![1u8])).group(Group::of([session.rank()])).await?;
            die();
        }
        if fate.plan.contains(&format!("2.{step}.sent")) && before.contains(Rank(2)) {
            wait_for_death(&session, Rank(2)).await;
        }
        let Folded { value, report } = all.await?;
        assert_eq!(value.indices, INDICES.collect::<Vec<_>>());
        assert_eq!(value.sum.to_bits(), expected.sum.to_bits(), "{report}");
        check(&report, &before, &team);
    }
    Ok(())
}

pub(crate) async fn wait_for_death(session: &Session, rank: Rank) {
    use futures::StreamExt;
    let mut news = session.events();
    while session.survivors().contains(rank) {
        assert!(news.next().await.is_some());
    }
}

/// The report adds up.
fn check(report: &SegmentReport, before: &Group, team: &Group) {
    let computed: u64 = report.computed.iter().map(|(_, indices)| indices).sum();
    assert_eq!(computed, INDICES.end - INDICES.start);
    assert_eq!(report.again + report.salvaged == 0, report.lost.is_empty(), "{report}");
    assert_eq!(report.rounds.len() == 1, report.lost.is_empty(), "{report}");
    let survivors: Path = team.iter().collect();
    assert_eq!(report.survivors, survivors);
    assert!(report.lost.is_disjoint(&survivors) && team.iter().all(|rank| before.contains(rank)), "{report}");
}

async fn more_ranks_than_indices(session: Session) -> everfold::Result<()> {
    for count in [1, 3] {
        let Folded { value, report } =
            session.segment("few", 0..count).fold(|indices| Seen::of(0, indices)).await?;
        let mut indices = value.indices;
        indices.sort_unstable();
        assert_eq!(indices, (0..count).collect::<Vec<_>>());
        assert_eq!(report.computed.len() as u64, count, "{report}");
    }
    Ok(())
}

/// Rank 1 computes something else, and then all three do.
async fn serial(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let agreed = session.serial("pivot").compute(|| (me == 1, 1.5)).await?;
    assert_eq!((agreed.value, agreed.computed), ((false, 1.5), path(0..3)));
    assert_eq!(agreed.deviating, path([1]));
    let nobody = session.serial("pivot").compute(|| me).await;
    let Err(SegmentError::NoMajority { found }) = nobody else { panic!("{nobody:?}") };
    assert_eq!(found.len(), 3);
    let team = Group::of([0, 3, 4]);
    match session.serial("some").among(&team).compute(|| 5).await {
        Ok(agreed) => assert_eq!((agreed.value, agreed.computed), (5, path([0, 3, 4]))),
        Err(error) => assert!(!team.contains(me), "{error}"),
    }
    Ok(())
}

/// In turn, the memory of each of the three that compute gets one bit wrong: the first, one in the middle, the last.
async fn a_bit_flips(session: Session) -> everfold::Result<()> {
    let right: Vec<f64> = (0..1000).map(|x| f64::from(x).sqrt()).collect();
    let bits = right.len() * 64;
    for victim in 0..3 {
        for bit in [0, bits / 2 + 17, bits - 1] {
            let computed = || {
                let mut value = right.clone();
                if session.rank() == victim {
                    let number = &mut value[bit / 64];
                    *number = f64::from_bits(number.to_bits() ^ 1 << (bit % 64));
                }
                value
            };
            let agreed = session.serial("roots").compute(computed).await?;
            assert!(agreed.value == right, "rank {victim}, bit {bit}");
            assert_eq!((agreed.computed, agreed.deviating), (path(0..3), path([victim])));
        }
    }
    Ok(())
}

/// Ranks 0 and 1 die while they compute, and rank 3 when it takes the place of one of them.
async fn serial_voters_die(session: Session) -> everfold::Result<()> {
    let dies = [0, 1, 3].iter().any(|victim| session.rank() == *victim);
    let agreed = session.serial("pivot").compute(|| if dies { die() } else { 7 }).await?;
    assert_eq!((agreed.value, agreed.computed, agreed.deviating), (7, path([2, 4]), Path::empty()));
    Ok(())
}

fn path(ranks: impl IntoIterator<Item = u32>) -> Path {
    ranks.into_iter().map(Rank).collect()
}

async fn makes_no_sense(session: Session) -> everfold::Result<()> {
    let fold = |_: Range<u64>| -> Seen { panic!("there is nothing to fold") };
    let nothing = session.segment("x", 3..3).fold(fold).await;
    assert!(matches!(nothing, Err(SegmentError::NoIndices { .. })), "{nothing:?}");
    let no_grain = session.segment("x", 0..3).grain(0).fold(fold).await;
    assert!(matches!(no_grain, Err(SegmentError::NoGrain)), "{no_grain:?}");
    let others = session.world().filter(|rank| rank != session.rank());
    let outside = session.segment("x", 0..3).among(&mut others.clone()).fold(fold).await;
    let Err(SegmentError::Reduce(ReduceError::Refused(Refusal::CallerOutsideGroup { rank, .. }))) = outside
    else {
        panic!("{outside:?}")
    };
    assert_eq!(rank, session.rank());
    // None of these calls counts.
    let all = session.segment("x", 0..3).fold(|indices| Seen::of(1, indices)).await?;
    assert_eq!(all.report.computed.len(), 3);
    Ok(())
}

async fn disagree(session: Session) -> everfold::Result<()> {
    let odd = u64::from(session.rank() == 1);
    let fold = |indices| Seen::of(0, indices);
    let order = [Order::Arrival, Order::Fixed][odd as usize];
    for ended in [
        session.segment("indices", 0..100 + odd).grain(1).fold(fold).await,
        session.segment("grain", 0..100).grain(5 + odd).fold(fold).await,
        session.segment("order", 0..100).order(order).fold(fold).await,
    ] {
        let Err(SegmentError::Reduce(ReduceError::Refused(Refusal::Mismatch { aspect, .. }))) = ended else {
            panic!("{ended:?}")
        };
        assert_eq!(aspect, Aspect::BodyType);
    }
    Ok(())
}

const PING: Duration = Duration::from_millis(100);

/// Rank 2 is stopped in the middle of its share, for longer than any silence that is tolerated.
async fn frozen(session: Session) -> everfold::Result<()> {
    let fold = |indices: Range<u64>| {
        if session.rank() == 2 && indices.contains(&60) {
            freeze(PING * 30).unwrap();
        }
        Seen::of(0, indices)
    };
    let ended = session.segment("all", 0..100).grain(1).fold(fold).await;
    if session.rank() == 2 {
        assert!(matches!(ended, Err(SegmentError::Reduce(ReduceError::Fenced))), "{ended:?}");
        return Ok(());
    }
    let Folded { mut value, report } = ended?;
    value.indices.sort_unstable();
    assert_eq!(value.indices, (0..100).collect::<Vec<_>>());
    assert_eq!((report.lost, report.again), ([Rank(2)].into_iter().collect(), 25));
    Ok(())
}

/// Stops this process for `time`; a child that outlives the stop continues it.
fn freeze(time: Duration) -> everfold::Result<()> {
    let (seconds, me) = (time.as_secs_f64(), std::process::id());
    let thaw = format!("sleep {seconds}; kill -CONT {me}");
    let mut child = std::process::Command::new("sh").args(["-c", &thaw]).spawn()?;
    kill(Pid::from_raw(me as i32), Signal::SIGSTOP).map_err(std::io::Error::from)?;
    child.wait()?;
    Ok(())
}
