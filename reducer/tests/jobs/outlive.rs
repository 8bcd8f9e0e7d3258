//! Checkpoints that outlive their job: everything is killed, agents and all, and a later job comes to the same
//! bits; all ranks go back together; full disks, and directories that do not fit.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use everfold::{CheckpointError, Checkpointed, Config, Interval, News, Order, ReduceError, Session, Sum};
use futures::{FutureExt, StreamExt};
use nix::{
    sys::signal::{Signal, kill, raise},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use crate::{
    process::{End, Mark, Process, job},
    suite::{Suite, TRANSPORTS},
};

pub(crate) const CHECKPOINTS: &str = "EVERFOLD_CHECKPOINTS";
pub(crate) const RESUME: &str = "EVERFOLD_RESUME";
const RECOVERY: &str = "EVERFOLD_RECOVERY";
/// How often a rank dies: as long as all have gone back less often.
const DEATHS: &str = "OUTLIVE_DEATHS";
/// Set if a rank dies as soon as its checkpoint is durable, and comes back.
const DIES_ONCE: &str = "OUTLIVE_DIES_ONCE";
/// Set if ranks wait after each step until what they write into the directory is written.
pub(crate) const WAITS: &str = "OUTLIVE_WAITS";
pub(crate) const RANKS: u32 = 4;
const STEPS: u64 = 60;
/// All wait at this step until a checkpoint is complete.
pub(crate) const DURABLE: u64 = 20;
const FIELD: usize = 50_000;

pub(crate) fn add_to(suite: &mut Suite) {
    let every = || Config::default().checkpoint_interval(Interval::Fixed(Duration::ZERO));
    suite.program_with(every().restart_ranks(), "outlive::returning", solver);
    suite.program_with(every(), "outlive::ignoring", solver);
    for program in ["outlive::returning", "outlive::ignoring"] {
        for transport in TRANSPORTS {
            suite.test(format!("{program}::off_and_on::{transport}"), move || off_and_on(program, transport));
        }
    }
    for (name, plan) in [
        ("in_a_call", "3.0.call.18"),
        ("after_a_checkpoint", "1.0.saved.13"),
        ("while_a_hook_saves", "1.0.hook.13"),
        ("while_it_catches_up", "2.0.call.20 2.1.call.16 2.2.value.18"),
        ("at_a_checkpoint_and_after", "0.0.save.13 1.0.saved.13 0.1.call.14"),
    ] {
        suite.test(format!("outlive::ranks_come_back::{name}"), move || come_back(plan));
    }
    suite.test("outlive::ranks_come_back::behind_a_durable_checkpoint", dies_behind_a_durable_one);
    suite.test("outlive::what_does_not_fit_is_told", what_does_not_fit);
    suite.test("outlive::all_go_back", || roll_back(2, "", true));
    suite.test("outlive::who_goes_back_without_progress_is_given_up", || {
        roll_back(100, "[restart]\nfruitless_max = 2\npause = \"1 ms\"\n", false);
    });
    suite.test("outlive::a_rollback_needs_a_directory", || {
        let file = Scratch::new();
        fs::write(file.path(), "process = \"rollback\"").unwrap();
        let mut command = job("outlive::ignoring", RANKS, "shm");
        command.env(RECOVERY, file.path());
        let end = Process::spawn(command).end();
        end.assert_ended(1, []);
        assert!(says(&end, "a rollback goes back to checkpoints in a directory"), "{:#?}", end.said);
    });
    suite.test("outlive::a_protocol_that_does_not_go_with_the_directory_is_refused", || {
        for (protocol, has_directory, text) in [
            ("coordinated", false, "which needs a directory: name one"),
            ("independent", true, "checkpoints in a directory are those of all ranks together"),
        ] {
            let (file, directory) = (Scratch::new(), Scratch::new());
            fs::write(file.path(), format!("[checkpoint]\nprotocol = \"{protocol}\"")).unwrap();
            let mut command = job("outlive::ignoring", RANKS, "shm");
            command.env(RECOVERY, file.path());
            command.envs(has_directory.then_some((CHECKPOINTS, directory.path())));
            let end = Process::spawn(command).end();
            end.assert_ended(1, []);
            assert!(says(&end, text), "{:#?}", end.said);
        }
    });
    suite.program_with(every(), "outlive::apart", apart);
    suite.test("outlive::ranks_that_do_not_save_together_hear_it", || {
        let directory = Scratch::new();
        let mut command = job("outlive::apart", 2, "shm");
        command.env(CHECKPOINTS, directory.path());
        Process::spawn(command).end().assert_done([0, 1]);
    });
    suite.program_with(every(), "outlive::drops_what_it_has_polled", drops_what_it_has_polled);
    suite.program_with(every(), "outlive::drops_what_it_never_polls", drops_what_it_never_polls);
    for program in ["outlive::drops_what_it_has_polled", "outlive::drops_what_it_never_polls"] {
        suite.test(format!("{program}_and_hears_it"), move || in_a_directory(program, 3));
    }
    suite.program_with(every(), "outlive::lacks_a_part", lacks_a_part);
    suite.test("outlive::a_generation_with_a_part_that_is_gone_is_given_up", || {
        in_a_directory("outlive::lacks_a_part", 2);
    });
    suite.program_with(every(), "outlive::small_disk", small_disk);
    suite.test("outlive::a_full_disk_is_told_and_the_one_before_stays", full_disk);
    suite.program_with(every(), "outlive::never_resumes", never_resumes);
}

/// A path for the time of a test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(std::env::temp_dir().join(format!("everfold-outlive-{:x}", Mark::new().number())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_file(&self.0);
    }
}

