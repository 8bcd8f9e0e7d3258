//! A vault keeps what a rank needs, tells damage, and outlives the death of its process.
//!
//! Deaths at every byte are cut in `src/vault/cuts.rs`, where writes can be noted.

#![allow(clippy::unwrap_used)]

use std::{
    env,
    fs::File,
    io::{BufRead, BufReader, IoSlice},
    os::{fd::AsRawFd, unix::fs::FileExt},
    process::{self, Command, Stdio},
};

use everfold_protocol::{JobId, Rank};
use everfold_storage::vault::{
    Damage, Generation, Half, Options, Owner, Piece, Remembered, StateFile, Vault, VaultError,
};
use nix::sys::{
    memfd::{MFdFlags, memfd_create},
    resource::{Resource, getrlimit, setrlimit},
};

const OWNER: Owner = Owner { job: JobId(0xc0ffee), rank: Rank(3) };
const OPTIONS: Options = Options::in_memory(1 << 30);
/// Where the seal of a half lies, and its version.
const SEAL_AT: usize = 87;
const VERSION_AT: usize = 4;

fn memory() -> File {
    memfd_create(c"everfold-vault-test", MFdFlags::MFD_CLOEXEC).unwrap().into()
}

fn empty() -> [File; 2] {
    [memory(), memory()]
}

/// The same files once more.
fn again(files: &[File; 2]) -> [File; 2] {
    files.each_ref().map(|file| file.try_clone().unwrap())
}

fn bytes(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn filled(bytes: &[u8]) -> File {
    let file = memory();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn flip(file: &File, bit: usize) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, (bit / 8) as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << (bit % 8)], (bit / 8) as u64).unwrap();
}

/// Everything that a vault holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contents {
    generation: u64,
    checkpoint: Option<(Vec<u8>, Vec<Vec<u8>>)>,
    outcomes: Vec<(Vec<u8>, Vec<u8>)>,
}

fn contents(vault: &Vault, remembered: &Remembered) -> Result<Contents, VaultError> {
    let checkpoint = remembered.checkpoint.as_ref().map(|checkpoint| {
        let parts = checkpoint.parts().iter().map(|part| {
            let mut bytes = vec![0; part.bytes() as usize];
            vault.read_part(part, &mut bytes).map(|()| bytes)
        });
        parts.collect::<Result<_, _>>().map(|parts| (checkpoint.header().to_vec(), parts))
    });
    let outcomes = remembered.outcomes.iter().map(|outcome| {
        let mut value = vec![0; outcome.value_bytes() as usize];
        vault.read_value(outcome, &mut value).map(|()| (outcome.key().to_vec(), value))
    });
    Ok(Contents {
        generation: remembered.generation.0,
        checkpoint: checkpoint.transpose()?,
        outcomes: outcomes.collect::<Result<_, _>>()?,
    })
}

fn open(files: &[File; 2]) -> Result<(Vault, Contents), VaultError> {
    let (vault, remembered) = Vault::open(again(files), OWNER, OPTIONS)?;
    let contents = contents(&vault, &remembered)?;
    Ok((vault, contents))
}

fn salvage(files: &[File; 2]) -> Result<(Contents, Vec<Damage>), VaultError> {
    let (vault, remembered, lost) = Vault::salvage(again(files), OWNER, OPTIONS)?;
    vault.verify().unwrap();
    Ok((contents(&vault, &remembered)?, lost))
}

fn append(vault: &mut Vault, key: &str, value: &str) {
    vault.append(key.as_bytes(), &[IoSlice::new(value.as_bytes())]).unwrap();
}

