//! Ranks whose hosts are lost, and that go on on other hosts: the same bits in the end.
//!
//! A host is a process that starts ranks as `everfold run --hosts` does, and that has an agent of its own.
//! All are on this machine, and read each other over TCP. To lose one, its process is killed: its ranks die
//! with it.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use everfold::{
    Config, Interval, News, NoReturn, Order, Session, Sum,
    launch::{Checkpoints, Hosts, Local, hosts::Said},
};
use futures::{FutureExt, StreamExt};
use nix::sys::signal::{Signal, raise};
use serde::{Deserialize, Serialize};

use crate::{
    come_back::Fate,
    outlive::{CHECKPOINTS, RESUME},
    plans::{File, text},
    process::{End, Mark, Process},
    suite::Suite,
};

/// Ranks on each host.
pub(crate) const EACH: u32 = 2;
const STEPS: u64 = 60;
const LENGTH: usize = 3000;
/// What ranks run that do not join, and do not end.
pub(crate) const NEVER_JOINS: &str = "migrate::never_joins";
/// The step at which each rank says where it is.
const TOLD: u64 = 25;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.program_with(config(), "migrate::computes_on", computes_on);
    suite.test("migrate::a_spare_host_takes_the_ranks_of_a_lost_one", || {
        loses(Case { hosts: 2, spares: 1, lost: &[1], ..Case::default() });
    });
    suite.test("migrate::without_a_spare_host_the_others_take_them", || {
        loses(Case { hosts: 3, spares: 0, lost: &[2], ..Case::default() });
    });
    suite.program_with(config(), "migrate::goes_on_until_told", goes_on_until_told);
    suite.test("migrate::a_host_that_comes_back_is_a_spare_one", comes_back);
    suite.test("migrate::the_host_that_takes_them_is_lost_too", || {
        loses(Case { hosts: 2, spares: 2, lost: &[1, 3], ..Case::default() });
    });
    suite.test("migrate::ranks_leave_a_domain_that_is_lost", || {
        let domains = &["a", "b", "b", "b", "a"][..];
        let file = "physical = \"migrate\"\n[network]\nshare_percent = 30\nrecovery = \"migrate\"";
        let ends = loses(Case { hosts: 3, spares: 2, lost: &[1, 2], file, domains, ..Case::default() });
        let is_an_end = |line: &&String| line.contains("end of rank 4") || line.contains("end of rank 5");
        let went = |host: usize| ends[host].said.iter().filter(is_an_end).count() as u32;
        assert_eq!(
            (went(3), went(0) + went(4)),
            (0, EACH),
            "the last one of its domain is left alone: {ends:#?}"
        );
    });
    suite.test("migrate::a_rank_whose_host_is_faulty_goes_elsewhere", || {
        let file = "[repeated]\nfaults = 1\nwithin = \"1 h\"\nrecovery = \"migrate\"";
        let plan = "2.0.between.9 3.0.between.12";
        let ends = loses(Case { hosts: 2, spares: 1, file, plan, ..Case::default() });
        assert!(ends[1].said.iter().any(|line| line.contains("life 1")), "{ends:#?}");
        assert!(ends[2].said.iter().any(|line| line.contains("life 1")), "{ends:#?}");
        let codes: Vec<i32> = ends.iter().map(|end| end.code).collect();
        assert_eq!(codes, [0; 3], "a rank that goes on elsewhere has not failed: {ends:#?}");
        let told = |part: &str| ends[0].said.iter().filter(|line| line.contains(part)).count();
        assert_eq!((told("is where it was"), told("without a transfer")), (2, 1), "{ends:#?}");
    });
    suite.program_with(config(), "migrate::fails_everywhere", fails_everywhere);
    suite.test("migrate::a_rank_that_fails_on_two_hosts_is_given_up", || {
        let file = "process = [\"restart\", \"migrate\"]\n[restart]\nfruitless_max = 2\npause = \"1 ms\"";
        let case = Case { hosts: 2, spares: 1, file, ..Case::default() };
        let ends = Job::start("migrate::fails_everywhere", &case).end();
        let fails = |end: &End| end.said.iter().filter(|line| line.contains("rank 3 fails")).count();
        let failures: Vec<usize> = ends.iter().map(fails).collect();
        assert_eq!(failures, [0, 3, 2], "it is started twice on each host: {ends:#?}");
        assert!(ends[0].said.iter().any(|line| line.contains("4 times in a row")), "{ends:#?}");
    });
    let patient = config().join_timeout(Duration::from_secs(3600));
    suite.program_with(patient, "migrate::waits_for_an_hour", computes_on);
    suite.test("migrate::a_host_whose_ranks_fail_before_they_join_is_not_waited_for", || {
        // The second host runs a program that there is not.
        let program = |host: u32| ["migrate::waits_for_an_hour", "there is none"][host as usize];
        let ends = Job::start_each(program, &Case::default()).end();
        assert!(ends.iter().all(|end| end.code != 0), "{ends:#?}");
    });
    suite.test("migrate::other_hosts_hear_that_rank_0_fails_before_it_joins", || {
        let program = |host: u32| ["there is none", "migrate::waits_for_an_hour"][host as usize];
        let ends = Job::start_each(program, &Case::default()).end();
        assert!(ends.iter().all(|end| end.code != 0), "{ends:#?}");
    });
    suite.test("migrate::a_host_that_is_lost_before_its_ranks_join_is_not_waited_for", || {
        lost_before_the_job(["migrate::waits_for_an_hour", NEVER_JOINS], 1);
    });
    suite.test("migrate::other_hosts_hear_that_the_first_one_is_lost_before_its_ranks_join", || {
        lost_before_the_job([NEVER_JOINS, "migrate::waits_for_an_hour"], 0);
    });
    suite.program_with(config(), "migrate::is_told", is_told);
    suite.test("migrate::without_room_for_a_replica_a_rank_does_not_come_back", || {
        let file = "physical = \"migrate\"\n[migrate]\nreplica_bytes = \"1 KiB\"";
        // The other host could take it. A spare one might come after the job's end.
        let mut job = Job::start("migrate::is_told", &Case { hosts: 2, spares: 0, file, ..Case::default() });
        job.hosts[1].as_mut().unwrap().wait_for(1, "may be killed");
        job.lose(1);
        let ends = job.end();
        ends[0].assert_done(0..EACH);
    });
}

