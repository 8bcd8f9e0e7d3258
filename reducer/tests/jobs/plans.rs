//! Plans of checkpoints: where a program saves, with and without deaths, and profiles that are recorded.

use std::{fs, path::PathBuf};

use everfold::{Checkpointed, News, Order, Session, Sum};
use futures::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::{
    come_back::{Fate, PLAN as DEATHS, config},
    process::{End, Process, job},
    suite::Suite,
};

const RANKS: u32 = 2;
const STEPS: u64 = 20;
/// The points of a step. Two of them are one place that it passes twice.
const POINTS: [&str; 4] = ["before", "inside", "inside", "after"];
/// A plan for the program below: a point, and how often it was passed before.
const STOPS: [(&str, u64); 5] = [("after", 2), ("inside", 12), ("before", 7), ("after", 11), ("before", 19)];

pub(crate) fn add_to(suite: &mut Suite) {
    suite.program_with(config(), "plans::steps", steps);
    suite.program_with(config(), "plans::hears_of_a_misfit", hears_of_a_misfit);
    suite.job_with(config(), "plans::a_started_checkpoint_holds_what_was_there", 1, started);
    suite.test("plans::checkpoints_are_saved_at_the_points_of_the_plan", || {
        follow("", &[]);
    });
    for deaths in [
        "1.0.before.3",
        "1.0.inside.3 0.0.after.11",
        "0.0.saved.7 0.1.inside.8 0.2.after.12",
        "1.0.saved.2 1.1.saved.6",
    ] {
        suite.test(format!("plans::ranks_go_on_in_the_middle_of_the_plan::{deaths}"), move || {
            follow(deaths, &[]);
        });
    }
    suite.test("plans::what_does_not_fit_is_told", misfits);
    suite.test("plans::what_cannot_be_followed_ends_the_launch", refused);
    suite.test("plans::a_profile_is_recorded", record);
}

/// A file that goes with the test.
pub(crate) struct File(pub(crate) PathBuf);

impl File {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let file = std::env::temp_dir().join(format!("everfold-{}-{name}", std::process::id()));
        fs::write(&file, text).unwrap();
        Self(file)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn plan(stops: &[(&str, u64)], points: &[&str]) -> String {
    text("synchronous", points, &[("whole", stops)])
}

/// A plan with these lists of checkpoints.
pub(crate) fn text(placement: &str, points: &[&str], tracks: &[(&str, &[(&str, u64)])]) -> String {
    let mut text = format!(
        "title = \"steps\"\nplacement = {placement:?}\nrule = \"cheapest\"\noffset_ns = 0\nrun_ns = 9\n\
         taken_ns = 0\nhidden_ns = 0\npoints = {points:?}\n"
    );
    for (part, stops) in tracks {
        text += &format!("[[tracks]]\npart = {part:?}\napart_ns = 5\n");
        if stops.is_empty() {
            text += "stops = []\n";
        }
        for (point, pass) in *stops {
            text += &format!(
                "[[tracks.stops]]\npoint = {point:?}\npass = {pass}\nat_ns = 1\nsince_ns = 1\nbytes = 1\n\
                 write_ns = 1\nhidden_ns = 0\nmoved_ns = 0\namong = 1\n"
            );
        }
    }
    text
}

/// A plan with levels: point, pass, level.
pub(crate) fn leveled(points: &[&str], stops: &[(&str, u64, &str)]) -> String {
    let mut text = format!("title = \"steps\"\nrun_ns = 9\nexpected_s = 9.0\npoints = {points:?}\n");
    for (point, pass, level) in stops {
        text += &format!(
            "[[stops]]\npoint = {point:?}\npass = {pass}\nat_ns = 1\nlevel = {level:?}\nwrite_ns = 1\n"
        );
    }
    text
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    step: u64,
    /// How many points of this step it has passed.
    place: u64,
    sum: u64,
}

/// Goes on behind the last point that was saved.
async fn steps(session: Session) -> everfold::Result<()> {
    let fate = Fate::of(&session);
    let mut state: State = session.resume().await?.unwrap_or_default();
    println!("life {} goes on at step {} place {}", fate.life, state.step, state.place);
    while state.step < STEPS {
        let step = state.step;
        match state.place {
            1 => {
                let mine = Sum(vec![state.sum ^ (step + u64::from(session.rank().0))]);
                let Sum(all) = session.allreduce("step", mine).order(Order::Fixed).await?.value;
                state.sum = state.sum.wrapping_mul(31).wrapping_add(all[0]);
            }
            4 => {
                state.step += 1;
                state.place = 0;
                continue;
            }
            _ => {}
        }
        let point = POINTS[state.place as usize];
        fate.meets(point, step);
        state.place += 1;
        match session.checkpoint(&state).at(point).await? {
            Checkpointed::Saved { .. } => {
                println!("saved at {step} {point}");
                fate.meets("saved", step);
            }
            Checkpointed::NotDue => {}
            other => panic!("{other:?}"),
        }
    }
    println!("sum {}", state.sum);
    Ok(())
}

fn run(deaths: &str, variables: &[(&str, &PathBuf)]) -> End {
    let mut command = job("plans::steps", RANKS, "shm");
    command.env(DEATHS, deaths).envs(variables.iter().copied());
    Process::spawn(command).end()
}

/// What lines of one rank say behind these words.
pub(crate) fn told<'a>(end: &'a End, rank: u32, words: &str) -> Vec<&'a str> {
    let mark = format!("[{rank}] ");
    let of_rank = end.said.iter().filter_map(|line| line.strip_prefix(mark.as_str()));
    of_rank.filter_map(|line| line.strip_prefix(words)).collect()
}