fn outcomes(of: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    of.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

/// Generation 1 with two outcomes in the second half, and generation 2 with three in the first.
fn small() -> ([File; 2], Contents, Contents) {
    let files = empty();
    let mut vault = Vault::create(again(&files), OWNER, OPTIONS).unwrap();
    vault.checkpoint(b"one", &[b"left", b"right"]).unwrap();
    append(&mut vault, "a", "1");
    append(&mut vault, "b", "");
    let before = open(&files).unwrap().1;
    vault.checkpoint(b"two", &[b"", b"LEFT", b"RIGHT"]).unwrap();
    append(&mut vault, "c", "3");
    append(&mut vault, "", "four");
    append(&mut vault, "e", "five");
    let now = open(&files).unwrap().1;
    (files, before, now)
}

#[test]
fn a_new_vault_is_at_its_beginning() {
    let files = empty();
    let vault = Vault::create(again(&files), OWNER, OPTIONS).unwrap();
    assert_eq!(vault.generation(), Generation::BEGINNING);
    assert_eq!((vault.log_bytes(), vault.bytes()), (0, bytes(&files[0]).len() as u64));
    let found = open(&files).unwrap().1;
    assert_eq!(found, Contents { generation: 0, checkpoint: None, outcomes: Vec::new() });
}

#[test]
fn outcomes_before_the_first_checkpoint_are_there_too() {
    let files = empty();
    append(&mut Vault::create(again(&files), OWNER, OPTIONS).unwrap(), "a", "1");
    let (mut vault, found) = open(&files).unwrap();
    assert_eq!(found, Contents { generation: 0, checkpoint: None, outcomes: outcomes(&[("a", "1")]) });
    append(&mut vault, "b", "2");
    assert_eq!(open(&files).unwrap().1.outcomes, outcomes(&[("a", "1"), ("b", "2")]));
}

#[test]
fn the_newest_checkpoint_and_the_outcomes_behind_it_are_there() {
    let (files, before, now) = small();
    let parts = |parts: &[&str]| parts.iter().map(|part| part.as_bytes().to_vec()).collect();
    assert_eq!(
        before,
        Contents {
            generation: 1,
            checkpoint: Some((b"one".to_vec(), parts(&["left", "right"]))),
            outcomes: outcomes(&[("a", "1"), ("b", "")]),
        }
    );
    assert_eq!(
        now,
        Contents {
            generation: 2,
            checkpoint: Some((b"two".to_vec(), parts(&["", "LEFT", "RIGHT"]))),
            outcomes: outcomes(&[("c", "3"), ("", "four"), ("e", "five")]),
        }
    );
    let (vault, _) = open(&files).unwrap();
    vault.verify().unwrap();
    assert_eq!(vault.bytes(), files.iter().map(|file| bytes(file).len() as u64).sum::<u64>());
}

#[test]
fn a_value_in_pieces_is_one_value() {
    let files = empty();
    let mut vault = Vault::create(again(&files), OWNER, OPTIONS).unwrap();
    let long = vec![7; 1_000_000];
    let pieces = [b"begin ".as_slice(), &[], &long, b" end"];
    vault.append(b"key", &pieces.map(IoSlice::new)).unwrap();
    vault.append(b"nothing", &[]).unwrap();
    let expected = vec![(b"key".to_vec(), pieces.concat()), (b"nothing".to_vec(), Vec::new())];
    assert_eq!(open(&files).unwrap().1.outcomes, expected);
}

#[test]
fn the_same_code_keeps_files_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let open_file = |name| {
        let mut how = File::options();
        how.read(true).write(true).create(true).truncate(false).open(directory.path().join(name)).unwrap()
    };
    let files = || ["0", "1"].map(open_file);
    let options = Options::on_disk(1 << 20);
    let mut vault = Vault::create(files(), OWNER, options).unwrap();
    vault.checkpoint(b"state", &[&[1; 100_000]]).unwrap();
    append(&mut vault, "a", "1");
    vault.sync().unwrap();
    drop(vault);
    let (vault, remembered) = Vault::open(files(), OWNER, options).unwrap();
    assert_eq!(
        contents(&vault, &remembered).unwrap(),
        Contents {
            generation: 1,
            checkpoint: Some((b"state".to_vec(), vec![vec![1; 100_000]])),
            outcomes: outcomes(&[("a", "1")]),
        }
    );
}

#[test]
fn a_checkpoint_that_is_not_committed_leaves_everything_as_it_was() {
    let (files, _, now) = small();
    let (mut vault, _) = open(&files).unwrap();
    let mut writer = vault.begin(b"three").unwrap();
    writer.part(&[1; 100_000]).unwrap();
    drop(writer);
    assert_eq!(open(&files).unwrap().1, now);
    assert_eq!(vault.generation(), Generation(2));
    assert_eq!(vault.bytes(), files.iter().map(|file| bytes(file).len() as u64).sum::<u64>());
    append(&mut vault, "f", "6");
    assert_eq!(open(&files).unwrap().1.outcomes.len(), 4);
    assert_eq!(vault.checkpoint(b"three", &[]).unwrap(), Generation(3));
    assert_eq!(open(&files).unwrap().1.generation, 3);
}