/// Ranks come back, and save checkpoints where they ask for them.
fn config() -> Config {
    Config::default().restart_ranks().checkpoint_interval(Interval::Fixed(Duration::from_secs(3600)))
}

/// What goes wrong where.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) hosts: u32,
    pub(crate) spares: u32,
    /// Hosts that are lost, in order: each once ranks that run there have said where they are.
    pub(crate) lost: &'static [usize],
    pub(crate) file: &'static str,
    /// The rules that locate faults, if they are not those that everfold comes with.
    pub(crate) rules: &'static str,
    pub(crate) domains: &'static [&'static str],
    pub(crate) plan: &'static str,
    /// At which passes of the point `seven` an asynchronous plan has a checkpoint.
    pub(crate) passes: &'static [u64],
}

impl Default for Case {
    fn default() -> Self {
        let file = "physical = [\"migrate\", \"ignore\"]";
        Self { hosts: 2, spares: 0, lost: &[], file, rules: "", domains: &[], plan: "", passes: &[] }
    }
}

/// A job on several hosts. It is killed with this value.
pub(crate) struct Job {
    pub(crate) hosts: Vec<Option<Process>>,
    /// How each host was started.
    commands: Vec<Command>,
    pub(crate) mark: Mark,
    pub(crate) file: PathBuf,
    /// The plan that it follows, and its rules, which are removed with it.
    _written: [Option<File>; 2],
}

impl Job {
    pub(crate) fn start(program: &'static str, case: &Case) -> Self {
        Self::start_each(|_| program, case)
    }

    /// Starts a job whose hosts run programs of their own.
    pub(crate) fn start_each(program: impl Fn(u32) -> &'static str, case: &Case) -> Self {
        Self::start_with(Mark::new(), program, case, |_, _| {})
    }

