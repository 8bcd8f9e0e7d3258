//! What a rank goes on from: the newest generation of the directory, or what an earlier process of it has
//! left.

use everfold_planner::together::resume::{self, Round};
use everfold_runtime::result_log::LogError;
use everfold_storage::{
    directory::{DirectoryError, Manifest, Place},
    vault::Generation,
};

use super::{RESUME, Start, Together, is_lowest_of_host};
use crate::{checkpoint::error::CheckpointError, operations::Min, session::Session};

impl Together {
    /// Finds what this rank goes on from, before anything else is called.
    pub async fn resume(&self, session: &Session) -> Result<(), CheckpointError> {
        let handle = session.handle();
        if handle.saved().is_none() && handle.generation() == Generation::BEGINNING {
            match self.start {
                // Of a rank that comes back, the others may have saved meanwhile.
                Start::New if handle.process().incarnation.0 == 0 => self.directory.check_new()?,
                Start::New => {}
                Start::Resume | Start::ResumeIfAny => self.adopt(session).await?,
            }
        }
        let generation = handle.generation();
        // What an earlier process of this rank has saved may be on its way still.
        let is_common = handle.saved().is_none_or(|saved| saved.is_adopted);
        self.lock().course.go_on_from(generation.0, is_common);
        match handle.saved().filter(|saved| !saved.is_adopted) {
            // An earlier process of this rank has waited here with the others, or was about to.
            Some(saved) if saved.is_durable => {
                self.begin(session, generation.0, Ok(None));
                match self.outlast(session, generation.0).await {
                    // That one has heard it.
                    Err(CheckpointError::NotDurable { .. }) => Ok(()),
                    outlasted => outlasted,
                }
            }
            // It may not have come to its end with it.
            Some(saved) if saved.is_agreed && self.place(generation.0).manifest()?.is_none() => {
                self.begin(session, generation.0, Ok(None));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Goes on from the newest generation that is complete for all ranks, if there is one.
    async fn adopt(&self, session: &Session) -> Result<(), CheckpointError> {
        let Some((place, manifest)) = self.find_common(session).await? else { return Ok(()) };
        self.adopt_from(session, &place, &manifest)?;
        if is_lowest_of_host(session) {
            self.directory.remove_after(&place, self.job)?;
        }
        Ok(())
    }

    /// Looks with all ranks for the newest generation that all have: hosts with directories of their own may
    /// know of different ones.
    async fn find_common(&self, session: &Session) -> Result<Option<(Place, Manifest)>, CheckpointError> {
        let (mut most, mut newest) = (Generation(u64::MAX), None);
        loop {
            let found = self.directory.newest_up_to(most, &self.program, session.size());
            let given = found.as_ref().ok().map(|(place, _)| (place.generation.0, place.job.0));
            newest = newest.max(given.map(|(generation, _)| generation));
            let Min(least) = self.ask(session, RESUME, Min(resume::numbers(given).to_vec())).await?;
            let least = <[u64; 4]>::try_from(least).expect("the ranks of a job run the same program");
            match resume::judge(least) {
                Round::UpTo(generation) => most = Generation(generation),
                Round::From(generation) => {
                    let found = found?;
                    // A process that comes back hears what an earlier one has agreed on.
                    if given != Some((generation, least[2])) {
                        let found = found.0.generation.0;
                        return Err(CheckpointError::FoundOther { generation, found });
                    }
                    return Ok(Some(found));
                }
                Round::Nothing => return self.without(found, newest),
            }
        }
    }

    /// Ranks have no generation in common. This one has found the last of these last, and `newest` before.
    fn without(
        &self,
        found: Result<(Place, Manifest), DirectoryError>,
        newest: Option<u64>,
    ) -> Result<Option<(Place, Manifest)>, CheckpointError> {
        match (found, newest) {
            (Err(error), _) if !matches!(error, DirectoryError::Nothing { .. }) => Err(error.into()),
            _ if self.start == Start::ResumeIfAny => Ok(None),
            (_, Some(generation)) => Err(CheckpointError::NothingElsewhere { generation }),
            (found, None) => Ok(Some(found?)),
        }
    }

    fn adopt_from(
        &self,
        session: &Session,
        place: &Place,
        manifest: &Manifest,
    ) -> Result<(), CheckpointError> {
        let rank = session.rank();
        let state = place.open_listed(rank, manifest)?;
        let adopted = session.between_calls(|calls| session.handle().adopt(calls, &state));
        adopted.map_err(|error| match error {
            LogError::Vault(error) => place.damaged_part(rank, error).into(),
            error => CheckpointError::Vault(error),
        })?;
        tracing::info!(generation = place.generation.0, "goes on from a checkpoint of an earlier job");
        Ok(())
    }
}
