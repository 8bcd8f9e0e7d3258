//! What the hardware allows, measured.
//!
//! A reduction on one host has to read p bodies and to write one. [`memory_traffic`] does just that with all
//! cores and plain loads and stores: no messages, no arithmetic to speak of, no waiting. A reduction of any
//! size also takes two messages, one to the master and one from it; [`two_messages`] measures them on the
//! kind of socket that is used.

use std::{
    hint::black_box,
    io::{Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

/// Repetitions; the best one counts, because a bound is what is possible.
const TRIES: usize = 7;

/// Time to read `ranks` bodies of `bytes` bytes and to write one, on all cores.
pub fn memory_traffic(ranks: u32, bytes: u64) -> Duration {
    let words = (bytes as usize).div_ceil(8);
    let bodies: Vec<Vec<u64>> = (0..ranks).map(|rank| vec![u64::from(rank); words]).collect();
    let mut result = vec![0u64; words];
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let share = words.div_ceil(cores).max(1);
    // Short bodies are read over and over, so that the clock sees them.
    let rounds = (1 << 20) / (bytes * u64::from(ranks)).max(1) + 1;
    let all_cores = bytes * u64::from(ranks) >= 1 << 20;
    let run = |result: &mut [u64], start: usize| {
        for _ in 0..rounds {
            let mut sum = 0u64;
            for body in &bodies {
                let part = &body[start..start + result.len()];
                sum = part.iter().fold(sum, |sum, word| sum.wrapping_add(*word));
            }
            result.fill(black_box(sum));
        }
    };
    let once = |result: &mut Vec<u64>| {
        let started = Instant::now();
        if all_cores {
            thread::scope(|scope| {
                for (index, part) in result.chunks_mut(share).enumerate() {
                    scope.spawn(move || run(part, index * share));
                }
            });
        } else {
            run(result, 0);
        }
        started.elapsed() / rounds as u32
    };
    (0..TRIES).map(|_| once(&mut result)).min().unwrap_or_default()
}

/// Time for a short message to another thread and one back, over a Unix socket.
pub fn two_messages() -> std::io::Result<Duration> {
    let (here, there) = UnixStream::pair()?;
    two_messages_over(here, there)
}

/// The same over any pair of connected streams.
pub fn two_messages_over<S: Read + Write + Send + 'static>(
    mut here: S,
    mut there: S,
) -> std::io::Result<Duration> {
    let echo = thread::spawn(move || -> std::io::Result<()> {
        let mut message = [0; 64];
        while there.read(&mut message)? > 0 {
            there.write_all(&message)?;
        }
        Ok(())
    });
    let mut trips = Vec::new();
    let mut message = [7; 64];
    for _ in 0..2000 {
        let started = Instant::now();
        here.write_all(&message)?;
        here.read_exact(&mut message)?;
        trips.push(started.elapsed());
    }
    drop(here);
    let _ = echo.join();
    trips.sort_unstable();
    Ok(trips[trips.len() / 2])
}
