//! Partials of one segment that wait for a partner.
//!
//! | module | holds |
//! |---|---|
//! | `ready` | what waits, and how well it can be read |
//! | `waiting` | the queue of one segment, in either order |
//! | `arrivals` | partials that meet in order of arrival (DR-6) |
//! | `brackets` | partials that meet in the fixed order (I8) |

mod arrivals;
mod brackets;
mod ready;
mod waiting;

use everfold_protocol::Rank;
use smallvec::SmallVec;

pub(crate) use self::ready::SLOW_FACTOR;
pub use self::{
    arrivals::Arrivals,
    brackets::Brackets,
    ready::{Access, Ready, is_slow},
    waiting::Queue,
};

/// The owners whose partials have come or gone since the last question.
type Log = SmallVec<[Rank; 2]>;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use everfold_protocol::{Path, ProcessId, message::Data};

    use super::*;

    pub(super) fn ready(path: Path) -> Arc<Ready> {
        Arc::new(Ready { process: ProcessId::first(path.first().unwrap()), path, data: Data::Private })
    }
}
