//! The predefined operations on all their types, inlined, in a window, and in several segments.

use std::fmt::Debug;

use everfold::{
    Array, BitAnd, BitOr, BitXor, Body, Element, Located, LogicalAnd, LogicalOr, LogicalXor, Max, MaxLoc,
    Min, MinLoc, Product, Session, Sum,
};

use super::{To, chance, reduce};

/// One way to call a reduction.
#[derive(Clone, Copy, Debug)]
struct Case {
    length: usize,
    to: To,
    /// Whether the array is in memory of the session, or a `Vec`.
    shared: bool,
}

/// How elements are made, and what a single process would do with two of them.
struct Reference<T> {
    name: String,
    sample: fn(u64) -> T,
    combine: fn(T, T) -> T,
}

impl<T: Element + PartialEq + Debug> Reference<T> {
    fn contribution(&self, rank: u32, length: usize) -> impl Iterator<Item = T> {
        let sample = self.sample;
        (0..length).map(move |index| sample(chance(rank, index)))
    }

    #[track_caller]
    fn verify(&self, session: &Session, case: Case, found: &[T]) {
        let Self { name, sample, combine } = self;
        assert_eq!(found.len(), case.length, "{name} {case:?}");
        for (index, found) in found.iter().enumerate() {
            let all = (0..session.size()).map(|rank| sample(chance(rank, index)));
            let expected = all.reduce(combine).unwrap();
            assert_eq!(*found, expected, "{name} {case:?}: element {index}");
        }
    }

    async fn check<V: Body<Value = V>, A: Body<Value = A>>(
        &self,
        session: &Session,
        case: Case,
        (of_vec, vec_of): (fn(Vec<T>) -> V, fn(V) -> Vec<T>),
        (of_array, array_of): (fn(Array<T>) -> A, fn(A) -> Array<T>),
    ) -> everfold::Result<()> {
        let mine = self.contribution(session.rank().0, case.length);
        let name = format!("{} {case:?}", self.name);
        if case.shared {
            let mut array = session.array(case.length);
            array.iter_mut().zip(mine).for_each(|(element, value)| *element = value);
            if let Some(value) = reduce(session, &name, case.to, of_array(array)).await? {
                self.verify(session, case, &array_of(value));
            }
        } else if let Some(value) = reduce(session, &name, case.to, of_vec(mine.collect())).await? {
            self.verify(session, case, &vec_of(value));
        }
        Ok(())
    }
}

/// Checks one operation on some types: `operation!(session, cases, Sum of [f32, f64], sample, combine)`.
macro_rules! operation {
    ($session:expr, $cases:expr, $operation:ident of [$($element:ty),+], $sample:expr, $combine:expr) => {$(
        let name = format!("{} of {}", stringify!($operation), stringify!($element));
        let reference = Reference::<$element> { name, sample: $sample, combine: $combine };
        for case in $cases {
            let vec = ($operation::<Vec<$element>> as fn(_) -> _, (|value| value.0) as fn($operation<_>) -> _);
            let array = ($operation::<Array<$element>> as fn(_) -> _, (|value| value.0) as fn($operation<_>) -> _);
            reference.check($session, case, vec, array).await?;
        }
    )+};
}

/// Inlined bodies of one element and of many in all ways to call; one window in each kind of memory.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for shared in [false, true] {
        for length in [1, 1000] {
            cases.extend(To::every(0..5).map(|to| Case { length, to, shared }));
        }
        let to = if shared { To::All } else { To::Root(3) };
        cases.push(Case { length: 100_003, to, shared });
    }
    cases
}

/// Sums of few of these are exact in every type, and so do not depend on the order.
const HALVES: fn(u64) -> f64 = |chance| (chance % 2048) as f64 / 2.0 - 512.0;
/// Products of few of these are exact.
const POWERS: fn(u64) -> f64 = |chance| [1.0, -2.0, 0.5, 4.0, -0.25][(chance % 5) as usize];

