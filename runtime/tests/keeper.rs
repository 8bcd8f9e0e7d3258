//! What is kept is read as it was, until it is released; whatever the disk does is told.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    num::NonZeroU64,
    path::{Path, PathBuf},
    pin::pin,
    process::Command,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use bytes::Bytes;
use everfold_protocol::{
    JobId, ProcessId, ReductionId, SegmentIndex,
    message::{ByteRange, Peer},
};
use everfold_runtime::{
    keeper::{DiskError, KeepError, Keeper, KeeperConfig, Kept, Medium},
    memory::window::{Content, Windows},
    transport::{OneSidedRead, ReadError, conformance, handshake::Key, tcp::Tcp},
};
use everfold_storage::{JobDirectory, Kind, RecordKey};
use futures::poll;

const JOB: JobId = JobId(9);
const SECRET: Key = Key([5; 32]);
const MEDIA: [Medium; 2] = [Medium::Memory, Medium::Disk];
/// How long to wait for what happens in another thread before it counts as never.
const PATIENCE: Duration = Duration::from_secs(60);

fn me() -> ProcessId {
    ProcessId::first(0)
}

fn config(base: &Path) -> KeeperConfig {
    KeeperConfig::new(base.to_owned(), JOB, me())
}

fn reduction(sequence: u64) -> ReductionId {
    ReductionId::new("test", sequence)
}

fn key(sequence: u64, segment: u32) -> RecordKey {
    let segment = Some(SegmentIndex(segment));
    RecordKey { reduction: reduction(sequence), owner: ProcessId::first(1), segment }
}

/// Bytes that no other seed has.
fn value(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Tries until `check` is content.
async fn until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !check().await {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// All files below `directory`.
fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn what_is_kept_is_read_until_it_is_released() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::new(config(directory.path()));
    for (sequence, medium) in MEDIA.into_iter().enumerate() {
        let sequence = 2 * sequence as u64;
        for kind in Kind::ALL {
            for (segment, bytes) in [0, 1, 5000, 3_000_000].into_iter().enumerate() {
                for sequence in [sequence, sequence + 1] {
                    let key = key(sequence, segment as u32);
                    let seed = sequence << 32 | bytes as u64;
                    assert_eq!(keeper.read(kind, key).await.unwrap(), None);
                    keeper.keep(kind, key, b"to be replaced", medium).await.unwrap();
                    keeper.keep(kind, key, value(seed, bytes), medium).await.unwrap();
                    assert!(keeper.read(kind, key).await.unwrap().unwrap() == value(seed, bytes), "{key}");
                }
            }
        }
        keeper.release(reduction(sequence));
        for kind in Kind::ALL {
            assert_eq!(keeper.read(kind, key(sequence, 2)).await.unwrap(), None);
            assert_eq!(keeper.read(kind, key(sequence + 1, 2)).await.unwrap().unwrap().len(), 5000);
        }
    }
}

#[tokio::test]
async fn nothing_happens_before_the_first_record_for_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::new(config(directory.path()));
    keeper.keep(Kind::Replica, key(1, 0), value(1, 100), Medium::Memory).await.unwrap();
    assert_eq!(keeper.read(Kind::Replica, key(2, 0)).await.unwrap(), None);
    keeper.release(reduction(1));
    keeper.close().await;
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Bytes that hold up whoever drops them until they are let go.
struct Sticky(Vec<u8>, mpsc::Receiver<()>);

impl AsRef<[u8]> for Sticky {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Sticky {
    fn drop(&mut self) {
        let _ = self.1.recv();
    }
}

#[tokio::test]
async fn a_release_cancels_what_is_on_its_way() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::new(KeeperConfig { queue_bytes_max: 100, ..config(directory.path()) });
    let keep =
        |sequence, bytes| keeper.keep(Kind::Replica, key(sequence, 0), value(sequence, bytes), Medium::Disk);

    let (let_go, stuck) = mpsc::channel();
    keeper.keep(Kind::Replica, key(1, 0), Sticky(value(1, 40), stuck), Medium::Disk).await.unwrap();
    // From here on the thread does nothing.
    let mut queued = pin!(keep(2, 50));
    let mut waiting = pin!(keep(3, 50));
    let mut behind = pin!(keep(4, 5));
    assert!(poll!(&mut queued).is_pending());
    assert!(poll!(&mut waiting).is_pending());
    assert!(poll!(&mut behind).is_pending());
    let read = keeper.read(Kind::Replica, key(1, 0)).await.unwrap();
    assert!(read.unwrap() == value(1, 40), "reads do not wait for writes");
    keeper.release(reduction(1));
    keeper.release(reduction(2));
    keeper.release(reduction(3));
    assert!(matches!(queued.await, Err(KeepError::Released)));
    assert!(matches!(waiting.await, Err(KeepError::Released)));

    let_go.send(()).unwrap();
    behind.await.unwrap();
    // Whatever was queued before is done now, and nothing of it was written.
    let is_written = |sequence, bytes| {
        let value = value(sequence, bytes);
        let holds = |path| fs::read(path).unwrap().windows(bytes).any(|window| window == value);
        files(directory.path()).into_iter().any(holds)
    };
    assert_eq!(
        [(2, 50), (3, 50), (4, 5)].map(|(sequence, bytes)| is_written(sequence, bytes)),
        [false, false, true]
    );
}

#[tokio::test]
async fn nothing_is_kept_of_a_released_reduction() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::new(config(directory.path()));
    keeper.keep(Kind::Replica, key(1, 0), value(1, 100), Medium::Disk).await.unwrap();
    for sequence in [1, 2] {
        keeper.release(reduction(sequence));
        for medium in MEDIA {
            let late = keeper.keep(Kind::Replica, key(sequence, 0), value(1, 100), medium).await;
            assert!(matches!(late, Err(KeepError::Released)), "{late:?}");
            assert_eq!(keeper.read(Kind::Replica, key(sequence, 0)).await.unwrap(), None);
        }
    }
}