    /// Starts a job whose hosts are told something of their own, too.
    pub(crate) fn start_with(
        mark: Mark,
        program: impl Fn(u32) -> &'static str,
        case: &Case,
        tell: impl Fn(u32, &mut Command),
    ) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let file = std::env::temp_dir().join(format!("everfold-migrate-{}.toml", mark.number()));
        fs::write(&file, case.file).unwrap();
        let stops: Vec<_> = case.passes.iter().map(|pass| ("seven", *pass)).collect();
        let planned = (!stops.is_empty()).then(|| {
            let text = text("asynchronous", &["seven"], &[("host", &stops), ("device", &[])]);
            File::new(&format!("migrate-{}-plan.toml", mark.number()), &text)
        });
        let rules = (!case.rules.is_empty())
            .then(|| File::new(&format!("migrate-{}-rules.toml", mark.number()), case.rules));
        let command = |host: u32| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["host", program(host), &EACH.to_string()]);
            let all = case.hosts + case.spares;
            command
                .env("EVERFOLD_HOSTS", format!("{}:{all}", case.hosts))
                .env("EVERFOLD_HOST_INDEX", host.to_string())
                .env("EVERFOLD_RENDEZVOUS", format!("127.0.0.1:{port}"))
                .env("EVERFOLD_JOB", format!("{:x}", mark.number()))
                .env("EVERFOLD_SECRET", "a5".repeat(32))
                .env("EVERFOLD_RECOVERY", &file)
                .env("COME_BACK_PLAN", case.plan);
            command.envs(planned.iter().map(|plan| ("EVERFOLD_PLAN", &plan.0)));
            command.envs(rules.iter().map(|rules| ("EVERFOLD_RULES", &rules.0)));
            command.envs(case.domains.get(host as usize).map(|label| ("EVERFOLD_DOMAIN", label)));
            tell(host, &mut command);
            command
        };
        let mut commands: Vec<Command> = (0..case.hosts + case.spares).map(command).collect();
        let start = |command| Some(Process::spawn_marked(command, mark.clone()));
        let hosts = commands.iter_mut().map(start).collect();
        Self { hosts, commands, mark, file, _written: [planned, rules] }
    }

    /// Starts a host once more that was lost.
    fn start_again(&mut self, host: usize) {
        let started = Process::spawn_marked(&mut self.commands[host], self.mark.clone());
        assert!(self.hosts[host].replace(started).is_none(), "it was lost");
    }

    /// Kills a host with everything on it.
    pub(crate) fn lose(&mut self, host: usize) {
        drop(self.hosts[host].take().unwrap());
    }

    /// Waits until all hosts that are left have ended, and tells how.
    pub(crate) fn end(mut self) -> Vec<End> {
        let ends = self.hosts.iter_mut().map(|host| match host {
            Some(host) => host.ended(),
            None => End { code: 137, said: Vec::new() },
        });
        let ends = ends.collect();
        assert_eq!(self.mark.living(), []);
        ends
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

pub(crate) fn digests(ends: &[End]) -> Vec<&str> {
    let said = ends.iter().flat_map(|end| &end.said);
    said.filter_map(|line| line.find("digest ").map(|at| &line[at..])).collect()
}

/// Runs a job that loses a host before all have joined, of which the second host is known to the first by then.
fn lost_before_the_job(programs: [&'static str; 2], lost: usize) {
    let tell = |host: u32, command: &mut Command| {
        if host == 1 {
            command.env("RUST_LOG", "everfold_runtime::agent=debug");
        }
    };
    let program = |host: u32| programs[host as usize];
    let mut job = Job::start_with(Mark::new(), program, &Case::default(), tell);
    job.hosts[1].as_mut().unwrap().wait_for(1, "the first host knows of this one");
    job.lose(lost);
    let ends = job.end();
    assert!(ends.iter().all(|end| end.code != 0), "{ends:#?}");
}

/// Runs a job that loses hosts, and compares its result with that of one which does not.
pub(crate) fn loses(case: Case) -> Vec<End> {
    let ranks = case.hosts * EACH;
    let undisturbed = Job::start("migrate::computes_on", &Case { lost: &[], plan: "", ..case }).end();
    let expected = digests(&undisturbed);
    assert_eq!(expected.len(), ranks as usize, "{undisturbed:#?}");
    let mut job = Job::start("migrate::computes_on", &case);
    for host in case.lost {
        job.hosts[*host].as_mut().unwrap().wait_for(1, "is half way");
        job.lose(*host);
    }
    let ends = job.end();
    assert_eq!(digests(&ends), expected, "{ends:#?}");
    ends
}

/// A host is lost, and started once more with the same words. When another one is lost, it takes ranks.
fn comes_back() {
    let mark = Mark::new();
    let is_enough = std::env::temp_dir().join(format!("everfold-migrate-{}-enough", mark.number()));
    let tell = |_: u32, command: &mut Command| {
        command.env(ENOUGH, &is_enough);
    };
    let case = Case { hosts: 3, ..Case::default() };
    let mut job = Job::start_with(mark, |_| "migrate::goes_on_until_told", &case, tell);
    let wait = |job: &mut Job, host: usize, count: usize, text: &str| {
        job.hosts[host].as_mut().unwrap().wait_for(count, text);
    };
    (0..3).for_each(|host| wait(&mut job, host, EACH as usize, "runs in life 0"));
    job.lose(1);
    // Each of the two others takes one of its ranks. If the death of a rank is seen before that of its host,
    // the rank is started there once more, so this may be its third life.
    [0, 2].into_iter().for_each(|host| wait(&mut job, host, EACH as usize + 1, "runs in life"));
    job.start_again(1);
    wait(&mut job, 1, EACH as usize, "a spare one from now on");
    job.lose(2);
    wait(&mut job, 1, 3, "runs in life");
    fs::write(&is_enough, "").unwrap();
    let ends = job.end();
    let _ = fs::remove_file(&is_enough);
    let codes: Vec<i32> = ends.iter().map(|end| end.code).collect();
    assert_eq!(codes, [0, 0, 137], "ranks that were not needed there have not failed: {ends:#?}");
    let steps: Vec<&str> = digests(&ends);
    assert_eq!(steps.len(), 3 * EACH as usize, "{ends:#?}");
    assert!(steps.iter().all(|step| *step == steps[0]), "{ends:#?}");
}

/// Names the file that ends `goes_on_until_told`.
const ENOUGH: &str = "MIGRATE_ENOUGH";

/// Computes until there is a file.
async fn goes_on_until_told(session: Session) -> everfold::Result<()> {
    let fate = Fate::of(&session);
    let (rank, is_enough) = (session.rank(), PathBuf::from(std::env::var_os(ENOUGH).unwrap()));
    let begun: u64 = session.resume().await?.unwrap_or(0);
    let mut step = begun;
    loop {
        let told = u64::from(rank.0 == 0 && is_enough.exists());
        let Sum(sum) = session.allreduce("step", Sum(vec![told, step])).await?.value;
        assert_eq!(sum[1], step * u64::from(session.size()), "all ranks are at the same step");
        if sum[0] > 0 {
            println!("digest {step}");
            return Ok(());
        }
        step += 1;
        if step.is_multiple_of(20) {
            session.checkpoint(&step).now().await?;
        }
        if step == begun + 30 {
            // Outcomes are heard once they are in the replica.
            println!("rank {rank} runs in life {}", fate.life);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    step: u64,
    values: Vec<u64>,
}

async fn computes_on(session: Session) -> everfold::Result<()> {
    let mut events = session.events();
    let fate = Fate::of(&session);
    let mut field = vec![0u64; LENGTH * 10];
    let saved: Option<State> = session.resume().array("field", &mut field).await?;
    let rank = u64::from(session.rank().0);
    let mut state = saved.unwrap_or_else(|| State { step: 0, values: vec![rank + 1; LENGTH] });
    println!("life {} goes on at step {}", fate.life, state.step);
    assert!(field.iter().all(|value| *value == state.step), "field and state are of one generation");
    while state.step < STEPS {
        if fate.is("between", state.step) {
            raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
        }
        let mine = state.values.iter().map(|it| it.wrapping_mul(31).wrapping_add(state.step)).collect();
        let Sum(sum) = session.allreduce("step", Sum::<Vec<u64>>(mine)).await?.value;
        for (mine, sum) in state.values.iter_mut().zip(&sum) {
            *mine = mine.wrapping_mul(7).wrapping_add(*sum ^ rank);
        }
        let parts = Sum(vec![rank as f64 / 3.0 + state.step as f64; 10]);
        let root = session.size() - 1;
        let at_root = session.reduce("check", parts).root(root).order(Order::Fixed).await?;
        state.values[0] ^= at_root.value.map_or(0, |Sum(sum)| sum[0].to_bits());
        state.step += 1;
        if state.step.is_multiple_of(7) {
            field.fill(state.step);
            session.checkpoint(&state).array("field", &field).now().await?;
        }
        if state.step == TOLD + 15 * u64::from(fate.life) {
            println!("life {} of rank {rank} is half way", fate.life);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let Sum(all) = session.allreduce("digest", Sum(state.values)).await?.value;
    while let Some(Some(news)) = events.next().now_or_never() {
        if let News::CaughtUp { rank: _, lost, comeback } = &news
            && session.rank() == 0
        {
            let how = if comeback.transfer.is_zero() { " without a transfer" } else { "" };
            assert!(!comeback.load.is_zero() && comeback.transfer + comeback.load + comeback.again < *lost);
            println!("{news}{how}");
        }
    }
    let digest = all.iter().fold(0, |digest: u64, it| digest.rotate_left(5) ^ it);
    println!("digest {digest}");
    Ok(())
}

/// Rank 3 fails at the same place whenever it is started.
async fn fails_everywhere(session: Session) -> everfold::Result<()> {
    let mut news = session.events();
    session.resume::<u64>().await?;
    // A call ends once its outcome is in the replica.
    for _ in 0..STEPS {
        session.allreduce("step", Sum(vec![1u64])).await?;
    }
    if session.rank().0 == 3 {
        println!("rank 3 fails");
        raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
    }
    loop {
        match news.next().await {
            Some(News::NotReturned { rank, reason }) => {
                println!("{rank}: {reason}");
                return Ok(());
            }
            other => assert!(other.is_some(), "it is told"),
        }
    }
}

/// Ranks 2 and 3 have no replica, and are lost with their host.
async fn is_told(session: Session) -> everfold::Result<()> {
    let mut news = session.events();
    session.resume::<u64>().await?;
    session.allreduce("all are here", Sum(vec![1u64; 1000])).await?;
    // Of one that has a value of 8000 bytes there is no room for a replica, and before it has been told that.
    session.allreduce("again", Sum(vec![1u64; 1000])).await?;
    if session.rank().0 >= EACH {
        println!("may be killed");
        session.allreduce("never", Sum(vec![1u64])).await?;
        return Err(everfold::Error::application("nobody kills it"));
    }
    let (mut unreplicated, mut gone) = (0, 0);
    while gone < EACH {
        match news.next().await {
            Some(News::Unreplicated { reason, .. }) => {
                assert!(reason.contains("migrate.replica_bytes"), "{reason}");
                unreplicated += 1;
            }
            Some(News::NotReturned { rank, reason }) => {
                assert!(rank.0 >= EACH && reason == NoReturn::NoReplica, "{rank}: {reason}");
                gone += 1;
            }
            other => assert!(other.is_some(), "it is told"),
        }
    }
    assert!(unreplicated > 0);
    let two = session.allreduce("two", Sum(vec![1u64])).group(session.survivors()).await?;
    assert_eq!(two.value, Sum(vec![2]));
    Ok(())
}

/// A host: starts ranks of `program`, or none until another one is lost.
pub(crate) fn host(program: &str, ranks: &str) -> std::process::ExitCode {
    let mut local = Local::new(ranks.parse().unwrap(), std::env::current_exe().unwrap());
    local.arguments = ["run", program, ranks, "tcp"].map(Into::into).into();
    local.transport = everfold::launch::Transport::Tcp;
    local.components = crate::own_detectors::components();
    local.hosts = Hosts::find(Said::default(), |name| std::env::var(name).ok()).unwrap();
    let directory = |name| std::env::var_os(name).map(PathBuf::from);
    if let Some(directory) = directory(RESUME).or(directory(CHECKPOINTS)) {
        local.checkpoints = Some(Checkpoints { directory, resumes: std::env::var_os(RESUME).is_some() });
    }
    match local.run() {
        Ok(code) => code.into(),
        Err(error) => panic!("{error}"),
    }
}