#[derive(Serialize, Deserialize)]
struct State {
    step: u64,
    values: Vec<f64>,
}

fn rollbacks() -> u64 {
    std::env::var("EVERFOLD_ROLLBACKS").ok().and_then(|number| number.parse().ok()).unwrap_or(0)
}

async fn solver(session: Session) -> everfold::Result<()> {
    let rank = session.rank().0;
    let deaths: u64 = std::env::var(DEATHS).ok().and_then(|number| number.parse().ok()).unwrap_or(0);
    let mut field = vec![0u64; FIELD];
    let saved: Option<State> = session.resume().array("field", &mut field).await?;
    let mut state = saved.unwrap_or_else(|| State { step: 0, values: vec![f64::from(rank) / 7.0; 100] });
    println!("goes on at step {}", state.step);
    assert!(field.iter().all(|it| *it == state.step), "the field and the state are of one generation");
    while state.step < STEPS {
        if rank == 1 && rollbacks() < deaths && state.step == DURABLE + 5 {
            raise(Signal::SIGKILL).unwrap();
        }
        let values = Sum(state.values.clone());
        let Sum(sum) = session.allreduce("step", values).order(Order::Fixed).await?.value;
        for (mine, sum) in state.values.iter_mut().zip(&sum) {
            *mine = (*mine * 1.7 + sum / 3.0).fract();
        }
        // Of some only.
        if rank < 2 {
            let pair = session.world().filter(|rank| rank.0 < 2);
            session.allreduce("pair", Sum(vec![1u32])).group(pair).await?;
        }
        state.step += 1;
        field.fill(state.step);
        let checkpoint = session.checkpoint(&state).array("field", &field);
        if state.step == DURABLE {
            let saved = checkpoint.durable().await?;
            assert!(matches!(saved, Checkpointed::Saved { .. }), "{saved:?}");
            if rank == 1 && std::env::var(DIES_ONCE).is_ok() {
                raise(Signal::SIGKILL).unwrap();
            }
        } else {
            checkpoint.await?;
        }
        if std::env::var(WAITS).is_ok() {
            session.checkpoint_written().await;
        }
        if rank == 0 {
            println!("step {}", state.step);
        }
    }
    let bits = state.values.iter().fold(0u64, |digest, it| digest.rotate_left(7) ^ it.to_bits());
    println!("digest {bits:016x}");
    Ok(())
}

pub(crate) fn digests(end: &End) -> Vec<String> {
    let mut digests: Vec<String> =
        end.said.iter().filter_map(|line| Some(line[line.find("digest ")?..].to_owned())).collect();
    digests.sort_unstable();
    digests
}

fn says(end: &End, text: &str) -> bool {
    end.said.iter().any(|line| line.contains(text))
}

fn run(program: &str, transport: &str, variables: &[(&str, &Path)]) -> End {
    let mut command = job(program, RANKS, transport);
    command.envs(variables.iter().copied());
    Process::spawn(command).end()
}

