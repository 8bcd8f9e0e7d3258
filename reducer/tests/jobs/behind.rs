//! Asynchronous plans and plans with levels: checkpoints that are written while the program goes on, and deaths
//! meanwhile.

use std::{
    fs::{self, File as Opened},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use everfold::{Checkpointed, News, Order, Session, Sum};
use futures::{Stream, StreamExt};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::{
    come_back::{Fate, PLAN as DEATHS, config, die, vault_files},
    outlive::{CHECKPOINTS, RESUME, Scratch, switch_off},
    plans::{File, leveled, text, told},
    process::{End, Process, job},
    suite::Suite,
};

const PLAN: &str = "EVERFOLD_PLAN";
/// Set if each checkpoint is waited for.
const WAITS: &str = "BEHIND_WAITS";
/// At which step all wait for what comes.
const HOLDS: &str = "BEHIND_HOLDS";
const RANKS: u32 = 2;
const STEPS: u64 = 12;
const POINTS: [&str; 2] = ["middle", "end"];
/// Passes of these points: one is of both, and some follow at once.
const HOST: [(&str, u64); 4] = [("middle", 1), ("middle", 4), ("end", 5), ("end", 9)];
const DEVICE: [(&str, u64); 3] = [("middle", 4), ("end", 4), ("end", 10)];
/// Where the two have one, in order: the step, and the point.
const STARTED: [&str; 6] = ["1 middle", "4 middle", "4 end", "5 end", "9 end", "10 end"];
const LEVELS: [(&str, u64, &str); 5] = [
    ("middle", 1, "memory"),
    ("end", 2, "disk"),
    ("middle", 4, "region"),
    ("end", 6, "replica"),
    ("end", 7, "disk"),
];
/// Long enough that a thread needs a while to write it.
const LENGTH: usize = 1 << 22;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.program_with(config(), "behind::steps", steps);
    suite.test("behind::checkpoints_are_started_at_the_points_of_host_and_device", || {
        let end = survives("", &[]);
        for rank in 0..RANKS {
            assert_eq!(told(&end, rank, "started at "), STARTED, "{:#?}", end.said);
            // Each began when the one before was in force, and the last one was waited for.
            assert_eq!(told(&end, rank, "in force "), ["Some(6)"], "{:#?}", end.said);
        }
    });
    for (name, deaths) in [
        ("from_the_state_it_began_with", "1.0.middle.1".to_owned()),
        ("after_it_started", "1.0.started.1".to_owned()),
        ("before_the_seal_and_later", format!("{} 0.1.end.10", unwritten("0.0"))),
        ("before_the_seal_twice", format!("{} {}", unwritten("1.0"), unwritten("1.1"))),
        ("one_before_and_one_behind_the_seal", format!("0.0.written.4 {}", unwritten("1.0"))),
        ("behind_the_seal", "1.0.written.5 1.1.written.10".to_owned()),
    ] {
        suite.test(format!("behind::ranks_come_back::{name}"), move || {
            let end = survives(&deaths, &[]);
            assert!(says(&end, "dies at"), "{:#?}", end.said);
        });
    }
    suite.test("behind::what_came_since_the_start_is_behind_the_seal", since_the_start);
    suite.test("behind::everything_is_switched_off_and_on", off_and_on);
    suite.program_with(config(), "behind::small_limit", small_limit);
    suite.test("behind::what_cannot_be_written_is_told", || here("behind::small_limit", 1, 0..5, None));
    suite.program_with(config().result_log_bytes_max(1 << 20), "behind::half_full", half_full);
    suite.test("behind::a_log_that_is_half_full_does_not_wait", || here("behind::half_full", 1, 0..2, None));
    suite.program_with(config(), "behind::blocked", blocked);
    suite.test("behind::a_directory_that_cannot_be_written_is_told", || {
        let directory = Scratch::new();
        here("behind::blocked", RANKS, 0..4, Some(directory.path()));
    });
    suite.test("behind::only_the_levels_of_the_plan_are_written", only_the_levels);
    for deaths in ["1.0.saved.4", "0.0.saved.1 1.0.saved.2 0.1.saved.6"] {
        suite.test(format!("behind::ranks_come_back_from_each_level::{deaths}"), move || {
            let directory = Scratch::new();
            follows_levels(deaths, directory.path());
        });
    }
    suite.test("behind::levels_need_their_directory", || {
        let plan = File::new("behind-nowhere.toml", &leveled(&POINTS, &LEVELS));
        let end = run("behind::steps", "", &[(PLAN, &plan.0)]);
        assert_ne!(end.code, 0);
        assert!(says(&end, "go into a directory, and the job has none"), "{:#?}", end.said);
    });
}

