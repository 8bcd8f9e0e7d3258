//! A directory of checkpoints: a generation is complete or absent, and what is wrong is told.

#![allow(clippy::unwrap_used)]

use std::{fs, os::unix::fs::FileExt, path::Path};

use everfold_protocol::{JobId, Rank};
use everfold_storage::{
    directory::{Directory, DirectoryError, Manifest, Place, Status},
    vault::{Fingerprint, Generation, Options, Owner, Vault},
};
use tempfile::{TempDir, tempfile};

const RANKS: u32 = 2;
const PROGRAM: &str = "solver";

/// The vault of a rank, in which these bytes are saved as that generation.
fn vault(job: u64, rank: u32, generation: u64, bytes: &[u8]) -> Vault {
    let owner = Owner { job: JobId(job), rank: Rank(rank) };
    let files = [tempfile().unwrap(), tempfile().unwrap()];
    let mut vault = Vault::create(files, owner, Options::in_memory(1 << 20)).unwrap();
    let mut draft = vault.begin_as(Generation(generation), b"header").unwrap();
    draft.part(bytes).unwrap();
    vault.seal(draft).unwrap();
    vault
}

fn value(rank: u32, generation: u64) -> Vec<u8> {
    vec![(16 * rank) as u8 ^ generation as u8; 100]
}

/// Writes the parts of all ranks, and not yet what says that they are there.
fn save_parts(directory: &Directory, job: u64, generation: u64) -> (Place, Vec<Fingerprint>) {
    let place = directory.place(Generation(generation), JobId(job));
    let parts = (0..RANKS).map(|rank| {
        let state = vault(job, rank, generation, &value(rank, generation)).state().unwrap();
        place.write_part(Rank(rank), &state).unwrap();
        state.fingerprint()
    });
    let parts = parts.collect();
    (place, parts)
}

fn save(directory: &Directory, job: u64, generation: u64) -> Place {
    let (place, parts) = save_parts(directory, job, generation);
    place.complete(PROGRAM, generation, parts).unwrap();
    place
}

fn new() -> (TempDir, Directory) {
    let home = tempfile::tempdir().unwrap();
    let directory = Directory::create(home.path().join("checkpoints/here")).unwrap();
    (home, directory)
}

/// The newest complete generation.
fn newest_for(directory: &Directory, program: &str, size: u32) -> Result<(Place, Manifest), DirectoryError> {
    directory.newest_up_to(Generation(u64::MAX), program, size)
}

/// What all ranks go on from.
fn restored(directory: &Directory) -> Result<(u64, Vec<Vec<u8>>), DirectoryError> {
    let (place, manifest) = newest_for(directory, PROGRAM, RANKS)?;
    let mut values = Vec::new();
    for rank in (0..RANKS).map(Rank) {
        let state = place.open_listed(rank, &manifest)?;
        let owner = Owner { job: JobId(1000), rank };
        let files = [tempfile().unwrap(), tempfile().unwrap()];
        let mut vault = Vault::create(files, owner, Options::in_memory(1 << 20)).unwrap();
        let checkpoint =
            vault.adopt(state.header(), &state).map_err(|error| place.damaged_part(rank, error))?;
        assert_eq!(checkpoint.header(), b"header");
        let mut bytes = vec![0; checkpoint.parts()[0].bytes() as usize];
        vault.read_part(&checkpoint.parts()[0], &mut bytes).unwrap();
        values.push(bytes);
    }
    Ok((manifest.generation.0, values))
}

fn expected(generation: u64) -> (u64, Vec<Vec<u8>>) {
    (generation, (0..RANKS).map(|rank| value(rank, generation)).collect())
}

#[test]
fn the_newest_complete_generation_is_gone_on_from() {
    let (_home, directory) = new();
    assert!(matches!(restored(&directory), Err(DirectoryError::Nothing { .. })));
    directory.check_new().unwrap();
    save(&directory, 1, 1);
    save(&directory, 1, 2);
    save_parts(&directory, 1, 3);
    // Of another job, which had gone on from the first one: parts never meet.
    save_parts(&directory, 2, 2);
    assert_eq!(restored(&directory).unwrap(), expected(2));
    assert!(matches!(directory.check_new(), Err(DirectoryError::InUse { newest: 2, .. })));
    let states: Vec<_> =
        directory.list().unwrap().iter().map(|it| matches!(it.status, Status::Complete(_))).collect();
    assert_eq!(states, [true, true, false, false]);
}

