//! The store does what it says, also when its process is killed.

#![allow(clippy::unwrap_used)]

mod support;

use everfold_storage::{Durability, Kind, Store, StoreError, store::VALUE_BYTES_MAX};
use support::{Helper, helper_directory, key, ready, reduction, segment, value};

const ALL: [Durability; 3] = [Durability::Memory, Durability::Stored, Durability::Synced];

#[test]
fn what_is_put_is_got() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("0.0")).unwrap();
    assert!(store.is_empty().unwrap());
    let mut seed = 0;
    for durability in ALL {
        for kind in Kind::ALL {
            for bytes in [0, 1, 4095, 4096, 100_000, 40_000_000] {
                seed += 1;
                let value = value(seed, bytes);
                for key in [key(seed, 7), segment(seed, 7, 0), segment(seed, 8, u32::MAX)] {
                    assert_eq!(store.get(kind, key).unwrap(), None);
                    store.put(kind, key, &value, durability).unwrap();
                    assert!(store.get(kind, key).unwrap().unwrap() == value, "{durability:?} {kind} {key}");
                }
                store.release(reduction(seed)).unwrap();
            }
        }
    }
    assert!(store.is_empty().unwrap());
}

#[test]
fn kinds_owners_and_segments_do_not_mix() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("0.0")).unwrap();
    let keys = [key(1, 0), segment(1, 0, 0), segment(1, 0, 1), key(1, 1), key(2, 0)];
    let value = |kind: Kind, index: usize| [kind as u8, index as u8];
    for kind in Kind::ALL {
        for (index, key) in keys.into_iter().enumerate() {
            store.put(kind, key, &value(kind, index), Durability::Memory).unwrap();
        }
    }
    for kind in Kind::ALL {
        for (index, key) in keys.into_iter().enumerate() {
            assert_eq!(store.get(kind, key).unwrap().unwrap(), value(kind, index));
        }
    }
}

#[test]
fn a_release_forgets_one_reduction_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.0");
    let store = Store::open(&path).unwrap();
    for sequence in [0, 1, 2] {
        for kind in Kind::ALL {
            for key in [key(sequence, 0), key(sequence, u32::MAX), segment(sequence, 3, u32::MAX)] {
                store.put(kind, key, &value(sequence, 10_000), Durability::Stored).unwrap();
            }
        }
    }
    store.release(reduction(1)).unwrap();
    let check = |store: &Store| {
        for sequence in [0, 1, 2] {
            for kind in Kind::ALL {
                for key in [key(sequence, 0), key(sequence, u32::MAX), segment(sequence, 3, u32::MAX)] {
                    let expected = (sequence != 1).then(|| value(sequence, 10_000));
                    assert!(store.get(kind, key).unwrap() == expected, "{kind} {key}");
                }
            }
        }
    };
    check(&store);
    drop(store);
    let store = Store::open(&path).unwrap();
    check(&store);
    assert!(!store.is_empty().unwrap());
    store.release(reduction(0)).unwrap();
    store.release(reduction(2)).unwrap();
    assert!(store.is_empty().unwrap());
}

#[test]
fn a_second_put_replaces_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("0.0")).unwrap();
    store.put(Kind::Replica, key(1, 1), &value(1, 10_000), Durability::Memory).unwrap();
    store.put(Kind::Replica, key(1, 1), b"new", Durability::Memory).unwrap();
    assert_eq!(store.get(Kind::Replica, key(1, 1)).unwrap().unwrap(), b"new");
}

#[test]
fn a_value_over_the_limit_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("0.0")).unwrap();
    let value = vec![0; VALUE_BYTES_MAX as usize + 1];
    let error = store.put(Kind::Original, key(1, 1), &value, Durability::Memory).unwrap_err();
    assert!(matches!(error, StoreError::TooLong { limit: VALUE_BYTES_MAX, .. }), "{error}");
    assert!(store.is_empty().unwrap());
}

