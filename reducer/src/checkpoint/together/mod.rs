//! Checkpoints of all ranks together, in a directory that outlives the job: the protocol *coordinated*.
//!
//! All ranks save at the same call of [`Session::checkpoint`]. They agree on it by a [vote], a short
//! reduction. Then each copies its vault's state into the directory while it computes on. A later vote finds
//! that all parts are there; the ranks exchange what tells their parts from others, and a rank of each host
//! writes the manifest. A generation without a manifest is not there. A vote after that finds that all
//! manifests are there: then the generation is *common*.
//!
//! `resuming` says how a job goes on from there.
//!
//! # Invariants
//! - What a vote decides is decided by its outcome alone, which all ranks have alike. A process that comes
//!   back is answered from its result log, and decides the same.
//! - The next generation begins when the one before is common, or what is there of it is removed. So a
//!   vault's state stays as it is until it is copied, and one that was given up takes no room.
//! - A host keeps the last common generation until the next one is. So hosts that have directories of their
//!   own have one in common, whenever everything is switched off.

mod resuming;

use std::{
    io::{self, Write},
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use everfold_planner::together::{
    progress::Progress as Course,
    vote::{Settled, Tally, Verdict, Written},
};
use everfold_protocol::{
    JobId, Rank,
    message::{News, Peer},
};
use everfold_runtime::result_log::Agreed;
use everfold_storage::{
    directory::{Directory, Place},
    vault::{Fingerprint, Generation},
};
use futures::executor::block_on;
use serde::{Deserialize, Serialize};

use super::{background::Background, error::CheckpointError, prepared::Prepared, save::Checkpointed};
use crate::{error::ReduceError, operations::Min, pieces::Pieces, session::Session};

/// Names of the reductions by which ranks agree.
pub(crate) const NAMES: [&str; 3] = [VOTE, PARTS, RESUME];
const VOTE: &str = "everfold/checkpoint";
const PARTS: &str = "everfold/parts";
const RESUME: &str = "everfold/resume";

/// What a job begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// From the beginning.
    New,
    /// From the newest complete generation.
    Resume,
    /// From that, if there is one.
    ResumeIfAny,
}

/// The directory of checkpoints, as a session sees it.
#[derive(Debug)]
pub(crate) struct Together {
    directory: Directory,
    start: Start,
    job: JobId,
    program: String,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    /// What is counted.
    course: Course,
    /// What this rank does for what is on its way to the directory, or has done last: it writes its part,
    /// then the manifest of its host, or removes what is there of one that was given up.
    written: Option<Background>,
    /// Whether a rank is lost, so that nothing is complete any more.
    is_broken: bool,
    /// Whether this rank votes and saves, or its future was dropped before it had.
    is_saving: bool,
    /// Whether a future was dropped, so that this rank may count other calls than the others.
    was_dropped: bool,
}

/// What a rank tells of its part.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Part {
    /// Length and checksum, unless it cannot be read back.
    print: Option<(u64, u64)>,
    /// Whether the rank has come back, perhaps on another host.
    has_come_back: bool,
}

impl Together {
    pub fn new(directory: Directory, start: Start, job: JobId, program: String) -> Self {
        let progress = Progress {
            course: Course::from(0),
            written: None,
            is_broken: false,
            is_saving: false,
            was_dropped: false,
        };
        Self { directory, start, job, program, progress: Mutex::new(progress) }
    }

    /// Whether the job goes on from an earlier one.
    pub fn resumes(&self) -> bool {
        self.start == Start::Resume
    }

    /// Takes in that a reduction of all ranks is called.
    pub fn see_call(&self, name: u64, sequence: u64) {
        self.lock().course.see_call(name, sequence);
    }

    /// Takes in a call of `checkpoint`. Says whether ranks vote at it: then it is saved, or its future is
    /// dropped.
    pub fn votes(&self, in_any_case: bool) -> bool {
        let mut progress = self.lock();
        let votes = progress.course.votes(in_any_case);
        if votes {
            // Nobody resets it where the future is dropped, which may never be polled.
            let is_open = mem::replace(&mut progress.is_saving, true);
            progress.was_dropped |= is_open;
        }
        votes
    }