#[test]
fn a_log_over_its_limit_says_so_and_a_checkpoint_empties_it() {
    let files = empty();
    let options = Options::in_memory(102);
    let mut vault = Vault::create(again(&files), OWNER, options).unwrap();
    append(&mut vault, "key", "a value");
    let refused = vault.append(b"key", &[IoSlice::new(b"a longer value, too long")]).unwrap_err();
    let VaultError::Full { log_bytes: 51, record_bytes: 68, log_bytes_max: 102 } = refused else {
        panic!("{refused:?}");
    };
    append(&mut vault, "key", "a value");
    assert_eq!(vault.log_bytes(), 102);
    assert!(matches!(vault.append(b"", &[]), Err(VaultError::Full { .. })));
    assert_eq!(open(&files).unwrap().1.outcomes.len(), 2);
    vault.checkpoint(b"", &[]).unwrap();
    assert_eq!(vault.log_bytes(), 0);
    append(&mut vault, "key", "a longer value, too long");
    // Whoever comes back counts what is there already.
    let (mut vault, _) = Vault::open(again(&files), OWNER, options).unwrap();
    assert_eq!(vault.log_bytes(), 68);
    assert!(matches!(vault.append(b"key", &[]), Err(VaultError::Full { .. })));
}

#[test]
fn nobody_goes_on_from_a_log_that_lacks_an_outcome() {
    let files = empty();
    let mut vault = Vault::create(again(&files), OWNER, OPTIONS).unwrap();
    vault.checkpoint(b"first", &[]).unwrap();
    vault.forbid().unwrap();
    let lacking = |opened: VaultError| match opened {
        VaultError::Lacking { generation } => generation.0,
        error => panic!("{error:?}"),
    };
    assert_eq!(lacking(Vault::open(again(&files), OWNER, OPTIONS).unwrap_err()), 1);
    assert_eq!(lacking(Vault::salvage(again(&files), OWNER, OPTIONS).unwrap_err()), 1);
    // A checkpoint that is not committed changes nothing about that.
    drop(vault.begin(b"second").unwrap());
    assert_eq!(lacking(Vault::open(again(&files), OWNER, OPTIONS).unwrap_err()), 1);
    vault.checkpoint(b"second", &[]).unwrap();
    append(&mut vault, "key", "value");
    let (_, found) = open(&files).unwrap();
    assert_eq!((found.generation, found.outcomes), (2, outcomes(&[("key", "value")])));
}

#[test]
fn a_shorter_generation_gives_the_bytes_of_a_longer_one_back() {
    let files = empty();
    let mut vault = Vault::create(again(&files), OWNER, OPTIONS).unwrap();
    for _ in 0..2 {
        vault.checkpoint(b"", &[&[1; 1 << 20]]).unwrap();
        append(&mut vault, "a", "1");
    }
    assert!(vault.bytes() > 2 << 20);
    for _ in 0..2 {
        vault.checkpoint(b"", &[b"short"]).unwrap();
    }
    assert!(vault.bytes() < 1_000);
    assert_eq!(vault.bytes(), files.iter().map(|file| bytes(file).len() as u64).sum::<u64>());
}

#[test]
fn a_log_keeps_as_many_bytes_as_the_last_one_took() {
    let files = empty();
    let mut vault = Vault::create(again(&files), OWNER, OPTIONS).unwrap();
    let mut grown = Vec::new();
    for _ in 0..4 {
        vault.append(b"", &[IoSlice::new(&[1; 1 << 20])]).unwrap();
        vault.checkpoint(b"", &[]).unwrap();
        grown.push(vault.bytes());
    }
    assert!(grown[2] > 2 << 20 && grown[2] == grown[3], "{grown:?}");
    // Nothing was appended since: the half that was written then keeps nothing.
    vault.checkpoint(b"", &[]).unwrap();
    vault.checkpoint(b"", &[]).unwrap();
    assert!(vault.bytes() < 1_000);
}

#[test]
fn what_a_later_checkpoint_has_replaced_is_gone() {
    let (files, ..) = small();
    let (mut vault, remembered) = Vault::open(again(&files), OWNER, OPTIONS).unwrap();
    vault.checkpoint(b"three", &[]).unwrap();
    let part = remembered.checkpoint.as_ref().unwrap().parts()[1];
    let gone = vault.read_part(&part, &mut [0; 4]);
    assert!(matches!(gone, Err(VaultError::Gone { generation: Generation(2), in_force: Generation(3) })));
    let gone = vault.read_value(&remembered.outcomes[0], &mut [0; 1]);
    assert!(matches!(gone, Err(VaultError::Gone { .. })));
}