#[tokio::test]
async fn memory_has_a_limit() {
    let keeper = Keeper::new(KeeperConfig { memory_bytes_max: 100, ..config(Path::new("/nowhere")) });
    let keep =
        |sequence, bytes| keeper.keep(Kind::Original, key(sequence, 0), value(1, bytes), Medium::Memory);
    keep(1, 60).await.unwrap();
    let error = keep(2, 41).await.unwrap_err();
    assert!(matches!(error, KeepError::Full { bytes: 41, held: 60, limit: 100 }), "{error:?}");
    keep(2, 40).await.unwrap();
    // In the place of what is there already, there is room for as much.
    keep(2, 40).await.unwrap();
    assert!(keep(2, 41).await.is_err());
    assert_eq!(keeper.read(Kind::Original, key(2, 0)).await.unwrap().unwrap().len(), 40);
    keeper.release(reduction(1));
    keep(3, 60).await.unwrap();
}

#[tokio::test]
async fn more_than_the_queue_holds_is_kept_one_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::new(KeeperConfig { queue_bytes_max: 10_000, ..config(directory.path()) });
    let sizes = (0..200u32).map(|segment| (segment, segment as usize * 97 % 12_000));
    let keeps = sizes.clone().map(|(segment, bytes)| {
        keeper.keep(Kind::Replica, key(1, segment), value(segment.into(), bytes), Medium::Disk)
    });
    futures::future::try_join_all(keeps).await.unwrap();
    for (segment, bytes) in sizes {
        let kept = keeper.read(Kind::Replica, key(1, segment)).await.unwrap().unwrap();
        assert!(kept == value(segment.into(), bytes), "{segment}");
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_told_and_used_once_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("base");
    fs::write(&base, "a file, where a directory should be").unwrap();
    let keeper = Keeper::new(config(&base));
    let keep = |medium| keeper.keep(Kind::Replica, key(1, 0), value(1, 5000), medium);
    let error = keep(Medium::Disk).await.unwrap_err();
    assert!(
        matches!(&error, KeepError::Disk(error) if matches!(**error, DiskError::Directory(_))),
        "{error:?}"
    );
    assert!(error.to_string().contains(base.to_str().unwrap()), "{error}");
    assert_eq!(keeper.read(Kind::Replica, key(1, 0)).await.unwrap(), None);
    keep(Medium::Memory).await.unwrap();
    keeper.release(reduction(0));

    fs::remove_file(&base).unwrap();
    until("the directory is used", async || keep(Medium::Disk).await.is_ok()).await;
    assert!(files(&base).iter().any(|path| path.ends_with("CURRENT")));
    keeper.close().await;
    assert!(files(&base).is_empty());
}

#[test]
fn a_disk_that_fails_is_told_and_costs_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    // No file may grow beyond 2 MiB, and trying it does not kill.
    let script =
        "trap '' XFSZ && ulimit -f 4096 && exec timeout 120 \"$0\" --exact with_a_failing_disk --ignored";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(std::env::current_exe().unwrap()).env(DIRECTORY, directory.path());
    assert!(command.status().unwrap().success());
}

const DIRECTORY: &str = "EVERFOLD_TEST_DIRECTORY";

