//! A vault keeps what a rank needs, tells damage, and outlives the death of its process.
//!
//! Deaths at every byte are cut in `src/vault/cuts.rs`, where writes can be noted.

#![allow(clippy::unwrap_used)]

mod damage;
mod killed;
mod limits;

use std::{fs::File, io::IoSlice, os::unix::fs::FileExt};

use everfold_protocol::{JobId, Rank};
use everfold_storage::vault::{Generation, Options, Owner, Remembered, StateFile, Vault, VaultError};
use nix::sys::memfd::{MFdFlags, memfd_create};

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
fn a_checkpoint_that_is_not_committed_leaves_everything_as_it_was() {
    let (files, _, now) = small();
    let (mut vault, _) = open(&files).unwrap();
    let mut draft = vault.begin(b"three").unwrap();
    draft.part(&[1; 100_000]).unwrap();
    drop(draft);
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
