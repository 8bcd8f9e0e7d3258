//! Ranks that any launcher could have started: all they need is in their environment.

mod job;
mod joining;
mod nested;
mod no_pidfd;
mod refused;

use std::{process::Command, time::Duration};

use everfold::{Config, Session, Sum};

use self::job::{Job, RANKS};
use crate::{
    outlive::leave_out,
    process::{Process, job, wait_until},
    suite::Suite,
};

pub(crate) use self::{job::variable, nested::inside_a_runtime};

pub(crate) fn add_to(suite: &mut Suite) {
    suite.program("environment::sums", sums);
    // A rank may be late by less than that, but none is in these tests.
    let config = Config::default().join_timeout(Duration::from_secs(1));
    suite.program_with(config, "environment::impatient", sums);
    for kibibytes in ["0", "100", "100000"] {
        suite.test(format!("environment::files_of_at_most_{kibibytes}_kib"), || short_files(kibibytes));
    }
    suite.program("environment::childless", childless);
    suite.test("environment::the_agent_is_no_rank's_child", || {
        let job = Job::new("unix", "environment::childless");
        job.assert_done((0..RANKS).map(|rank| (rank, job.start(rank))).collect());
    });
    suite.test("environment::by_hand::tcp", || by_hand("tcp"));
    suite.test("environment::by_hand::unix", || by_hand("unix"));
    suite.test("environment::the_first_rank_comes_last::tcp", || the_first_rank_comes_last("tcp"));
    suite.test("environment::the_first_rank_comes_last::unix", || the_first_rank_comes_last("unix"));
    suite.test("environment::variables_of_other_launchers", variables_of_other_launchers);
    suite.test("environment::a_file_with_the_secret", a_file_with_the_secret);
    suite.test("environment::a_rank_with_another_secret", refused::a_rank_with_another_secret);
    suite.test("environment::a_rank_of_another_job", refused::a_rank_of_another_job);
    suite.test("environment::one_rank_twice", refused::one_rank_twice);
    suite.test("environment::different_sizes::tcp", || refused::different_sizes("tcp"));
    suite.test("environment::different_sizes::unix", || refused::different_sizes("unix"));
    suite.program("environment::until_told", refused::until_told);
    suite.test("environment::who_was_refused_goes_later", refused::who_was_refused_goes_later);
    suite.test("environment::launch_inside_a_runtime", nested::launch_inside_a_runtime);
    for masked in ["mount -t tmpfs none /proc", "mount --bind /dev/null /proc/sys/kernel/random/boot_id"] {
        suite.test(format!("environment::a_host_that_cannot_be_told::{masked}"), move || {
            a_host_that_cannot_be_told(masked)
        });
    }
    suite.program("environment::nested", nested::nested);
    suite.program("environment::nested_once", nested::nested_once);
    suite.program("environment::two", nested::two);
    suite.test("environment::nested::local", nested::nested_locally);
    suite.test("environment::nested::by_hand", nested::nested_by_hand);
    suite.test("environment::a_rendezvous_in_use::tcp", || joining::a_rendezvous_in_use("tcp"));
    suite.test("environment::a_rendezvous_in_use::unix", || joining::a_rendezvous_in_use("unix"));
    suite.test("environment::an_agent_that_comes_twice", joining::an_agent_that_comes_twice);
    suite.test("environment::ranks_end_without_pidfd", no_pidfd::ranks_end);
    suite.test("environment::strangers_come_first", joining::strangers_come_first);
    suite
        .test("environment::a_rank_dies_before_the_others_come", joining::a_rank_dies_before_the_others_come);
    for scheme in ["tcp", "unix"] {
        suite.test(format!("environment::a_rank_that_never_comes::{scheme}"), || {
            joining::a_rank_that_never_comes(scheme)
        });
        suite.test(format!("environment::the_first_rank_never_comes::{scheme}"), || {
            joining::the_first_rank_never_comes(scheme)
        });
    }
}