#[tokio::test]
#[ignore = "a process that another test starts"]
async fn with_a_failing_disk() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let keeper = Keeper::new(config(Path::new(&directory)));
    let mut kept = Vec::new();
    let mut refused = 0;
    for segment in 0..100 {
        match keeper.keep(Kind::Replica, key(1, segment), value(segment.into(), 100_000), Medium::Disk).await
        {
            Ok(()) => kept.push(segment),
            Err(KeepError::Disk(error)) => {
                assert!(matches!(*error, DiskError::Store(_)), "{error:?}");
                refused += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(kept.len() > 10 && refused > 10, "{} kept, {refused} refused", kept.len());
    for segment in kept {
        let bytes = keeper.read(Kind::Replica, key(1, segment)).await.unwrap().unwrap();
        assert!(bytes == value(segment.into(), 100_000), "{segment}");
    }
    keeper.keep(Kind::Replica, key(1, 0), value(7, 10), Medium::Memory).await.unwrap();
    keeper.release(reduction(1));
    assert_eq!(keeper.read(Kind::Replica, key(1, 0)).await.unwrap(), None);
    keeper.close().await;
    assert!(files(Path::new(&directory)).is_empty());
}

#[tokio::test]
async fn closing_ends_all_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::new(KeeperConfig { queue_bytes_max: 100, ..config(directory.path()) });
    let keep = |sequence| keeper.keep(Kind::Replica, key(sequence, 0), value(1, 60), Medium::Disk);
    let (let_go, stuck) = mpsc::channel();
    keeper.keep(Kind::Replica, key(1, 0), Sticky(value(1, 10), stuck), Medium::Disk).await.unwrap();
    let mut queued = pin!(keep(2));
    let mut waiting = pin!(keep(3));
    assert!(poll!(&mut queued).is_pending());
    assert!(poll!(&mut waiting).is_pending());
    let mut closing = pin!(keeper.close());
    assert!(poll!(&mut closing).is_pending());
    for result in [queued.await, waiting.await, keep(4).await] {
        assert!(matches!(result, Err(KeepError::Closed)), "{result:?}");
    }
    assert!(matches!(keeper.read(Kind::Replica, key(1, 0)).await, Err(KeepError::Closed)));
    let_go.send(()).unwrap();
    closing.await;
    assert!(files(directory.path()).is_empty());
    keeper.close().await;
    keeper.release(reduction(1));
}

#[tokio::test]
async fn a_keeper_that_is_dropped_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::new(config(directory.path()));
    keeper.keep(Kind::Replica, key(1, 0), value(1, 100), Medium::Disk).await.unwrap();
    assert!(!files(directory.path()).is_empty());
    drop(keeper);
    until("its files are gone", async || files(directory.path()).is_empty()).await;
}

#[tokio::test]
async fn files_of_crashed_jobs_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let crashed = JobDirectory::join(directory.path(), JobId(1), me()).unwrap();
    let left = crashed.store_path();
    fs::create_dir_all(&left).unwrap();
    drop(crashed);
    let keeper = Keeper::new(config(directory.path()));
    keeper.keep(Kind::Replica, key(1, 0), value(1, 100), Medium::Disk).await.unwrap();
    assert!(!left.exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn all_that_works_for_the_disk_gives_way() {
    /// Names and priorities of this process's threads that have to do with the disk.
    fn threads() -> Vec<(String, i32)> {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let stats = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("stat")).ok());
        let threads = stats.map(|stat| {
            let (before, after) = stat.rsplit_once(')').unwrap();
            let name = before.split_once('(').unwrap().1.to_owned();
            // The nineteenth field; the state after the name is the third.
            (name, after.split_whitespace().nth(16).unwrap().parse().unwrap())
        });
        threads
            .filter(|(name, _)| ["everfold-keeper", "rocksdb"].iter().any(|s| name.starts_with(s)))
            .collect()
    }
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::new(config(directory.path()));
    keeper.keep(Kind::Replica, key(1, 0), value(1, 100), Medium::Disk).await.unwrap();
    assert!(threads().iter().any(|(name, _)| name.starts_with("everfold-keeper")));
    let own = fs::read_to_string("/proc/thread-self/stat").unwrap();
    let own: i32 = own.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().parse().unwrap();
    until("all give way", async || threads().iter().all(|&(_, nice)| nice > own)).await;
}

