//! Reports say what has happened.

use std::collections::BTreeMap;

use everfold::{Group, Outcome, Path, Report, Session, Sum};

use crate::suite::Suite;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.job("reports::counts", 6, counts);
    suite.job("reports::short_ones", 6, short_ones);
    suite.job("reports::traces", 6, traces);
    suite.job("reports::a_late_request", 6, a_late_request);
}

/// Elements of 8 bytes: one that travels to all, inlined, one segment, several segments with a short last
/// one.
const LENGTHS: [usize; 4] = [1, 1000, 100_000, 700_001];

/// Each partial that is folded into another one is read once, so the number of tasks and of bytes follows.
/// What is very short is read and folded by everyone who is to have the result, and what is short by one or
/// by everyone, unless it travels inlined: then the master folds it, and each of those is sent one body.
async fn counts(session: Session) -> everfold::Result<()> {
    let groups = [session.world(), Group::of([1, 2, 5]), Group::of([4])];
    for length in LENGTHS {
        for group in groups.iter().filter(|group| group.contains(session.rank())) {
            let name = format!("{length} among {}", group.len());
            let body = || Sum(vec![1.0f64; length]);
            let root = group.iter().last().unwrap();
            let to_root = session.reduce(&name, body()).root(root).group(group).await?;
            let (everyone, others) = (group.len() as u64, group.len() as u64 - 1);
            // Of what the master has folded, each rank that receives it takes one body.
            let (is_inlined, folded) = (length <= 1000, others.min(1));
            let sent_to = |ranks: u64| is_inlined.then_some((ranks, ranks * folded));
            let to_one: Vec<_> = [(1, others)].into_iter().chain(sent_to(1)).collect();
            verify_counts(&to_root.report, group, length, session.rank() == root, &to_one);
            let to_all = session.allreduce(&name, body()).group(group).await?;
            let folders = match length {
                1 => &[everyone][..],
                1000 => &[1, everyone],
                _ => &[1],
            };
            let read_by = folders.iter().map(|folders| (*folders, others * folders));
            let to_all_ways: Vec<_> = read_by.chain(sent_to(everyone)).collect();
            verify_counts(&to_all.report, group, length, true, &to_all_ways);
            assert!(
                to_root.report.trace.is_empty() && to_all.report.trace.is_empty(),
                "nobody has asked for it"
            );
            let shown = to_all.report.to_string();
            assert!(shown.starts_with(&format!("{} contributors", group.len())), "{shown}");
        }
    }
    Ok(())
}

/// Where ranks share memory everyone folds what lies there side by side, unless it lies there at a bad
/// moment. Otherwise everyone takes what the master has folded.
async fn short_ones(session: Session) -> everfold::Result<()> {
    let shares_memory = std::env::var("EVERFOLD_TRANSPORT").is_ok_and(|transport| transport != "tcp");
    let mut folded_by_all = 0;
    for _ in 0..50 {
        let outcome = session.allreduce("short", Sum(vec![1.0f64; 1000])).await?;
        assert_eq!(outcome.value, Sum(vec![6.0; 1000]));
        let folders = outcome.report.tasks_per_worker.len();
        assert!(folders == 6 || (folders == 1 && shares_memory), "{}", outcome.report);
        folded_by_all += u32::from(folders == 6);
    }
    assert!(folded_by_all > 0);
    Ok(())
}

/// `ways` are how many ranks may have done each fold, and how many bodies they take for it together.
#[track_caller]
fn verify_counts(report: &Report, group: &Group, length: usize, receives: bool, ways: &[(u64, u64)]) {
    let ranks: Vec<_> = group.iter().collect();
    assert_eq!(report.contributors.iter().collect::<Vec<_>>(), ranks);
    let others = ranks.len() as u64 - 1;
    let way = ways.iter().find(|(_, bodies)| report.bytes_moved == bodies * length as u64 * 8);
    let (folders, _) = *way.unwrap_or_else(|| panic!("{report}"));
    assert!(report.phases.fetching <= report.phases.working, "{report}");
    if !receives {
        assert!(report.tasks_per_worker.is_empty(), "{report}");
        return;
    }
    let tasks: u64 = report.tasks_per_worker.iter().map(|(_, tasks)| tasks).sum();
    assert!((others.min(1)..=report.folds * folders).contains(&tasks), "{report}");
    assert!(
        report.tasks_per_worker.iter().all(|(rank, tasks)| group.contains(*rank) && *tasks > 0),
        "{report}"
    );
    assert!(report.tasks_per_worker.windows(2).all(|pair| pair[0].0 < pair[1].0), "{report}");
}

async fn traces(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let group = session.world().filter(|rank| rank != 1);
    for length in LENGTHS {
        if !group.contains(me) {
            continue;
        }
        let name = format!("{length}");
        let body = || Sum(vec![1u64; length]);
        let to_root = session.reduce(&name, body()).root(3).group(&group).trace().await?;
        match &to_root {
            Outcome { value: Some(_), report } => verify_trace(report, &group, length),
            Outcome { value: None, report } => {
                assert!(report.trace.is_empty(), "it is for those with the result")
            }
        }
        let to_all = session.allreduce(&name, body()).group(&group).trace().await?;
        verify_trace(&to_all.report, &group, length);
    }
    Ok(())
}

/// Who asks for the list of tasks gets all of it, also if it is the last to come and the only one that asks.
async fn a_late_request(session: Session) -> everfold::Result<()> {
    for length in LENGTHS {
        let call = || session.allreduce(format!("{length}"), Sum(vec![1u64; length]));
        let early = if session.rank() == 4 { None } else { Some(call().start()?) };
        session.allreduce("the others have called", Sum(vec![1u8])).await?;
        match early {
            Some(future) => drop(future.await?),
            None => verify_trace(&call().trace().await?.report, &session.world(), length),
        }
    }
    Ok(())
}

/// Replays the tasks: each takes partials that were there, and the last leaves one that holds the group.
fn verify_trace(report: &Report, group: &Group, length: usize) {
    let singles = || group.iter().map(|rank| (rank, Path::single(rank))).collect::<BTreeMap<_, _>>();
    let mut partials = BTreeMap::new();
    let mut ranges = BTreeMap::new();
    for task in &report.trace {
        assert!(task.start <= task.end);
        assert!(!task.sources.is_empty());
        let partials = partials.entry(task.segment).or_insert_with(singles);
        ranges.insert(task.range.start, task.range.len);
        let mut path = partials.remove(&task.executor).expect("the executor has a partial");
        assert_eq!(path, task.own);
        for (rank, source) in &task.sources {
            assert_eq!(partials.remove(rank).as_ref(), Some(source));
            path = path.union(source).unwrap();
        }
        partials.insert(task.executor, path);
    }
    let everyone: Path = group.iter().collect();
    for partials in partials.into_values() {
        assert_eq!(partials.into_values().collect::<Vec<_>>(), std::slice::from_ref(&everyone));
    }
    let mut end = 0;
    for (start, len) in ranges {
        assert_eq!(start, end, "the segments cover the body");
        end = start + len;
    }
    assert_eq!(end, length as u64 * 8);
    let tasks: u64 = report.tasks_per_worker.iter().map(|(_, tasks)| tasks).sum();
    assert_eq!(tasks, report.trace.len() as u64);
}