async fn sums(session: Session) -> everfold::Result<()> {
    let ranks = session.size();
    for length in [1, 1000, 300_001] {
        let mine = vec![u64::from(session.rank()) + 1; length];
        let expected = u64::from(ranks * (ranks + 1) / 2);
        let value = session.allreduce("sum", Sum(mine)).await?.value;
        assert!(value == Sum(vec![expected; length]), "the sum of {length} elements");
    }
    Ok(())
}

/// A limit on files, as batch systems set it, costs shared memory at most.
fn short_files(kibibytes: &str) {
    let job = job("environment::sums", RANKS, "auto");
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"ulimit -f "$0" && exec "$@""#, kibibytes])
        .arg(job.get_program())
        .args(job.get_args());
    Process::spawn(command).end().assert_done(0..RANKS);
}

/// A program that waits for any of its children is not told of the agent that its rank has started.
async fn childless(session: Session) -> everfold::Result<()> {
    sums(session).await?;
    let child = nix::sys::wait::waitpid(None, Some(nix::sys::wait::WaitPidFlag::WNOHANG));
    assert_eq!(child, Err(nix::errno::Errno::ECHILD));
    Ok(())
}

fn by_hand(scheme: &str) {
    let job = Job::new(scheme, "environment::sums");
    job.assert_done((0..RANKS).map(|rank| (rank, job.start(rank))).collect());
}

/// Ranks may be started in any order: they wait for each other.
fn the_first_rank_comes_last(scheme: &str) {
    let job = Job::new(scheme, "environment::sums");
    let mut processes: Vec<_> = (1..RANKS).map(|rank| (rank, job.start(rank))).collect();
    wait_until("the others and their agent run", || job.mark.living().len() >= 3);
    processes.push((0, job.start(0)));
    job.assert_done(processes);
}

/// What `mpirun` and `srun` set is enough for the place in the job.
fn variables_of_other_launchers() {
    for (rank_variable, size_variable) in [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ] {
        let job = Job::new("tcp", "environment::sums");
        let start = |rank: u32| {
            let mut command = job.command(rank);
            command.env_remove("EVERFOLD_RANK").env_remove("EVERFOLD_SIZE").env_remove("EVERFOLD_JOB");
            command.env(rank_variable, rank.to_string()).env(size_variable, RANKS.to_string());
            (rank, job.spawn(command.env("EVERFOLD_SECRET", Job::secret())))
        };
        job.assert_done((0..RANKS).map(start).collect());
    }
}

fn a_file_with_the_secret() {
    let job = Job::new("tcp", "environment::sums");
    let file = std::env::temp_dir().join(format!("everfold-secret-{}", std::process::id()));
    std::fs::write(&file, Job::secret() + "\n").unwrap();
    let start = |rank| (rank, job.spawn(job.command(rank).env("EVERFOLD_SECRET_FILE", &file)));
    job.assert_done((0..RANKS).map(start).collect());
    std::fs::remove_file(file).unwrap();
}

/// Without a sign of which host it is on, a process says so and goes over TCP.
fn a_host_that_cannot_be_told(mask: &str) {
    let is_allowed = Command::new("unshare").args(["--mount", "sh", "-c", mask]).output();
    if !is_allowed.is_ok_and(|output| output.status.success()) {
        return leave_out("mounts cannot be made");
    }
    let job = Job::new("tcp", "environment::sums");
    let script = format!("{mask} && exec \"$@\"");
    let start = |rank: u32| {
        let inner = job.command(rank);
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]).arg(inner.get_program()).args(inner.get_args());
        command
            .envs(job.variables(rank, RANKS))
            .env("EVERFOLD_SECRET", Job::secret())
            .env("RUST_LOG", "warn");
        job.spawn(&mut command)
    };
    // One that can be told is among them.
    let processes = [start(0), start(1), job.start(2)];
    for (rank, mut process) in (0..).zip(processes) {
        let end = process.ended();
        end.assert_done([rank]);
        let says_so = end.said.iter().any(|line| line.contains("no shared memory: all goes over TCP"));
        assert_eq!(says_so, rank < 2, "{end:?}");
    }
    assert_eq!(job.mark.living(), []);
}