fn follow(deaths: &str, variables: &[(&str, &PathBuf)]) {
    let mut expected: Vec<String> = vec![];
    let mut passed = std::collections::BTreeMap::<&str, u64>::new();
    for (step, point) in (0..STEPS).flat_map(|step| POINTS.map(|it| (step, it))) {
        let times = passed.entry(point).or_default();
        if STOPS.contains(&(point, *times)) {
            expected.push(format!("{step} {point}"));
        }
        *times += 1;
    }
    assert_eq!(expected.len(), STOPS.len());
    let undisturbed = run("", &[]);
    undisturbed.assert_done(0..RANKS);
    let file =
        File::new(&format!("plan-{}.toml", deaths.len()), &plan(&STOPS, &["before", "inside", "after"]));
    let end = run(deaths, &[&[("EVERFOLD_PLAN", &file.0)], variables].concat());
    end.assert_done(0..RANKS);
    for rank in 0..RANKS {
        assert_eq!(told(&end, rank, "saved at "), expected, "{:#?}", end.said);
        assert_eq!(told(&end, rank, "sum "), told(&undisturbed, rank, "sum "));
    }
    let lives = deaths.split(' ').filter(|death| !death.is_empty()).count() + RANKS as usize;
    assert_eq!(end.said.iter().filter(|line| line.contains("goes on at")).count(), lives, "{:#?}", end.said);
}

/// Passes one point three times, and hears what is wrong with the plan.
async fn hears_of_a_misfit(session: Session) -> everfold::Result<()> {
    let mut events = session.events();
    assert_eq!(session.resume::<u32>().await?, None);
    for pass in 0..3u32 {
        let saved = session.checkpoint(&pass).at("here").await?;
        println!("pass {pass} {}", matches!(saved, Checkpointed::Saved { .. }));
    }
    while let Some(Some(event)) = events.next().now_or_never() {
        if matches!(event, News::PlanMisfit { .. }) {
            println!("hears {event}");
        }
    }
    Ok(())
}