fn says(end: &End, words: &str) -> bool {
    end.said.iter().any(|line| line.contains(words))
}

fn plan_file(name: &str) -> File {
    let text = text("asynchronous", &POINTS, &[("host", &HOST), ("device", &DEVICE)]);
    File::new(&format!("behind-{name}.toml"), &text)
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    step: u64,
    place: u64,
    sum: u64,
}

/// What the array holds then.
fn filled(state: &State) -> u64 {
    (state.step * 2 + state.place) ^ state.sum
}

/// Goes on behind the last point that was saved. Several reductions lie between any two points.
async fn steps(session: Session) -> everfold::Result<()> {
    let fate = Fate::of(&session);
    let meets = |place: &str, step: u64| {
        if fate.is(place, step) {
            println!("dies at {place} {step}");
            die();
        }
    };
    let mut array = vec![0u64; LENGTH];
    let saved: Option<State> = session.resume().array("array", &mut array).await?;
    let mut state = saved.unwrap_or_default();
    println!("life {} goes on at step {} place {}", fate.life, state.step, state.place);
    println!("comes back to {:?}", session.checkpoint_written().await);
    let whole = filled(&state);
    assert!(array.iter().all(|it| *it == whole), "the array and the state are of one generation");
    let mut started = None;
    while state.step < STEPS {
        let (step, point) = (state.step, POINTS[state.place as usize]);
        if std::env::var(HOLDS).is_ok_and(|holds| holds == step.to_string()) {
            session.checkpoint_written().await;
            println!("holds");
            std::future::pending::<()>().await;
        }
        calls(&session, &mut state, 3).await?;
        if let Some((step, generation)) = started.take() {
            if fate.is("unwritten", step) && is_unsealed() {
                println!("has begun {generation}");
                meets("unwritten", step);
            }
            if fate.is("written", step) {
                println!("has written {:?}", session.checkpoint_written().await);
                calls(&session, &mut state, 1).await?;
                meets("written", step);
            }
        }
        calls(&session, &mut state, 2).await?;
        meets(point, step);
        state.place = 1 - state.place;
        state.step += 1 - state.place;
        array.fill(filled(&state));
        let saved = session.checkpoint(&state).array("array", &array).at(point).await?;
        // It was copied: this goes into no checkpoint.
        array[step as usize] ^= 1;
        match saved {
            Checkpointed::Started { generation, .. } => {
                println!("started at {step} {point}");
                meets("started", step);
                started = Some((step, generation));
            }
            Checkpointed::Saved { generation, .. } => {
                println!("saved {generation} at {step} {point}");
                meets("saved", step);
            }
            Checkpointed::NotDue | Checkpointed::CatchingUp => {}
            other => panic!("{other:?}"),
        }
        if std::env::var(WAITS).is_ok() {
            session.checkpoint_written().await;
        }
    }
    println!("in force {:?}", session.checkpoint_written().await);
    println!("sum {}", state.sum);
    Ok(())
}

async fn calls(session: &Session, state: &mut State, calls: u64) -> everfold::Result<()> {
    for call in 0..calls {
        let mine = Sum(vec![state.sum ^ (call + u64::from(session.rank().0))]);
        let Sum(all) = session.allreduce("step", mine).order(Order::Fixed).await?.value;
        state.sum = state.sum.wrapping_mul(31).wrapping_add(all[0]);
    }
    Ok(())
}

/// Deaths of a life before the seal of a checkpoint. The thread that writes may be faster than its rank, so each
/// checkpoint is a chance, and the first that comes is the death.
fn unwritten(life: &str) -> String {
    [1, 4, 5, 9, 10].map(|step| format!("{life}.unwritten.{step}")).join(" ")
}

/// Whether a checkpoint is being written to this process's vault.
fn is_unsealed() -> bool {
    let is_sealed = |path: PathBuf| {
        let mut seal = [0];
        Opened::open(path).unwrap().read_at(&mut seal, 87).unwrap() == 1 && seal[0] != 0
    };
    let sealed: Vec<bool> = vault_files().into_iter().map(is_sealed).collect();
    assert_eq!(sealed.len(), 2, "a vault has two files");
    sealed.contains(&false)
}

