//! The two files of a vault, as a process that was killed, or anything else, may have left them.

use std::{fs::File, io::IoSlice, os::unix::fs::FileExt};

use everfold_protocol::{JobId, Rank};
use everfold_storage::vault::{Options, Owner, Vault};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::memory::bounded;

const OWNER: Owner = Owner { job: JobId(7), rank: Rank(3) };
const OPTIONS: Options = Options::in_memory(1 << 20);

/// The first four bytes say how long the first file is; the rest is both.
///
/// # Panics
/// If a vault that opens cannot be gone on from.
pub fn check(data: &[u8]) {
    let Some((length, both)) = data.split_first_chunk() else { return };
    let (first, second) = both.split_at((u32::from_le_bytes(*length) as usize).min(both.len()));
    let files = [filled(first), filled(second)];
    let again = files.each_ref().map(|file| file.try_clone().unwrap());
    let most = (256 << 10) + 64 * data.len();
    let (mut vault, remembered) = match bounded(most, || Vault::open(files, OWNER, OPTIONS)) {
        Ok(opened) => opened,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let parts = remembered.checkpoint.iter().flat_map(|checkpoint| checkpoint.parts());
    for part in parts {
        assert!(part.bytes() <= both.len() as u64, "a part is no longer than what is there");
        drop(vault.read_part(part, &mut vec![0; part.bytes() as usize]));
    }
    for outcome in &remembered.outcomes {
        assert!(outcome.value_bytes() <= both.len() as u64);
        drop(vault.read_value(outcome, &mut vec![0; outcome.value_bytes() as usize]));
    }
    let generation = vault.generation();
    if vault.checkpoint(b"header", &[b"part"]).is_ok() {
        drop(vault);
        let (vault, remembered) = Vault::open(again, OWNER, OPTIONS).unwrap();
        assert!(vault.generation() > generation);
        assert_eq!(remembered.checkpoint.unwrap().header(), b"header");
    }
}

fn filled(bytes: &[u8]) -> File {
    let file: File = memfd_create(c"everfold-fuzz", MFdFlags::MFD_CLOEXEC).unwrap().into();
    file.write_all_at(bytes, 0).unwrap();
    file
}

/// A vault after so many checkpoints, each with some outcomes behind it.
fn written(checkpoints: u8) -> Vec<u8> {
    let files = [filled(&[]), filled(&[])];
    let again = files.each_ref().map(|file| file.try_clone().unwrap());
    let mut vault = Vault::create(files, OWNER, OPTIONS).unwrap();
    for number in 0..=checkpoints {
        if number > 0 {
            vault.checkpoint(&[number; 9], &[&[number; 100], &[], &[number; 7]]).unwrap();
        }
        for outcome in 0..number % 3 + 1 {
            vault.append(&[outcome; 5], &[IoSlice::new(&[number; 30])]).unwrap();
        }
    }
    drop(vault);
    let [first, second] = again.map(|file| {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    });
    [&(first.len() as u32).to_le_bytes()[..], &first, &second].concat()
}

pub fn samples() -> Vec<Vec<u8>> {
    (0..5).map(written).collect()
}
