//! Reducing a type of your own: statistics of all files below a folder.
//!
//! ```text
//! cargo run --release --example 02_object -- path/to/folder
//! ```
//!
//! A reduction is not only for arrays. [`Statistics`] holds counters, a histogram and a map of words. It
//! needs two things to be reduced. It derives serde's `Serialize` and `Deserialize`, so that it can travel,
//! and it implements `ReducerBody`, whose one function folds another value into this one:
//!
//! ```text
//! impl ReducerBody for Statistics {
//!     fn combine(&mut self, other: Self) {
//!         self.files += other.files;
//!         …
//!     }
//! }
//! ```
//!
//! The whole of it is in `src/statistics.rs`, where it is tested without a cluster.

use clap::Parser;
use everfold::prelude::*;
use everfold_examples::statistics::{Statistics, files_below};
use std::path::{Path, PathBuf};

/// Counts files, lines and words below a folder.
#[derive(Parser)]
struct Arguments {
    /// The folder.
    #[arg(default_value = ".", value_parser = existing_folder)]
    folder: PathBuf,
    /// Copies of this program to start when no launcher has started them.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
}

/// A wrong folder is better refused once, before there are many processes to say so.
fn existing_folder(argument: &str) -> Result<PathBuf, String> {
    match std::fs::read_dir(argument) {
        Ok(_) => Ok(PathBuf::from(argument)),
        Err(error) => Err(format!("this folder cannot be read: {error}")),
    }
}

fn main() -> everfold::Result<()> {
    let Arguments { folder, ranks } = Arguments::parse();
    everfold::launch(Launch::from_env_or_local(ranks), move |session| run(session, folder))
}

async fn run(session: Session, folder: PathBuf) -> everfold::Result<()> {
    let mine = statistics_of_my_share(&folder, session.rank().index(), session.size() as usize)?;
    let outcome = session.reduce("statistics", mine).root(0).await?;
    if let Some(all) = outcome.value {
        println!("{all}\n{}", outcome.report);
    }
    Ok(())
}

/// Deals the files like cards. All ranks walk in the same order, so nobody has to tell anybody who reads
/// what.
fn statistics_of_my_share(folder: &Path, rank: usize, ranks: usize) -> everfold::Result<Statistics> {
    let (files, unlisted) = files_below(folder)?;
    // Every rank met the same entries that cannot be listed. One of them counts them.
    let mut mine = Statistics { unreadable: if rank == 0 { unlisted } else { 0 }, ..Statistics::default() };
    for file in files.iter().skip(rank).step_by(ranks) {
        mine.add_file(file);
    }
    Ok(mine)
}
