//! Every kind of body gives the value that a single process would have computed.

mod again;
mod custom;
mod groups;
mod objects;
mod operations;

use everfold::{Body, Config, Group, Outcome, Session};

use crate::suite::Suite;

pub(crate) fn add_to(suite: &mut Suite) {
    suite.job("values::arithmetic", 5, operations::arithmetic);
    suite.job("values::bits_and_truth", 5, operations::bits_and_truth);
    suite.job("values::locations", 5, operations::locations);
    suite.job("values::long_arrays", 5, operations::long_arrays);
    suite.job("values::again_and_again", 4, again::and_again);
    suite.job("values::custom_elements", 5, custom::elements);
    suite.job("values::custom_order", 7, custom::order);
    suite.job("values::custom_alignment", 3, custom::alignment);
    suite.job("values::objects", 6, objects::commutative);
    suite.job("values::objects_order", 7, objects::order);
    suite.job("values::objects_of_any_shape", 3, objects::shapes);
    suite.job("values::groups", 7, groups::groups);
    suite.job("values::groups_at_once", 7, groups::at_once);
    suite.job("values::alone", 1, groups::alone);
    let inline = |bytes| Config::default().inline_bytes_max(bytes);
    suite.job_with(inline(0).board_bytes_max(0), "values::nothing_inlined", 7, everything);
    suite.job_with(inline(1 << 20), "values::much_inlined", 7, everything);
    suite.job_with(inline(0), "values::nothing_inlined_but_a_board", 7, everything);
    suite.job_with(Config::default().board_bytes_max(0), "values::no_board", 7, everything);
}

/// A choice of the above, for other limits.
async fn everything(session: Session) -> everfold::Result<()> {
    operations::locations(session.clone()).await?;
    custom::elements(session.clone()).await?;
    objects::commutative(session.clone()).await?;
    groups::groups(session).await
}

/// Who is to have a result.
#[derive(Clone, Copy, Debug)]
enum To {
    Root(u32),
    All,
}

impl To {
    /// Each rank as the root, and all.
    fn every(ranks: impl IntoIterator<Item = u32>) -> impl Iterator<Item = Self> {
        ranks.into_iter().map(Self::Root).chain([Self::All])
    }

    fn includes(self, session: &Session) -> bool {
        match self {
            Self::Root(root) => session.rank() == root,
            Self::All => true,
        }
    }
}

/// Reduces `body` among all, and gives the value where it has to be; elsewhere there is none.
async fn reduce<B: Body>(
    session: &Session,
    name: &str,
    to: To,
    body: B,
) -> everfold::Result<Option<B::Value>> {
    reduce_in(session, name, session.world(), to, body).await
}

/// Reduces `body` among `group`.
async fn reduce_in<B: Body>(
    session: &Session,
    name: &str,
    group: Group,
    to: To,
    body: B,
) -> everfold::Result<Option<B::Value>> {
    let outcome = match to {
        To::Root(root) => session.reduce(name, body).root(root).group(group).await?,
        To::All => Outcome::from(session.allreduce(name, body).group(group).await?),
    };
    assert_eq!(outcome.value.is_some(), to.includes(session), "{name} goes to {to:?}");
    Ok(outcome.value)
}

/// A number that looks like chance, the same on every rank (SplitMix64).
pub(crate) fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What `rank` contributes as element `index`, before it becomes one of the element's type.
pub(crate) fn chance(rank: u32, index: usize) -> u64 {
    scramble(u64::from(rank) << 40 | index as u64)
}
