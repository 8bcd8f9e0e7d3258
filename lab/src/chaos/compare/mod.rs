//! `everfold chaos compare`: one program under the same faults with several recovery files.
//!
//! | to know | see |
//! |---|---|
//! | what can be asked for, and the runs in their order | [`options`] |
//! | which faults a run gets: pure | [`rates`] |
//! | what the built-in program does | [`program`] |
//! | how a run is started, watched and hit | [`run`] |
//! | what its events say of its course: pure | [`course`] |
//! | what is told, and drawn | [`table`], [`plot`] |

mod course;
mod options;
mod plot;
mod program;
mod rates;
mod run;
mod table;

pub use self::{options::Compare, program::Solver};
