//! `everfold checkpoint`: a directory of checkpoints, for people.

use std::{path::PathBuf, process::ExitCode, time::SystemTime};

use clap::{Args, Subcommand};
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use everfold::DirectoryError;
use everfold_lab::{Failure, say};
use everfold_storage::{
    directory::{Directory, Found, Manifest, Status},
    vault::Generation,
};

/// The exit code if something is damaged. A part that is not here may be in the directory of another host.
const DAMAGED: u8 = 1;
/// The exit code if the directory cannot be used.
const UNUSABLE: u8 = 2;

/// Look at checkpoints that outlive their job, or remove them.
///
/// `everfold run --checkpoints DIR` saves them, and `everfold run --resume DIR` goes on from the newest one that is
/// complete.
#[derive(Subcommand)]
pub enum Checkpoint {
    List(List),
    Verify(Verify),
    Remove(Remove),
}

/// Show which generations there are: whether they are complete, their sizes and ages.
#[derive(Args)]
#[command(after_help = "\
Example:
  everfold checkpoint list /scratch/simulate

A job goes on from the newest generation that is complete. One that is incomplete is being saved, or its job ended
meanwhile. The exit code is 2 if the directory cannot be used.")]
pub struct List {
    /// The directory.
    directory: PathBuf,
}

/// Read all parts, and compare every byte with its checksum.
#[derive(Args)]
#[command(after_help = "\
Example:
  everfold checkpoint verify /scratch/simulate --generation 12

Where each host has a directory of its own, parts of other hosts count as elsewhere. The exit code is 1 if something is
damaged, and 2 if the directory cannot be used or holds no complete generation.")]
pub struct Verify {
    /// The directory.
    directory: PathBuf,
    /// Only this generation.
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
}

/// Remove a generation, or all of them.
#[derive(Args)]
#[command(after_help = "\
Examples:
  everfold checkpoint remove /scratch/simulate --generation 12
      A job goes on from the one before then.
  everfold checkpoint remove /scratch/simulate
      All of them. Files that are not everfold's stay.

Do not remove what a running job saves. The exit code is 2 if there is no such generation, or the directory cannot be
used.")]
pub struct Remove {
    /// The directory.
    directory: PathBuf,
    /// Only this generation.
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
}

impl Checkpoint {
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::List(List { directory }) => list(&open(directory)?),
            Self::Verify(Verify { directory, generation }) => verify(&open(directory)?, generation),
            Self::Remove(Remove { directory, generation }) => {
                let directory = open(directory)?;
                let removed = directory.remove(generation.map(Generation)).map_err(unusable)?;
                say!("removed {removed} from {}", directory.path().display())?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn open(directory: PathBuf) -> Result<Directory, Failure> {
    Directory::open(directory).map_err(unusable)
}

// `map_err` gives it away.
#[allow(clippy::needless_pass_by_value)]
fn unusable(error: DirectoryError) -> Failure {
    Failure { message: error.to_string(), exit_code: UNUSABLE }
}

fn list(directory: &Directory) -> Result<ExitCode, Failure> {
    let found = directory.list().map_err(unusable)?;
    if found.is_empty() {
        say!("no generation in {}", directory.path().display())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header(["generation", "state", "parts here", "bytes here", "age", "program", "job"]);
    for column in [0, 2, 3, 4] {
        table
            .column_mut(column)
            .into_iter()
            .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    }
    for Found { place, parts, status } in found {
        let bytes: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        let (state, of, age, program) = match &status {
            Status::Complete(manifest) => (
                "complete".to_owned(),
                format!(" of {}", manifest.ranks()),
                age(manifest),
                &*manifest.program,
            ),
            Status::Incomplete => ("incomplete".to_owned(), String::new(), String::new(), ""),
            Status::Damaged(_) => ("damaged".to_owned(), String::new(), String::new(), ""),
        };
        let parts = format!("{}{of}", parts.len());
        let job = format!("{:016x}", place.job.0);
        table.add_row([
            place.generation.0.to_string(),
            state,
            parts,
            bytes.to_string(),
            age,
            program.to_owned(),
            job,
        ]);
    }
    say!("{table}")?;
    Ok(ExitCode::SUCCESS)
}

/// How long ago it was complete.
fn age(manifest: &Manifest) -> String {
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let age_s = now_s.saturating_sub(manifest.saved_unix_s);
    match age_s {
        0..120 => format!("{age_s} s"),
        120..7_200 => format!("{} min", age_s / 60),
        7_200..172_800 => format!("{} h", age_s / 3_600),
        _ => format!("{} d", age_s / 86_400),
    }
}

fn verify(directory: &Directory, generation: Option<u64>) -> Result<ExitCode, Failure> {
    let is_meant = |found: &Found| generation.is_none_or(|generation| found.place.generation.0 == generation);
    let found: Vec<Found> = directory.list().map_err(unusable)?.into_iter().filter(is_meant).collect();
    if let (Some(generation), true) = (generation, found.is_empty()) {
        return Err(unusable(DirectoryError::NoGeneration { path: directory.path().to_owned(), generation }));
    }
    let (mut complete, mut is_damaged) = (0, false);
    for Found { place, status, .. } in found {
        let number = place.generation.0;
        match status {
            Status::Incomplete => say!("generation {number}: incomplete, not read")?,
            Status::Damaged(error) => {
                is_damaged = true;
                say!("generation {number}: {error}")?;
            }
            Status::Complete(manifest) => {
                complete += 1;
                let (mut here, mut bytes) = (0, 0);
                for rank in (0..manifest.ranks()).map(everfold::Rank) {
                    let read = place.open_listed(rank, &manifest).and_then(|state| {
                        state.verify().map_err(|error| place.damaged_part(rank, error))?;
                        Ok(state.fingerprint().bytes)
                    });
                    match read {
                        Ok(read) => (here, bytes) = (here + 1, bytes + read),
                        Err(DirectoryError::NoPart { .. }) => {}
                        Err(error) => {
                            is_damaged = true;
                            say!("generation {number}, rank {rank}: {error}")?;
                        }
                    }
                }
                say!(
                    "generation {number}: {here} of {} parts are here and whole, {bytes} bytes",
                    manifest.ranks()
                )?;
            }
        }
    }
    match (is_damaged, complete) {
        (true, _) => Ok(ExitCode::from(DAMAGED)),
        (false, 0) => Err(unusable(DirectoryError::Nothing { path: directory.path().to_owned() })),
        (false, _) => Ok(ExitCode::SUCCESS),
    }
}
