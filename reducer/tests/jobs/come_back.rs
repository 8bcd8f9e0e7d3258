//! Ranks whose processes die and that come back: the same bits in the end, whatever died where.
//!
//! A plan in the environment says which life of which rank dies at which place of the program, and at which
//! step.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::PathBuf,
    process::Command,
    sync::{Arc, Barrier},
    time::Duration,
};

use everfold::{
    CheckpointError, CheckpointHook, Checkpointed, Config, HookError, Interval, Order, Session, Sum,
};
use nix::sys::signal::{Signal, raise};
use serde::{Deserialize, Serialize};

use crate::{
    given_up::is_first,
    process::{End, Process, job},
    suite::{Suite, TRANSPORTS},
};

/// Names the deaths that are planned.
pub(crate) const PLAN: &str = "COME_BACK_PLAN";
const RANKS: u32 = 4;
const STEPS: u64 = 40;
/// Steps from one checkpoint to the next.
const STRIDE: u64 = 7;
const LENGTH: usize = 3000;
const FIELD: usize = 1 << 20;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.program_with(config(), "come_back::solver", solver);
    for (name, plan) in PLANS {
        for transport in TRANSPORTS {
            suite.test(format!("come_back::{name}::{transport}"), move || survives(plan, transport));
        }
    }
    suite.job_with(config(), "come_back::a_checkpoint_wants_its_order", 1, order);
    suite.job_with(config(), "come_back::a_future_that_is_held_is_named", 2, held);
    suite.job_with(config(), "come_back::a_state_is_as_old_as_its_calls", 2, called_meanwhile);
    suite.job_with(config(), "come_back::a_hook_that_fails_aborts_the_checkpoint", 1, failing_hook);
    suite.job("come_back::nothing_is_saved_where_ranks_do_not_return", 2, not_configured);
    suite.program_with(config(), "come_back::saves_twice_at_once", saves_twice_at_once);
    suite.test("come_back::hooks_are_in_each_checkpoint", || {
        Process::spawn(job("come_back::saves_twice_at_once", 2, "shm")).end().assert_done(0..2);
    });
    suite.test("come_back::a_job_can_be_ended_while_a_rank_comes_back", ended_meanwhile);
}

/// Ranks come back, and save checkpoints where they ask for them.
pub(crate) fn config() -> Config {
    Config::default().restart_ranks().checkpoint_interval(Interval::Fixed(Duration::from_secs(3600)))
}

/// Which life of which rank dies where, and at which step: `rank.life.place.step`.
const PLANS: &[(&str, &str)] = &[
    ("before_its_first_call", "1.0.start.0"),
    ("before_its_first_call_twice", "1.0.start.0 1.1.start.0"),
    ("between_calls", "2.0.between.17"),
    ("in_a_call", "3.0.call.18"),
    ("with_its_value", "3.0.value.18"),
    ("after_a_checkpoint", "1.0.saved.13"),
    ("before_a_checkpoint", "1.0.save.13"),
    ("while_a_hook_saves", "1.0.hook.13"),
    ("while_it_resumes", "2.0.call.20 2.1.restore.0 2.2.restore.0"),
    ("while_it_catches_up", "2.0.call.20 2.1.call.16 2.2.value.18"),
    ("three_times", "1.0.call.5 1.1.between.6 1.2.value.30"),
    ("three_ranks_at_once", "1.0.call.20 2.0.call.20 3.0.value.20"),
    ("three_ranks_one_of_them_twice", "1.0.between.9 2.0.call.20 3.0.value.33 2.1.between.25"),
    ("the_root", "0.0.call.18 0.1.value.30"),
    ("the_root_at_the_first_call", "0.0.call.0"),
    ("at_the_last_call", "1.0.call.39 0.0.value.39"),
    ("with_a_half_written_header", "1.0.header.20"),
    ("with_a_half_written_body", "1.0.body.20 1.1.body.34"),
    ("before_the_mark", "1.0.mark.20 2.0.mark.13"),
    ("frozen_for_good", "2.0.frozen.17"),
    ("frozen_for_good_twice_and_killed", "1.0.frozen.17 1.1.frozen.25 3.0.call.18"),
];

#[derive(Default, Serialize, Deserialize)]
struct State {
    step: u64,
    values: Vec<u64>,
}

/// What is planned for this process.
#[derive(Clone)]
pub(crate) struct Fate {
    rank: u32,
    pub(crate) life: u32,
    plan: String,
}

impl Fate {
    pub(crate) fn of(session: &Session) -> Self {
        let life = std::env::var("EVERFOLD_INCARNATION").ok().and_then(|it| it.parse().ok()).unwrap_or(0);
        Self { rank: session.rank().0, life, plan: std::env::var(PLAN).unwrap_or_default() }
    }

