//! Ranks whose standbys take their places: the same bits in the end, and no line of output is lost.
//!
//! Hosts are processes of this machine, as where ranks migrate. Rank 0 stops at gates, where it tells what happens
//! in the job; meanwhile the test kills or stops processes.

use std::{fs, path::PathBuf, time::Duration};

use everfold::{Checkpointed, Config, Interval, News, Order, Session, Sum};
use futures::{FutureExt, StreamExt};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use crate::{
    come_back::Fate,
    migrate::{Case, EACH, Job, digests},
    process::{End, wait_until},
    suite::Suite,
};

const STEPS: u64 = 50;
/// Bytes of what is saved by a plan.
const LENGTH: usize = 16 << 20;
/// The steps before which rank 0 waits until its gate is open.
const GATES: [u64; 2] = [15, 30];
const FILE: &str = "process = [\"promote\", \"restart\"]\nphysical = [\"promote\", \"migrate\"]";
/// The rank to which things happen, on host 1.
const VICTIM: u32 = 2;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.program_with(config(), "promote::computes_on", computes_on);
    suite.test("promote::a_rank_that_dies_twice_is_promoted_twice", || {
        let mut job = Disturbed::start(Case { hosts: 2, file: FILE, ..Case::default() });
        job.wait_for(1, "a standby of rank 2 follows it");
        job.kill(VICTIM, 0);
        job.wait_for(1, "rank 2 is where it was");
        // The other host has it now, and the next standby is where it was.
        job.wait_for(2, "a standby of rank 2 follows it");
        job.open(0);
        job.wait_for(1, "gate 30");
        let life = job.life(VICTIM);
        job.kill(VICTIM, life);
        job.wait_for(2, "rank 2 is where it was");
        job.open(1);
        let ends = job.ends_as_undisturbed();
        assert_eq!(told(&ends, "the standby of rank 2 takes its place"), 2, "{ends:#?}");
        // What the standby had printed since its last call comes twice.
        let steps = told(&ends, "rank 2 has step ") as u64;
        assert!((STEPS..=STEPS + 2).contains(&steps), "{steps}: {ends:#?}");
        let codes: Vec<i32> = ends.iter().map(|end| end.code).collect();
        assert_eq!(codes, [0; 2], "a rank that is promoted has not failed: {ends:#?}");
    });
    suite.test("promote::a_rank_that_writes_checkpoints_while_it_goes_on_is_promoted", || {
        let passes = &[1, 2, 3];
        let mut job = Disturbed::start(Case { hosts: 2, file: FILE, passes, ..Case::default() });
        job.wait_for(1, "a standby of rank 2 follows it");
        job.open(0);
        // The standby has followed it over two checkpoints by then.
        job.wait_for(1, "gate 30");
        job.kill(VICTIM, 0);
        job.wait_for(1, "rank 2 is where it was");
        job.open(1);
        let ends = job.ends_as_undisturbed();
        assert_eq!(told(&ends, "the standby of rank 2 takes its place"), 1, "{ends:#?}");
        assert!(told(&ends, "rank 2 has started a checkpoint") >= 2, "{ends:#?}");
    });
    suite.test("promote::a_standby_that_dies_is_followed_by_another_one", || {
        let mut job = Disturbed::start(Case { hosts: 2, file: FILE, ..Case::default() });
        job.wait_for(1, "a standby of rank 2 follows it");
        job.kill(VICTIM, 1);
        job.wait_for(1, "rank 2 has no standby: signal 9 killed it");
        job.wait_for(2, "a standby of rank 2 follows it");
        job.kill(VICTIM, 0);
        job.wait_for(1, "the standby of rank 2 takes its place");
        job.open_all();
        let ends = job.ends_as_undisturbed();
        assert_eq!(told(&ends, "rank 2 is where it was"), 1, "{ends:#?}");
        let of_standby =
            "everfold: the standby of rank 2 was killed by SIGKILL; the rank itself is not affected";
        let deaths = [of_standby, "everfold: rank 2 was killed by SIGKILL"];
        assert_eq!(deaths.map(|death| told(&ends, death)), [1, 1], "{ends:#?}");
    });
    suite.test("promote::a_rank_and_its_standby_die_at_once", || {
        let mut job = Disturbed::start(Case { hosts: 2, file: FILE, ..Case::default() });
        job.wait_for(1, "a standby of rank 2 follows it");
        job.kill(VICTIM, 1);
        job.kill(VICTIM, 0);
        job.wait_for(1, "rank 2 is where it was");
        job.open_all();
        job.ends_as_undisturbed();
    });
    suite.test("promote::the_host_of_a_rank_is_lost", || {
        let mut job = Disturbed::start(Case { hosts: 2, spares: 1, file: FILE, ..Case::default() });
        job.wait_for(1, "a standby of rank 2 follows it");
        job.wait_for(1, "a standby of rank 3 follows it");
        job.job.lose(1);
        job.wait_for(1, "rank 2 is where it was");
        job.wait_for(1, "rank 3 is where it was");
        job.open_all();
        let ends = job.ends_as_undisturbed();
        assert_eq!(told(&ends, "takes its place"), 2, "{ends:#?}");
    });
    suite.test("promote::the_host_of_standbys_is_lost", || {
        // Replicas are spread once all ranks are there, and standbys follow them: each host has standbys.
        let mut job = Disturbed::start(Case { hosts: 3, file: FILE, ..Case::default() });
        for rank in 0..3 * EACH {
            job.wait_for(1, &format!("a standby of rank {rank} follows it"));
        }
        job.job.lose(2);
        let lost = "has no standby: its host is lost";
        job.wait_for(1, lost);
        let said = job.job.hosts[0].as_ref().expect("it lives").said();
        let line = said.iter().find(|line| line.contains(lost)).expect("it is waited for");
        let rank: u32 =
            line.split("rank ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap();
        job.wait_for(2, &format!("a standby of rank {rank} follows it"));
        for rank in 2 * EACH..3 * EACH {
            job.wait_for(1, &format!("rank {rank} is where it was"));
        }
        job.open_all();
        let ends = job.ends_as_undisturbed();
        assert_eq!(told(&ends, "takes its place"), EACH as usize, "{ends:#?}");
    });
    suite.test("promote::a_standby_that_does_nothing_holds_nobody_up", || {
        let mut job = Disturbed::start(Case { hosts: 2, file: FILE, ..Case::default() });
        job.wait_for(1, "a standby of rank 2 follows it");
        job.signal(VICTIM, 1, Signal::SIGSTOP);
        job.open(0);
        job.wait_for(1, "gate 30");
        job.kill(VICTIM, 0);
        // It is given up after a silence, and the next recovery is tried.
        job.wait_for(1, "rank 2 is where it was");
        job.open(1);
        let ends = job.ends_as_undisturbed();
        assert_eq!(told(&ends, "recovery promote of rank 2 cannot be done"), 1, "{ends:#?}");
    });
    suite.test("promote::on_one_host_there_is_no_standby_and_the_next_recovery_is_tried", || {
        let mut job = Disturbed::start(Case { hosts: 1, file: FILE, ..Case::default() });
        job.wait_for(1, "gate 15");
        job.kill(1, 0);
        job.wait_for(1, "rank 1 is where it was");
        // What was told when the job began is told again, now that somebody listens.
        job.wait_for(1, "rank 1 has no standby: no other host can keep one");
        job.open_all();
        let ends = job.ends_as_undisturbed();
        assert_eq!(told(&ends, "recovery promote of rank 1 cannot be done"), 1, "{ends:#?}");
    });
}

