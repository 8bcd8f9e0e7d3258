//! Bodies of any serde type.

use std::collections::{BTreeMap, BTreeSet};

use everfold::{Group, ReducerBody, Session};
use serde::{Deserialize, Serialize};

use super::{To, chance, reduce, reduce_in};

/// How often each word occurs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Words(BTreeMap<String, u64>);

impl ReducerBody for Words {
    fn combine(&mut self, other: Self) {
        for (word, count) in other.0 {
            *self.0.entry(word).or_default() += count;
        }
    }
}

impl Words {
    /// What `rank` counts: some words of its own, and some that all have.
    fn of(rank: u32, own: usize) -> Self {
        let mut words =
            BTreeMap::from([("everywhere".to_owned(), 1), (format!("{}", rank % 2), u64::from(rank) + 1)]);
        words.extend((0..own).map(|index| (format!("{rank}/{index}"), chance(rank, index))));
        Self(words)
    }
}

/// Small, long, growing past what travels inside a message, and of different lengths.
pub(super) async fn commutative(session: Session) -> everfold::Result<()> {
    let lengths: [(&str, fn(u32) -> usize); 5] = [
        ("small", |_| 3),
        ("growing", |_| 400),
        ("long", |_| 20_000),
        ("long on odd ranks", |rank| rank as usize % 2 * 5_000),
        ("long on one rank", |rank| if rank == 4 { 30_000 } else { 0 }),
    ];
    for (name, own) in lengths {
        let mut expected = Words::default();
        (0..session.size()).for_each(|rank| expected.combine(Words::of(rank, own(rank))));
        for to in To::every(0..session.size()) {
            let mine = Words::of(session.rank().0, own(session.rank().0));
            if let Some(value) = reduce(&session, &format!("{name} {to:?}"), to, mine).await? {
                assert!(value == expected, "{name} {to:?}");
            }
        }
    }
    Ok(())
}

/// Text; which comes first matters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Text(String);

impl ReducerBody for Text {
    const COMMUTATIVE: bool = false;

    fn combine(&mut self, other: Self) {
        self.0.push_str(&other.0);
    }
}

pub(super) async fn order(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    let groups = [session.world(), Group::of([5, 1, 2]), Group::of([0, 2, 3, 6]), Group::of([3, 4])];
    for length in [1, 700, 6_000, 200_000] {
        let part = |rank: u32| format!("<{rank}{}>", ".".repeat(length * (1 + rank as usize % 3)));
        for (number, group) in groups.iter().enumerate().filter(|(_, group)| group.contains(me)) {
            for to in To::every(group.iter().map(|rank| rank.0)) {
                let name = format!("text {length} in group {number} to {to:?}");
                let mine = Text(part(me.0));
                if let Some(Text(value)) = reduce_in(&session, &name, group.clone(), to, mine).await? {
                    let expected: String = group.iter().map(|rank| part(rank.0)).collect();
                    assert!(value == expected, "{name}: {:?}", order_of(&value));
                }
            }
        }
    }
    Ok(())
}

/// The ranks in a text, for people.
fn order_of(text: &str) -> Vec<&str> {
    text.split('<').skip(1).map(|part| part.split(['.', '>']).next().unwrap()).collect()
}

/// Nothing at all, which is enough to know that everyone has come.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Here;

impl ReducerBody for Here {
    fn combine(&mut self, _other: Self) {}
}

/// Many kinds of serde values in one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Empty,
    Many { seen: BTreeSet<Option<(u8, char)>>, bytes: Vec<u8>, nested: Option<Box<Shape>>, float: f64 },
}

impl ReducerBody for Shape {
    fn combine(&mut self, other: Self) {
        match (&mut *self, other) {
            (_, Self::Empty) => {}
            (Self::Empty, other) => *self = other,
            (
                Self::Many { seen, bytes, nested, float },
                Self::Many { seen: more, bytes: b, nested: n, float: f },
            ) => {
                seen.extend(more);
                bytes.iter_mut().zip(b).for_each(|(mine, theirs)| *mine ^= theirs);
                match (nested, n) {
                    (Some(mine), Some(theirs)) => mine.combine(*theirs),
                    (mine, theirs) => *mine = mine.take().or(theirs),
                }
                *float = float.max(f);
            }
        }
    }
}

pub(super) async fn shapes(session: Session) -> everfold::Result<()> {
    let shape = |rank: u32| -> Shape {
        let inner = Shape::Many {
            seen: BTreeSet::from([None, Some((rank as u8, 'ß'))]),
            bytes: vec![rank as u8; 3],
            nested: None,
            float: f64::INFINITY,
        };
        match rank {
            1 => Shape::Empty,
            _ => Shape::Many {
                seen: BTreeSet::from([Some((rank as u8, char::MAX))]),
                bytes: (0..=255).collect(),
                nested: (rank == 2).then(|| Box::new(inner)),
                float: -f64::from(rank),
            },
        }
    };
    let mut expected = shape(0);
    (1..session.size()).for_each(|rank| expected.combine(shape(rank)));
    for to in To::every(0..session.size()) {
        if let Some(value) = reduce(&session, "shape", to, shape(session.rank().0)).await? {
            assert_eq!(value, expected, "{to:?}");
        }
        reduce(&session, "here", to, Here).await?;
    }
    Ok(())
}
