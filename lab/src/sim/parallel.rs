//! Independent simulations on all cores. Results come in the order of their inputs, however they were shared
//! out.

use std::{
    borrow::Cow,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::progress;

/// Applies `work` to all `items`; shows how far it is as `what`.
pub fn map<T: Sync, R: Send>(
    what: impl Into<Cow<'static, str>>,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let progress = progress::bar(items.len() as u64, what);
    let next = AtomicUsize::new(0);
    let some = || {
        let mut done = Vec::new();
        while let Some((index, item)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, item))
        } {
            done.push((index, work(item)));
            progress.inc(1);
        }
        done
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores.min(items.len())).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a simulation ends well")).collect()
    });
    progress.finish_and_clear();
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
