//! One RocksDB database per process: put, get, release.
//!
//! The calls block on the disk, a put also while the database falls behind with writing; asynchronous callers
//! give them a thread of their own. All of them may be called from several threads at once.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use everfold_protocol::ReductionId;
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, DEFAULT_COLUMN_FAMILY_NAME, ErrorKind, IteratorMode, Options,
    WriteBatch, WriteOptions,
};

use crate::{
    durability::Durability,
    ending,
    error::{StoreError, Subject},
    job_directory::create_directory,
    key::{Kind, RecordKey},
    options::options,
    record,
};

/// Longest value of one record in bytes. The database holds it in memory twice while it is written; longer
/// bodies are stored segment by segment.
pub const VALUE_BYTES_MAX: u64 = 1 << 30;
/// How long a write waits for a disk that is slower than the writers.
const STALL_WAIT: Duration = Duration::from_secs(30);
const STALL_POLL: Duration = Duration::from_millis(1);

/// The store of one process. Dropping it closes the database and keeps its files.
#[derive(Debug)]
pub struct Store {
    /// Absent only while it is being closed.
    database: Option<DB>,
    path: PathBuf,
    /// Whether the log may hold records, so that it must also hold their release.
    logged: AtomicBool,
    stall_wait: Duration,
}

impl Store {
    /// Lets an exit of the process from now on wait for calls that are under way. Call it before another
    /// thread opens a store.
    pub fn prepare() {
        ending::prepare();
    }

