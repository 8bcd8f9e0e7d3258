//! Bodies that would not come back from their encoding are refused at the call.

use everfold::{BodyError, ReduceError, ReducerBody, Session, ShareError, Sum, Unfit};
use serde::{Deserialize, Serialize};

use crate::{
    process::{Process, job},
    suite::Suite,
};

pub(crate) fn add_to(suite: &mut Suite) {
    suite.job("unfit::a_field_that_is_left_out", 4, a_field_that_is_left_out);
    suite.job("unfit::a_type_that_is_not_decoded", 3, a_type_that_is_not_decoded);
    suite.program("unfit::a_program_that_goes_wrong", a_program_that_goes_wrong);
    suite.test("unfit::a_program_that_goes_wrong", || {
        let end = Process::spawn(job("unfit::a_program_that_goes_wrong", 4, "shm")).end();
        end.assert_ended(1, []);
        let told = |line: &&String| line.contains("Stats") && line.contains("label");
        assert!(end.said.iter().any(|line| told(&line)), "{:?}", end.said);
    });
    suite.job("unfit::deep_values", 4, deep_values);
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Stats {
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<u64>,
    count: u64,
    sums: Vec<u64>,
}

impl ReducerBody for Stats {
    fn combine(&mut self, other: Self) {
        self.label = self.label.max(other.label);
        self.count += other.count;
        self.sums.iter_mut().zip(other.sums).for_each(|(mine, theirs)| *mine += theirs);
    }
}

impl Stats {
    fn of(rank: u32) -> Self {
        match rank {
            1 => Self { label: Some(9), count: 5, sums: vec![7] },
            _ => Self { label: None, count: 0, sums: vec![0] },
        }
    }
}

fn unfit<T>(ended: Result<T, ReduceError>) -> (&'static str, Unfit) {
    match ended {
        Err(ReduceError::Body(ShareError::Body(BodyError::Unfit { type_name, unfit }))) => (type_name, unfit),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was contributed"),
    }
}

async fn works(session: &Session, name: &str) -> everfold::Result<()> {
    let sum = session.allreduce(name, Sum(vec![1u64])).await?.value;
    assert_eq!(sum, Sum(vec![u64::from(session.size())]));
    Ok(())
}

/// Those that leave it out hear it, and nothing of theirs is contributed; with the field written there is the
/// right value.
async fn a_field_that_is_left_out(session: Session) -> everfold::Result<()> {
    let me = session.rank().0;
    if me != 1 {
        for _ in 0..2 {
            let (type_name, unfit) = unfit(session.allreduce("stats", Stats::of(me)).start());
            assert!(type_name.ends_with("Stats"), "{type_name}");
            assert_eq!(unfit, Unfit::SkippedField { within: "Stats", field: "label" });
        }
    }
    works(&session, "meanwhile").await?;
    let mine = Stats { label: Some(me.into()), ..Stats::of(me) };
    let value = session.allreduce("stats", mine).await?.value;
    assert_eq!(value, Stats { label: Some(3), count: 5, sums: vec![7] });
    Ok(())
}

/// What its author sees who knows nothing of encodings: the job ends, and a line that says why.
async fn a_program_that_goes_wrong(session: Session) -> everfold::Result<()> {
    let outcome = session.reduce("stats", Stats::of(session.rank().0)).await?;
    if let Some(stats) = outcome.value {
        assert_eq!(stats.count, 5);
    }
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(u64),
}

impl ReducerBody for Untagged {
    fn combine(&mut self, _: Self) {}
}

/// All hear it, the root included.
async fn a_type_that_is_not_decoded(session: Session) -> everfold::Result<()> {
    for _ in 0..2 {
        let (_, unfit) = unfit(session.reduce("untagged", Untagged::Number(1)).start());
        assert!(matches!(unfit, Unfit::Undecodable { .. }), "{unfit:?}");
    }
    works(&session, "untagged").await
}

/// Values in values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Chain {
    number: u64,
    next: Option<Box<Chain>>,
}

impl Chain {
    fn of(links: u32) -> Self {
        let end = Self { number: 1, next: None };
        (1..links).fold(end, |chain, _| Self { number: 1, next: Some(Box::new(chain)) })
    }
}

/// Whoever has values of any depth must not drop them in the depth.
impl Drop for Chain {
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut link) = next {
            next = link.next.take();
        }
    }
}

impl ReducerBody for Chain {
    fn combine(&mut self, mut other: Self) {
        self.number += other.number;
        match (&mut self.next, other.next.take()) {
            (Some(mine), Some(theirs)) => mine.combine(*theirs),
            (mine, theirs) => *mine = mine.take().or(theirs),
        }
    }
}

/// Up to the limit values are reduced, and beyond it they are refused, on threads with small stacks, too.
async fn deep_values(session: Session) -> everfold::Result<()> {
    const LONGEST: u32 = 128;
    let limit = Unfit::TooDeep { limit: 256 };
    let calls = session.clone();
    let elsewhere = std::thread::spawn(move || {
        let session = calls;
        for links in [LONGEST + 1, 20_000] {
            assert_eq!(unfit(session.allreduce("deep", Chain::of(links)).start()).1, limit);
        }
        session.allreduce("deep", Chain::of(LONGEST)).start()?.get()
    });
    let value = elsewhere.join().unwrap()?.value;
    assert_eq!(value.number, u64::from(session.size()));
    works(&session, "deep").await
}
