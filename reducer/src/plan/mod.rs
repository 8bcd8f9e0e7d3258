//! Plans of checkpoints in running programs: recording a profile, and taking checkpoints where a plan says.
//!
//! | to | see |
//! |---|---|
//! | name the points of a program | [`Checkpoint::at`](crate::Checkpoint::at) |
//! | record a profile of it, which `everfold plan` reads | [`Launch::record`](crate::Launch::record), `EVERFOLD_RECORD`, `everfold run --record` |
//! | take checkpoints at the points of a plan | [`Launch::plan`](crate::Launch::plan), `EVERFOLD_PLAN`, `everfold run --plan` |
//!
//! | module | holds |
//! |---|---|
//! | `file` | plans as they are written |
//! | `placing` | what a session knows of its points: whether to save here |
//! | `recorder` | the profile that is recorded |
//!
//! Deliberately absent: making plans, which `everfold_planner` does, and saving checkpoints.

mod file;
mod placing;
mod recorder;

pub use self::file::{PlanError, PlanFile};
pub(crate) use self::placing::{Here, Placing};

pub(crate) use everfold_planner::{follow::Save, leveled::Depth};

pub use everfold_planner::follow::{Misfit, Unfollowable};