    /// Opens the store in the directory `path`, or creates it, readable for this user alone. What an earlier
    /// process left there is there again, as far as its [`Durability`] goes.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if it is already open, here or in another process; [`StoreError::Full`],
    /// [`StoreError::ReadOnly`], [`StoreError::Corrupted`] or [`StoreError::Failed`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, &options(), STALL_WAIT)
    }

    fn open_with(path: &Path, options: &Options, stall_wait: Duration) -> Result<Self, StoreError> {
        let is_new = !path.exists();
        create_directory(path).map_err(|error| StoreError::from_system(&error, path))?;
        let _call = ending::call();
        let database = DB::open_cf_descriptors(options, path, columns(options))
            .map_err(|error| StoreError::from_database(error, path, None))?;
        let (database, path, logged) = (Some(database), path.to_owned(), AtomicBool::new(!is_new));
        Ok(Self { database, path, logged, stall_wait })
    }

    /// The directory of the store.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores `value` under `key`, instead of what was there before. When it returns, `durability` holds.
    ///
    /// # Errors
    /// [`StoreError::TooLong`] over [`VALUE_BYTES_MAX`]; [`StoreError::Full`], [`StoreError::ReadOnly`],
    /// [`StoreError::Stalled`], [`StoreError::Corrupted`] or [`StoreError::Failed`].
    pub fn put(
        &self,
        kind: Kind,
        key: RecordKey,
        value: &[u8],
        durability: Durability,
    ) -> Result<(), StoreError> {
        let subject = Subject { kind, key };
        let bytes = value.len() as u64;
        if bytes > VALUE_BYTES_MAX {
            return Err(StoreError::TooLong { subject, bytes, limit: VALUE_BYTES_MAX });
        }
        if durability > Durability::Memory {
            self.logged.store(true, Ordering::Relaxed);
        }
        let key = key.to_bytes();
        let record = record::encode(kind, &key, value);
        self.write(durability, Some(subject), |options| {
            self.database().put_cf_opt(self.column(kind), key, &record, options)
        })
    }

    /// The value stored under `key`, or `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError::Corrupted`] if the record is not exactly the one that was put there;
    /// [`StoreError::Failed`] if it cannot be read.
    pub fn get(&self, kind: Kind, key: RecordKey) -> Result<Option<Vec<u8>>, StoreError> {
        let subject = Some(Subject { kind, key });
        let key = key.to_bytes();
        let _call = ending::call();
        let record = self.database().get_pinned_cf(self.column(kind), key);
        let Some(record) = record.map_err(|error| self.error(error, subject))? else { return Ok(None) };
        match record::decode(kind, &key, &record) {
            Ok(value) => Ok(Some(value.to_vec())),
            Err(damage) => {
                let path = self.path.clone();
                Err(StoreError::Corrupted { path, subject, damage: damage.into() })
            }
        }
    }

    /// Forgets all records of `reduction`, of whichever kind and owner. They are gone for every later call at
    /// once; their room on disk is free after some later writes. A put that comes after the release is not
    /// undone by it.
    ///
    /// After a crash a released record may be back. That wastes room but mixes up nothing, because a
    /// [`ReductionId`] never names two reductions of a job.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::ReadOnly`], [`StoreError::Stalled`], [`StoreError::Corrupted`] or
    /// [`StoreError::Failed`]; the records are then still there.
    pub fn release(&self, reduction: ReductionId) -> Result<(), StoreError> {
        let [first, end] = RecordKey::range(reduction);
        // A store that was never asked to log must not begin to depend on the disk here.
        let logged = self.logged.load(Ordering::Relaxed);
        let durability = if logged { Durability::Stored } else { Durability::Memory };
        self.write(durability, None, |options| {
            let mut batch = WriteBatch::default();
            for kind in Kind::ALL {
                batch.delete_range_cf(self.column(kind), first, end);
            }
            self.database().write_opt(batch, options)
        })
    }

    /// Whether no record is stored.
    ///
    /// # Errors
    /// [`StoreError::Corrupted`] or [`StoreError::Failed`].
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        let _call = ending::call();
        for kind in Kind::ALL {
            if let Some(first) = self.database().iterator_cf(self.column(kind), IteratorMode::Start).next() {
                return first.map(|_| false).map_err(|error| self.error(error, None));
            }
        }
        Ok(true)
    }

    /// Bytes of the store's files on disk: records, log, and what is released but not yet cleared away.
    /// Records that are only in memory do not count.
    ///
    /// # Errors
    /// [`StoreError::Failed`].
    pub fn size_bytes(&self) -> Result<u64, StoreError> {
        let mut bytes = 0;
        let failed = |error: &io::Error| StoreError::from_system(error, &self.path);
        for entry in fs::read_dir(&self.path).map_err(|error| failed(&error))? {
            match entry.and_then(|entry| entry.metadata()) {
                Ok(metadata) => bytes += metadata.len(),
                // The database removes files while they are listed here.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(bytes)
    }

    /// Writes, and waits at most `stall_wait` while the database is behind with its files. The database's own
    /// wait has no end on a full disk.
    fn write(
        &self,
        durability: Durability,
        subject: Option<Subject>,
        write: impl Fn(&WriteOptions) -> Result<(), rocksdb::Error>,
    ) -> Result<(), StoreError> {
        let mut options = WriteOptions::default();
        options.disable_wal(durability == Durability::Memory);
        options.set_sync(durability == Durability::Synced);
        options.set_no_slowdown(true);
        let start = Instant::now();
        loop {
            let written = {
                let _call = ending::call();
                write(&options)
            };
            let Err(error) = written else { return Ok(()) };
            if error.kind() != ErrorKind::Incomplete || !error.as_ref().contains("Write stall") {
                return Err(self.error(error, subject));
            }
            let waited = start.elapsed();
            if waited > self.stall_wait {
                return Err(StoreError::Stalled { path: self.path.clone(), subject, waited });
            }
            thread::sleep(STALL_POLL);
        }
    }

    fn database(&self) -> &DB {
        self.database.as_ref().expect("it is taken only when the store is dropped")
    }

    fn column(&self, kind: Kind) -> &ColumnFamily {
        self.database().cf_handle(column_name(kind)).expect("a store is opened with a column for each kind")
    }

    fn error(&self, error: rocksdb::Error, subject: Option<Subject>) -> StoreError {
        StoreError::from_database(error, &self.path, subject)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _call = ending::call();
        drop(self.database.take());
    }
}

fn column_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Original => "originals",
        Kind::Replica => "replicas",
    }
}

