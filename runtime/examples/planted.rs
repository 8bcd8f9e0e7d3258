//! Defects on purpose. `scripts/sanitize` wants each sanitizer to find its own before it believes that there are no
//! others: one that is not there finds nothing, too.
//!
//! ```console
//! $ planted race      # for the thread sanitizer
//! $ planted overrun   # for the address sanitizer
//! $ planted freed     # for the address sanitizer, too
//! ```

use std::{cell::UnsafeCell, hint::black_box, process::ExitCode, sync::Barrier, thread};

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("race") => race(),
        Some("overrun") => overrun(),
        Some("freed") => freed(),
        _ => {
            eprintln!("say which defect: race, overrun or freed");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Two threads write to one place, and nothing keeps them apart.
fn race() {
    struct Shared(UnsafeCell<u64>);
    // SAFETY: there is none. That is the defect.
    unsafe impl Sync for Shared {}

    let shared = Shared(UnsafeCell::new(0));
    // Without it one thread could end before the other begins, and what the library does in between could order
    // them.
    let both_run = Barrier::new(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let shared = &shared;
                both_run.wait();
                for number in 0..1000 {
                    // SAFETY: there is none. That is the defect.
                    unsafe { *shared.0.get() = black_box(number) };
                }
            });
        }
    });
    println!("{}", shared.0.into_inner());
}

/// Reads a word of an allocation that was given back.
fn freed() {
    let words = vec![1u64; black_box(16)];
    let first = words.as_ptr();
    drop(words);
    // SAFETY: there is none. That is the defect.
    let after = unsafe { *black_box(first) };
    println!("{after}");
}

/// Reads a word behind the end of an allocation.
fn overrun() {
    let words = vec![1u64; black_box(16)];
    // SAFETY: there is none. That is the defect.
    let behind = unsafe { *words.as_ptr().add(black_box(words.len())) };
    println!("{behind}");
}
