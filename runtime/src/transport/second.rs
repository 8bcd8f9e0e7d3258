//! A second way to the memory of other hosts, beside TCP: a library that the application has brought along,
//! such as MPI. For each host the quicker way is measured and taken.
//!
//! The second way may fail at any time, or bring nothing: MPI reads from a dead process hang. Then the read
//! goes over TCP, and so do all later reads from that host.

use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, Instant},
};

use dashmap::{DashMap, mapref::one::RefMut};
use everfold_protocol::message::{ByteRange, Peer, WindowRef};

use super::{Fetched, OneSidedRead, ReadError};
use crate::memory::region::Region;

/// Reads regions on other hosts, and shows the one of this process.
pub trait SecondWay: OneSidedRead + fmt::Debug {
    /// Shows this region, or its beginning. To be called once, before others read it.
    ///
    /// # Errors
    /// What the library says, for instance that no more memory may be pinned.
    fn show(&self, region: &Region) -> io::Result<()>;

    /// Whether it leads to this window.
    fn leads_to(&self, peer: &Peer, window: &WindowRef) -> bool;

    /// Reads nothing more. To be called before the library ends.
    fn end(&self);
}

/// The second way, and the hosts where it is the quicker one.
#[derive(Debug)]
pub(crate) struct Ways {
    second: Arc<dyn SecondWay>,
    choices: DashMap<u64, Choice>,
}

impl Ways {
    /// Nothing is known of any host.
    pub fn new(second: Arc<dyn SecondWay>) -> Self {
        Self { second, choices: DashMap::new() }
    }

    /// Reads a window the second way if that is the quicker one, or is to be tried; else, or if the second
    /// way brings nothing, as `first` does.
    pub async fn read(
        &self,
        peer: &Peer,
        window: &WindowRef,
        range: ByteRange,
        first: impl Future<Output = Result<Fetched, ReadError>>,
    ) -> Result<Fetched, ReadError> {
        if !self.second.leads_to(peer, window) {
            return first.await;
        }
        let way = self.choice(peer).next();
        let begun = Instant::now();
        let read = match way {
            Way::First => first.await,
            Way::Second => match self.second.read(peer, window, range).await {
                Err(ReadError::Unreachable(error)) => {
                    tracing::debug!(host = peer.host, %error, "the second way brings nothing");
                    self.choice(peer).close();
                    return first.await;
                }
                read => read,
            },
        };
        if read.is_ok() {
            let mut choice = self.choice(peer);
            choice.took(way, range.len, begun.elapsed());
            if way == Way::Second && choice.second.reads == TRIALS {
                tracing::debug!(host = peer.host, choice = ?*choice, "the second way was tried");
            }
        }
        read
    }

    fn choice(&self, peer: &Peer) -> RefMut<'_, u64, Choice> {
        self.choices.entry(peer.host).or_default()
    }
}

/// A way to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    First,
    Second,
}

/// Until the second way has brought anything, one of this many reads is risked.
const RISK: u32 = 32;
/// Reads the second way before one is chosen, every other read.
const TRIALS: u32 = 8;
/// Of this many reads, one tries the other way again.
const RETRIAL: u32 = 128;
/// A read takes about as long as so many bytes do, besides its own.
const OVERHEAD_BYTES: u64 = 32 << 10;
/// By how much the second way has to be quicker.
const GAIN: f64 = 1.125;
/// The weight of the latest read.
const LATEST: f64 = 0.125;

/// Which way to one host is the quicker one.
#[derive(Debug, Default)]
struct Choice {
    reads: u32,
    first: Pace,
    second: Pace,
    is_closed: bool,
}

impl Choice {
    /// The way of the next read.
    fn next(&mut self) -> Way {
        if self.is_closed {
            return Way::First;
        }
        let tries_other = self.reads.is_multiple_of(match self.second.reads {
            0 => RISK,
            reads if reads < TRIALS => 2,
            _ => RETRIAL,
        });
        self.reads = self.reads.wrapping_add(1);
        match self.is_second_quicker() == tries_other {
            true => Way::First,
            false => Way::Second,
        }
    }

    fn is_second_quicker(&self) -> bool {
        self.second.reads >= TRIALS && self.second.ns_per_byte * GAIN < self.first.ns_per_byte
    }

    fn took(&mut self, way: Way, bytes: u64, time: Duration) {
        let pace = match way {
            Way::First => &mut self.first,
            Way::Second => &mut self.second,
        };
        pace.add(time.as_nanos() as f64 / (bytes + OVERHEAD_BYTES) as f64);
    }

    /// The second way has brought nothing.
    fn close(&mut self) {
        self.is_closed = true;
    }
}

/// How long a byte takes.
#[derive(Debug, Default)]
struct Pace {
    reads: u32,
    ns_per_byte: f64,
}

impl Pace {
    fn add(&mut self, ns_per_byte: f64) {
        self.reads = self.reads.saturating_add(1);
        let weight = LATEST.max(1.0 / f64::from(self.reads));
        self.ns_per_byte += weight * (ns_per_byte - self.ns_per_byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `reads` reads go each way, if a read takes so many microseconds.
    fn run(choice: &mut Choice, first_us: u64, second_us: u64, reads: u32) -> (u32, u32) {
        let mut ways = (0, 0);
        for _ in 0..reads {
            let way = choice.next();
            let (count, us) = match way {
                Way::First => (&mut ways.0, first_us),
                Way::Second => (&mut ways.1, second_us),
            };
            *count += 1;
            choice.took(way, 1 << 20, Duration::from_micros(us));
        }
        ways
    }

    #[test]
    fn the_quicker_way_is_taken() {
        let (first, second) = run(&mut Choice::default(), 100, 50, 1000);
        assert!(first < 20 && second > 980, "{first} and {second}");
        let (first, second) = run(&mut Choice::default(), 50, 100, 1000);
        assert!(first > 980 && second < 20, "{first} and {second}");
    }

    #[test]
    fn equal_ways_stay_with_ours() {
        let (first, _) = run(&mut Choice::default(), 100, 95, 1000);
        assert!(first > 980, "{first}");
    }

    #[test]
    fn a_way_that_becomes_slow_is_left() {
        let mut choice = Choice::default();
        run(&mut choice, 100, 50, 1000);
        run(&mut choice, 100, 500, 1000);
        let (first, second) = run(&mut choice, 100, 500, 1000);
        assert!(first > 980, "{first} and {second}");
    }

    #[test]
    fn a_way_that_brought_nothing_is_never_tried_again() {
        let mut choice = Choice::default();
        run(&mut choice, 100, 50, 100);
        choice.close();
        assert_eq!(run(&mut choice, 100, 50, 1000), (1000, 0));
    }

    #[test]
    fn few_reads_are_risked_until_something_has_come() {
        let mut choice = Choice::default();
        let mut count = |reads| (0..reads).filter(|_| choice.next() == Way::Second).count();
        assert_eq!(count(RISK), 1);
        assert_eq!(count(10 * RISK), 10);
        choice.took(Way::Second, 1 << 20, Duration::from_micros(50));
        let seconds = (0..100).filter(|_| choice.next() == Way::Second).count();
        assert_eq!(seconds, 50, "now it is compared");
    }
}