#[test]
fn a_part_or_a_manifest_that_is_cut_at_any_byte_leaves_the_generation_before() {
    let (_home, directory) = new();
    save(&directory, 1, 1);
    let (place, parts) = save_parts(&directory, 1, 2);
    // Before the manifest is there, nothing that lies among the parts counts, whatever a death has left of it.
    let part = fs::read(place.part_path(Rank(1))).unwrap();
    for written in 0..=part.len() {
        fs::write(place.part_path(Rank(1)), &part[..written]).unwrap();
        assert_eq!(restored(&directory).unwrap(), expected(1), "{written} bytes of a part");
        // A process that comes back writes it once more.
        let state = vault(1, 1, 2, &value(1, 2)).state().unwrap();
        place.write_part(Rank(1), &state).unwrap();
        assert_eq!(fs::read(place.part_path(Rank(1))).unwrap(), part);
    }
    place.complete(PROGRAM, 2, parts).unwrap();
    assert_eq!(restored(&directory).unwrap(), expected(2));
    let path = place.path().join("manifest");
    let manifest = fs::read(&path).unwrap();
    for written in 0..manifest.len() {
        fs::write(&path, &manifest[..written]).unwrap();
        assert_eq!(restored(&directory).unwrap(), expected(1), "{written} bytes of a manifest");
    }
}

#[test]
fn damage_of_a_complete_generation_is_told_and_never_mixed() {
    let (_home, directory) = new();
    save(&directory, 1, 1);
    let place = save(&directory, 1, 2);
    let path = place.part_path(Rank(0));
    let part = fs::read(&path).unwrap();
    for byte in 0..part.len() {
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[part[byte] ^ 4], byte as u64).unwrap();
        let told = restored(&directory).unwrap_err();
        let is_told =
            matches!(told, DirectoryError::Damaged { generation: 2, .. } | DirectoryError::Version { .. });
        assert!(is_told, "byte {byte}: {told:?}");
        file.write_all_at(&part[byte..=byte], byte as u64).unwrap();
    }
    for written in 0..part.len() {
        fs::write(&path, &part[..written]).unwrap();
        let told = restored(&directory).unwrap_err();
        assert!(matches!(told, DirectoryError::Damaged { generation: 2, .. }), "{written}: {told:?}");
    }
    // That of another rank, or of another generation, in its place.
    for other in [place.part_path(Rank(1)), directory.place(Generation(1), JobId(1)).part_path(Rank(0))] {
        fs::copy(other, &path).unwrap();
        assert!(matches!(restored(&directory), Err(DirectoryError::Damaged { .. })));
    }
    fs::remove_file(&path).unwrap();
    let told = restored(&directory).unwrap_err();
    assert!(matches!(told, DirectoryError::NoPart { .. }), "{told:?}");
    assert_eq!(directory.remove(Some(Generation(2))).unwrap(), 1);
    assert_eq!(restored(&directory).unwrap(), expected(1));
}

#[test]
fn another_program_and_another_size_are_told() {
    let (_home, directory) = new();
    save(&directory, 1, 1);
    let told = newest_for(&directory, "other", RANKS).unwrap_err().to_string();
    assert!(told.contains("\"solver\"") && told.contains("\"other\""), "{told}");
    let told = newest_for(&directory, PROGRAM, 3).unwrap_err().to_string();
    assert!(told.contains("saved by 2 ranks, and this job has 3: start it with 2"), "{told}");
}

#[test]
fn where_all_manifests_are_damaged_that_is_told() {
    let (_home, directory) = new();
    for generation in [1, 2] {
        let place = save(&directory, 1, generation);
        fs::write(place.path().join("manifest"), "of something else").unwrap();
    }
    let newest = newest_for(&directory, PROGRAM, RANKS);
    assert!(matches!(newest, Err(DirectoryError::Damaged { generation: 2, .. })), "{newest:?}");
    assert!(matches!(directory.check_size(RANKS), Err(DirectoryError::Damaged { generation: 2, .. })));
    directory.check_new().unwrap();
}

#[test]
fn nothing_is_saved_in_a_directory_that_is_gone() {
    let (_home, directory) = new();
    save(&directory, 1, 1);
    fs::remove_dir_all(directory.path()).unwrap();
    let place = directory.place(Generation(2), JobId(1));
    let written = place.write_part(Rank(0), &vault(1, 0, 2, &[1]).state().unwrap());
    assert!(matches!(written, Err(DirectoryError::Gone { .. })), "{written:?}");
    assert!(!directory.path().exists());
}

