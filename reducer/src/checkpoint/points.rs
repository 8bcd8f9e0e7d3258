//! What a session does with the points of its program.

use std::{io, path::PathBuf, time::Instant};

use everfold_planner::follow::{Passed, Save};
use everfold_protocol::message::News;

use crate::{plan::Here, session::Session};

impl Session {
    /// The program is at a point, or at a checkpoint without a name. Says how the plan has one saved here, if it
    /// does.
    pub(super) fn reach_in_plan(&self, point: Option<&str>) -> Option<Save> {
        match self.keeping().placing.reach(point) {
            Here::NoPlan | Here::Skip => None,
            Here::Save(save) => Some(save),
            Here::Misfit(misfit) => {
                self.tell_misfit(misfit.to_string());
                Some(Save::Waiting)
            }
        }
    }

    /// Goes on from a checkpoint that was saved so far in the plan.
    pub(super) fn go_on_in_plan(&self, passed: Option<Passed>) {
        if let Some(recorder) = self.keeping().placing.recorder() {
            recorder.give_up();
        }
        if !self.keeping().placing.go_on(passed) {
            self.tell_misfit(
                "the checkpoint from which it goes on was saved without following a plan".to_owned(),
            );
        }
    }

    /// The program has come to its end: what it has reached is compared with the plan, and written down.
    ///
    /// # Errors
    /// The profile cannot be written.
    pub(crate) fn end_points(&self) -> Result<(), (PathBuf, io::Error)> {
        let placing = &self.keeping().placing;
        if let Err(misfit) = placing.end() {
            self.tell_misfit(misfit.to_string());
        }
        let Some(recorder) = placing.recorder() else { return Ok(()) };
        let recorded = recorder.finish(self.keeping().interval(), self.size());
        recorded.map_err(|source| (recorder.path().to_owned(), source))
    }

    /// A checkpoint has held the program up since this moment.
    pub(super) fn away_since(&self, begun: Instant) {
        if let Some(recorder) = self.keeping().placing.recorder() {
            recorder.was_away(begun.elapsed());
        }
    }

    fn tell_misfit(&self, reason: String) {
        let news = News::PlanMisfit { rank: self.rank(), reason };
        tracing::warn!(%news);
        self.handle().publish(news);
    }
}