    /// Votes, and saves if that is what all have come to.
    pub(super) async fn save(
        &self,
        session: &Session,
        prepared: Result<Prepared<'_>, CheckpointError>,
        how: (bool, bool),
    ) -> Result<Checkpointed, CheckpointError> {
        let saved = self.save_to_the_end(session, prepared, how).await;
        let mut progress = self.lock();
        progress.is_saving = false;
        match saved {
            Err(CheckpointError::NotTogether) if progress.was_dropped => Err(CheckpointError::Dropped),
            Err(CheckpointError::Gone(_)) => saved,
            // This rank has come to the same as the others.
            saved => {
                progress.was_dropped = false;
                saved
            }
        }
    }

    async fn save_to_the_end(
        &self,
        session: &Session,
        prepared: Result<Prepared<'_>, CheckpointError>,
        (now, durable): (bool, bool),
    ) -> Result<Checkpointed, CheckpointError> {
        let tally = loop {
            let Some(tally) = self.vote(session, now, durable).await? else {
                return Ok(Checkpointed::RanksLost);
            };
            if tally.verdict != Verdict::Wait {
                break tally;
            }
            self.written().await;
        };
        let generation = match tally.verdict {
            Verdict::Apart => return Err(CheckpointError::NotTogether),
            Verdict::NotDue(_) => return Ok(Checkpointed::NotDue),
            Verdict::Save(generation) => generation,
            Verdict::Wait => unreachable!("it was waited for"),
        };
        self.lock().course.save(generation);
        let saved = match prepared {
            Ok(prepared) => {
                let agreed = Agreed { generation: Generation(generation), is_durable: tally.durable };
                prepared.save(Some(agreed)).await
            }
            Err(error) => Err(error),
        };
        let written = match &saved {
            Ok(Checkpointed::Saved { .. }) => Ok(None),
            Ok(Checkpointed::Started { .. }) => Ok(session.keeping().behind()),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        };
        self.begin(session, generation, written);
        // Also who could not save: the others wait for its vote.
        let is_complete = if tally.durable { self.outlast(session, generation).await } else { Ok(()) };
        saved.and_then(|saved| is_complete.map(|()| saved))
    }

    /// Saves for this rank alone what goes into no directory. All ranks come to it at the same call, but
    /// agree on nothing.
    pub(super) async fn save_alone(&self, prepared: Prepared<'_>) -> Result<Checkpointed, CheckpointError> {
        // The vault's state is copied before the second checkpoint after it begins.
        self.written().await;
        prepared.save(None).await
    }

    /// Lets ranks come to the same about the next checkpoint, and about the one on its way. Nothing is to be
    /// saved any more if it gives nothing.
    async fn vote(
        &self,
        session: &Session,
        now: bool,
        durable: bool,
    ) -> Result<Option<Tally>, CheckpointError> {
        let vote = {
            let progress = self.lock();
            if progress.is_broken {
                return Ok(None);
            }
            let is_half_full = session.handle().is_log_half_full();
            let until_due = || session.keeping().calls_until_due(progress.course.calls());
            let calls_until_due = if is_half_full { 0 } else { until_due() };
            // Some may have been saved for this rank alone.
            let saved = session.handle().generation().0;
            let written = progress.written(session.rank().0);
            progress.course.vote(saved, written, calls_until_due, (now, durable))
        };
        let Some(Min(least)) = self.agree(session, VOTE, Min(vote.numbers())).await? else { return Ok(None) };
        let tally = Tally::of(&least);
        let goes_on = match tally.settled {
            Some((generation, Settled::Listed)) => self.complete(session, generation).await?,
            Some((generation, Settled::Failed(rank))) => {
                self.give_up(session, generation, Some(rank));
                true
            }
            Some((generation, Settled::Unknown)) => {
                self.give_up(session, generation, None);
                true
            }
            Some((_, Settled::Complete | Settled::Removed)) | None => true,
        };
        self.lock().course.take(&tally);
        Ok(goes_on.then_some(tally))
    }

    /// Copies this rank's part into the directory in the background, as soon as it is written to the vault,
    /// if it is not yet.
    fn begin(&self, session: &Session, generation: u64, saved: Result<Option<Background>, String>) {
        let (place, teller) = (self.place(generation), session.clone());
        let tell = move |reason: &String| tell_incomplete(&teller, generation, reason);
        let (writer, tell_of_part) = (session.clone(), tell.clone());
        let write = |written: Option<Background>| {
            move || {
                let part = written.map_or(Ok(()), |written| block_on(written.wait()));
                let part = part.and_then(|()| write_part(&writer, &place));
                part.as_ref().err().into_iter().for_each(tell_of_part);
                part
            }
        };
        let begun =
            saved.and_then(|written| Background::start(write(written)).map_err(|error| error.to_string()));
        let part = begun.unwrap_or_else(|reason| {
            tell(&reason);
            Background::failed(reason)
        });
        let mut progress = self.lock();
        progress.course.begin(generation);
        progress.written = Some(part);
    }