fn misfits() {
    let outcome = |name: &str, stops: &[(&str, u64)], points: &[&str]| {
        let file = File::new(name, &plan(stops, points));
        let mut command = job("plans::hears_of_a_misfit", 1, "shm");
        command.env("EVERFOLD_PLAN", &file.0);
        let end = Process::spawn(command).end();
        end.assert_done(0..1);
        let pass: Vec<bool> = told(&end, 0, "pass ").iter().map(|line| line.ends_with("true")).collect();
        (pass, told(&end, 0, "hears ").join("; "))
    };
    // It fits as far as the program goes.
    assert_eq!(outcome("fits", &[("here", 1)], &["here"]), (vec![false, true, false], String::new()));
    // Another program: it saves at once, and then at its interval.
    let (saved, words) = outcome("unknown", &[("there", 1)], &["there"]);
    assert_eq!(saved, [true, false, false]);
    assert!(words.contains("\"here\", which the plan does not know"), "{words}");
    let (saved, words) = outcome("missed", &[("there", 0), ("here", 1)], &["here", "there"]);
    assert_eq!(saved, [false, true, false]);
    assert!(words.contains("pass 0 of point \"there\" should have come before"), "{words}");
}

fn refused() {
    let end_with = |name: &str, text: &str| {
        let file = File::new(name, text);
        let end = run("", &[("EVERFOLD_PLAN", &file.0)]);
        assert_ne!(end.code, 0);
        end.said.join("\n")
    };
    assert!(end_with("no-stops", &plan(&[], &[])).contains("no checkpoints"));
    assert!(end_with("no-plan", "[machine]\n").contains("this is no plan"));
    let nowhere = run("", &[("EVERFOLD_RECORD", &PathBuf::from("/nowhere/profile.toml"))]);
    assert!(
        nowhere.said.join("\n").contains("cannot write the profile /nowhere/profile.toml"),
        "{:?}",
        nowhere.said
    );
    assert_ne!(nowhere.code, 0);
}

fn record() {
    let file = File::new("profile.toml", "");
    let end = run("", &[("EVERFOLD_RECORD", &file.0)]);
    end.assert_done(0..RANKS);
    let profile: Table = fs::read_to_string(&file.0).unwrap().parse().unwrap();
    assert!(profile["source"].as_str().unwrap().contains("80 points"), "{profile:?}");
    assert_eq!(profile["machine"]["mtbf_host"].as_str(), Some("86400 s"));
    // Steps of which some take longer than others are several sections.
    let name = |point: &toml::Value| point["name"].as_str().unwrap().to_owned();
    let (mut steps, sections) = (0, profile["section"].as_array().unwrap());
    for section in sections.iter().filter(|section| section.get("points").is_some()) {
        let points = section["points"].as_array().unwrap();
        assert_eq!(points.iter().map(name).collect::<Vec<_>>(), POINTS);
        steps += section["times"].as_integer().unwrap();
        for point in points {
            let bytes: u64 = point["host"].as_str().unwrap().trim_end_matches(" B").parse().unwrap();
            assert!((3..40).contains(&bytes), "{point:?}");
        }
    }
    assert_eq!(steps, STEPS as i64, "{profile:?}");
}

/// A checkpoint that was started holds what was there, whatever happens before it is written; and an earlier
/// one does not replace a later one.
async fn started(session: Session) -> everfold::Result<()> {
    let mut field = vec![1u64; 1000];
    assert_eq!(session.resume::<u64>().array("field", &mut field).await?, None);
    let first = session.checkpoint(&1u64).array("field", &field).now().start()?;
    field.fill(2);
    let second = session.checkpoint(&2u64).array("field", &field).now().start()?;
    field.fill(3);
    let on_another_thread = std::thread::spawn(move || futures::executor::block_on(second));
    let saved = on_another_thread.join().unwrap()?;
    assert_eq!(saved, Checkpointed::Saved { generation: 1, bytes: 8001 });
    assert_eq!(first.await?, Checkpointed::NotDue);
    let late = session.checkpoint(&4u64).array("field", &field).now().start()?;
    session.allreduce("between", Sum(vec![1u32])).await?;
    let refused = late.await;
    assert!(matches!(refused, Err(everfold::CheckpointError::CalledMeanwhile)), "{refused:?}");
    Ok(())
}
