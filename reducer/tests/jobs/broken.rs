//! Bodies that cannot be encoded, decoded or combined end their reduction in an error, on every rank, and
//! nothing else.

use everfold::{ElementWise, Order, Path, ReduceError, ReducerBody, Refusal, Session, Sum};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use crate::suite::Suite;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.job("broken::decoding", 4, decoding);
    suite.job("broken::decoding_the_result", 4, decoding_the_result);
    suite.job("broken::combining", 4, combining);
    suite.job("broken::encoding_a_partial", 4, encoding_a_partial);
    suite.job("broken::encoding", 4, encoding);
    suite.job("broken::elements_inlined", 4, |session| elements(session, 10));
    suite.job("broken::elements_in_a_short_window", 4, |session| elements(session, 5_000));
    suite.job("broken::elements_in_a_long_window", 4, |session| elements(session, 100_000));
}

/// What does not work with a body. It is a number to the encoding, because a variant that is new is decoded
/// at the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u32", from = "u32")]
enum Trouble {
    None,
    Encoding,
    EncodingAfterCombining,
    Decoding,
    /// Once that many are combined.
    DecodingOf(u32),
    PanicInDecoding,
    Combining,
}

const IN_ORDER: [Trouble; 6] = [
    Trouble::None,
    Trouble::Encoding,
    Trouble::EncodingAfterCombining,
    Trouble::Decoding,
    Trouble::PanicInDecoding,
    Trouble::Combining,
];

impl From<Trouble> for u32 {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::DecodingOf(parts) => 100 + parts,
            trouble => IN_ORDER.iter().position(|one| *one == trouble).unwrap() as u32,
        }
    }
}

impl From<u32> for Trouble {
    fn from(number: u32) -> Self {
        match number {
            100.. => Self::DecodingOf(number - 100),
            _ => IN_ORDER[number as usize],
        }
    }
}

/// A body with its trouble.
#[derive(Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
struct Fragile {
    parts: u32,
    trouble: Trouble,
    padding: Vec<u8>,
}

impl Serialize for Fragile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.trouble {
            Trouble::Encoding => Err(ser::Error::custom("this body refuses to be encoded")),
            _ => Self::serialize(self, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Fragile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let body = Self::deserialize(deserializer)?;
        match body.trouble {
            Trouble::Decoding => Err(de::Error::custom("this body refuses to be decoded")),
            Trouble::DecodingOf(parts) if parts == body.parts => Err(de::Error::custom("this is too much")),
            Trouble::PanicInDecoding => panic!("this body panics when it is decoded"),
            _ => Ok(body),
        }
    }
}

impl ReducerBody for Fragile {
    fn combine(&mut self, other: Self) {
        self.parts += other.parts;
        self.trouble = match self.trouble.max(other.trouble) {
            Trouble::Combining => panic!("this body panics when it is combined"),
            Trouble::EncodingAfterCombining => Trouble::Encoding,
            trouble => trouble,
        };
    }
}

/// Inlined, and in a window.
const PADDINGS: [usize; 2] = [10, 100_000];

fn fragile(trouble: Trouble, padding: usize) -> Fragile {
    Fragile { parts: 1, trouble, padding: vec![7; padding] }
}

/// The name whose reduction has failed can be used again, and all ranks take part.
async fn works(session: &Session, name: &str) -> everfold::Result<()> {
    for padding in PADDINGS {
        let value = session.allreduce(name, fragile(Trouble::None, padding)).await?.value;
        assert_eq!((value.parts, value.padding.len()), (session.size(), padding));
    }
    Ok(())
}

/// Whose contributions a fold has failed at.
#[track_caller]
fn assert_not_folded(ended: Result<(), ReduceError>, why: &str) -> Path {
    match ended {
        Err(ReduceError::Refused(Refusal::FoldFailed { executor, path, reason })) => {
            assert!(executor.0 < 4 && !path.is_empty() && reason.contains(why), "{executor} {path} {reason}");
            path
        }
        other => panic!("{other:?}"),
    }
}

