//! How the database is set up.
//!
//! Records are written once, rarely read, and released soon, all of a reduction at a time. So these options
//! keep little in memory, keep values out of the sorted files (as blobs, which compactions need not copy),
//! and compact early, because then only keys are moved and the blobs of released reductions go at once.

use rocksdb::{BlockBasedOptions, Cache, LogLevel, Options};

/// What the database may keep in memory before it writes to its files, in bytes. More would spare the disk
/// the records that are released early, but every process of a host takes its own.
const MEMORY_BYTES: usize = 32 << 20;
/// Values from this length on, in bytes, are kept as blobs. Below, a blob's own overhead costs more than
/// moving it.
const BLOB_BYTES_MIN: u64 = 4 << 10;
/// The database's cache of keys, in bytes. Nothing is read twice, so that it only has to serve one look-up.
const CACHE_BYTES: usize = 1 << 20;
/// How many file descriptors the database keeps open.
const OPEN_FILES_MAX: i32 = 64;

/// For every store of a process.
pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);

    options.set_db_write_buffer_size(MEMORY_BYTES);
    options.set_write_buffer_size(MEMORY_BYTES / 2);
    // A record in one column's memory holds back the log of both columns; past this the column is written
    // out.
    options.set_max_total_wal_size(2 * MEMORY_BYTES as u64);

    options.set_enable_blob_files(true);
    options.set_min_blob_size(BLOB_BYTES_MIN);
    options.set_enable_blob_gc(true);
    options.set_level_zero_file_num_compaction_trigger(2);

    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES));
    options.set_block_based_table_factory(&table);
    options.set_max_open_files(OPEN_FILES_MAX);

    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(1);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}