/// What the ranks come to without a fault.
pub(crate) fn undisturbed(program: &str, transport: &str) -> Vec<String> {
    let directory = Scratch::new();
    let end = run(program, transport, &[(CHECKPOINTS, directory.path())]);
    end.assert_done(0..RANKS);
    let digests = digests(&end);
    assert_eq!(digests.len(), RANKS as usize);
    digests
}

/// Kills everything that belongs to a job, its agents and the process that has started it first of all.
pub(crate) fn switch_off(process: Process) {
    process.signal(Signal::SIGKILL);
    for left in process.mark().living() {
        let _ = kill(Pid::from_raw(left), Signal::SIGKILL);
    }
    let mut process = process;
    process.ended();
}

/// Everything is killed in the middle, twice, and the third job comes to the end.
fn off_and_on(program: &'static str, transport: &str) {
    let expected = undisturbed(program, transport);
    let directory = Scratch::new();
    for (variable, step) in [(CHECKPOINTS, DURABLE + 7), (RESUME, DURABLE + 20)] {
        let mut command = job(program, RANKS, transport);
        command.env(variable, directory.path());
        let mut process = Process::spawn(command);
        process.wait_for(1, &format!("step {step}"));
        switch_off(process);
    }
    let end = run(program, transport, &[(RESUME, directory.path())]);
    end.assert_done(0..RANKS);
    assert_eq!(digests(&end), expected, "{:#?}", end.said);
    assert!(!says(&end, "goes on at step 0"), "{:#?}", end.said);
}

/// Ranks come back one by one, and their checkpoints are those of all ranks together.
fn come_back(plan: &str) {
    let program = "come_back::solver";
    let undisturbed = run(program, "shm", &[]);
    undisturbed.assert_done(0..RANKS);
    let directory = Scratch::new();
    let plan = Path::new(plan);
    let end = run(program, "shm", &[("COME_BACK_PLAN", plan), (CHECKPOINTS, directory.path())]);
    end.assert_done(0..RANKS);
    assert_eq!(digests(&end), digests(&undisturbed), "{:#?}", end.said);
    // What is complete is whole.
    let end = run(program, "shm", &[(RESUME, directory.path())]);
    end.assert_done(0..RANKS);
    assert_eq!(digests(&end), digests(&undisturbed), "{:#?}", end.said);
    assert!(says(&end, "goes on at step") && !says(&end, "goes on at step 0"), "{:#?}", end.said);
}

/// What the ranks have agreed on behind the checkpoint is in the log of the rank that comes back, and is no answer
/// to what it asks later.
fn dies_behind_a_durable_one() {
    let program = "outlive::returning";
    let expected = undisturbed(program, "shm");
    let directory = Scratch::new();
    let end = run(program, "shm", &[(DIES_ONCE, Path::new("yes")), (CHECKPOINTS, directory.path())]);
    end.assert_done(0..RANKS);
    assert_eq!(digests(&end), expected, "{:#?}", end.said);
    assert!(says(&end, &format!("[1] goes on at step {DURABLE}")), "{:#?}", end.said);
}

fn what_does_not_fit() {
    let program = "outlive::ignoring";
    let directory = Scratch::new();
    let refused = |ranks: u32, variable: &str, path: &Path, text: &str| {
        let mut command = job(program, ranks, "shm");
        command.env(variable, path);
        let end = Process::spawn(command).end();
        end.assert_ended(1, []);
        assert!(says(&end, text), "{text}: {:#?}", end.said);
    };
    refused(RANKS, RESUME, directory.path(), "no complete checkpoint to go on from");
    run(program, "shm", &[(CHECKPOINTS, directory.path())]).assert_done(0..RANKS);
    refused(RANKS, CHECKPOINTS, directory.path(), "holds checkpoints of an earlier job");
    refused(3, RESUME, directory.path(), "was saved by 4 ranks, and this job has 3");
    let other = Scratch::new();
    fs::create_dir(other.path()).unwrap();
    fs::write(other.path().join("thesis.tex"), "years of work").unwrap();
    for variable in [CHECKPOINTS, RESUME] {
        refused(RANKS, variable, other.path(), "holds other files");
    }
    let never = {
        let mut command = job("outlive::never_resumes", RANKS, "shm");
        command.env(RESUME, directory.path());
        Process::spawn(command).end()
    };
    never.assert_done(0..RANKS);

    // The newest generation is damaged, and the one before is used once that is removed.
    let mut generations: Vec<PathBuf> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("manifest").exists())
        .collect();
    generations.sort();
    let [before, newest] = &generations[..] else { panic!("{generations:?}") };
    let part = newest.join("rank-00002.part");
    let mut bytes = fs::read(&part).unwrap();
    let at = bytes.len() - 1000;
    bytes[at] ^= 16;
    fs::write(&part, bytes).unwrap();
    let end = run(program, "shm", &[(RESUME, directory.path())]);
    assert_ne!(end.code, 0);
    assert!(says(&end, "rank-00002.part is damaged (part 1 is not what was written)"), "{:#?}", end.said);
    assert!(before.exists());
    fs::remove_dir_all(newest).unwrap();
    run(program, "shm", &[(RESUME, directory.path())]).assert_done(0..RANKS);
}