    pub(crate) fn is(&self, place: &str, step: u64) -> bool {
        let point = format!("{}.{}.{place}.{step}", self.rank, self.life);
        self.plan.split(' ').any(|planned| planned == point)
    }

    pub(crate) fn meets(&self, place: &str, step: u64) {
        if self.is(place, step) {
            die();
        }
    }
}

pub(crate) fn die() -> ! {
    raise(Signal::SIGKILL).unwrap();
    unreachable!("it is dead")
}

/// Counts steps beside the application, and dies in the middle of a checkpoint or of coming back.
struct Counter {
    fate: Fate,
    steps: u64,
}

impl CheckpointHook for Counter {
    fn before(&mut self) -> Result<(), HookError> {
        self.steps += STRIDE;
        Ok(())
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), HookError> {
        self.fate.meets("hook", self.steps - 1);
        into.extend(self.steps.to_le_bytes());
        Ok(())
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), HookError> {
        self.fate.meets("restore", 0);
        self.steps = u64::from_le_bytes(saved.try_into()?);
        Ok(())
    }
}

/// What the field is after so many steps.
fn field_after(step: u64, index: u64) -> u64 {
    step.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index
}

async fn solver(session: Session) -> everfold::Result<()> {
    let fate = Fate::of(&session);
    fate.meets("start", 0);
    session.on_checkpoint("counter", Counter { fate: fate.clone(), steps: 0 })?;
    let mut field = vec![0u64; FIELD];
    let saved: Option<State> = session.resume().array("field", &mut field).await?;
    let rank = u64::from(fate.rank);
    let mut state = saved.unwrap_or_else(|| State { step: 0, values: vec![rank + 1; LENGTH] });
    println!("life {} goes on at step {}", fate.life, state.step);
    let is_whole = field.iter().zip(0..).all(|(value, index)| *value == field_after(state.step, index));
    assert!(state.step == 0 || is_whole, "the field and the state are of one generation");
    while state.step < STEPS {
        let step = state.step;
        fate.meets("between", step);
        if fate.is("frozen", step) {
            // Nothing but its agent ends this process.
            raise(Signal::SIGSTOP).unwrap();
        }
        let mine = state.values.iter().map(|it| it.wrapping_mul(31).wrapping_add(step)).collect();
        let future = session.allreduce("step", Sum::<Vec<u64>>(mine)).start()?;
        fate.meets("call", step);
        let Sum(sum) = future.await?.value;
        fate.meets("value", step);
        for (mine, sum) in state.values.iter_mut().zip(&sum) {
            *mine = mine.wrapping_mul(7).wrapping_add(*sum ^ rank);
        }
        // Nobody waits for it; the checkpoint does.
        drop(session.reduce("dropped", Sum(state.values[..2].to_vec())).root(3).start()?);
        drop(session.allreduce("dropped by all", Sum(state.values[..2].to_vec())).start()?);
        let parts = Sum(vec![f64::from(fate.rank) / 3.0 + step as f64; 10]);
        let at_root = session.reduce("check", parts).order(Order::Fixed).await?;
        assert_eq!(at_root.value.is_some(), rank == 0);
        let bits = at_root.value.map_or(0, |Sum(sum)| sum[0].to_bits());
        state.values[0] ^= bits;
        state.step += 1;
        if state.step.is_multiple_of(STRIDE) {
            field.iter_mut().zip(0..).for_each(|(value, index)| *value = field_after(state.step, index));
            fate.meets("save", step);
            for place in ["header", "body", "mark"] {
                if fate.is(place, step) {
                    die_at(place);
                }
            }
            let saved = session.checkpoint(&state).array("field", &field).now().await?;
            assert!(matches!(saved, Checkpointed::Saved { .. } | Checkpointed::CatchingUp), "{saved:?}");
            fate.meets("saved", step);
            // The thread that was to end this process may be slower than the checkpoint.
            if ["header", "body", "mark"].iter().any(|place| fate.is(place, step)) {
                die();
            }
        }
    }
    let Sum(all) = session.allreduce("digest", Sum(state.values)).await?.value;
    println!("digest {}", all.iter().fold(0, |digest: u64, it| digest.rotate_left(5) ^ it));
    Ok(())
}

/// Ends this process as soon as a half of its vault is written so far.
fn die_at(place: &'static str) {
    let halves: Vec<File> = vault_files().into_iter().map(|path| File::open(path).unwrap()).collect();
    assert_eq!(halves.len(), 2, "a vault has two files");
    let is_sealed = |half: &File| {
        let mut seal = [0];
        half.read_at(&mut seal, 87).unwrap() == 1 && seal[0] != 0
    };
    let tail = |half: &File| {
        let mut bytes = [0; 64];
        half.read_at(&mut bytes, (FIELD * 8) as u64 - 64).unwrap();
        bytes
    };
    let before: Vec<_> = halves.iter().map(|half| (is_sealed(half), tail(half))).collect();
    std::thread::spawn(move || {
        let changed = |(half, (was_sealed, tail_before)): (&File, &(bool, [u8; 64]))| match place {
            "header" => *was_sealed && !is_sealed(half),
            "body" => !is_sealed(half) && half.metadata().unwrap().len() > (FIELD * 4) as u64,
            _ => !is_sealed(half) && tail(half) != *tail_before,
        };
        loop {
            if halves.iter().zip(&before).any(changed) {
                die();
            }
        }
    });
}

