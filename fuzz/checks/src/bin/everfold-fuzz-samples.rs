//! Writes the samples of all targets into folders below the one that is named.

use std::{env, error::Error, fs, path::PathBuf};

use everfold_fuzz_checks::TARGETS;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("name a folder")?);
    for target in TARGETS {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder)?;
        for (number, sample) in (target.samples)().into_iter().enumerate() {
            fs::write(folder.join(format!("sample-{number:02}")), sample)?;
        }
    }
    Ok(())
}