fn run(program: &str, deaths: &str, variables: &[(&str, &Path)]) -> End {
    let mut command = job(program, RANKS, "shm");
    command.env(DEATHS, deaths).envs(variables.iter().copied());
    Process::spawn(command).end()
}

/// Sees that a job comes to the same sum as without plan and deaths.
fn assert_same(end: &End) {
    let undisturbed = run("behind::steps", "", &[]);
    undisturbed.assert_done(0..RANKS);
    for rank in 0..RANKS {
        let sum = told(end, rank, "sum ");
        assert_eq!((sum.len(), &sum), (1, &told(&undisturbed, rank, "sum ")), "{:#?}", end.said);
    }
    let count = |words: &str| end.said.iter().filter(|line| line.contains(words)).count();
    assert_eq!(count("goes on at"), count("dies at") + RANKS as usize, "{:#?}", end.said);
}

fn survives(deaths: &str, variables: &[(&str, &Path)]) -> End {
    let plan = plan_file(&deaths.replace(' ', "-"));
    let end = run("behind::steps", deaths, &[&[(PLAN, &*plan.0)], variables].concat());
    end.assert_done(0..RANKS);
    assert_same(&end);
    end
}

/// Who dies before the seal goes on from the checkpoint before; who dies behind it, from that one, and is answered
/// from the log: the other rank does not call again.
fn since_the_start() {
    let end = survives(&format!("1.0.written.4 {}", unwritten("0.0")), &[]);
    let number = |text: &str| text.trim_matches(|it: char| !it.is_ascii_digit()).parse::<u64>().unwrap_or(0);
    let begun = number(told(&end, 0, "has begun ")[0]);
    assert_eq!(number(told(&end, 0, "comes back to ")[1]), begun - 1, "{:#?}", end.said);
    // Generation 2 is that of the middle of step 4.
    assert_eq!(told(&end, 1, "has written "), ["Some(2)"], "{:#?}", end.said);
    assert_eq!(told(&end, 1, "life 1 "), ["goes on at step 4 place 1"], "{:#?}", end.said);
}

/// Four checkpoints were started by then, and the fourth has found the third complete in the directory.
fn off_and_on() {
    let (plan, directory) = (plan_file("off"), Scratch::new());
    let command = |variable: &str, holds: &str| {
        let mut command = job("behind::steps", RANKS, "shm");
        command.env(PLAN, &plan.0).env(WAITS, "yes").env(HOLDS, holds).env(variable, directory.path());
        command
    };
    let mut process = Process::spawn(command(CHECKPOINTS, "6"));
    process.wait_for(RANKS as usize, "holds");
    switch_off(process);
    let end = Process::spawn(command(RESUME, "")).end();
    end.assert_done(0..RANKS);
    assert_same(&end);
    for rank in 0..RANKS {
        assert_eq!(told(&end, rank, "life 0 goes on at "), ["step 5 place 0"], "{:#?}", end.said);
    }
}

/// Runs a program that follows an asynchronous plan with these passes of one point.
fn here(program: &str, ranks: u32, passes: std::ops::Range<u64>, directory: Option<&Path>) {
    let stops: Vec<_> = passes.map(|pass| ("here", pass)).collect();
    let tracks = [("host", &stops[..]), ("device", &[])];
    let plan = File::new(&program.replace(':', "-"), &text("asynchronous", &["here"], &tracks));
    let mut command = job(program, ranks, "shm");
    command.env(PLAN, &plan.0).envs(directory.map(|directory| (CHECKPOINTS, directory)));
    Process::spawn(command).end().assert_done(0..ranks);
}

/// The next news of a checkpoint.
async fn news_of_checkpoint(events: &mut (impl Stream<Item = News> + Unpin)) -> News {
    loop {
        let news = events.next().await.expect("the session is not over");
        match news {
            News::CheckpointUnwritten { .. }
            | News::CheckpointIncomplete { .. }
            | News::CheckpointComplete { .. } => return news,
            _ => {}
        }
    }
}

async fn started(session: &Session, state: &[u8]) -> everfold::Result<u64> {
    match session.checkpoint(&state.to_vec()).at("here").await? {
        Checkpointed::Started { generation, .. } => Ok(generation),
        other => panic!("{other:?}"),
    }
}

