//! Damage is told, and never returned.

use std::os::unix::fs::FileExt;

use everfold_protocol::{JobId, Rank};
use everfold_storage::vault::{Damage, Generation, Half, Owner, Piece, Vault, VaultError};

use super::{OPTIONS, OWNER, SEAL_AT, VERSION_AT, again, bytes, empty, filled, flip, memory, open, small};

#[test]
fn a_flipped_bit_is_told_and_never_returned() {
    let (files, _, now) = small();
    let halves = files.each_ref().map(bytes);
    let (mut told, mut harmless) = (0, 0);
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
        }
    }
    assert!(told > halves[0].len() * 8 && harmless > 0);
}

#[test]
fn a_damaged_part_is_named_and_the_others_are_read() {
    let (files, _, now) = small();
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
}

#[test]
fn a_damaged_outcome_is_named_and_the_others_are_read() {
    let (files, ..) = small();
    let place = bytes(&files[0]).windows(4).position(|window| window == b"four").unwrap();
    flip(&files[0], place * 8);
    let damage = Damage { half: Half::First, generation: Some(Generation(2)), piece: Piece::Outcome(1) };
    let (vault, remembered) = Vault::open(again(&files), OWNER, OPTIONS).unwrap();
    assert_eq!(remembered.outcomes.len(), 3);
    let read = vault.read_value(&remembered.outcomes[1], &mut [0; 4]);
    assert!(matches!(read, Err(VaultError::Damaged(found)) if found == damage));
    vault.read_value(&remembered.outcomes[2], &mut [0; 4]).unwrap();
}

#[test]
fn a_damaged_header_is_named_and_nothing_is_changed() {
    let (files, ..) = small();
    for file in &files {
        flip(file, 88 * 8);
    }
    let before = files.each_ref().map(bytes);
    let Err(VaultError::Damaged(damage)) = open(&files) else { panic!("it is damaged") };
    assert_eq!((damage.generation, damage.piece), (Some(Generation(2)), Piece::Header));
    assert_eq!(files.each_ref().map(bytes), before);
}

#[test]
fn empty_files_hold_no_vault() {
    assert!(matches!(open(&empty()), Err(VaultError::Absent)));
}

#[test]
fn other_files_are_told_and_left_alone() {
    let text = "not a vault ".repeat(20);
    for files in [[filled(text.as_bytes()), memory()], [memory(), filled(text.as_bytes())]] {
        let Err(error @ VaultError::NotAVault { start: [b'n', b'o', b't', b' '], .. }) = open(&files) else {
            panic!("it is no vault");
        };
        assert!(error.to_string().contains("something else"));
        assert_eq!(files.iter().map(|file| bytes(file).len()).sum::<usize>(), text.len());
    }
    let short = [filled(b"short"), memory()];
    assert!(matches!(open(&short), Err(VaultError::Damaged(_))));
}

#[test]
fn a_vault_of_another_rank_or_job_is_refused() {
    let (files, ..) = small();
    for owner in [Owner { rank: Rank(4), ..OWNER }, Owner { job: JobId(1), ..OWNER }] {
        let opened = Vault::open(again(&files), owner, OPTIONS);
        let Err(error @ VaultError::Owner { half: Half::First, expected, found: OWNER }) = opened else {
            panic!("{opened:?}");
        };
        assert_eq!(expected, owner);
        assert!(error.to_string().contains("belongs to rank 3 of job-0000000000c0ffee"), "{error}");
    }
}

#[test]
fn a_vault_of_another_version_is_refused_and_left_alone() {
    let (files, ..) = small();
    files[1].write_all_at(&2_u16.to_le_bytes(), VERSION_AT as u64).unwrap();
    let before = files.each_ref().map(bytes);
    let expected = VaultError::Version { half: Half::Second, found: 2, expected: 1 };
    assert_eq!(open(&files).unwrap_err().to_string(), expected.to_string());
    assert_eq!(files.each_ref().map(bytes), before);
}

#[test]
fn one_half_twice_is_told() {
    let (files, ..) = small();
    let twice = [&files[0], &files[0]].map(|file| file.try_clone().unwrap());
    let opened = open(&twice);
    let Err(VaultError::Mixed { first, second }) = opened else { panic!("{opened:?}") };
    assert_eq!((first, second), (Generation(2), Generation(2)));
}

#[test]
fn a_file_that_has_lost_its_end_is_damaged() {
    let (files, ..) = small();
    for length in [1, SEAL_AT as u64, 90, 100] {
        let files = files.each_ref().map(|file| filled(&bytes(file)));
        files[0].set_len(length).unwrap();
        let Err(VaultError::Damaged(damage)) = open(&files) else { panic!("{length} bytes are left") };
        assert_eq!(damage.half, Half::First);
    }
}