#[test]
fn a_file_in_the_way_is_told_with_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("mine");
    fs::write(&path, "").unwrap();
    let told = Directory::create(&path).unwrap_err().to_string();
    assert!(told.contains("mine: File exists") && told.contains("name another directory"), "{told}");
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("mine");
    assert!(matches!(Directory::open(&path), Err(DirectoryError::Nothing { .. })));
    fs::create_dir(&path).unwrap();
    assert!(matches!(Directory::open(&path), Err(DirectoryError::Nothing { .. })));
    fs::write(path.join("thesis.tex"), "years of work").unwrap();
    for told in [Directory::create(&path).map(drop), Directory::open(&path).map(drop)] {
        assert!(matches!(told, Err(DirectoryError::NotOurs { .. })), "{told:?}");
    }
    let names = |path: &Path| fs::read_dir(path).unwrap().count();
    assert_eq!(names(&path), 1);
    fs::write(path.join("everfold-checkpoints"), "checkpoints of everfold, format 9\n").unwrap();
    let told = Directory::create(&path).unwrap_err().to_string();
    assert!(told.contains("format 9"), "{told}");
}

#[test]
fn the_newest_generation_stays_and_the_last_that_is_common() {
    let (home, directory) = new();
    let left = |directory: &Directory| -> Vec<u64> {
        directory.complete().unwrap().iter().map(|(place, _)| place.generation.0).collect()
    };
    for generation in 1..=5 {
        save_parts(&directory, 2, generation);
        let place = save(&directory, 1, generation);
        // Another host could not write the third.
        let common = if generation == 4 { 2 } else { generation - 1 };
        directory.tidy(&place, Some(Generation(common))).unwrap();
        assert_eq!(restored(&directory).unwrap(), expected(generation));
        let expected = [common, generation];
        assert_eq!(left(&directory), if common == 0 { &expected[1..] } else { &expected[..] });
        // A process that has come back does not know which is common.
        directory.tidy(&place, None).unwrap();
        assert_eq!(left(&directory), if common == 0 { &expected[1..] } else { &expected[..] });
    }
    let before = directory.newest_up_to(Generation(4), PROGRAM, RANKS).unwrap().0;
    assert_eq!(before.generation, Generation(4));
    let none = directory.newest_up_to(Generation(3), PROGRAM, RANKS);
    assert!(matches!(none, Err(DirectoryError::Nothing { .. })), "{none:?}");
    let left: Vec<_> = directory.places().unwrap().iter().map(|it| (it.generation.0, it.job.0)).collect();
    assert_eq!(left, [(4, 1), (5, 1), (5, 2)]);
    fs::write(directory.path().join("note.txt"), "of somebody else").unwrap();
    assert_eq!(directory.remove(None).unwrap(), 3);
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["note.txt"]);
    drop(home);
}

#[test]
fn of_two_common_generations_that_of_the_same_job_stays() {
    let (_home, directory) = new();
    for jobs in [[1, 2], [2, 1]] {
        for (saved, job) in (1..).zip(jobs) {
            let (place, parts) = save_parts(&directory, job, 1);
            place.complete(PROGRAM, saved, parts).unwrap();
        }
        directory.tidy(&save(&directory, 1, 2), Some(Generation(1))).unwrap();
        let left: Vec<_> = directory.places().unwrap().iter().map(|it| (it.generation.0, it.job.0)).collect();
        assert_eq!(left, [(1, 1), (2, 1)]);
        directory.places().unwrap().iter().for_each(|place| place.remove().unwrap());
    }
    // A job that has gone on from another one keeps that one's.
    save(&directory, 1, 1);
    directory.tidy(&save(&directory, 2, 2), Some(Generation(1))).unwrap();
    assert_eq!(directory.complete().unwrap().len(), 2);
}

#[test]
fn a_new_directory_holds_what_says_so_and_nothing_else() {
    let (_home, directory) = new();
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["everfold-checkpoints"]);
    assert!(Directory::create(directory.path()).is_ok() && Directory::open(directory.path()).is_ok());
}

#[test]
fn the_lowest_rank_with_a_part_is_found_without_those_that_may_be_elsewhere() {
    let (_home, directory) = new();
    let place = directory.place(Generation(1), JobId(1));
    for rank in [1, 2, 4] {
        place.write_part(Rank(rank), &vault(1, rank, 1, &[1]).state().unwrap()).unwrap();
    }
    let lowest = |elsewhere: &[u32]| -> Vec<u32> {
        (0..6).filter(|rank| place.is_lowest_here(Rank(*rank), |it| elsewhere.contains(&it.0))).collect()
    };
    assert_eq!(lowest(&[]), [1]);
    assert_eq!(lowest(&[0, 3]), [1]);
    // It may be here all the same.
    assert_eq!(lowest(&[1]), [1, 2]);
    assert_eq!(lowest(&[1, 2]), [1, 2, 4]);
}