fn config() -> Config {
    Config::default()
        .restart_ranks()
        .checkpoint_interval(Interval::Fixed(Duration::from_secs(3600)))
        .ping_interval(Duration::from_millis(500))
}

/// How many lines contain this.
fn told(ends: &[End], part: &str) -> usize {
    ends.iter().flat_map(|end| &end.said).filter(|line| line.contains(part)).count()
}

/// A job whose rank 0 stops at gates.
struct Disturbed {
    job: Job,
    case: Case,
}

impl Disturbed {
    fn start(case: Case) -> Self {
        Self { job: Job::start("promote::computes_on", &case), case }
    }

    /// Waits until rank 0 has said so often what contains this.
    fn wait_for(&mut self, count: usize, text: &str) {
        self.job.hosts[0].as_mut().expect("the host of rank 0 is not lost").wait_for(count, text);
    }

    fn signal(&self, rank: u32, life: u32, signal: Signal) {
        let process = self.job.mark.rank(rank, life).expect("it lives");
        kill(Pid::from_raw(process), signal).expect("it is ours");
    }

    fn kill(&self, rank: u32, life: u32) {
        self.signal(rank, life, Signal::SIGKILL);
        wait_until("what is killed ends", || self.job.mark.rank(rank, life).is_none());
    }

    /// The number of the first process of a rank that lives.
    fn life(&self, rank: u32) -> u32 {
        (0..10).find(|life| self.job.mark.rank(rank, *life).is_some()).expect("one lives")
    }