#[test]
fn a_flipped_bit_is_told_and_never_returned() {
    let (files, before, now) = small();
    let halves = files.each_ref().map(bytes);
    let (mut told, mut harmless, mut fell_back) = (0, 0, 0);
    for half in 0..2 {
        for bit in 0..halves[half].len() * 8 {
            let files = halves.each_ref().map(|bytes| filled(bytes));
            flip(&files[half], bit);
            let opened = open(&files);
            let verified = Vault::open(again(&files), OWNER, OPTIONS).and_then(|(vault, _)| vault.verify());
            assert_eq!(opened.is_ok(), verified.is_ok(), "half {half}, bit {bit}");
            match opened {
                Ok((_, found)) => {
                    assert_eq!(found, now, "half {half}, bit {bit}");
                    // Nobody reads the generation before.
                    assert_eq!(half, 1, "bit {bit}");
                    harmless += 1;
                }
                Err(VaultError::Damaged(_) | VaultError::NotAVault { .. } | VaultError::Version { .. }) => {
                    told += 1;
                }
                Err(error) => panic!("half {half}, bit {bit}: {error:?}"),
            }
            let is_version = (VERSION_AT * 8..VERSION_AT * 8 + 16).contains(&bit);
            match salvage(&files) {
                Err(VaultError::Version { .. }) => assert!(is_version, "half {half}, bit {bit}"),
                Err(error) => panic!("half {half}, bit {bit}: {error:?}"),
                Ok((found, lost)) if found.generation == before.generation => {
                    assert_eq!(found, before, "half {half}, bit {bit}");
                    assert_eq!((half, lost.len()), (0, 1), "bit {bit}");
                    fell_back += 1;
                }
                Ok((found, lost)) => {
                    assert_eq!((found.generation, &found.checkpoint), (now.generation, &now.checkpoint));
                    assert_eq!(found.outcomes, now.outcomes[..found.outcomes.len()]);
                    assert!(found == now || lost.len() == 1, "half {half}, bit {bit}: {lost:?}");
                }
            }
            if !is_version {
                // What was given up is not found again.
                open(&files).unwrap();
            }
        }
    }
    assert!(told > halves[0].len() * 8 && harmless > 0 && fell_back > 0);
}

#[test]
fn a_damaged_part_is_named_and_the_others_are_read() {
    let (files, before, now) = small();
    let place = bytes(&files[0]).windows(4).position(|window| window == b"LEFT").unwrap();
    flip(&files[0], place * 8);
    let (vault, remembered) = Vault::open(again(&files), OWNER, OPTIONS).unwrap();
    let checkpoint = remembered.checkpoint.as_ref().unwrap();
    let piece = Piece::Part(1);
    let expected = Damage { half: Half::First, generation: Some(Generation(2)), piece };
    let Err(VaultError::Damaged(found)) = vault.read_part(&checkpoint.parts()[1], &mut [0; 4]) else {
        panic!("it is damaged");
    };
    assert_eq!(found, expected);
    assert!(matches!(vault.verify(), Err(VaultError::Damaged(found)) if found == expected));
    let mut right = [0; 5];
    vault.read_part(&checkpoint.parts()[2], &mut right).unwrap();
    assert_eq!(&right, b"RIGHT");
    assert!(now.checkpoint.unwrap().1.contains(&right.to_vec()));
    drop(vault);

    assert_eq!(salvage(&files).unwrap(), (before.clone(), vec![expected]));
    // The number is used again, and what was given up does not come back.
    let (mut vault, found) = open(&files).unwrap();
    assert_eq!(found, before);
    assert_eq!(vault.checkpoint(b"two again", &[]).unwrap(), Generation(2));
    assert_eq!(open(&files).unwrap().1.checkpoint, Some((b"two again".to_vec(), Vec::new())));
}