async fn decoding(session: Session) -> everfold::Result<()> {
    let me = session.rank();
    // The first body of a type is decoded at the call.
    works(&session, "the first").await?;
    for padding in PADDINGS {
        // One body is bad, and the root has to decode it or a partial with it.
        let name = format!("one of {padding}");
        let trouble = if me == 2 { Trouble::Decoding } else { Trouble::None };
        match session.reduce(&name, fragile(trouble, padding)).await {
            Err(ReduceError::Refused(Refusal::FoldFailed { path, reason, .. })) => {
                assert!(path.contains(2.into()), "{path}");
                assert!(reason.contains("refuses to be decoded"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        let name = format!("one panic of {padding}");
        let trouble = if me == 2 { Trouble::PanicInDecoding } else { Trouble::None };
        let blamed =
            assert_not_folded(session.reduce(&name, fragile(trouble, padding)).await.map(drop), "panic");
        assert!(blamed.contains(2.into()), "{blamed}");
        works(&session, &name).await?;
        for (trouble, why) in
            [(Trouble::Decoding, "this body refuses to be decoded"), (Trouble::PanicInDecoding, "panicked")]
        {
            let name = format!("{trouble:?} {padding}");
            let ended = session.allreduce(&name, fragile(trouble, padding)).await;
            assert_not_folded(ended.map(drop), why);
            works(&session, &name).await?;
        }
    }
    Ok(())
}

/// The fold works, but only the rank that did it has the result.
async fn decoding_the_result(session: Session) -> everfold::Result<()> {
    works(&session, "the first").await?;
    for padding in PADDINGS {
        let name = format!("{padding}");
        let trouble = Trouble::DecodingOf(session.size());
        let has_it = match session.allreduce(&name, fragile(trouble, padding)).await {
            Ok(outcome) => {
                assert_eq!(outcome.value.parts, session.size());
                true
            }
            Err(ReduceError::ResultLost { reason }) => {
                assert!(reason.contains("rank ") && reason.contains("this is too much"), "{reason}");
                false
            }
            Err(other) => panic!("{other}"),
        };
        let count = session.allreduce("have it", Sum(vec![u32::from(has_it)])).await?.value;
        assert_eq!(count, Sum(vec![1]));
        works(&session, &name).await?;
    }
    Ok(())
}

async fn combining(session: Session) -> everfold::Result<()> {
    for padding in PADDINGS {
        for rank in 0..session.size() {
            for order in [Order::Arrival, Order::Fixed] {
                let name = format!("rank {rank} {padding} {order:?}");
                let trouble = if session.rank() == rank { Trouble::Combining } else { Trouble::None };
                let ended = session.reduce(&name, fragile(trouble, padding)).root(3).order(order).await;
                let blamed = assert_not_folded(ended.map(drop), "panicked");
                // It may have been the other one of the two that were about to meet.
                assert!(blamed.contains(rank.into()) && blamed.len() <= 2, "rank {rank}: {blamed}");
                works(&session, &name).await?;
            }
        }
    }
    Ok(())
}

async fn encoding_a_partial(session: Session) -> everfold::Result<()> {
    for padding in PADDINGS {
        let name = format!("{padding}");
        let ended = session.allreduce(&name, fragile(Trouble::EncodingAfterCombining, padding)).await;
        assert_not_folded(ended.map(drop), "refuses to be encoded");
        works(&session, &name).await?;
    }
    Ok(())
}

/// A body that cannot even be contributed: nobody has heard of the call, so the rank may call again.
async fn encoding(session: Session) -> everfold::Result<()> {
    let bad = |name: &str| session.reduce(name, fragile(Trouble::Encoding, 0)).start();
    if session.rank() == 1 {
        for _ in 0..2 {
            match bad("name") {
                Err(ReduceError::Body(error)) => {
                    assert!(error.to_string().contains("refuses to be encoded"), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    works(&session, "another name").await?;
    works(&session, "name").await
}

/// An element-wise operation that panics on one element.
async fn elements(session: Session, length: usize) -> everfold::Result<()> {
    let mut mine = vec![1u64; length];
    let combine = |a: u64, b: u64| if a == 13 || b == 13 { panic!("thirteen") } else { a + b };
    let good = mine.clone();
    if session.rank() == 1 {
        mine[length / 2] = 13;
    }
    let ended = session.allreduce("elements", ElementWise::new("no thirteens", mine, combine)).await;
    let blamed = assert_not_folded(ended.map(drop), "panicked");
    assert!(blamed.contains(1.into()), "{blamed}");
    let value = session.allreduce("elements", ElementWise::new("no thirteens", good, combine)).await?.value;
    assert_eq!(value, vec![4; length]);
    Ok(())
}