    /// All parts of a generation are there: it is complete at a host as soon as its manifest is. Gives false
    /// if that cannot be, as a rank is lost.
    async fn complete(&self, session: &Session, generation: u64) -> Result<bool, CheckpointError> {
        let (place, rank) = (self.place(generation), session.rank());
        // The vault may hold a later state by now, which went into no directory.
        let (print, reason) = match place.open_part(rank).map(|part| part.fingerprint()) {
            Ok(print) => (Some((print.bytes, print.checksum)), String::new()),
            Err(error) => (None, format!(": {error}")),
        };
        let has_come_back = session.handle().process().incarnation.0 > 0;
        let piece = Pieces::at(u64::from(rank.0), vec![Part { print, has_come_back }]);
        let Some(pieces) = self.agree(session, PARTS, piece).await? else { return Ok(false) };
        let parts = pieces.into_vec(u64::from(session.size())).expect("each rank gives its own");
        let written = match listed(&parts) {
            Some(prints) => acts(session, &place, |rank| parts[rank.index()].has_come_back)
                .then(|| self.write_manifest(session, generation, prints)),
            // Nobody writes the manifest, and the next vote hears why.
            None => parts[rank.index()].print.is_none().then(|| {
                let reason = format!("its part cannot be read back{reason}");
                tell_incomplete(session, generation, &reason);
                Background::failed(reason)
            }),
        };
        self.lock().written = written;
        Ok(true)
    }

    fn write_manifest(&self, session: &Session, generation: u64, parts: Vec<Fingerprint>) -> Background {
        let (place, directory, program) =
            (self.place(generation), self.directory.clone(), self.program.clone());
        let (rank, listener) = (session.rank(), session.clone());
        let common = self.lock().course.common().map(Generation);
        let write = move || {
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            let written = place.complete(&program, now_s, parts);
            let news = match &written {
                Ok(()) => News::CheckpointComplete { generation },
                Err(error) => News::CheckpointIncomplete { generation, rank, reason: error.to_string() },
            };
            if written.is_err() {
                say(&news);
            }
            tracing::info!(%news);
            listener.handle().publish(news);
            if let Err(error) = written.as_ref().map_or(Ok(()), |()| directory.tidy(&place, common)) {
                tracing::warn!(%error, "checkpoints that are not needed any more stay");
            }
            written
        };
        Background::start(write).unwrap_or_else(|error| Background::failed(error.to_string()))
    }

    /// A rank could not write its part, or the manifest of its host, or does not know of it. What the others
    /// have written takes no room any more.
    fn give_up(&self, session: &Session, generation: u64, culprit: Option<u32>) {
        if let Some(rank) = culprit.filter(|rank| *rank != session.rank().0) {
            let reason = "it says why".to_owned();
            let news = News::CheckpointIncomplete { generation, rank: Rank(rank), reason };
            tracing::warn!(%news);
            session.handle().publish(news);
        }
        let place = self.place(generation);
        let removes = acts(session, &place, |_| false);
        let remove = move || {
            let removed = place.remove();
            removed.inspect_err(|error| tracing::warn!(%error, "an incomplete checkpoint stays"))
        };
        // Without a thread, it goes when a later one is complete.
        let removal = removes.then(|| Background::start(remove).ok());
        self.lock().written = removal.flatten();
    }

    /// Waits with all ranks until a generation is complete at all hosts.
    async fn outlast(&self, session: &Session, generation: u64) -> Result<(), CheckpointError> {
        loop {
            self.written().await;
            let tally = self.vote(session, false, false).await?;
            match tally.and_then(|tally| tally.settled) {
                Some((_, Settled::Listed)) => {}
                Some((_, Settled::Complete)) => return Ok(()),
                Some((_, Settled::Failed(rank))) => {
                    return Err(CheckpointError::NotDurable { generation, rank: Some(rank) });
                }
                Some((_, Settled::Unknown | Settled::Removed)) | None => {
                    return Err(CheckpointError::NotDurable { generation, rank: None });
                }
            }
        }
    }