#[test]
fn a_damaged_outcome_costs_those_behind_it_only_if_asked_to() {
    let (files, _, now) = small();
    let place = bytes(&files[0]).windows(4).position(|window| window == b"four").unwrap();
    flip(&files[0], place * 8);
    let damage = Damage { half: Half::First, generation: Some(Generation(2)), piece: Piece::Outcome(1) };
    let (vault, remembered) = Vault::open(again(&files), OWNER, OPTIONS).unwrap();
    assert_eq!(remembered.outcomes.len(), 3);
    let read = vault.read_value(&remembered.outcomes[1], &mut [0; 4]);
    assert!(matches!(read, Err(VaultError::Damaged(found)) if found == damage));
    vault.read_value(&remembered.outcomes[2], &mut [0; 4]).unwrap();
    let (found, lost) = salvage(&files).unwrap();
    assert_eq!((found.outcomes, lost), (now.outcomes[..1].to_vec(), vec![damage]));
    let (mut vault, _) = open(&files).unwrap();
    append(&mut vault, "after", "it");
    assert_eq!(open(&files).unwrap().1.outcomes, outcomes(&[("c", "3"), ("after", "it")]));
}

#[test]
fn nothing_is_changed_if_nothing_is_whole() {
    let (files, ..) = small();
    for file in &files {
        flip(file, 88 * 8);
    }
    let before = files.each_ref().map(bytes);
    let Err(VaultError::Damaged(damage)) = salvage(&files) else { panic!("both are damaged") };
    assert_eq!((damage.generation, damage.piece), (Some(Generation(2)), Piece::Header));
    assert_eq!(files.each_ref().map(bytes), before);
}

#[test]
fn a_whole_vault_is_salvaged_without_a_loss() {
    let (files, _, now) = small();
    let before = files.each_ref().map(bytes);
    assert_eq!(salvage(&files).unwrap(), (now, Vec::new()));
    assert_eq!(files.each_ref().map(bytes), before);
}

#[test]
fn empty_files_hold_no_vault() {
    assert!(matches!(open(&empty()), Err(VaultError::Absent)));
    assert!(matches!(salvage(&empty()), Err(VaultError::Absent)));
}

#[test]
fn other_files_are_told_and_left_alone() {
    let text = "not a vault ".repeat(20);
    for files in [[filled(text.as_bytes()), memory()], [memory(), filled(text.as_bytes())]] {
        let Err(error @ VaultError::NotAVault { start: [b'n', b'o', b't', b' '], .. }) = open(&files) else {
            panic!("it is no vault");
        };
        assert!(error.to_string().contains("something else"));
        assert!(salvage(&files).is_err());
        assert_eq!(files.iter().map(|file| bytes(file).len()).sum::<usize>(), text.len());
    }
    let short = [filled(b"short"), memory()];
    assert!(matches!(open(&short), Err(VaultError::Damaged(_))));
}

#[test]
fn a_vault_of_another_rank_or_job_is_refused() {
    let (files, ..) = small();
    for owner in [Owner { rank: Rank(4), ..OWNER }, Owner { job: JobId(1), ..OWNER }] {
        for opened in [
            Vault::open(again(&files), owner, OPTIONS).map(drop),
            Vault::salvage(again(&files), owner, OPTIONS).map(drop),
        ] {
            let Err(error @ VaultError::Owner { half: Half::First, expected, found: OWNER }) = opened else {
                panic!("{opened:?}");
            };
            assert_eq!(expected, owner);
            assert!(error.to_string().contains("belongs to rank 3 of job-0000000000c0ffee"), "{error}");
        }
    }
}

#[test]
fn a_vault_of_another_version_is_refused_and_left_alone() {
    let (files, ..) = small();
    files[1].write_all_at(&2_u16.to_le_bytes(), VERSION_AT as u64).unwrap();
    let before = files.each_ref().map(bytes);
    for opened in [open(&files).map(drop), salvage(&files).map(drop)] {
        let expected = VaultError::Version { half: Half::Second, found: 2, expected: 1 };
        assert_eq!(opened.unwrap_err().to_string(), expected.to_string());
    }
    assert_eq!(files.each_ref().map(bytes), before);
}

#[test]
fn one_half_twice_is_told() {
    let (files, ..) = small();
    let twice = [&files[0], &files[0]].map(|file| file.try_clone().unwrap());
    for opened in [open(&twice).map(drop), salvage(&twice).map(drop)] {
        let Err(VaultError::Mixed { first, second }) = opened else { panic!("{opened:?}") };
        assert_eq!((first, second), (Generation(2), Generation(2)));
    }
}

