//! The board among threads: what counts there counts once, whoever looks at it when.

use std::{
    collections::BTreeSet,
    iter,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use everfold_protocol::{
    Path, Rank, ReductionId,
    message::{Contribution, Data, ToMaster},
    spec::{BodyKind, Delivery, ElementType, Operation, Order, Protection, ReductionSpec},
};
use everfold_worker::board::{Board, Clerk, Found, Taken};

const RANKS: u32 = 3;
const BODY_BYTES: usize = 32;

type Words = Vec<AtomicU64>;

fn board() -> Arc<Board<Words>> {
    let words = iter::repeat_with(AtomicU64::default).take(Board::<Words>::words(RANKS, BODY_BYTES));
    Arc::new(Board::new(words.collect(), RANKS, BODY_BYTES))
}

fn contribution(rank: u32, sequence: u64) -> Contribution {
    let body: Vec<u8> = iter::repeat_n([sequence as u8, rank as u8, 7], 5).flatten().collect();
    Contribution {
        reduction: ReductionId::new("sum", sequence),
        name: "sum".to_owned(),
        spec: ReductionSpec {
            group: Path::range(0, RANKS),
            delivery: Delivery::All,
            order: Order::Arrival,
            kind: BodyKind::Array {
                element: ElementType::U8,
                operation: Operation::Sum,
                length: body.len() as u64,
            },
            deadline: None,
            protection: Protection::Disk,
            allow_missing: false,
            trace: false,
        },
        data: Data::Inline(body.into()),
    }
}

const NOW: Duration = Duration::from_secs(1);

fn place(board: &Board<Words>, rank: u32, contribution: &Contribution) -> Option<bool> {
    board.place(Rank(rank), NOW, contribution).map(|(_, completes)| completes)
}

#[test]
fn a_complete_round_tells_everyone_what_all_have_contributed() {
    let board = board();
    let mut tickets = Vec::new();
    for rank in [1, 0, 2] {
        assert!(tickets.iter().all(|(rank, ticket)| board.outcome(Rank(*rank), NOW, ticket).is_none()));
        let placed = board.place(Rank(rank), NOW * (rank + 1), &contribution(rank, 5));
        let (ticket, completes) = placed.unwrap();
        assert_eq!(completes, rank == 2);
        tickets.push((rank, ticket));
    }
    assert_eq!(Clerk::new(board.clone()).clear().taken, []);
    for (rank, ticket) in &tickets {
        let finished = board.outcome(Rank(*rank), NOW * 4, ticket).unwrap();
        let task = finished.last.unwrap();
        assert_eq!((finished.reduction, task.own), (ReductionId::new("sum", 5), Path::empty()));
        let told: Vec<_> = task.sources.into_iter().map(|source| source.data).collect();
        assert_eq!(told, (0..RANKS).map(|rank| contribution(rank, 5).data).collect::<Vec<_>>());
        assert_eq!((task.range.start, task.range.len), (0, 15));
        assert_eq!((finished.report.phases.arriving, finished.report.phases.folding), (NOW * 2, NOW));
        assert!(board.outcome(Rank(*rank), NOW, ticket).is_none(), "it has been told");
    }
    assert_eq!(place(&board, 0, &contribution(0, 5 + 8)), Some(false), "the cell is free again");
}

#[test]
fn what_does_not_belong_together_does_not_meet() {
    let board = board();
    assert_eq!(place(&board, 0, &contribution(0, 1)), Some(false));
    assert_eq!(place(&board, 1, &contribution(1, 1 + 8)), None, "the cell is taken");
    let mut other = contribution(1, 1);
    other.spec.order = Order::Fixed;
    assert_eq!(place(&board, 1, &other), None, "it disagrees");
    let mut clerk = Clerk::new(board.clone());
    let taken = clerk.hear(&ToMaster::Contribute(Box::new(other)));
    assert_eq!(taken, [(Rank(0), contribution(0, 1))]);
    assert_eq!(place(&board, 2, &contribution(2, 1)), None, "the master works on it");
    clerk.end(ReductionId::new("sum", 1));
    assert_eq!(place(&board, 2, &contribution(2, 1)), Some(false), "it has forgotten it");
}

#[test]
fn what_is_too_long_or_lies_elsewhere_is_not_put_there() {
    let board = board();
    let long = Contribution { data: Data::Inline(vec![0; 1 << 20].into()), ..contribution(0, 1) };
    let wordy = Contribution { name: "x".repeat(2000), ..contribution(0, 1) };
    assert_eq!([long, wordy].map(|contribution| place(&board, 0, &contribution)), [None, None]);
    let private = Contribution { data: Data::Private, ..contribution(0, 1) };
    assert_eq!(place(&board, 0, &private), Some(false));
    assert_eq!(Clerk::new(board).clear().taken, [(Rank(0), private)]);
}

#[test]
fn a_closed_board_takes_nothing() {
    let board = board();
    assert_eq!(place(&board, 1, &contribution(1, 3)), Some(false));
    let mut clerk = Clerk::new(board.clone());
    assert_eq!(clerk.hear(&ToMaster::Leave), [(Rank(1), contribution(1, 3))]);
    assert!((0..8).all(|sequence| place(&board, 0, &contribution(0, sequence)).is_none()));
}

#[test]
fn whoever_sleeps_through_the_end_of_a_round_is_named() {
    let board = board();
    let mut clerk = Clerk::new(board.clone());
    let tickets: Vec<_> =
        (0..RANKS).map(|rank| board.place(Rank(rank), NOW, &contribution(rank, 0)).unwrap().0).collect();
    assert!(board.outcome(Rank(1), NOW, &tickets[1]).is_some());
    assert_eq!(clerk.look(), Found::default(), "they may be about to be woken up");
    assert_eq!(clerk.look(), Found { taken: Vec::new(), late: vec![Rank(0), Rank(2)] });
}

#[test]
fn what_has_just_come_is_left_for_a_while() {
    let board = board();
    let mut clerk = Clerk::new(board.clone());
    for sequence in [3, 3 + 8] {
        assert_eq!(place(&board, 2, &contribution(2, sequence)), Some(false));
        assert_eq!(clerk.look(), Found::default());
        let taken = vec![(Rank(2), contribution(2, sequence))];
        assert_eq!(clerk.look(), Found { taken, late: Vec::new() });
    }
}

/// What the master has heard, in messages and from the board.
struct Master {
    clerk: Clerk<Words>,
    heard: BTreeSet<(ReductionId, Rank)>,
}

impl Master {
    fn take(&mut self, taken: Vec<Taken>) {
        for (rank, it) in taken {
            assert_eq!(it, contribution(rank.0, it.reduction.sequence), "it is what was put there");
            let id = it.reduction;
            assert!(self.heard.insert((id, rank)), "{rank} contributes once to {id:?}");
            if (0..RANKS).all(|rank| self.heard.contains(&(id, Rank(rank)))) {
                self.clerk.end(id);
            }
        }
    }
}

#[test]
fn whatever_the_master_takes_in_between_every_contribution_counts_once() {
    const ROUNDS: u64 = 3000;
    let board = board();
    let clerk = Clerk::new(board.clone());
    let master = Mutex::new(Master { clerk, heard: BTreeSet::new() });
    let (complete, together) = (AtomicUsize::new(0), Barrier::new(RANKS as usize));
    let (board, master, complete, together) = (&board, &master, &complete, &together);
    thread::scope(|scope| {
        for rank in 0..RANKS {
            scope.spawn(move || {
                for number in 0..ROUNDS {
                    // All share a cell.
                    let sequence = number * 8;
                    let mine = contribution(rank, sequence);
                    if number.is_multiple_of(4) {
                        together.wait();
                    }
                    let Some((ticket, _)) = board.place(Rank(rank), NOW, &mine) else {
                        let mut master = master.lock().unwrap();
                        let message = ToMaster::Contribute(Box::new(mine.clone()));
                        let taken = master.clerk.hear(&message);
                        master.take(taken);
                        master.take(vec![(Rank(rank), mine)]);
                        continue;
                    };
                    loop {
                        if let Some(finished) = board.outcome(Rank(rank), NOW, &ticket) {
                            let sources = finished.last.unwrap().sources;
                            let told = sources.into_iter().map(|source| source.data);
                            assert!(told.eq((0..RANKS).map(|rank| contribution(rank, sequence).data)));
                            complete.fetch_add(1, SeqCst);
                            break;
                        }
                        let mut master = master.lock().unwrap();
                        if master.heard.contains(&(mine.reduction, Rank(rank))) {
                            break;
                        }
                        // Now and then the master becomes impatient.
                        if (number + u64::from(rank)).is_multiple_of(5) {
                            let taken = master.clerk.clear().taken;
                            master.take(taken);
                        }
                        drop(master);
                        thread::yield_now();
                    }
                }
            });
        }
    });
    let heard = &master.lock().unwrap().heard;
    let complete = complete.load(SeqCst);
    assert_eq!(complete + heard.len(), ROUNDS as usize * RANKS as usize, "each counted here or there");
    assert!(complete.is_multiple_of(RANKS as usize) && complete > 0 && !heard.is_empty());
    for (reduction, rank) in heard {
        let others = (0..RANKS).filter(|other| heard.contains(&(*reduction, Rank(*other))));
        assert_eq!(others.count(), RANKS as usize, "{reduction:?} of rank {rank} is in one hand");
    }
}