/// There is no room for a checkpoint, and then there is.
async fn small_limit(session: Session) -> everfold::Result<()> {
    let mut events = session.events();
    assert_eq!(session.resume::<Vec<u8>>().await?, None);
    session.allreduce("before", Sum(vec![1u32])).await?;
    let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, 100_000, hard).unwrap();
    assert_eq!(started(&session, &[1; 200_000]).await?, 1);
    assert_eq!(session.checkpoint_written().await, None, "the beginning stays in force");
    setrlimit(Resource::RLIMIT_FSIZE, soft, hard).unwrap();
    let news = news_of_checkpoint(&mut events).await;
    let News::CheckpointUnwritten { rank, generation: 1, reason } = &news else { panic!("{news:?}") };
    assert!(*rank == session.rank() && reason.contains("ulimit -f"), "{news}");
    session.allreduce("between", Sum(vec![1u32])).await?;
    // The next one tries again, and those that follow at once wait for the one before.
    for generation in 1..=4 {
        assert_eq!(started(&session, &[2; 3_000_000]).await?, generation);
    }
    assert_eq!(session.checkpoint_written().await, Some(4));
    Ok(())
}

/// There may be no room until a checkpoint is written.
async fn half_full(session: Session) -> everfold::Result<()> {
    assert_eq!(session.resume::<Vec<u8>>().await?, None);
    session.allreduce("long", Sum(vec![1u8; 600_000])).await?;
    let saved = session.checkpoint(&vec![1u8; 10]).at("here").await?;
    assert!(matches!(saved, Checkpointed::Saved { generation: 1, .. }), "{saved:?}");
    assert_eq!(started(&session, &[1]).await?, 2);
    Ok(())
}

/// The second generation finds a file in place of its folder.
async fn blocked(session: Session) -> everfold::Result<()> {
    let mut events = session.events();
    assert_eq!(session.resume::<Vec<u8>>().await?, None);
    assert_eq!(started(&session, &[1]).await?, 1);
    session.checkpoint_written().await;
    if session.rank() == 0 {
        let [first] = &folders(Path::new(&std::env::var(CHECKPOINTS).unwrap()))[..] else {
            panic!("one is there")
        };
        let second = first.to_str().unwrap().replace("0000000001-", "0000000002-");
        fs::write(second, "").unwrap();
    }
    session.allreduce("blocked", Sum(vec![1u32])).await?;
    for generation in 2..=4 {
        assert_eq!(started(&session, &[1]).await?, generation);
        session.checkpoint_written().await;
    }
    let mut heard = vec![];
    while heard.last().is_none_or(|news| !matches!(news, News::CheckpointComplete { generation: 3 })) {
        // Only the lowest rank of a host hears what is complete.
        if session.rank() == 1 && !heard.is_empty() {
            break;
        }
        heard.push(news_of_checkpoint(&mut events).await);
    }
    let is_told = |news: &News| matches!(news, News::CheckpointIncomplete { generation: 2, .. });
    assert!(heard.iter().any(is_told), "{heard:?}");
    Ok(())
}

/// The generations in a directory, complete or not.
fn folders(directory: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = all.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn follows_levels(deaths: &str, directory: &Path) -> End {
    let name = format!("levels-{}.toml", deaths.replace(' ', "-"));
    let plan = File::new(&name, &leveled(&POINTS, &LEVELS));
    let end =
        run("behind::steps", deaths, &[(PLAN, &plan.0), (CHECKPOINTS, directory), (WAITS, Path::new("yes"))]);
    end.assert_done(0..RANKS);
    assert_same(&end);
    end
}

fn only_the_levels() {
    let directory = Scratch::new();
    let end = follows_levels("", directory.path());
    let expected = ["1 at 1 middle", "2 at 2 end", "3 at 4 middle", "4 at 6 end", "5 at 7 end"];
    for rank in 0..RANKS {
        assert_eq!(told(&end, rank, "saved "), expected, "{:#?}", end.said);
    }
    let folders = folders(directory.path());
    let number = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap()[..10].parse::<u64>().unwrap();
    assert_eq!(folders.iter().map(number).collect::<Vec<_>>(), [2, 5]);
    assert!(folders.iter().all(|folder| folder.join("manifest").exists()), "{folders:?}");
}