pub(super) async fn arithmetic(session: Session) -> everfold::Result<()> {
    let session = &session;
    operation!(session, cases(), Sum of [f32], |chance| HALVES(chance) as f32, |a, b| a + b);
    operation!(session, cases(), Sum of [f64], HALVES, |a, b| a + b);
    operation!(session, cases(), Sum of [i32, i64, u32, u64, u8], |chance| chance as _, |a, b| a.wrapping_add(b));
    operation!(session, cases(), Product of [f32], |chance| POWERS(chance) as f32, |a, b| a * b);
    operation!(session, cases(), Product of [f64], POWERS, |a, b| a * b);
    operation!(session, cases(), Product of [i32, i64, u32, u64, u8], |chance| chance as _, |a, b| a.wrapping_mul(b));
    operation!(session, cases(), Min of [f32], |chance| HALVES(chance) as f32, |a, b| if b < a { b } else { a });
    operation!(session, cases(), Min of [f64], HALVES, |a, b| if b < a { b } else { a });
    operation!(session, cases(), Min of [i32, i64, u32, u64, u8], |chance| chance as _, |a, b| if b < a { b } else { a });
    operation!(session, cases(), Max of [f32], |chance| HALVES(chance) as f32, |a, b| if b > a { b } else { a });
    operation!(session, cases(), Max of [f64], HALVES, |a, b| if b > a { b } else { a });
    operation!(session, cases(), Max of [i32, i64, u32, u64, u8], |chance| chance as _, |a, b| if b > a { b } else { a });
    Ok(())
}

pub(super) async fn bits_and_truth(session: Session) -> everfold::Result<()> {
    let session = &session;
    operation!(session, cases(), BitAnd of [i32, i64, u32, u64, u8], |chance| chance as _, |a, b| a & b);
    operation!(session, cases(), BitOr of [i32, i64, u32, u64, u8], |chance| chance as _, |a, b| a | b);
    operation!(session, cases(), BitXor of [i32, i64, u32, u64, u8], |chance| chance as _, |a, b| a ^ b);
    // Values other than 0 and 1 are true as well, and one in three is false.
    operation!(session, cases(), LogicalAnd of [i32, i64, u32, u64, u8], |chance| (chance % 11 * (chance % 16)) as _,
        |a, b| if a != 0 && b != 0 { 1 } else { 0 });
    operation!(session, cases(), LogicalOr of [i32, i64, u32, u64, u8], |chance| (chance % 3 * (chance % 2)) as _,
        |a, b| if a != 0 || b != 0 { 1 } else { 0 });
    operation!(session, cases(), LogicalXor of [i32, i64, u32, u64, u8], |chance| (chance % 3) as _,
        |a, b| if (a != 0) != (b != 0) { 1 } else { 0 });
    Ok(())
}

/// A few values and a few locations, so that ties occur in both.
macro_rules! located {
    () => {
        |chance| Located { value: (chance % 4) as _, location: (chance >> 32) as u8 as _ }
    };
}

/// The tuple order says the same as MPI: the best value, and of equal ones the smallest location.
macro_rules! at_smallest {
    ($worse:expr) => {
        |a, b| {
            let worse: fn(_, _) -> bool = $worse;
            if worse(a.value, b.value) || (a.value == b.value && b.location < a.location) { b } else { a }
        }
    };
}

pub(super) async fn locations(session: Session) -> everfold::Result<()> {
    let session = &session;
    operation!(session, cases(), MinLoc of [Located<f32>, Located<f64>, Located<i32>, Located<i64>, Located<u32>,
        Located<u64>], located!(), at_smallest!(|a, b| b < a));
    operation!(session, cases(), MaxLoc of [Located<f32>, Located<f64>, Located<i32>, Located<i64>, Located<u32>,
        Located<u64>], located!(), at_smallest!(|a, b| b > a));
    Ok(())
}

/// Several segments, the last one shorter.
pub(super) async fn long_arrays(session: Session) -> everfold::Result<()> {
    let session = &session;
    let case = |to, shared| [Case { length: 3_000_001, to, shared }];
    operation!(session, case(To::Root(0), false), Sum of [f64], HALVES, |a, b| a + b);
    operation!(session, case(To::All, true), Sum of [f64], HALVES, |a, b| a + b);
    operation!(session, case(To::All, false), Product of [i64], |chance| chance as _, |a, b| a.wrapping_mul(b));
    operation!(session, case(To::Root(4), true), Max of [f32], |chance| HALVES(chance) as f32, |a, b| if b > a { b } else { a });
    operation!(session, case(To::Root(2), false), BitXor of [u32], |chance| chance as _, |a, b| a ^ b);
    operation!(session, case(To::All, true), Sum of [u8], |chance| chance as _, |a, b| a.wrapping_add(b));
    operation!(session, case(To::Root(1), true), MinLoc of [Located<i32>], located!(), at_smallest!(|a, b| b < a));
    Ok(())
}