    /// Waits until what this rank writes is written, or cannot be.
    pub async fn written(&self) {
        let under_way = self.lock().written.clone();
        if let Some(work) = under_way {
            // What went wrong was told.
            let _ = work.wait().await;
        }
    }

    /// A checkpoint is saved at this call by all ranks: what they compare begins anew.
    pub(super) fn count_anew(&self) {
        self.lock().course.count_anew();
    }

    fn place(&self, generation: u64) -> Place {
        self.directory.place(Generation(generation), self.job)
    }

    /// Has all ranks agree; gives nothing, from now on, if that cannot be, as a rank is lost.
    async fn agree<B: crate::body::Body<Value = B>>(
        &self,
        session: &Session,
        name: &str,
        body: B,
    ) -> Result<Option<B>, CheckpointError> {
        match self.ask(session, name, body).await {
            Ok(value) => Ok(Some(value)),
            Err(CheckpointError::Gone(ReduceError::Refused(refusal))) => {
                tracing::warn!(%refusal, "no checkpoint of all ranks is complete any more");
                self.lock().is_broken = true;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn ask<B: crate::body::Body<Value = B>>(
        &self,
        session: &Session,
        name: &str,
        body: B,
    ) -> Result<B, CheckpointError> {
        let asked = session.allreduce(name, body).of_everfold().await.map_err(CheckpointError::Gone)?;
        Ok(asked.value)
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn written(&self, rank: u32) -> Written {
        match self.written.as_ref().map(Background::result) {
            None | Some(Some(Ok(()))) => Written::There,
            Some(None) => Written::Writing,
            Some(Some(Err(_))) => Written::Failed(rank),
        }
    }
}

/// Copies what is in force of this rank into the directory.
fn write_part(session: &Session, place: &Place) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let state = session.handle().state().map_err(|error| told(&error))?;
    if state.generation() != place.generation {
        return Err(format!("{} is in force by now", state.generation()));
    }
    place.write_part(session.rank(), &state).map_err(|error| told(&error))
}

/// What the manifest lists, unless a part cannot be read back.
fn listed(parts: &[Part]) -> Option<Vec<Fingerprint>> {
    let print = |part: &Part| part.print.map(|(bytes, checksum)| Fingerprint { bytes, checksum });
    parts.iter().map(print).collect()
}

/// Tells that this rank has no part of a generation.
fn tell_incomplete(session: &Session, generation: u64, reason: &str) {
    let news = News::CheckpointIncomplete { generation, rank: session.rank(), reason: reason.to_owned() };
    tracing::warn!(%news);
    say(&news);
    session.handle().publish(news);
}

/// Tells people that the job goes on without what they count on.
fn say(news: &News) {
    // Whoever has closed it does not want to know.
    let _ = writeln!(io::stderr(), "everfold: {news}");
}

/// Whether this rank does what is done once in a directory, of which each host may have one of its own: it
/// writes the manifest, tidies, removes. If several do it, it comes to the same.
///
/// The lowest rank of a host may have gone to another host since the job began. So the lowest one whose part
/// is in the directory does it, too, without those that may be `elsewhere` by now.
fn acts(session: &Session, place: &Place, elsewhere: impl Fn(Rank) -> bool) -> bool {
    is_lowest_of_host(session) || place.is_lowest_here(session.rank(), elsewhere)
}

/// Whether this rank was the lowest of its host when the job began. Hosts are told by their agents: those of
/// several may share a machine, and its memory.
fn is_lowest_of_host(session: &Session) -> bool {
    let (peers, rank) = (session.handle().peers(), session.rank());
    let host = |peer: &Peer| match &peer.agent {
        Some(agent) => (Some(agent.id), 0),
        None => (None, peer.host),
    };
    let mine = host(&peers[rank.index()]);
    peers.iter().position(|peer| host(peer) == mine) == Some(rank.index())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_with_a_part_that_cannot_be_read_back_has_no_manifest() {
        let part = |print| Part { print, has_come_back: false };
        let (first, second) = (part(Some((7, 8))), part(Some((0, 0))));
        let print = |bytes, checksum| Fingerprint { bytes, checksum };
        assert_eq!(listed(&[first, second]), Some(vec![print(7, 8), print(0, 0)]));
        assert_eq!(listed(&[first, part(None), second]), None);
    }
}
