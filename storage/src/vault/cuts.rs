//! A death at any byte: what was written is cut after every byte, and opened.
//!
//! The writes are those of the real code, noted as it does them. The oracle is the list of calls: after a cut
//! in the middle of a call, what is there is exactly what was there before it; the last byte of a call makes
//! the difference.

mod drafts;
mod random;

use std::{fs::File, io::IoSlice, os::unix::fs::FileExt};

use everfold_protocol::{JobId, Rank};

use super::{
    Draft, Generation, Half, Options, Owner, Remembered, Vault, VaultError,
    journal::{self, Step},
};

const OWNER: Owner = Owner { job: JobId(0xfeed), rank: Rank(2) };
const OPTIONS: Options = Options::in_memory(1 << 20);

/// What a caller does.
#[derive(Clone, Debug)]
enum Call {
    Create,
    Checkpoint {
        header: Vec<u8>,
        parts: Vec<Vec<u8>>,
    },
    /// One that is begun and dropped.
    Abandon {
        parts: Vec<Vec<u8>>,
    },
    Append {
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// One that other calls come in the midst of. What is being written already is dropped.
    Begin {
        header: Vec<u8>,
    },
    /// The next part of that, if there is one.
    Write {
        part: Vec<u8>,
    },
    /// The end of that.
    Seal,
}

/// What is to be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Expected {
    generation: u64,
    checkpoint: Option<(Vec<u8>, Vec<Vec<u8>>)>,
    outcomes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What the calls so far have come to.
#[derive(Clone, Debug, Default)]
struct Oracle {
    there: Option<Expected>,
    /// Of the checkpoint that is being written: header, parts, and how many outcomes were there before it.
    draft: Option<(Vec<u8>, Vec<Vec<u8>>, usize)>,
}

impl Oracle {
    fn hears(&mut self, call: &Call) {
        let there = self.there.get_or_insert_default();
        match call.clone() {
            Call::Create => *self = Self { there: Some(Expected::default()), draft: None },
            Call::Checkpoint { header, parts } => {
                self.draft = Some((header, parts, there.outcomes.len()));
                self.hears(&Call::Seal);
            }
            Call::Abandon { .. } => self.draft = None,
            Call::Append { key, value } => there.outcomes.push((key, value)),
            Call::Begin { header } => self.draft = Some((header, Vec::new(), there.outcomes.len())),
            Call::Write { part } => self.draft.iter_mut().for_each(|(_, parts, _)| parts.push(part.clone())),
            Call::Seal => {
                let Some((header, parts, outcomes)) = self.draft.take() else { return };
                there.generation += 1;
                there.checkpoint = Some((header, parts));
                there.outcomes.drain(..outcomes);
            }
        }
    }
}

/// The bytes of both files.
type Bytes = [Vec<u8>; 2];

fn call(vault: &mut Vault, written: &mut Option<Draft>, call: &Call) {
    if matches!(call, Call::Checkpoint { .. } | Call::Abandon { .. } | Call::Begin { .. }) {
        *written = None;
    }
    match call {
        Call::Create => unreachable!("a vault is created first"),
        Call::Begin { header } => *written = Some(vault.begin(header).unwrap()),
        Call::Write { part } => written.iter_mut().for_each(|draft| draft.part(part).unwrap()),
        Call::Seal => {
            if let Some(draft) = written.take() {
                vault.seal(draft).unwrap();
            }
        }
        Call::Checkpoint { header, parts } => {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            vault.checkpoint(header, &parts).unwrap();
        }
        Call::Abandon { parts } => {
            let mut draft = vault.begin(b"abandoned").unwrap();
            for part in parts {
                draft.part(part).unwrap();
            }
        }
        Call::Append { key, value } => {
            let (left, right) = value.split_at(value.len() / 3);
            vault.append(key, &[IoSlice::new(left), IoSlice::new(right)]).unwrap();
        }
    }
}

/// Files that hold these bytes.
fn files(bytes: &Bytes) -> [File; 2] {
    bytes.each_ref().map(|bytes| {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    })
}

/// Everything in a vault, each byte compared with its checksum.
fn read(vault: &Vault, remembered: &Remembered) -> Result<Expected, VaultError> {
    let mut checkpoint = None;
    if let Some(found) = &remembered.checkpoint {
        let mut parts = Vec::new();
        for part in found.parts() {
            let mut bytes = vec![0; part.bytes() as usize];
            vault.read_part(part, &mut bytes)?;
            parts.push(bytes);
        }
        checkpoint = Some((found.header().to_vec(), parts));
    }
    let mut outcomes = Vec::new();
    for outcome in &remembered.outcomes {
        let mut value = vec![0; outcome.value_bytes() as usize];
        vault.read_value(outcome, &mut value)?;
        outcomes.push((outcome.key().to_vec(), value));
    }
    Ok(Expected { generation: remembered.generation.0, checkpoint, outcomes })
}

/// Everything that is found in these bytes, `None` if there is no vault.
fn open(bytes: &Bytes) -> Option<(Vault, Expected)> {
    match Vault::open(files(bytes), OWNER, OPTIONS) {
        Ok((vault, remembered)) => {
            vault.verify().unwrap();
            let found = read(&vault, &remembered).unwrap();
            Some((vault, found))
        }
        Err(VaultError::Absent) => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// Does a step, or of a write the first `written` bytes. A length changes in one go.
fn apply(bytes: &mut Bytes, step: &Step, written: usize) {
    if written == 0 {
        return;
    }
    match step {
        Step::Write { half, offset, bytes: new } => {
            let file = &mut bytes[*half as usize];
            let end = offset + written;
            file.resize(file.len().max(end), 0);
            file[*offset..end].copy_from_slice(&new[..written]);
        }
        Step::Cut { half, bytes: length } => bytes[*half as usize].resize(*length, 0),
    }
}

/// How many cuts there are within a step.
fn length(step: &Step) -> usize {
    match step {
        Step::Write { bytes, .. } => bytes.len(),
        Step::Cut { .. } => 1,
    }
}

/// A vault, what was done to its files by each call, and what is there after each.
struct Recording {
    base: Bytes,
    calls: Vec<(Vec<Step>, Option<Expected>)>,
}

/// Does `calls` to files with these bytes, which hold `before`.
fn record(base: Bytes, before: Option<Expected>, calls: &[Call]) -> Recording {
    journal::take();
    let mut vault = before.as_ref().map(|_| Vault::open(files(&base), OWNER, OPTIONS).unwrap().0);
    let mut draft = None;
    let mut oracle = Oracle { there: before, draft: None };
    let mut recorded = vec![(Vec::new(), oracle.there.clone())];
    for call in calls {
        match (&mut vault, call) {
            (_, Call::Create) => vault = Some(Vault::create(files(&base), OWNER, OPTIONS).unwrap()),
            (Some(vault), call) => self::call(vault, &mut draft, call),
            (None, _) => unreachable!("a vault is created first"),
        }
        oracle.hears(call);
        recorded.push((journal::take(), oracle.there.clone()));
    }
    Recording { base, calls: recorded }
}

impl Recording {
    /// The bytes of the files in the end.
    fn finished(&self) -> Bytes {
        let mut bytes = self.base.clone();
        for step in self.calls.iter().flat_map(|(steps, _)| steps) {
            apply(&mut bytes, step, length(step));
        }
        bytes
    }

    /// Cuts after every byte. `look` sees what is in the files then, and what is to be found there.
    fn cut_everywhere(&self, mut look: impl FnMut(&Bytes, Option<&Expected>)) -> usize {
        let mut cuts = 0;
        let mut bytes = self.base.clone();
        let mut before = self.calls[0].1.as_ref();
        for (steps, after) in &self.calls {
            for (index, step) in steps.iter().enumerate() {
                for written in 0..=length(step) {
                    let is_done = index + 1 == steps.len() && written == length(step);
                    let mut cut = bytes.clone();
                    apply(&mut cut, step, written);
                    look(&cut, if is_done { after.as_ref() } else { before });
                    cuts += 1;
                }
                apply(&mut bytes, step, length(step));
            }
            before = after.as_ref();
        }
        cuts
    }
}

/// Opens, goes on as the next incarnation would, and opens again.
fn look(bytes: &Bytes, expected: Option<&Expected>) {
    let found = open(bytes);
    assert_eq!(found.as_ref().map(|(_, found)| found), expected);
    let Some((vault, found)) = found else { return };
    drop(vault);
    for next in [append(b"after", b"the death"), checkpoint(b"later", &[b"and on"])] {
        let recording = record(bytes.clone(), Some(found.clone()), &[next]);
        let (_, again) = open(&recording.finished()).unwrap();
        assert_eq!(Some(again), recording.calls[1].1);
    }
}

fn append(key: &[u8], value: &[u8]) -> Call {
    Call::Append { key: key.to_vec(), value: value.to_vec() }
}

fn checkpoint(header: &[u8], parts: &[&[u8]]) -> Call {
    Call::Checkpoint { header: header.to_vec(), parts: parts.iter().map(|part| part.to_vec()).collect() }
}

/// Two checkpoints and outcomes behind both of them.
fn ordinary() -> Vec<Call> {
    vec![
        checkpoint(b"first header", &[b"first part", b"", b"third part of the first"]),
        append(b"a", b"value of a"),
        append(b"", b""),
        append(b"key without a value", b""),
        checkpoint(b"second", &[b"one part, longer than those before it were"]),
        append(b"b", b"value of b"),
        append(b"c", &[0; 50]),
    ]
}

/// Longer generations than the ordinary ones, in both halves, which end in the same places with their states.
fn long() -> Vec<Call> {
    let mut calls = vec![Call::Create];
    for _ in 0..2 {
        let mut same = ordinary();
        same.extend((0..10).map(|index| append(&[index; 7], &[index; 33])));
        calls.extend(same);
    }
    calls
}

#[test]
fn a_death_at_any_byte_leaves_all_that_was_complete_and_nothing_else() {
    let mut calls = vec![Call::Create];
    calls.extend(ordinary());
    let cuts = record(Bytes::default(), None, &calls).cut_everywhere(look);
    assert!(cuts > 600, "{cuts} cuts");
}

#[test]
fn what_longer_generations_left_is_never_taken_for_the_newer() {
    let past = record(Bytes::default(), None, &long());
    let before = past.calls.last().unwrap().1.clone();
    let recording = record(past.finished(), before, &ordinary());
    let cuts = recording.cut_everywhere(look);
    assert!(cuts > 600, "{cuts} cuts");
}

#[test]
fn a_vault_that_is_created_anew_is_the_new_or_none_but_no_mixture() {
    let past = record(Bytes::default(), None, &long());
    let old = past.calls.last().unwrap().1.clone();
    let anew = record(past.finished(), None, &[Call::Create]);
    let mut seen = Vec::new();
    anew.cut_everywhere(|bytes, _| {
        let found = open(bytes).map(|(_, found)| found);
        let is_old = found
            .as_ref()
            .is_none_or(|found| past.calls.iter().any(|(_, then)| then.as_ref() == Some(found)));
        assert!(is_old || found == Some(Expected::default()), "{found:?}");
        if seen.last() != Some(&found) {
            seen.push(found);
        }
    });
    assert_eq!(seen.first(), Some(&old));
    assert_eq!(seen.last(), Some(&Some(Expected::default())));
}

#[test]
fn a_checkpoint_that_is_dropped_changes_nothing_and_gives_its_bytes_back() {
    let mut calls = long();
    calls.push(Call::Abandon { parts: vec![vec![7; 10], vec![8; 500]] });
    calls.push(append(b"then", b"this"));
    let recording = record(Bytes::default(), None, &calls);
    let bytes = recording.finished();
    assert!(bytes.iter().any(Vec::is_empty));
    look(&bytes, recording.calls.last().unwrap().1.as_ref());
}

#[test]
fn what_looks_like_a_record_inside_of_a_value_is_none() {
    let past = record(Bytes::default(), None, &long());
    let halves = past.finished();
    let before = past.calls.last().unwrap().1.clone();
    let calls = [
        append(&halves[0], &halves[1]),
        checkpoint(&halves[1], &[&halves[0], &halves[1]]),
        append(b"", &halves[0]),
    ];
    let recording = record(halves, before, &calls);
    recording
        .cut_everywhere(|bytes, expected| assert_eq!(open(bytes).map(|(_, found)| found).as_ref(), expected));
}

/// Long slices take other ways than short ones: several writes, which are cut at their edges and within.
#[test]
fn long_values_and_parts_are_torn_like_short_ones() {
    let long =
        |seed: usize| (0..600_000 + seed).map(|index| ((index * (seed + 7)) >> 3) as u8).collect::<Vec<u8>>();
    let calls = [
        Call::Create,
        append(b"long", &long(1)),
        checkpoint(b"", &[&long(2), b"short", &long(3)]),
        append(&long(4), b"short"),
        append(b"long", &long(5)),
    ];
    let options = Options::in_memory(4 << 20);
    journal::take();
    let mut bytes = Bytes::default();
    let mut vault = Vault::create(files(&bytes), OWNER, options).unwrap();
    let mut oracle = Oracle::default();
    oracle.hears(&calls[0]);
    for step in journal::take() {
        apply(&mut bytes, &step, length(&step));
    }
    for call in &calls[1..] {
        self::call(&mut vault, &mut None, call);
        let before = oracle.there.clone();
        oracle.hears(call);
        let steps = journal::take();
        for (index, step) in steps.iter().enumerate() {
            let some = [0, 1, length(step) / 2, length(step) - 1];
            for written in some.into_iter().filter(|written| *written < length(step)) {
                let mut cut = bytes.clone();
                apply(&mut cut, step, written);
                let found = open(&cut).map(|(_, found)| found);
                assert!(found == before, "{written} bytes of step {index} of {}", steps.len());
            }
            apply(&mut bytes, step, length(step));
        }
        assert!(open(&bytes).map(|(_, found)| found) == oracle.there, "a call that is done");
    }
}

#[test]
fn a_write_that_was_noted_is_what_is_in_the_file() {
    journal::take();
    let files = files(&Bytes::default());
    let kept = files.each_ref().map(|file| file.try_clone().unwrap());
    let mut vault = Vault::create(files, OWNER, OPTIONS).unwrap();
    for call in ordinary() {
        self::call(&mut vault, &mut None, &call);
    }
    let mut bytes = Bytes::default();
    for step in journal::take() {
        apply(&mut bytes, &step, length(&step));
    }
    for (file, bytes) in kept.iter().zip(bytes) {
        let mut found = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, bytes);
    }
    assert_eq!(vault.generation(), Generation(2));
    assert_eq!(vault.in_force, Half::First);
}