#[tokio::test]
async fn damage_of_what_the_keeper_itself_holds_is_told() {
    const BYTES: usize = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::new(config(directory.path()));
    // More than the store keeps in memory.
    for segment in 0..40 {
        keeper
            .keep(Kind::Replica, key(1, segment), value(segment.into(), BYTES), Medium::Disk)
            .await
            .unwrap();
    }
    until("the first record is damaged", async || {
        for path in files(directory.path()) {
            if path.extension().is_some_and(|name| name == "blob") {
                let file = fs::OpenOptions::new().write(true).open(&path);
                let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
                file.and_then(|file| {
                    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; bytes as usize], 0)
                })
                .unwrap();
            }
        }
        match keeper.read(Kind::Replica, key(1, 0)).await {
            Err(KeepError::Damaged(_)) => true,
            Ok(Some(bytes)) => {
                assert!(bytes == value(0, BYTES), "wrong bytes");
                false
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
}

/// Serves windows and says where.
async fn serve() -> (Arc<Windows>, Peer) {
    let windows = Arc::new(Windows::new(None));
    let address = support::serve(&windows, SECRET, JOB).await;
    (
        windows,
        Peer {
            process: me(),
            host: 0,
            pid: 0,
            region: None,
            bell: None,
            board: None,
            address,
            domain: None,
            agent: None,
        },
    )
}

fn kept(keeper: &Arc<Keeper>, bytes: u64, segment_bytes: u64) -> Kept {
    Kept {
        keeper: keeper.clone(),
        kind: Kind::Original,
        reduction: reduction(1),
        owner: ProcessId::first(1),
        bytes,
        segment_bytes: NonZeroU64::new(segment_bytes),
        region_offset: None,
        checksum: None,
    }
}

#[tokio::test]
async fn a_window_of_what_is_kept_is_read_from_afar() {
    const BYTES: usize = 3_000_001;
    let directory = tempfile::tempdir().unwrap();
    let (windows, target) = serve().await;
    let reader = Tcp::new(SECRET, JOB, ProcessId::first(2));
    let content = Bytes::from(value(1, BYTES));
    let keeper = Arc::new(Keeper::new(config(directory.path())));
    let segments =
        |len| (0..BYTES.div_ceil(len)).map(move |index| (index, index * len..BYTES.min((index + 1) * len)));

    for (sequence, medium) in MEDIA.into_iter().enumerate() {
        let reduction = reduction(sequence as u64);
        let whole = RecordKey { reduction, owner: ProcessId::first(1), segment: None };
        keeper.keep(Kind::Original, whole, content.clone(), medium).await.unwrap();
        let window = Kept { reduction, ..kept(&keeper, BYTES as u64, 0) };
        conformance::check_window(&reader, &target, &windows, Content::Kept(window.into()), &content).await;
        for len in [100_000, 777_777] {
            let reduction = ReductionId::new("in segments", (sequence * 1_000_000 + len) as u64);
            for (index, range) in segments(len) {
                let key = RecordKey { reduction, segment: Some(SegmentIndex(index as u32)), ..whole };
                keeper.keep(Kind::Original, key, content.slice(range), medium).await.unwrap();
            }
            let window = Kept { reduction, ..kept(&keeper, BYTES as u64, len as u64) };
            conformance::check_window(&reader, &target, &windows, Content::Kept(window.into()), &content)
                .await;
        }
    }
    assert!(windows.is_empty());
    keeper.close().await;
}

#[tokio::test]
async fn what_cannot_be_read_reaches_the_reader_as_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (windows, target) = serve().await;
    let reader = Tcp::new(SECRET, JOB, ProcessId::first(2));
    let segments: Vec<_> = (0..3).map(|index| (key(1, index), value(index.into(), 50_000))).collect();
    let keeper = Arc::new(Keeper::new(config(directory.path())));
    for (key, value) in [&segments[0], &segments[2]] {
        keeper.keep(Kind::Original, *key, value.clone(), Medium::Memory).await.unwrap();
    }
    // Segments that were never kept, and a last one that is longer than it should be.
    let window = kept(&keeper, 200_000, 50_000);
    let shorter = kept(&keeper, 149_999, 50_000);
    let window = windows.publish(Content::Kept(window.into())).unwrap();
    let shorter = windows.publish(Content::Kept(shorter.into())).unwrap();
    let read = |window, start, len| {
        let (reader, target) = (&reader, &target);
        async move { reader.read(target, window, ByteRange { start, len }).await }
    };
    assert!(*read(&window, 10, 49_990).await.unwrap() == segments[0].1[10..]);
    for (window, start, len) in
        [(&window, 50_000, 1), (&window, 0, 150_000), (&window, 150_000, 1), (&shorter, 140_000, 9)]
    {
        let result = read(window, start, len).await;
        assert!(matches!(result, Err(ReadError::Damaged)), "{start} + {len}: {result:?}");
    }
    // The connection, and what is whole, are as good as before.
    assert!(*read(&window, 100_000, 50_000).await.unwrap() == segments[2].1);
    windows.release(&window);
    let result = read(&window, 50_000, 1).await;
    assert!(matches!(result, Err(ReadError::Released)), "{result:?}");
}