#[test]
fn a_state_leaves_its_vault_and_is_adopted_by_another_rank_of_another_job() {
    let (files, ..) = small();
    let (vault, _) = open(&files).unwrap();
    let source = vault.state().unwrap();
    let detached = tempfile::tempfile().unwrap();
    source.copy_to(detached.try_clone().unwrap()).unwrap();
    let state = StateFile::open(detached.try_clone().unwrap()).unwrap();
    state.verify().unwrap();
    assert_eq!((state.generation(), state.fingerprint()), (Generation(2), source.fingerprint()));

    let owner = Owner { job: JobId(77), rank: Rank(9) };
    let new = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
    let kept = new.each_ref().map(|file| file.try_clone().unwrap());
    let mut other = Vault::create(new, owner, OPTIONS).unwrap();
    let checkpoint = other.adopt(state.header(), &state).unwrap();
    other.append(b"behind", &[]).unwrap();
    drop(other);
    let (other, remembered) = Vault::open(kept, owner, OPTIONS).unwrap();
    assert_eq!((remembered.generation, remembered.outcomes.len()), (Generation(2), 1));
    other.verify().unwrap();
    let now = contents(&other, &remembered).unwrap();
    assert_eq!(now.checkpoint, open(&files).unwrap().1.checkpoint);
    assert_eq!(checkpoint.header(), b"two");

    // A flipped bit in what comes from elsewhere leaves what was there in force.
    flip(&detached, (SEAL_AT + 1 + b"two".len()) * 8);
    let new = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
    let mut third = Vault::create(new, owner, OPTIONS).unwrap();
    let adopted = StateFile::open(detached).and_then(|state| third.adopt(b"", &state));
    assert!(matches!(adopted, Err(VaultError::Damaged(_))), "{adopted:?}");
    assert_eq!(third.generation(), Generation::BEGINNING);
}

#[test]
fn a_state_that_was_written_over_is_not_copied() {
    let (files, ..) = small();
    let (mut vault, _) = open(&files).unwrap();
    let source = vault.state().unwrap();
    vault.checkpoint(b"three", &[b"other"]).unwrap();
    vault.checkpoint(b"four", &[b"bytes"]).unwrap();
    let copied = source.copy_to(tempfile::tempfile().unwrap());
    assert!(copied.is_err(), "{copied:?}");
}

#[test]
fn a_file_that_has_lost_its_end_is_damaged() {
    let (files, before, _) = small();
    for length in [1, SEAL_AT as u64, 90, 100] {
        let files = files.each_ref().map(|file| filled(&bytes(file)));
        files[0].set_len(length).unwrap();
        let Err(VaultError::Damaged(damage)) = open(&files) else { panic!("{length} bytes are left") };
        assert_eq!(damage.half, Half::First);
        assert_eq!(salvage(&files).unwrap(), (before.clone(), vec![damage]));
    }
}

#[test]
fn a_write_that_fails_leaves_what_was_there() {
    let (files, _, now) = small();
    // The other half can only be read.
    let path = format!("/proc/self/fd/{}", files[1].as_raw_fd());
    let read_only = [files[0].try_clone().unwrap(), File::open(path).unwrap()];
    let (mut unable, _) = Vault::open(read_only, OWNER, OPTIONS).unwrap();
    let Err(error @ VaultError::Io { action: "write", half: Half::Second, .. }) = unable.checkpoint(b"", &[])
    else {
        panic!("the file can only be read");
    };
    assert!(error.to_string().starts_with("cannot write the second file of the vault"));
    assert_eq!(unable.generation(), Generation(2));
    assert_eq!(open(&files).unwrap().1, now);
    append(&mut unable, "still", "there");
    assert_eq!(open(&files).unwrap().1.outcomes.len(), 4);
}

