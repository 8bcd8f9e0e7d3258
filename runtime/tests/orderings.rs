//! What processes share without a lock, in every order in which processors may see it: a model, with the code
//! that runs.

extern crate alloc;

use std::{iter, sync::Arc, time::Duration};

// The board finds its words in its own crate, which is this one here.
use everfold_protocol::*;
use everfold_protocol::{
    message::{Contribution, Data, ToMaster},
    spec::{BodyKind, Delivery, ElementType, Operation, Order, Protection},
};
use loom::thread;

use self::{
    atomic::{AtomicU64, Ordering::Relaxed},
    board::{Board, Clerk, Entry, Round, Spot, Stage},
};

/// Atomics of which all orders are tried.
mod atomic {
    use loom::sync::atomic::AtomicU64 as Model;

    pub use loom::sync::atomic::{Ordering, fence};

    /// The model knows sequential consistency of fences only: here there is one on both sides of an access
    /// that asks for it.
    #[derive(Debug)]
    pub struct AtomicU64(Model);

    impl AtomicU64 {
        pub fn new(value: u64) -> Self {
            Self(Model::new(value))
        }

        pub fn load(&self, ordering: Ordering) -> u64 {
            fenced(ordering, || self.0.load(ordering))
        }

        pub fn store(&self, value: u64, ordering: Ordering) {
            fenced(ordering, || self.0.store(value, ordering));
        }

        pub fn fetch_add(&self, value: u64, ordering: Ordering) -> u64 {
            fenced(ordering, || self.0.fetch_add(value, ordering))
        }

        pub fn fetch_sub(&self, value: u64, ordering: Ordering) -> u64 {
            fenced(ordering, || self.0.fetch_sub(value, ordering))
        }

        pub fn fetch_or(&self, value: u64, ordering: Ordering) -> u64 {
            fenced(ordering, || self.0.fetch_or(value, ordering))
        }

        pub fn fetch_and(&self, value: u64, ordering: Ordering) -> u64 {
            fenced(ordering, || self.0.fetch_and(value, ordering))
        }

        pub fn compare_exchange(
            &self,
            from: u64,
            to: u64,
            ordering: Ordering,
            or: Ordering,
        ) -> Result<u64, u64> {
            fenced(ordering, || self.0.compare_exchange(from, to, ordering, or))
        }
    }

    fn fenced<T>(ordering: Ordering, access: impl FnOnce() -> T) -> T {
        let is_consistent = matches!(ordering, Ordering::SeqCst);
        if is_consistent {
            fence(Ordering::SeqCst);
        }
        let result = access();
        if is_consistent {
            fence(Ordering::SeqCst);
        }
        result
    }
}
#[allow(dead_code, unused_imports)]
#[path = "../../protocol/src/board/mod.rs"]
mod board;
#[path = "../src/memory/seqlock.rs"]
mod seqlock;

const RANKS: u32 = 2;
const BODY_BYTES: usize = 8;

/// Tries orders in which threads give way to each other so many times; they wait for each other as often as
/// they want.
fn model(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(check);
}

#[test]
fn what_was_read_under_one_generation_is_what_was_published() {
    model(3, || {
        let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)));
        let of_owner = shared.clone();
        let owner = thread::spawn(move || {
            let (word, first, last) = &*of_owner;
            for generation in 1..=2 {
                first.store(generation, Relaxed);
                last.store(generation, Relaxed);
                seqlock::open(word, generation);
                seqlock::close(word);
            }
            // Somebody else's.
            first.store(9, Relaxed);
        });
        let (word, first, last) = &*shared;
        for generation in 1..=2 {
            if seqlock::is_open(word, generation) {
                let read = (first.load(Relaxed), last.load(Relaxed));
                if seqlock::is_still_open(word, generation) {
                    assert_eq!(read, (generation, generation));
                }
            }
        }
        owner.join().expect("it does not panic");
    });
}