/// The files of this process's vault, by their names in memory.
pub(crate) fn vault_files() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("everfold-vault"))
    })
    .collect()
}

fn with_plan(plan: &str, transport: &str) -> Command {
    let mut command = job("come_back::solver", RANKS, transport);
    command.env(PLAN, plan);
    command
}

fn digests(end: &End) -> Vec<&str> {
    let of_line = |line: &'_ String| line.find("digest ").map(|at| at..line.len());
    end.said.iter().filter_map(|line| of_line(line).map(|range| &line[range])).collect()
}

fn survives(plan: &str, transport: &str) {
    let undisturbed = Process::spawn(with_plan("", transport)).end();
    undisturbed.assert_done(0..RANKS);
    let expected = digests(&undisturbed);
    assert_eq!(expected.len(), RANKS as usize);
    let end = Process::spawn(with_plan(plan, transport)).end();
    end.assert_done(0..RANKS);
    assert_eq!(digests(&end), expected, "{:#?}", end.said);
    for death in plan.split(' ') {
        let [rank, life, ..] = death.split('.').collect::<Vec<_>>()[..] else { panic!("{death}") };
        let next = format!("life {} ", life.parse::<u32>().unwrap() + 1);
        let comes_back = |line: &&String| line.contains(&next) && line.contains(&format!("[{rank}]"));
        let dies_again = plan.contains(&format!("{rank}.{}.", life.parse::<u32>().unwrap() + 1));
        assert!(dies_again || end.said.iter().any(|line| comes_back(&line)), "{death}: {:#?}", end.said);
    }
}

/// A checkpoint is asked for before anything else, and saved after it was.
async fn order(session: Session) -> everfold::Result<()> {
    let early = session.checkpoint(&1u32).now().await;
    assert!(matches!(early, Err(CheckpointError::NotResumed)), "{early:?}");
    let mut field = [0u8; 100];
    assert_eq!(session.resume::<u32>().array("field", &mut field).await?, None);
    let again = session.resume::<u32>().await;
    assert!(matches!(again, Err(CheckpointError::ResumedLate)), "{again:?}");
    assert!(!session.checkpoint_due(), "the interval is an hour");
    assert_eq!(session.checkpoint(&1u32).await?, Checkpointed::NotDue);
    for generation in [1, 2] {
        let saved = session.checkpoint(&1u32).array("field", &[1u8; 100]).now().await?;
        assert_eq!(saved, Checkpointed::Saved { generation, bytes: 1 + 100 });
    }
    // Nobody could go on from these.
    let other = session.checkpoint(&1u64).array("field", &[1u8; 100]).now().await;
    assert!(matches!(other, Err(CheckpointError::OtherType { .. })), "{other:?}");
    for array in [&[][..], &[1u8; 99], &[1u8; 101]] {
        let other = session.checkpoint(&1u32).array("field", array).now().await;
        assert!(matches!(other, Err(CheckpointError::Differs { .. })), "{other:?}");
    }
    let other = session.checkpoint(&1u32).now().await;
    assert!(matches!(other, Err(CheckpointError::Differs { .. })), "{other:?}");
    let twice = session.checkpoint(&1u32).array("field", &[1u8]).array("field", &[1u8]).now().await;
    assert!(matches!(twice, Err(CheckpointError::TwiceNamed { .. })), "{twice:?}");
    Ok(())
}

async fn held(session: Session) -> everfold::Result<()> {
    assert_eq!(session.resume::<u32>().await?, None);
    for name in ["first", "second"] {
        session.allreduce(name, Sum(vec![1u32])).await?;
    }
    let future = session.allreduce("second", Sum(vec![1u32])).start()?;
    // Whether its value is there or not.
    session.allreduce("first", Sum(vec![1u32])).await?;
    let refused = session.checkpoint(&1u32).now().await;
    let Err(CheckpointError::StillHeld { name, sequence }) = refused else { panic!("{refused:?}") };
    assert_eq!((name.as_str(), sequence), ("second", 1));
    future.await?;
    drop(session.allreduce("second", Sum(vec![1u32])).start()?);
    let saved = session.checkpoint(&1u32).now().await?;
    assert!(matches!(saved, Checkpointed::Saved { generation: 1, .. }), "{saved:?}");
    Ok(())
}