/// No test but a process with a limit of its own, which the next test starts.
#[test]
#[ignore = "the process that another test starts"]
fn appends_under_a_limit_on_files() {
    if env::var_os(LIMITED).is_none() {
        return;
    }
    let files = empty();
    let mut vault = Vault::create(again(&files), OWNER, OPTIONS).unwrap();
    append(&mut vault, "a", "1");
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, 500_000, hard).unwrap();
    // The first of its writes are within the limit.
    let too_long = vec![7; 1_000_000];
    let refused = vault.append(b"long", &[IoSlice::new(&too_long)]).unwrap_err();
    assert!(refused.to_string().contains("ulimit -f"), "{refused}");
    append(&mut vault, "b", "2");
    let mut writer = vault.begin(b"too long").unwrap();
    assert!(matches!(writer.part(&too_long), Err(VaultError::Io { .. })));
    assert!(matches!(writer.part(b"short"), Err(VaultError::Unfinished)));
    assert!(matches!(writer.commit(), Err(VaultError::Unfinished)));
    append(&mut vault, "c", "3");
    vault.verify().unwrap();
    assert_eq!(open(&files).unwrap().1.outcomes, outcomes(&[("a", "1"), ("b", "2"), ("c", "3")]));
    setrlimit(Resource::RLIMIT_FSIZE, hard, hard).unwrap();
    vault.append(b"long", &[IoSlice::new(&too_long)]).unwrap();
    vault.checkpoint(b"", &[&too_long]).unwrap();
    assert!(open(&files).unwrap().1.checkpoint == Some((Vec::new(), vec![too_long])));
    println!("\n{ALL_WELL}");
}

#[test]
fn a_limit_on_files_ends_no_process_and_costs_only_what_is_over_it() {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "appends_under_a_limit_on_files", "--ignored", "--nocapture"])
        .env(LIMITED, "")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&child.stdout).contains(ALL_WELL), "{child:?}");
}

/// Tells [`appends_under_a_limit_on_files`] that it is meant.
const LIMITED: &str = "EVERFOLD_TEST_LIMITED";
const ALL_WELL: &str = "all is well";
/// Environment variables that tell [`appends_until_it_is_killed`] which files are its own.
const FILES: [&str; 2] = ["EVERFOLD_TEST_FIRST", "EVERFOLD_TEST_SECOND"];
const ACKNOWLEDGED: &str = "acknowledged ";
const PART_BYTES: usize = 100_000;

/// The value of outcome `index`: short ones and such as take several writes.
fn value(index: u64) -> Vec<u8> {
    vec![index as u8; if index.is_multiple_of(3) { 400_000 + index as usize } else { index as usize % 100 }]
}

/// No test but a process that the next test kills: it appends, and saves a checkpoint now and then.
#[test]
#[ignore = "the process that another test kills"]
fn appends_until_it_is_killed() {
    let Some(first) = env::var_os(FILES[0]) else { return };
    let open = |path| File::options().read(true).write(true).open(path).unwrap();
    let files = [open(first), open(env::var_os(FILES[1]).unwrap())];
    let mut vault = Vault::create(files, OWNER, OPTIONS).unwrap();
    for index in 0_u64.. {
        if index % 8 == 7 {
            vault.checkpoint(&index.to_le_bytes(), &[&[index as u8; PART_BYTES]]).unwrap();
        } else {
            vault.append(&index.to_le_bytes(), &[IoSlice::new(&value(index))]).unwrap();
        }
        println!("\n{ACKNOWLEDGED}{index}");
    }
}

#[test]
fn what_was_acknowledged_is_there_when_the_process_was_killed() {
    for after in [0, 1, 2, 6, 7, 8, 15, 16, 40, 63, 64, 100] {
        let files = empty();
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "appends_until_it_is_killed", "--ignored", "--nocapture"])
            .envs(
                FILES
                    .iter()
                    .zip(&files)
                    .map(|(name, file)| (name, format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd()))),
            )
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .filter_map(|line| Some(line.unwrap().strip_prefix(ACKNOWLEDGED)?.parse::<u64>().unwrap()));
        assert!(acknowledged.any(|index| index == after), "the child failed");
        child.kill().unwrap();
        child.wait().unwrap();
        let last = acknowledged.last().unwrap_or(after);
        check(&files, last);
    }
}

/// Everything up to what was `acknowledged` is there, and perhaps the one after it.
fn check(files: &[File; 2], acknowledged: u64) {
    let (vault, found) = open(files).unwrap();
    vault.verify().unwrap();
    let saved = found.checkpoint.map(|(header, parts)| {
        let index = u64::from_le_bytes(header.try_into().unwrap());
        assert_eq!(parts, [vec![index as u8; PART_BYTES]]);
        index
    });
    let first = saved.map_or(0, |index| index + 1);
    for (outcome, index) in found.outcomes.iter().zip(first..) {
        assert!(*outcome == (index.to_le_bytes().to_vec(), value(index)), "outcome {index}");
    }
    let next = first + found.outcomes.len() as u64;
    assert!((acknowledged + 1..=acknowledged + 2).contains(&next), "{next} after {acknowledged}");
}