    fn open(&self, gate: usize) {
        fs::write(gate_at(&self.job.file, GATES[gate]), "").expect("there is room");
    }

    fn open_all(&self) {
        (0..GATES.len()).for_each(|gate| self.open(gate));
    }

    /// Compares what has come of it with what comes of a job in which nothing happens.
    fn ends_as_undisturbed(self) -> Vec<End> {
        let Self { job, case } = self;
        let gates = GATES.map(|gate| gate_at(&job.file, gate));
        let ends = job.end();
        let undisturbed = Self::start(case);
        undisturbed.open_all();
        let others = GATES.map(|gate| gate_at(&undisturbed.job.file, gate));
        let expected = undisturbed.job.end();
        gates.iter().chain(&others).for_each(|gate| drop(fs::remove_file(gate)));
        let sorted = |ends: &[End]| {
            let mut digests: Vec<String> = digests(ends).into_iter().map(str::to_owned).collect();
            digests.sort();
            digests
        };
        assert_eq!(sorted(&expected).len(), (case.hosts * EACH) as usize, "{expected:#?}");
        assert_eq!(sorted(&ends), sorted(&expected), "{ends:#?}");
        ends
    }
}

/// A gate is open when this file is there.
fn gate_at(file: &std::path::Path, step: u64) -> PathBuf {
    file.with_extension(step.to_string())
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    step: u64,
    values: Vec<f64>,
}

async fn computes_on(session: Session) -> everfold::Result<()> {
    let mut events = session.events();
    let fate = Fate::of(&session);
    let recovery = std::env::var("EVERFOLD_RECOVERY").map(PathBuf::from).unwrap_or_default();
    let follows_a_plan = std::env::var("EVERFOLD_PLAN").is_ok();
    // Long enough that calls end while it is written.
    let mut field = vec![0u8; if follows_a_plan { LENGTH } else { 0 }];
    let saved: Option<State> = session.resume().array("field", &mut field).await?;
    let rank = session.rank().0;
    let mut state = saved.unwrap_or_else(|| State { step: 0, values: vec![f64::from(rank) + 0.1; 3000] });
    while state.step < STEPS {
        if rank == 0 && GATES.contains(&state.step) {
            println!("gate {} for life {}", state.step, fate.life);
            while !gate_at(&recovery, state.step).exists() {
                while let Some(Some(news)) = events.next().now_or_never() {
                    println!("news: {news}");
                }
                std::thread::sleep(Duration::from_millis(5));
                // Lets the session hear what comes.
                tokio::task::yield_now().await;
            }
        }
        let mine: Vec<f64> = state.values.iter().map(|it| it * 1.1 + f64::from(rank)).collect();
        let Sum(sum) = session.allreduce("step", Sum(mine)).order(Order::Fixed).await?.value;
        for (mine, sum) in state.values.iter_mut().zip(&sum) {
            *mine = (*mine + sum / 7.0).sin();
        }
        let root = session.size() - 1;
        let check =
            session.reduce("check", Sum(vec![state.values[0]])).root(root).order(Order::Fixed).await?;
        state.values[1] += check.value.map_or(0.0, |Sum(sum)| sum[0]);
        state.step += 1;
        if rank == VICTIM {
            println!("rank {rank} has step {}", state.step);
        }
        if state.step.is_multiple_of(7) {
            let checkpoint = session.checkpoint(&state).array("field", &field).at("seven");
            let saved = if follows_a_plan { checkpoint.await? } else { checkpoint.now().await? };
            if rank == VICTIM && matches!(saved, Checkpointed::Started { .. }) {
                println!("rank {rank} has started a checkpoint");
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    while let Some(Some(news)) = events.next().now_or_never() {
        if rank == 0 {
            println!("news: {news}");
        }
        if let News::CaughtUp { lost, comeback, .. } = &news {
            assert!(comeback.transfer + comeback.load + comeback.again < *lost, "{news}");
        }
    }
    let bits = state.values.iter().fold(u64::from(rank), |digest, it| digest.rotate_left(5) ^ it.to_bits());
    println!("digest {rank} {bits:x}");
    Ok(())
}