fn columns(options: &Options) -> impl Iterator<Item = ColumnFamilyDescriptor> {
    // Nothing lies in the default column, but left out it would be given the database's own, large defaults.
    let names = Kind::ALL.map(column_name).into_iter().chain([DEFAULT_COLUMN_FAMILY_NAME]);
    names.map(|name| ColumnFamilyDescriptor::new(name, options.clone()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use everfold_protocol::ProcessId;
    use rocksdb::{CompactionDecision, statistics::Ticker};

    use super::*;
    use crate::{error::Damage, record::RecordError};

    fn key(sequence: u64) -> RecordKey {
        RecordKey { reduction: ReductionId::new("test", sequence), owner: ProcessId::first(1), segment: None }
    }

    #[test]
    fn a_bad_record_is_told_and_never_returned() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("0.0")).unwrap();
        let good = record::encode(Kind::Original, &key(0).to_bytes(), &[7; 5000]);
        let told = |record: &[u8]| {
            store.database().put_cf(store.column(Kind::Original), key(0).to_bytes(), record).unwrap();
            match store.get(Kind::Original, key(0)).unwrap_err() {
                StoreError::Corrupted { damage: Damage::Record(error), subject, .. } => {
                    assert_eq!(subject, Some(Subject { kind: Kind::Original, key: key(0) }));
                    error
                }
                error => panic!("{error:?}"),
            }
        };
        let with = |at: usize, byte: u8| [&good[..at], &[byte], &good[at + 1..]].concat();
        assert!(matches!(told(&with(3000, 8)), RecordError::Checksum { .. }));
        assert!(matches!(told(&with(0, b'E')), RecordError::Magic(_)));
        assert_eq!(told(&with(4, 2)), RecordError::Version(2));
        assert_eq!(told(&good[..5000]), RecordError::Truncated { bytes: 5000, expected: 5024 });
        assert!(matches!(
            told(&record::encode(Kind::Original, &key(1).to_bytes(), &[7; 5000])),
            RecordError::Checksum { .. }
        ));
        let replica = record::encode(Kind::Replica, &key(0).to_bytes(), &[7; 5000]);
        assert_eq!(told(&replica), RecordError::Kind { expected: Kind::Original, found: 2 });
    }

    #[test]
    fn only_synced_waits_for_the_disk_and_memory_does_not_touch_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = options();
        options.enable_statistics();
        let store = Store::open_with(&directory.path().join("0.0"), &options, STALL_WAIT).unwrap();
        let mut before = (0, 0);
        let mut cost = |call: &dyn Fn() -> Result<(), StoreError>| {
            call().unwrap();
            let now = (
                options.get_ticker_count(Ticker::WalFileBytes),
                options.get_ticker_count(Ticker::WalFileSynced),
            );
            let cost = (now.0 - before.0, now.1 - before.1);
            before = now;
            cost
        };
        let put = |durability| store.put(Kind::Original, key(1), &[7; 5000], durability);
        let release = || store.release(key(1).reduction);

        assert_eq!(cost(&|| put(Durability::Memory)), (0, 0));
        assert_eq!(cost(&release), (0, 0));
        let (logged, synced) = cost(&|| put(Durability::Stored));
        assert!(logged > 5000 && synced == 0, "{logged}, {synced}");
        let (logged, synced) = cost(&|| put(Durability::Synced));
        assert!(logged > 5000 && synced > 0, "{logged}, {synced}");
        // What the log holds, it must also forget.
        let (logged, synced) = cost(&release);
        assert!(logged > 0 && synced == 0, "{logged}, {synced}");
    }

    /// Lets a stuck disk go on when it is dropped; the store could not be closed before.
    struct Freed(Arc<AtomicBool>);

    impl Drop for Freed {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_write_does_not_wait_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let stuck = Arc::new(AtomicBool::new(true));
        let mut options = options();
        options.set_write_buffer_size(64 << 10);
        options.set_level_zero_slowdown_writes_trigger(2);
        options.set_level_zero_stop_writes_trigger(2);
        let is_stuck = stuck.clone();
        options.set_compaction_filter("a disk that is stuck", move |_, _, _| {
            while is_stuck.load(Ordering::Relaxed) {
                thread::sleep(STALL_POLL);
            }
            CompactionDecision::Keep
        });
        let path = directory.path().join("0.0");
        // Long enough for a flush on a busy machine: only the compaction is to be waited for in vain.
        let store = Store::open_with(&path, &options, Duration::from_secs(1)).unwrap();
        let freed = Freed(stuck.clone());
        let put = |round: u8| store.put(Kind::Original, key(0), &[round; 100 << 10], Durability::Memory);

        let (refused, error) = (0..100).find_map(|round| Some((round, put(round).err()?))).unwrap();
        let subject = Some(Subject { kind: Kind::Original, key: key(0) });
        assert!(matches!(&error, StoreError::Stalled { subject: of, .. } if *of == subject), "{error:?}");
        assert!(matches!(store.release(key(0).reduction), Err(StoreError::Stalled { .. })));
        assert_eq!(store.get(Kind::Original, key(0)).unwrap().unwrap()[0], refused - 1);

        drop(freed);
        let start = Instant::now();
        while let Err(error) = put(refused) {
            assert!(start.elapsed() < STALL_WAIT, "{error}");
        }
    }
}
