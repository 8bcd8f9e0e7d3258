//! Element-wise operations of the application's own.

use bytemuck::{Pod, Zeroable};
use everfold::{ElementWise, Group, Session};

use super::{To, chance, reduce, reduce_in};

/// Lengths in elements of 3 to 64 bytes: inlined, one window, several segments.
const LENGTHS: [usize; 4] = [1, 250, 9_001, 400_003];

pub(super) async fn elements(session: Session) -> everfold::Result<()> {
    let session = &session;
    let ranks = session.size();
    for length in LENGTHS {
        // Complex products: two numbers are one element.
        let sample = |rank, index| [(chance(rank, index) % 5) as f64 - 2.0, (chance(rank, index) % 3) as f64];
        let product = |a: [f64; 2], b: [f64; 2]| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]];
        // Elements of three bytes, whose segments end where no power of two does.
        let colour = |rank, index| -> [u8; 3] { chance(rank, index).to_le_bytes()[..3].try_into().unwrap() };
        let brightest = |a: [u8; 3], b: [u8; 3]| std::array::from_fn(|i| a[i].max(b[i]));
        for to in To::every([2]) {
            let mine = (0..length).map(|index| sample(session.rank().0, index)).collect();
            let body = ElementWise::<Vec<_>, _>::new("complex product", mine, product);
            if let Some(value) = reduce(session, &format!("complex {length} {to:?}"), to, body).await? {
                assert_eq!(value.len(), length);
                for (index, found) in value.iter().enumerate() {
                    let expected = (0..ranks).map(|rank| sample(rank, index)).reduce(product);
                    assert_eq!(Some(*found), expected, "complex {length} {to:?}: element {index}");
                }
            }
            let mine = (0..length).map(|index| colour(session.rank().0, index)).collect();
            let body = ElementWise::<Vec<_>, _>::new("brightest", mine, brightest);
            if let Some(value) = reduce(session, &format!("colours {length} {to:?}"), to, body).await? {
                assert_eq!(value.len(), length);
                for (index, found) in value.iter().enumerate() {
                    let expected = (0..ranks).map(|rank| colour(rank, index)).reduce(brightest);
                    assert_eq!(Some(*found), expected, "colours {length} {to:?}: element {index}");
                }
            }
        }
        // On an element type that the library knows, in memory of the session; and a closure that holds
        // something.
        let mut mine = session.array::<u64>(length);
        mine.iter_mut()
            .enumerate()
            .for_each(|(index, element)| *element = chance(session.rank().0, index) % 1000);
        let modulus = [1009u64];
        let body = ElementWise::new("sum modulo 1009", mine, move |a: u64, b: u64| (a + b) % modulus[0]);
        if let Some(value) = reduce(session, &format!("modulo {length}"), To::Root(1), body).await? {
            for (index, found) in value.iter().enumerate() {
                let expected = (0..ranks).map(|rank| chance(rank, index) % 1000).sum::<u64>() % 1009;
                assert_eq!(*found, expected, "modulo {length}: element {index}");
            }
        }
    }
    Ok(())
}

/// `x → a·x + b`. Which of two such maps comes first matters.
type Affine = [u64; 2];

fn after(first: Affine, then: Affine) -> Affine {
    [first[0].wrapping_mul(then[0]), first[1].wrapping_mul(then[0]).wrapping_add(then[1])]
}

fn affine(rank: u32, index: usize) -> Affine {
    [chance(rank, index) | 1, chance(rank, index).rotate_left(17)]
}

/// Operands keep the order of their ranks, whoever arrives first and whoever folds.
pub(super) async fn order(session: Session) -> everfold::Result<()> {
    let session = &session;
    let me = session.rank();
    let groups = [session.world(), Group::of([1, 2, 4, 6]), Group::of([0, 3, 5])];
    for length in [1, 250, 9_001, 400_003] {
        for (number, group) in groups.iter().enumerate().filter(|(_, group)| group.contains(me)) {
            for to in To::every(group.iter().map(|rank| rank.0)) {
                if length > 10_000 && !matches!(to, To::All | To::Root(3 | 4)) {
                    continue;
                }
                let name = format!("affine {length} in group {number} to {to:?}");
                let mine: Vec<Affine> = (0..length).map(|index| affine(me.0, index)).collect();
                let body = ElementWise::new("affine", mine, after).non_commutative();
                if let Some(value) = reduce_in(session, &name, group.clone(), to, body).await? {
                    assert_eq!(value.len(), length);
                    for (index, found) in value.iter().enumerate() {
                        let expected = group.iter().map(|rank| affine(rank.0, index)).reduce(after);
                        assert_eq!(Some(*found), expected, "{name}: element {index}");
                    }
                }
            }
        }
    }
    Ok(())
}

/// An element as long as a cache line, and aligned like one.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

fn add(a: Line, b: Line) -> Line {
    Line(std::array::from_fn(|i| a.0[i] + b.0[i]))
}

/// Elements may have a stricter alignment than numbers have.
pub(super) async fn alignment(session: Session) -> everfold::Result<()> {
    let ranks = session.size();
    let line =
        |rank: u32, index: usize| Line(std::array::from_fn(|i| u64::from(rank + 1) * (index * 8 + i) as u64));
    for length in [1, 250, 1_000, 50_003] {
        for to in To::every(0..ranks) {
            for ordered in [false, true] {
                let mine: Vec<Line> = (0..length).map(|index| line(session.rank().0, index)).collect();
                let body = ElementWise::new("lines", mine, add);
                let body = if ordered { body.non_commutative() } else { body };
                let name = format!("lines {length} {to:?} {ordered}");
                if let Some(value) = reduce(&session, &name, to, body).await? {
                    for (index, found) in value.iter().enumerate() {
                        let expected = (0..ranks).map(|rank| line(rank, index)).reduce(add);
                        assert_eq!(Some(*found), expected, "{name}: element {index}");
                    }
                }
            }
        }
    }
    Ok(())
}