/// A rank dies so often, and all go back.
fn roll_back(deaths: u32, text: &str, is_well: bool) {
    let expected = undisturbed("outlive::ignoring", "shm");
    let (directory, file) = (Scratch::new(), Scratch::new());
    fs::write(file.path(), format!("process = \"rollback\"\n{text}[checkpoint]\ninterval = \"0 s\"\n"))
        .unwrap();
    let mut command = job("outlive::ignoring", RANKS, "shm");
    command.env(DEATHS, deaths.to_string()).env(RECOVERY, file.path()).env(CHECKPOINTS, directory.path());
    let end = Process::spawn(command).end();
    if is_well {
        end.assert_done(0..RANKS);
        assert_eq!(digests(&end), expected);
        let back = end.said.iter().filter(|line| line.contains("all ranks go back to generation"));
        assert_eq!(back.count(), deaths as usize, "{:#?}", end.said);
    } else {
        // The code is that of the killed rank, or of one that has heard of it and was faster.
        assert!([1, 137].contains(&end.code), "{end:?}");
        assert!(says(&end, "times in a row without a new checkpoint"), "{:#?}", end.said);
    }
}

/// Rank 0 calls a reduction before the checkpoint, and rank 1 behind it.
async fn apart(session: Session) -> everfold::Result<()> {
    assert_eq!(session.resume::<u32>().await?, None);
    let call = || session.allreduce("late", Sum(vec![1u32])).start().map(drop);
    if session.rank() == 0 {
        call()?;
    }
    let saved = session.checkpoint(&1u32).now().await;
    assert!(matches!(saved, Err(CheckpointError::NotTogether)), "{saved:?}");
    if session.rank() == 1 {
        call()?;
    }
    let saved = session.checkpoint(&1u32).durable().await?;
    assert!(matches!(saved, Checkpointed::Saved { .. }), "{saved:?}");
    Ok(())
}

/// A program that judges for itself, with a new directory of checkpoints.
fn in_a_directory(program: &str, ranks: u32) {
    let directory = Scratch::new();
    let mut command = job(program, ranks, "shm");
    command.env(CHECKPOINTS, directory.path());
    Process::spawn(command).end().assert_done(0..ranks);
}

/// Rank 1 drops the future of its first checkpoint, which it has polled once or never. It hears why it is not
/// at the same call as the others any more, as often as it asks.
async fn drops(session: Session, polls: bool) -> everfold::Result<()> {
    let rank = session.rank().0;
    assert_eq!(session.resume::<u32>().await?, None);
    // Of some only: so it does not count at a checkpoint.
    let dropped = async || {
        let pair = session.world().filter(|rank| rank.0 < 2);
        session.allreduce("dropped", Sum(vec![1u32])).group(pair).await
    };
    if rank == 1 {
        let checkpoint = session.checkpoint(&1u32).now().into_future();
        if polls {
            assert!(checkpoint.now_or_never().is_none(), "rank 0 does not vote yet");
        } else {
            drop(checkpoint);
        }
        dropped().await?;
    } else {
        if rank == 0 {
            dropped().await?;
        }
        if polls {
            let saved = session.checkpoint(&1u32).now().await?;
            assert!(matches!(saved, Checkpointed::Saved { generation: 1, .. }), "{saved:?}");
        }
    }
    for _ in 0..2 {
        let told = session.checkpoint(&2u32).now().await;
        let is_told = match rank {
            1 => matches!(told, Err(CheckpointError::Dropped)),
            _ => matches!(told, Err(CheckpointError::NotTogether)),
        };
        assert!(is_told, "{told:?}");
    }
    Ok(())
}

