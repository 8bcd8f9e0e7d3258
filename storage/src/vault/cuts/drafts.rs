//! Checkpoints that are written while outcomes go on being appended: a death at any byte, before the seal and behind it.

use super::{Bytes, Call, OPTIONS, OWNER, append, checkpoint, files, look, open, record};
use crate::vault::{Generation, Vault, VaultError};

fn begin(header: &[u8]) -> Call {
    Call::Begin { header: header.to_vec() }
}

fn write(part: &[u8]) -> Call {
    Call::Write { part: part.to_vec() }
}

/// Outcomes before a draft begins, between its parts, and behind its seal; twice, so that either half is one.
fn written_beside_outcomes() -> Vec<Call> {
    let mut calls = vec![checkpoint(b"first", &[b"one part"]), append(b"long before", &[3; 90])];
    for _ in 0..2 {
        calls.extend([
            append(b"before", b"is in the state"),
            begin(b"header of a draft"),
            append(b"a", b"comes after the state"),
            write(b"first part"),
            append(b"b", b""),
            append(b"", b"and this"),
            write(b"second part, which is longer"),
            append(b"c", &[0; 40]),
            Call::Seal,
            append(b"d", b"behind the seal"),
        ]);
    }
    calls
}

#[test]
fn until_its_seal_a_draft_is_not_there_and_behind_it_lacks_no_outcome() {
    let mut calls = vec![Call::Create];
    calls.extend(written_beside_outcomes());
    let recording = record(Bytes::default(), None, &calls);
    let cuts = recording.cut_everywhere(look);
    assert!(cuts > 900, "{cuts} cuts");
    let last = recording.calls.last().unwrap().1.as_ref().unwrap();
    let keys: Vec<_> = last.outcomes.iter().map(|(key, _)| key.as_slice()).collect();
    assert_eq!((last.generation, keys), (3, vec![&b"a"[..], b"b", b"", b"c", b"d"]));
}

/// What earlier generations left in the half of the draft ends in the same places.
#[test]
fn what_earlier_drafts_left_is_never_taken_for_the_newer() {
    let mut calls = vec![Call::Create];
    calls.extend(written_beside_outcomes());
    calls.extend(written_beside_outcomes());
    let past = record(Bytes::default(), None, &calls);
    let before = past.calls.last().unwrap().1.clone();
    let recording = record(past.finished(), before, &written_beside_outcomes());
    recording.cut_everywhere(look);
}

#[test]
fn a_draft_that_is_dropped_changes_nothing() {
    let mut calls = vec![Call::Create];
    calls.extend(written_beside_outcomes());
    calls.extend([begin(b"in vain"), write(&[7; 200]), append(b"e", b"stays"), begin(b"again")]);
    calls.extend([write(b"part"), append(b"f", b"comes after it"), Call::Seal]);
    let recording = record(Bytes::default(), None, &calls);
    recording.cut_everywhere(look);
    let (_, found) = open(&recording.finished()).unwrap();
    assert_eq!(found.outcomes, [(b"f".to_vec(), b"comes after it".to_vec())]);
}

fn new() -> Vault {
    Vault::create(files(&Bytes::default()), OWNER, OPTIONS).unwrap()
}

#[test]
fn one_checkpoint_is_written_at_a_time() {
    let mut vault = new();
    let mut draft = vault.begin(b"first").unwrap();
    let refused = vault.checkpoint(b"second", &[]);
    assert!(matches!(refused, Err(VaultError::Drafted { in_force: Generation::BEGINNING })), "{refused:?}");
    draft.part(b"part").unwrap();
    assert_eq!(vault.seal(draft).unwrap(), Generation(1));
    drop(vault.begin(b"in vain").unwrap());
    assert_eq!(vault.checkpoint(b"second", &[]).unwrap(), Generation(2));
}

/// An outcome that could not be written since a draft was begun is missing behind it as well.
#[test]
fn a_draft_that_lacks_an_outcome_is_not_sealed() {
    let mut vault = new();
    vault.forbid().unwrap();
    let draft = vault.begin(b"first").unwrap();
    vault.forbid().unwrap();
    let refused = vault.seal(draft);
    assert!(matches!(refused, Err(VaultError::Lacking { .. })), "{refused:?}");
    // What was lacking before is in the state.
    let draft = vault.begin(b"first").unwrap();
    assert_eq!(vault.seal(draft).unwrap(), Generation(1));
}

#[test]
#[should_panic(expected = "its own vault")]
fn a_draft_is_sealed_in_no_other_vault() {
    let (mut one, mut other) = (new(), new());
    let draft = one.begin(b"").unwrap();
    let _ = other.seal(draft);
}

/// Another thread writes it.
#[test]
fn a_draft_is_written_beside_the_log() {
    let mut vault = new();
    let mut draft = vault.begin(b"header").unwrap();
    let part = vec![9; 3 << 20];
    let writer = std::thread::spawn(move || draft.part(&part).map(|()| draft));
    for index in 0..100 {
        vault.append(&[index], &[std::io::IoSlice::new(&[index; 100])]).unwrap();
    }
    let draft = writer.join().unwrap().unwrap();
    vault.seal(draft).unwrap();
    vault.verify().unwrap();
    assert!(vault.log_bytes() > 100 * 100 && vault.bytes() > 3 << 20);
}
