//! How much memory something takes.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// The system's allocator, which counts what each thread has.
struct Counted;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    // A thread that ends may have no counts any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        MOST.with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: every call is passed on as it is; the counts need no memory.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size().cast_signed());
        // SAFETY: the caller promises what the system asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        add(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Does something, and panics if this thread had more than `bytes_max` bytes meanwhile, besides those that it
/// had before.
pub fn bounded<T>(bytes_max: usize, what: impl FnOnce() -> T) -> T {
    let before = NOW.get();
    MOST.set(before);
    let result = what();
    let most = MOST.get() - before;
    assert!(most <= bytes_max.cast_signed(), "{most} bytes of memory where {bytes_max} should do");
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_counts_as_well() {
        bounded(2000, || drop(vec![0u8; 1000]));
        bounded(1500, || (0..10).for_each(|_| drop(vec![0u8; 1000])));
        assert!(std::panic::catch_unwind(|| bounded(500, || drop(vec![0u8; 1000]))).is_err());
    }
}