fn board() -> Arc<Board<Vec<AtomicU64>>> {
    let words = Board::<Vec<AtomicU64>>::words(RANKS, BODY_BYTES);
    let memory = iter::repeat_with(|| AtomicU64::new(0)).take(words).collect();
    Arc::new(Board::new(memory, RANKS, BODY_BYTES))
}

fn contribution(rank: u32) -> Contribution {
    Contribution {
        reduction: ReductionId::new("sum", 0),
        name: "sum".to_owned(),
        spec: ReductionSpec {
            group: Path::range(0, RANKS),
            delivery: Delivery::All,
            order: Order::Arrival,
            kind: BodyKind::Array { element: ElementType::U64, operation: Operation::Sum, length: 1 },
            deadline: None,
            protection: Protection::None,
            allow_missing: false,
            trace: false,
        },
        data: Data::Inline(body(rank).to_vec().into()),
    }
}

fn body(rank: u32) -> [u8; BODY_BYTES] {
    (u64::from(rank) + 7).to_ne_bytes()
}

fn place(board: &Board<Vec<AtomicU64>>, rank: u32) -> Option<(Spot, bool)> {
    let Contribution { reduction, name, spec, .. } = &contribution(rank);
    let entry = Entry { reduction: *reduction, name, spec, body: Some(&body(rank)) };
    board.place(Rank(rank), Duration::ZERO, &entry)
}

/// Waits until a round is not open any more. Whether it is complete; then it is what all have contributed.
fn wait(board: &Arc<Board<Vec<AtomicU64>>>, rank: u32, spot: Spot) -> bool {
    while board.stage(Rank(rank), spot) == Stage::Open {
        thread::yield_now();
    }
    let Some(round) = Round::at(spot, board, Rank(rank)) else { return false };
    for other in 0..RANKS {
        let mut read = [0; BODY_BYTES];
        round.read(Rank(other), 0, &mut read);
        assert_eq!(read, body(other));
    }
    round.leave();
    true
}

#[test]
fn a_round_is_complete_and_read_as_it_was_written() {
    model(2, || {
        let board = board();
        let others = board.clone();
        let other = thread::spawn(move || {
            let (spot, completes) = place(&others, 1).expect("the cell is free");
            assert!(wait(&others, 1, spot));
            completes
        });
        let (spot, completes) = place(&board, 0).expect("the cell is free");
        assert!(wait(&board, 0, spot));
        assert_ne!(completes, other.join().expect("it does not panic"), "one of them completes it");
    });
}

#[test]
fn who_falls_asleep_sees_what_is_complete_or_is_woken_up() {
    model(2, || {
        let board = board();
        board.watch(Rank(1));
        let (spot, _) = place(&board, 1).expect("the cell is free");
        let others = board.clone();
        let other = thread::spawn(move || {
            place(&others, 0).expect("it is about the same reduction");
            others.sleepers(Rank(0)).any(|rank| rank == Rank(1))
        });
        board.sleep(Rank(1));
        let sees = board.stage(Rank(1), spot) == Stage::Complete;
        let is_woken = other.join().expect("it does not panic");
        assert!(sees || is_woken);
    });
}

#[test]
fn what_the_master_takes_counts_once() {
    model(2, || {
        let board = board();
        let others = board.clone();
        // Rank 1 contributes in a message, and so the master takes what lies on the board.
        let master = thread::spawn(move || {
            let mut clerk = Clerk::new(others);
            let taken = clerk.hear(&ToMaster::Contribute(Box::new(contribution(1))));
            for (_, contribution) in &taken {
                assert_eq!(contribution.data, Data::Inline(body(0).to_vec().into()));
            }
            taken.len()
        });
        let placed = place(&board, 0).map(|(spot, _)| spot);
        let told = master.join().expect("it does not panic");
        // What it has not taken, rank 0 sees that it has to tell.
        let taken = placed.is_some_and(|spot| board.stage(Rank(0), spot) == Stage::Taken);
        assert_eq!((told, placed.is_some()), (usize::from(taken), taken));
    });
}