async fn drops_what_it_has_polled(session: Session) -> everfold::Result<()> {
    drops(session, true).await
}

async fn drops_what_it_never_polls(session: Session) -> everfold::Result<()> {
    drops(session, false).await
}

/// The only generation that has a place in the directory of checkpoints.
fn only_place() -> PathBuf {
    let directory = fs::read_dir(std::env::var_os(CHECKPOINTS).unwrap()).unwrap();
    let mut places = directory.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let place = places.next().unwrap();
    assert!(places.next().is_none());
    place
}

/// The job hears that the first generation is given up because of `culprit`, and nothing of it is left.
async fn hears_what_is_given_up(session: Session, culprit: u32, place: &Path) -> everfold::Result<()> {
    let mut events = session.events();
    let saved = session.checkpoint(&2u32).now().await?;
    assert!(matches!(saved, Checkpointed::Saved { generation: 2, .. }), "{saved:?}");
    assert!(!place.exists());
    loop {
        match events.next().await {
            Some(News::CheckpointIncomplete { generation, rank, .. }) => {
                assert!(generation == 1 && rank == culprit, "generation {generation}, rank {rank}");
                return Ok(());
            }
            news => assert!(news.is_some(), "it is told"),
        }
    }
}

/// The part of rank 1 vanishes before ranks tell what their parts are.
async fn lacks_a_part(session: Session) -> everfold::Result<()> {
    assert_eq!(session.resume::<u32>().await?, None);
    session.checkpoint(&1u32).now().await?;
    session.checkpoint_written().await;
    let place = only_place();
    if session.rank() == 1 {
        fs::remove_file(place.join("rank-00001.part")).unwrap();
    }
    hears_what_is_given_up(session, 1, &place).await
}

/// It would begin anew instead of going on.
async fn never_resumes(session: Session) -> everfold::Result<()> {
    let called = session.allreduce("step", Sum(vec![1u64])).await;
    assert!(matches!(called, Err(ReduceError::NotResumed { .. })));
    Ok(())
}

/// The first checkpoint has room, and the second has not.
async fn small_disk(session: Session) -> everfold::Result<()> {
    let mut events = session.events();
    let saved: Option<Vec<u8>> = session.resume().await?;
    if saved.is_some() {
        println!("goes on with {} bytes", saved.map_or(0, |saved| saved.len()));
        return Ok(());
    }
    session.checkpoint(&vec![1u8; 10_000]).durable().await?;
    // One rank's part has room, and both have not.
    let full = session.checkpoint(&vec![2u8; 600_000]).durable().await;
    assert!(matches!(full, Err(CheckpointError::NotDurable { generation: 2, .. })), "{full:?}");
    // What was written of it does not stay: this one has room.
    session.checkpoint(&vec![3u8; 450_000]).durable().await?;
    while let Some(news) = events.next().await {
        if let News::CheckpointIncomplete { generation, reason, .. } = news {
            println!("generation {generation}: {reason}");
            break;
        }
    }
    Ok(())
}

/// Leaves the rest of a test out, as the system does not allow it. With EVERFOLD_TESTS_SKIP_NOTHING=1 the
/// test fails instead.
pub(crate) fn leave_out(why: &str) {
    let must_run = std::env::var_os("EVERFOLD_TESTS_SKIP_NOTHING").is_some_and(|value| value == "1");
    assert!(!must_run, "this test cannot run here: {why}");
    println!("skipped: {why}");
}

/// A small file system in a namespace of its own, where the system allows that.
fn full_disk() {
    let directory = Scratch::new();
    fs::create_dir(directory.path()).unwrap();
    let shell = |what: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c"]);
        command.arg(format!("mount -t tmpfs -o size=1m none {} && {what}", directory.path().display()));
        command
    };
    if !shell("true").status().is_ok_and(|status| status.success()) {
        return leave_out("this user may mount nothing here");
    }
    let program = std::env::current_exe().unwrap();
    let run = format!("{} run outlive::small_disk 2 shm", program.display());
    let path = directory.path().display();
    let end = Process::spawn(shell(&format!("{CHECKPOINTS}={path} {run} && {RESUME}={path} {run}"))).end();
    assert_eq!(end.code, 0, "{:#?}", end.said);
    assert!(says(&end, "No space left on device"), "{:#?}", end.said);
    assert!(says(&end, "goes on with 450000 bytes"), "there is room again: {:#?}", end.said);
}
