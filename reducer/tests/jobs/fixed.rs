//! `Order::Fixed`: the same bits, whoever is late, wherever it is computed, whoever dies.

use std::time::Duration;

use everfold::{
    Body, ElementWise, Group, News, Order, Outcome, Path, Rank, ReduceError, ReducerBody, Refusal, Session,
    Sum,
};
use futures::StreamExt;
use nix::sys::signal::{Signal, raise};
use serde::{Deserialize, Serialize};

use crate::{
    process::{Process, job},
    suite::{Suite, TRANSPORTS},
    values::chance,
};

pub(crate) fn add_to(suite: &mut Suite) {
    suite.program("fixed::values", values);
    for transport in TRANSPORTS {
        for ranks in 1..=9 {
            suite.test(format!("fixed::values::{ranks}::{transport}"), move || {
                Process::spawn(job("fixed::values", ranks, transport)).end().assert_done(0..ranks);
            });
        }
    }
    suite.program("fixed::without_a_rank", without_a_rank);
    suite.program("fixed::after_a_death", after_a_death);
    for transport in TRANSPORTS {
        for name in ["fixed::without_a_rank", "fixed::after_a_death"] {
            suite.test(format!("{name}::{transport}"), move || {
                Process::spawn(job(name, 6, transport)).end().assert_ended(137, [0, 2, 3, 4, 5]);
            });
        }
    }
}

/// What the order prescribes: neighbours meet in pairs, then their results, and so on; who has none goes on
/// alone.
fn reference<T>(leaves: impl IntoIterator<Item = Option<T>>, combine: impl Fn(T, T) -> T) -> Option<T> {
    let mut row: Vec<Option<T>> = leaves.into_iter().collect();
    while row.len() > 1 {
        let mut pairs = row.into_iter();
        let mut next = Vec::new();
        while let Some(left) = pairs.next() {
            next.push(match (left, pairs.next().flatten()) {
                (Some(left), Some(right)) => Some(combine(left, right)),
                (left, right) => left.or(right),
            });
        }
        row = next;
    }
    row.pop().flatten()
}

/// Inlined, one window, and several segments over either transport; in elements of 8 bytes.
const LENGTHS: [usize; 4] = [3, 700, 9_001, 150_003];

/// Numbers of which hardly any sum is exact.
fn number(rank: Rank, index: usize) -> f64 {
    let chance = chance(rank.0, index);
    let magnitude = 2f64.powi((chance % 61) as i32 - 30);
    (chance >> 10) as f64 * magnitude * if chance & 64 == 0 { 1.0 } else { -1.0 }
}

fn numbers(rank: Rank, length: usize) -> Sum<Vec<f64>> {
    Sum((0..length).map(|index| number(rank, index)).collect())
}

fn add(mut a: Vec<f64>, b: Vec<f64>) -> Vec<f64> {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
    a
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// The bits of the sum over `group`, where only `present` contribute.
fn sum_of(group: &Group, length: usize, present: impl Fn(Rank) -> bool) -> Vec<u64> {
    let leaf = |rank| present(rank).then(|| numbers(rank, length).0);
    let sum = bits(&reference(group.iter().map(leaf), add).unwrap());
    let in_turn = bits(&group.iter().filter_map(leaf).reduce(add).unwrap());
    let unlike = sum.iter().zip(&in_turn).filter(|(one, other)| one != other).count();
    assert!(group.len() < 4 || length < 100 || unlike > length / 10, "any order gives the same");
    sum
}

/// Who meets whom is in the text itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Text(String);

impl ReducerBody for Text {
    const COMMUTATIVE: bool = false;

    fn combine(&mut self, other: Self) {
        self.0 = format!("({}{})", self.0, other.0);
    }
}

type Matrix = [[f64; 2]; 2];

fn times(a: Matrix, b: Matrix) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| a[i][0] * b[0][j] + a[i][1] * b[1][j]))
}

fn matrix(rank: Rank, index: usize) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| number(rank, 4 * index + 2 * i + j) / 1e18))
}

