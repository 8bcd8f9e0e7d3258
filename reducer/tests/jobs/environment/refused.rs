//! Ranks that the master turns away, and how the job goes on.

use everfold::{Session, Sum};
use everfold_protocol::{
    ProcessId,
    message::{Header, ToWorker},
};
use everfold_runtime::transport::control;

use super::{
    job::{Job, RANKS},
    joining::join,
    sums,
};
use crate::process::{Process, wait_until};

/// A rank that is refused says why at once, and its place is still free for the right one.
fn refused_and_then_done(variable: &str, wrong: &str) {
    let job = Job::new("tcp", "environment::sums");
    let first = job.start(0);
    job.wait_for_master();
    let end = job.spawn(job.command(1).env("EVERFOLD_SECRET", Job::secret()).env(variable, wrong)).ended();
    assert_eq!(end.code, 1, "{end:?}");
    assert!(end.said.iter().any(|line| line.contains(variable)), "{end:?}");
    job.assert_done(vec![(0, first), (1, job.start(1)), (2, job.start(2))]);
}

pub(super) fn a_rank_with_another_secret() {
    refused_and_then_done("EVERFOLD_SECRET", &"00".repeat(32));
}

pub(super) fn a_rank_of_another_job() {
    refused_and_then_done("EVERFOLD_JOB", "1");
}

/// The second process of one rank ends with an error, and the first one's job goes on.
pub(super) fn one_rank_twice() {
    let job = Job::new("tcp", "environment::sums");
    let first = job.start(0);
    job.wait_for_master();
    let mut twins = [job.start(1), job.start(1)];
    // Which of them came first is open; the job is complete only with rank 2.
    let mut ended = None;
    wait_until("one of the twins ends", || {
        ended = twins.iter_mut().position(Process::has_ended);
        ended.is_some()
    });
    let [mut one, mut other] = twins;
    if ended == Some(1) {
        std::mem::swap(&mut one, &mut other);
    }
    let end = one.ended();
    assert_eq!(end.code, 1, "{end:?}");
    assert!(end.said.iter().any(|line| line.contains("rank")), "it says what is wrong: {end:?}");
    job.assert_done(vec![(0, first), (1, other), (2, job.start(2))]);
}

/// Who counts otherwise than rank 0 is told both numbers, and the job goes on without it.
pub(super) fn different_sizes(scheme: &str) {
    let job = Job::new(scheme, "environment::sums");
    let first = job.start(0);
    job.wait_for_master();
    // Rank 5 of 6 does not exist here, rank 1 of 2 does.
    for (rank, size) in [(1, 2), (2, 4), (5, 6)] {
        let mut command = job.command(rank);
        command.env("EVERFOLD_SECRET", Job::secret()).env("EVERFOLD_SIZE", size.to_string());
        let end = job.spawn(&mut command).ended();
        assert_eq!(end.code, 1, "{end:?}");
        let told = [format!("job of {size}"), format!("of {RANKS}"), "EVERFOLD_SIZE".to_owned()];
        let says_all = |line: &String| told.iter().all(|word| line.contains(word.as_str()));
        assert!(end.said.iter().any(says_all), "{end:?}");
    }
    job.assert_done(vec![(0, first), (1, job.start(1)), (2, job.start(2))]);
}

/// Exists once the ranks may end.
pub(super) const TOLD: &str = "EVERFOLD_TEST_TOLD";

/// Reduces until all ranks are told to end, and a little longer.
pub(super) async fn until_told(session: Session) -> everfold::Result<()> {
    let told = std::env::var_os(TOLD).unwrap();
    for number in 0u64.. {
        let is_told = std::path::Path::new(&told).exists();
        let seen = session.allreduce("told", Sum(vec![u8::from(is_told)])).await?.value;
        if number == 0 {
            println!("it runs");
        }
        if seen == Sum(vec![RANKS as u8]) {
            break;
        }
    }
    sums(session).await
}

/// A process that was refused and stays connected says nothing for the one that took its place, and its end
/// is not that one's.
pub(super) fn who_was_refused_goes_later() {
    let job = Job::new("tcp", "environment::until_told");
    let told = std::env::temp_dir().join(format!("everfold-told-{}", std::process::id()));
    let start = |rank| job.spawn(job.command(rank).env("EVERFOLD_SECRET", Job::secret()).env(TOLD, &told));
    let first = start(0);
    job.wait_for_master();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(async {
        let (mut stream, mut seals) = join(&job.target(), ProcessId::first(1), 2).await;
        let told = control::read_frame::<(Header, Vec<ToWorker>)>(&mut stream, 1 << 10, &mut seals.inward);
        let (_, messages) = told.await.unwrap();
        assert!(matches!(messages[..], [ToWorker::Unwelcome { .. }]), "{messages:?}");
        stream
    });
    let mut processes = [first, start(1), start(2)];
    processes.iter_mut().for_each(|process| process.wait_for(1, "it runs"));
    drop(refused);
    std::fs::write(&told, "").unwrap();
    job.assert_done((0..).zip(processes).collect());
    std::fs::remove_file(told).unwrap();
}