/// What another task calls and takes while a checkpoint waits is not in the state that was read before.
async fn called_meanwhile(session: Session) -> everfold::Result<()> {
    assert_eq!(session.resume::<u64>().await?, None);
    let meanwhile = async || {
        let sum = session.allreduce("meanwhile", Sum(vec![1u64])).await?;
        // Where this has ended, all have taken that value.
        session.allreduce("taken", Sum(vec![1u64])).await?;
        Ok::<_, everfold::Error>(sum)
    };
    let late = || session.allreduce("late", Sum(vec![1u64])).start().map(drop);
    if session.rank() == 0 {
        late()?;
        let (saved, sum) = futures::join!(session.checkpoint(&0u64).now().into_future(), meanwhile());
        assert_eq!(sum?.value, Sum(vec![2]));
        // Or this process has yet to hear that "taken" is over.
        let is_refused =
            matches!(saved, Err(CheckpointError::CalledMeanwhile | CheckpointError::StillHeld { .. }));
        assert!(is_refused, "{saved:?}");
    } else {
        meanwhile().await?;
        late()?;
    }
    let saved = session.checkpoint(&1u64).now().await?;
    assert!(matches!(saved, Checkpointed::Saved { generation: 1, .. }), "{saved:?}");
    Ok(())
}

struct Failing;

impl CheckpointHook for Failing {
    fn save(&mut self, _: &mut Vec<u8>) -> Result<(), HookError> {
        Err("the device is gone".into())
    }

    fn restore(&mut self, _: &[u8]) -> Result<(), HookError> {
        Ok(())
    }
}

/// Panics at first, and then saves between two meetings.
struct Slow {
    panics: bool,
    meeting: Arc<Barrier>,
}

impl CheckpointHook for Slow {
    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), HookError> {
        assert!(!std::mem::take(&mut self.panics), "as it should");
        self.meeting.wait();
        self.meeting.wait();
        into.push(7);
        Ok(())
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), HookError> {
        assert_eq!(saved, [7]);
        Ok(())
    }
}

/// A hook that runs already, or has panicked, is saved all the same.
async fn saves_twice_at_once(session: Session) -> everfold::Result<()> {
    let meeting = Arc::new(Barrier::new(2));
    session.on_checkpoint("slow", Slow { panics: true, meeting: meeting.clone() })?;
    let saved: Option<u32> = session.resume().await?;
    // Either of the two may have been the last.
    assert!(if is_first(&session) { saved.is_none() } else { matches!(saved, Some(1 | 2)) }, "{saved:?}");
    let save = |state: u32| {
        let session = session.clone();
        std::thread::spawn(move || {
            futures::executor::block_on(session.checkpoint(&state).now().into_future())
        })
    };
    if saved.is_none() {
        assert!(save(0).join().is_err(), "its hook panics");
        let first = save(1);
        meeting.wait();
        // The hook saves for the first one.
        let second = save(2);
        for _ in 0..3 {
            meeting.wait();
        }
        for saved in [first, second].map(|thread| thread.join().unwrap()) {
            assert!(matches!(saved, Ok(Checkpointed::Saved { bytes: 2, .. })), "{saved:?}");
        }
        if session.rank() == 1 {
            die();
        }
    }
    session.allreduce("last", Sum(vec![1u32])).await?;
    Ok(())
}

async fn failing_hook(session: Session) -> everfold::Result<()> {
    session.on_checkpoint("device", Failing)?;
    let again = session.on_checkpoint("device", Failing);
    assert!(matches!(again, Err(CheckpointError::TwiceNamed { .. })), "{again:?}");
    assert_eq!(session.resume::<u32>().await?, None);
    let late = session.on_checkpoint("other", Failing);
    assert!(matches!(late, Err(CheckpointError::HookLate { .. })), "{late:?}");
    let failed = session.checkpoint(&1u32).now().await.unwrap_err().to_string();
    assert_eq!(failed, "hook \"device\" could not save its state: the device is gone");
    Ok(())
}

async fn not_configured(session: Session) -> everfold::Result<()> {
    assert_eq!(session.resume::<u32>().await?, None);
    session.allreduce("sum", Sum(vec![1u32])).await?;
    assert!(!session.checkpoint_due());
    assert_eq!(session.checkpoint(&1u32).now().await?, Checkpointed::NotConfigured);
    Ok(())
}

/// Rank 1 comes back again and again, and the whole job is asked to end meanwhile.
fn ended_meanwhile() {
    let plan: Vec<String> = (1..100).map(|life| format!("1.{life}.start.0")).collect();
    let mut process = Process::spawn(with_plan(&format!("1.0.call.5 {}", plan.join(" ")), "shm"));
    process.wait_for(1, "rank 1 was killed");
    process.signal(Signal::SIGTERM);
    process.end().assert_ended(143, []);
}
