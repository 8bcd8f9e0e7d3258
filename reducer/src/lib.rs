//! Reductions that finish.
//!
//! Every process of a job contributes data; everfold combines it wherever that is fastest and delivers the
//! result to one process or to all. No process waits for a matching call of a neighbour: contributions are
//! read one-sidedly while the application computes on, and any number of reductions runs at once. Any process
//! may die meanwhile; the others go on, and no contribution counts twice.
//!
//! ```no_run
//! use everfold::prelude::*;
//!
//! fn main() -> everfold::Result<()> {
//!     everfold::launch(Launch::from_env_or_local(8), |session| async move {
//!         let mine = Sum(vec![f64::from(session.rank()); 4]);
//!         let outcome = session.reduce("sum", mine).await?;
//!         if let Some(Sum(total)) = outcome.value {
//!             println!("{total:?}: {}", outcome.report);
//!         }
//!         Ok(())
//!     })
//! }
//! ```
//!
//! | to | see |
//! |---|---|
//! | start processes, or join those that a launcher started | [`launch()`], [`Launch`] |
//! | reduce numeric arrays | [`Sum`], [`Min`], [`MaxLoc`] and their kin, [`ElementWise`] for operations of your own |
//! | reduce a type of your own | [`ReducerBody`] |
//! | start a reduction and compute on | [`Session::reduce`], [`Session::allreduce`], [`ReduceFuture`] |
//! | have three ranks compute the same, and compare | [`Session::serial`] |
//! | put a vector together from pieces (allgather) | [`Pieces`] |
//! | compute a loop that survivors finish if ranks die | [`Session::segment`], [`RecoverySegment`] |
//! | bring pieces to ranks without folding them | [`Session::allgather`], [`gather`](Session::gather), [`broadcast`](Session::broadcast), [`scatter`](Session::scatter), [`exchange`](Session::exchange) |
//! | wait for all ranks | [`Session::barrier`] |
//! | keep state that survivors can read | [`Session::keep`], [`Session::kept`] |
//! | choose who takes part | [`Group`] |
//! | choose the receivers, replicas, and whether bits have to be the same | [`Reduction`], [`Protection`], [`Order`] |
//! | know what happened | [`Outcome`], [`Report`], [`ReduceError`] |
//! | hear of deaths, and know who lives | [`Session::events`], [`Session::survivors`] |
//! | go on after the process of a rank has died | [`Config::restart_ranks`], [`Session::resume`], [`Session::checkpoint`] |
//! | save checkpoints at the points of a plan, and record what plans are made from | [`Checkpoint::at`], [`plan`] |
//! | go on after everything was switched off | [`Config::checkpoint_directory`], [`Launch::resume`] |
//! | choose recoveries of processes that die, in a file or in the program | [`recovery`] |
//! | set limits, timeouts and directories | [`Config`] |
//! | start processes by a launcher of your own | [`launch::environment`] |

mod array;
mod body;
mod checkpoint;
mod collective;
mod config;
mod encoding;
mod error;
mod group;
mod kept;
pub mod launch;
pub mod locating;
mod operations;
mod pieces;
pub mod plan;
pub mod recovery;
mod reduction;
mod segment;
mod session;

pub use array::Array;
pub use body::{Body, ReducerBody};
pub use checkpoint::{
    Checkpoint, CheckpointError, CheckpointHook, CheckpointPace, Checkpointed, HookError, Interval, Live,
    Resume, Saving, UnknownPace,
};
pub use collective::{
    Allgather, Barrier, Blocks, Broadcast, Collective, CollectiveFuture, Even, Exchange, Gather, Gathered,
    Object, Operation, Piece, Scatter,
};
pub use config::{Config, ConfigError};
pub use error::{Error, ReduceError, Result};
pub use everfold_protocol::{
    Path, Rank,
    evidence::{Ending, Evidence, NoReturn},
    message::News,
    report::{FailureRecord, Phases, Refusal, Report, Restored, TaskRecord},
    spec::{Aspect, Limits, Order, Protection, ProtectionError},
};
pub use everfold_runtime::{
    agent::{HailError, NoAgent},
    body::{BodyError, Unfit},
    executor::{NoWindow, ShareError},
    kernel::{Element, Located},
    memory::catalogue::KeepError,
    rank::JoinError,
    result_log::LogError,
    transport::{ReadError, control::AddressError, handshake::HandshakeError},
};
pub use everfold_storage::directory::DirectoryError;
pub use group::Group;
pub use kept::{Keep, Keeping, Kept, StateError};
pub use launch::{Launch, launch};
pub use operations::{
    Arithmetic, BitAnd, BitOr, BitXor, ElementWise, Elements, Integer, Locating, LogicalAnd, LogicalOr,
    LogicalXor, Max, MaxLoc, Min, MinLoc, Product, Sum,
};
pub use pieces::{Pieces, PiecesError};
pub use reduction::{DEFAULT_PROTECTION, Outcome, Receivers, ReduceFuture, Reduction, ToAll, ToRoot};
pub use segment::{Agreed, Folded, Indices, RecoverySegment, SegmentError, SegmentReport, SerialSegment};
pub use session::Session;

/// The items that most programs need: `use everfold::prelude::*;`
pub mod prelude {
    pub use crate::{
        Array, BitAnd, BitOr, BitXor, Body, Checkpointed, Config, ElementWise, Even, Folded, Gathered, Group,
        Launch, Located, LogicalAnd, LogicalOr, LogicalXor, Max, MaxLoc, Min, MinLoc, Object, Order, Outcome,
        Pieces, Product, Protection, Rank, ReduceError, ReduceFuture, ReducerBody, Report, Session, Sum,
        launch,
    };
}

/// Compiles the program in docs/coming-back.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/coming-back.md")]
struct ComingBack;

/// Compiles the program in docs/collectives.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/collectives.md")]
struct Collectives;

/// Compiles the program in docs/segments.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/segments.md")]
struct Segments;

/// Compiles the program in docs/recovery.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/recovery.md")]
struct Recovering;

/// Compiles the programs in the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