#[test]
fn several_threads_may_use_it_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("0.0")).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for sequence in 0..200 {
                    let (key, value) = (key(u64::from(rank) << 32 | sequence, rank), value(sequence, 20_000));
                    store.put(Kind::Replica, key, &value, ALL[sequence as usize % 2]).unwrap();
                    assert!(store.get(Kind::Replica, key).unwrap().unwrap() == value);
                    store.release(key.reduction).unwrap();
                    assert!(store.get(Kind::Replica, key).unwrap().is_none());
                }
            });
        }
    });
    assert!(store.is_empty().unwrap());
}

#[test]
fn released_records_do_not_pile_up_on_disk() {
    const BYTES: usize = 1 << 20;
    const LIVE: u64 = 8;
    const ROUNDS: u64 = 500;
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("0.0")).unwrap();
    let value = value(1, BYTES);
    let mut bytes_max = 0;
    for sequence in 0..ROUNDS {
        store.put(Kind::Original, key(sequence, 0), &value, Durability::Stored).unwrap();
        store.put(Kind::Replica, key(sequence, 1), &value, Durability::Stored).unwrap();
        if let Some(old) = sequence.checked_sub(LIVE) {
            store.release(reduction(old)).unwrap();
        }
        bytes_max = bytes_max.max(store.size_bytes().unwrap());
    }
    // 16 MiB live; the log may take 64 MiB, and what is not yet cleared away some times the 32 MiB of memory.
    eprintln!("at most {} MiB", bytes_max >> 20);
    assert!(bytes_max < 256 << 20, "{} MiB on disk", bytes_max >> 20);
}

#[test]
#[ignore = "a process that other tests start"]
fn process_that_stores() {
    let Some(path) = helper_directory() else { return };
    let store = Store::open(&path).unwrap();
    for (rank, durability) in ALL.into_iter().enumerate() {
        for bytes in [10, 100_000] {
            let key = segment(1, rank as u32, bytes);
            store.put(Kind::Replica, key, &value(bytes.into(), bytes as usize), durability).unwrap();
        }
    }
    store.put(Kind::Replica, key(2, 0), b"released", Durability::Stored).unwrap();
    store.release(reduction(2)).unwrap();
    ready();
}

#[test]
fn an_acknowledgement_means_what_it_says_when_the_process_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.0");
    Helper::start("process_that_stores", &path).kill();
    let store = Store::open(&path).unwrap();
    for (rank, durability) in ALL.into_iter().enumerate() {
        for bytes in [10, 100_000] {
            let survives = durability > Durability::Memory;
            let expected = survives.then(|| value(bytes.into(), bytes as usize));
            let key = segment(1, rank as u32, bytes);
            assert!(store.get(Kind::Replica, key).unwrap() == expected, "{durability:?}, {bytes} bytes");
        }
    }
    assert_eq!(store.get(Kind::Replica, key(2, 0)).unwrap(), None);
}

#[test]
fn what_a_killed_process_stored_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.0");
    Helper::start("process_that_stores", &path).kill();
    let check = |store: &Store| {
        for (rank, durability) in ALL.into_iter().enumerate() {
            for bytes in [10, 100_000] {
                let expected = (durability > Durability::Memory).then(|| value(bytes.into(), bytes as usize));
                let key = segment(1, rank as u32, bytes);
                assert!(store.get(Kind::Replica, key).unwrap() == expected, "{durability:?}, {bytes} bytes");
            }
        }
        assert_eq!(store.get(Kind::Replica, key(2, 0)).unwrap(), None);
    };
    let store = Store::open(&path).unwrap();
    check(&store);
}

#[test]
fn a_store_has_one_owner_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.0");
    let locked = || {
        let error = Store::open(&path).unwrap_err();
        assert!(matches!(&error, StoreError::Locked { path: of, .. } if *of == path), "{error:?}");
    };

    let store = Store::open(&path).unwrap();
    locked();
    drop(store);

    let other = Helper::start("process_that_stores", &path);
    locked();
    other.kill();
    Store::open(&path).unwrap();
}
