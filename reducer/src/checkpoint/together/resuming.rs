//! What a rank goes on from: the newest generation of the directory, or what an earlier process of it has
//! left.

use everfold_planner::together::resume;
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
        self.lock().course.go_on_from(generation.0);
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

    /// Goes on from the newest generation that is complete for all ranks: hosts with directories of their own
    /// may know of different ones.
    async fn adopt(&self, session: &Session) -> Result<(), CheckpointError> {
        let newest = self.directory.newest_for(&self.program, session.size());
        let generation = newest.as_ref().map_or(0, |(place, _)| place.generation.0);
        let [least] = self.least(session, [generation]).await?;
        let newest = match (newest, resume::agreed(least)) {
            (Err(DirectoryError::Nothing { .. }), _) if self.start == Start::ResumeIfAny => return Ok(()),
            (Err(error), _) => return Err(error.into()),
            (Ok(_), None) if self.start == Start::ResumeIfAny => return Ok(()),
            (Ok(_), None) => return Err(CheckpointError::NothingElsewhere { generation }),
            (Ok(newest), Some(agreed)) if agreed == generation => Ok(newest),
            (Ok(_), Some(agreed)) => {
                self.directory.find_for(Generation(agreed), &self.program, session.size())
            }
        };
        let job = newest.as_ref().map_or(0, |(place, _)| place.job.0);
        let jobs = self.least(session, resume::job_numbers(job)).await?;
        let (place, manifest) = newest?;
        if !resume::is_one_job(jobs) {
            return Err(CheckpointError::OtherJobElsewhere { generation: place.generation.0 });
        }
        self.adopt_from(session, &place, &manifest)?;
        if is_lowest_of_host(session) {
            self.directory.remove_after(&place, self.job)?;
        }
        Ok(())
    }

    /// Of each number the least that a rank gives.
    async fn least<const N: usize>(
        &self,
        session: &Session,
        numbers: [u64; N],
    ) -> Result<[u64; N], CheckpointError> {
        let Min(least) = self.ask(session, RESUME, Min(numbers.to_vec())).await?;
        Ok(least.try_into().expect("the ranks of a job run the same program"))
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