/// To the first rank of the group, to its last, and to all; gives the values where they arrive.
async fn everywhere<B: Body>(
    session: &Session,
    name: &str,
    group: &Group,
    body: impl Fn() -> B,
) -> everfold::Result<Vec<B::Value>> {
    let ends = [group.iter().next().unwrap(), group.iter().last().unwrap()];
    let mut values = Vec::new();
    for root in ends {
        let to_root = session.reduce(format!("{name} to {root}"), body()).root(root);
        let outcome = to_root.group(group).order(Order::Fixed).await?;
        assert_eq!(outcome.value.is_some(), session.rank() == root, "{name} to {root}");
        values.extend(outcome.value);
    }
    let to_all = session.allreduce(format!("{name} to all"), body()).group(group);
    values.push(to_all.order(Order::Fixed).await?.value);
    Ok(values)
}

async fn values(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let some = Group::of((0..session.size()).filter(|rank| rank % 3 != 1));
    for group in [session.world(), some].iter().filter(|group| group.contains(me)) {
        for length in LENGTHS {
            let expected = sum_of(group, length, |_| true);
            // Twice, as who is late changes from time to time.
            for round in 0..2 {
                let name = format!("{length} numbers in a group of {}, round {round}", group.len());
                for Sum(value) in everywhere(&session, &name, group, || numbers(me, length)).await? {
                    assert!(bits(&value) == expected, "{name}");
                }
            }
            let name = format!("{length} matrices in a group of {}", group.len());
            let mine =
                |rank: Rank| -> Vec<Matrix> { (0..length / 3).map(|index| matrix(rank, index)).collect() };
            let product =
                |a: Vec<Matrix>, b: Vec<Matrix>| a.into_iter().zip(b).map(|(a, b)| times(a, b)).collect();
            let expected = reference(group.iter().map(|rank| Some(mine(rank))), product);
            let matrices = || ElementWise::new("matrix product", mine(me), times).non_commutative();
            for value in everywhere(&session, &name, group, matrices).await? {
                assert!(Some(value) == expected, "{name}");
            }
            let name = format!("text of {length} in a group of {}", group.len());
            let part = |rank: Rank| Text(format!("{rank}{}", ".".repeat(length)));
            let meet = |mut a: Text, b: Text| {
                a.combine(b);
                a
            };
            let expected = reference(group.iter().map(|rank| Some(part(rank))), meet);
            for value in everywhere(&session, &name, group, || part(me)).await? {
                assert!(Some(value) == expected, "{name}");
            }
        }
    }
    Ok(())
}

fn die() -> everfold::Result<()> {
    raise(Signal::SIGKILL).map_err(std::io::Error::from)?;
    unreachable!("it is dead")
}

fn rank_1() -> Path {
    Path::single(Rank(1))
}

/// Rank 1 dies without contributing: the others keep their places in the tree.
async fn without_a_rank(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    if me == 1 {
        return die();
    }
    for length in LENGTHS {
        let sums = session.reduce(format!("{length}"), numbers(me, length)).root(3).order(Order::Fixed);
        let Outcome { value, report } = sums.allow_missing().await?;
        assert_eq!(report.missing, rank_1());
        assert_eq!(value.is_some(), me == 3);
        let expected = sum_of(&session.world(), length, |rank| rank != 1);
        assert!(value.is_none_or(|Sum(sums)| bits(&sums) == expected), "{length}");
    }
    Ok(())
}

/// Rank 1 dies before rank 4 contributes, and after its own contributions have come; the long ones need a
/// replica for that.
async fn after_a_death(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let mut news = session.events();
    session.allreduce("all are here", Sum(vec![1u8])).await?;
    if me == 4 {
        while !matches!(news.next().await, Some(News::Failed { rank: Rank(1), .. })) {}
    }
    let sums = LENGTHS.map(|length| {
        let sums = session.allreduce(format!("{length}"), numbers(me, length)).order(Order::Fixed);
        sums.protection(everfold::Protection::CommitFirst).start()
    });
    if me == 1 {
        // It dies when this deadline passes, mostly long after the copies were made.
        let _ = session.reduce("wait", Sum(vec![1u8])).deadline(Duration::from_secs(1)).await;
        return die();
    }
    for (sums, length) in sums.into_iter().zip(LENGTHS) {
        let Outcome { value, report } = match sums?.await {
            // Its disk was slower than that.
            Err(ReduceError::Refused(Refusal::ProcessFailed { ranks })) if length > 2_000 => {
                assert_eq!(ranks, rank_1());
                continue;
            }
            outcome => outcome?,
        };
        assert_eq!((report.missing, report.survived), (Path::empty(), rank_1()));
        assert!(bits(&value.0) == sum_of(&session.world(), length, |_| true), "{length}");
    }
    Ok(())
}
