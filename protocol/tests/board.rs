//! The board among threads: each contribution counts once, in any order of looks.

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

use everfold_protocol::board::{
    Board, Clerk, Entry, Fate, Found, Round, Spot, Stage, Taken, Ticket, Tickets,
};
use everfold_protocol::{
    Path, Rank, ReductionId,
    message::{Contribution, Data, ToMaster},
    report::Report,
    spec::{BodyKind, Delivery, ElementType, Operation, Order, Protection, ReductionSpec},
};

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

fn entry(contribution: &Contribution) -> Entry<'_> {
    let Contribution { reduction, name, spec, data } = contribution;
    let body = match data {
        Data::Inline(bytes) => Some(&bytes[..]),
        _ => None,
    };
    Entry { reduction: *reduction, name, spec, body }
}

fn place(board: &Board<Words>, rank: u32, contribution: &Contribution) -> Option<bool> {
    board.place(Rank(rank), NOW, &entry(contribution)).map(|(_, completes)| completes)
}

/// Takes what a complete round yields, and checks that it is what all have contributed.
fn take(board: &Arc<Board<Words>>, rank: u32, spot: Spot, sequence: u64) -> Report {
    let round = Round::at(spot, board, Rank(rank)).expect("it is complete");
    for rank in 0..RANKS {
        let Data::Inline(body) = contribution(rank, sequence).data else { unreachable!() };
        assert_eq!(round.len_of(Rank(rank)), Some(body.len()));
        let mut copy = vec![0; body.len() - 8];
        round.read(Rank(rank), 8, &mut copy);
        assert_eq!(copy, body[8..]);
    }
    let report = round.report(NOW * 4, &contribution(rank, sequence).spec);
    round.leave();
    report
}

#[test]
fn a_complete_round_tells_everyone_what_all_have_contributed() {
    let board = board();
    let mut spots = Vec::new();
    for rank in [1, 0, 2] {
        assert!(spots.iter().all(|(rank, spot)| board.stage(Rank(*rank), *spot) == Stage::Open));
        let placed = board.place(Rank(rank), NOW * (rank + 1), &entry(&contribution(rank, 5)));
        let (spot, completes) = placed.unwrap();
        assert_eq!(completes, rank == 2);
        spots.push((rank, spot));
    }
    assert_eq!(Clerk::new(board.clone()).clear().taken, []);
    for &(rank, spot) in &spots {
        assert_eq!(board.stage(Rank(rank), spot), Stage::Complete);
        let report = take(&board, rank, spot, 5);
        assert_eq!((report.phases.arriving, report.phases.folding), (NOW * 2, NOW));
        assert_ne!(board.stage(Rank(rank), spot), Stage::Complete, "it has been told");
    }
    assert_eq!(place(&board, 0, &contribution(0, 5 + 8)), Some(false), "the cell is free again");
}

#[test]
fn what_is_taken_back_is_not_there_any_more() {
    let board = board();
    let (spot, _) = board.place(Rank(0), NOW, &entry(&contribution(0, 2))).unwrap();
    assert_eq!(place(&board, 1, &contribution(1, 2)), Some(false));
    assert!(board.withdraw(Rank(0), spot) && !board.withdraw(Rank(0), spot));
    assert_eq!(Clerk::new(board.clone()).clear().taken, [(Rank(1), contribution(1, 2))]);
    let (spot, _) = board.place(Rank(0), NOW, &entry(&contribution(0, 3))).unwrap();
    assert_eq!([1, 2].map(|rank| place(&board, rank, &contribution(rank, 3))), [Some(false), Some(true)]);
    assert!(!board.withdraw(Rank(0), spot), "it is complete");
}

/// Each word of a board holds the same: ranks that the job does not have, lengths without end.
#[test]
fn whatever_others_write_is_bits_only() {
    let words = iter::repeat_with(AtomicU64::default).take(Board::<Words>::words(RANKS, BODY_BYTES));
    let words: Arc<[AtomicU64]> = words.collect();
    let fill = |value| words.iter().for_each(|word| word.store(value, SeqCst));
    let board = Arc::new(Board::new(words.clone(), RANKS, BODY_BYTES));
    let all = (1 << 48) - 1;
    for value in [1 << 47, all, 1 << 62 | 1 << 47, 1 << 62 | all, u64::MAX] {
        fill(value);
        let mut clerk = Clerk::new(board.clone());
        let found = [clerk.look(), clerk.look(), clerk.clear(), clerk.close()];
        for Found { taken, late } in found {
            assert_eq!(taken, [], "{value:#x}");
            assert!(late.iter().all(|rank| rank.0 < RANKS), "{value:#x}: {late:?}");
        }
        assert!(board.place(Rank(0), NOW, &entry(&contribution(0, 5))).is_none());
    }
    fill(0);
    let spots = [0, 1, 2].map(|rank| board.place(Rank(rank), NOW, &entry(&contribution(rank, 5))).unwrap().0);
    let round = Round::at(spots[0], &board, Rank(0)).expect("it is complete");
    let mut copy = [7; 7];
    for (value, len) in [(0, Some(0)), (u64::MAX, None)] {
        fill(value);
        assert_eq!(round.len_of(Rank(1)), len);
        round.read(Rank(1), 8, &mut copy);
        assert_eq!(copy, [7; 7], "there is nothing");
    }
}

/// A lost wake-up makes this hang.
#[test]
fn whoever_sleeps_is_woken_up_and_nobody_else_has_to_be() {
    const ROUNDS: u64 = 20_000;
    let board = board();
    let threads = Mutex::new(vec![None; RANKS as usize]);
    let (together, spared) = (Barrier::new(RANKS as usize), AtomicUsize::new(0));
    let (board, threads, together, spared) = (&board, &threads, &together, &spared);
    thread::scope(|scope| {
        for rank in 0..RANKS {
            scope.spawn(move || {
                threads.lock().unwrap()[rank as usize] = Some(thread::current());
                together.wait();
                let threads: Vec<_> = threads.lock().unwrap().iter().flatten().cloned().collect();
                for sequence in 0..ROUNDS {
                    let mine = contribution(rank, sequence);
                    let (spot, completes) = board.place(Rank(rank), NOW, &entry(&mine)).unwrap();
                    if completes {
                        let sleepers: Vec<_> = board.sleepers(Rank(rank)).collect();
                        assert!(!sleepers.contains(&Rank(rank)));
                        spared.fetch_add(RANKS as usize - 1 - sleepers.len(), SeqCst);
                        sleepers.into_iter().for_each(|rank| threads[rank.index()].unpark());
                    }
                    let is_open = || board.stage(Rank(rank), spot) == Stage::Open;
                    if (sequence + u64::from(rank)).is_multiple_of(2) {
                        board.watch(Rank(rank));
                        (0..sequence % 7).take_while(|_| is_open()).for_each(|_| thread::yield_now());
                        board.sleep(Rank(rank));
                    }
                    while is_open() {
                        thread::park();
                    }
                    take(board, rank, spot, sequence);
                }
            });
        }
    });
    assert!(spared.load(SeqCst) > 0, "some have watched");
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

/// Nobody would remove the marks of what comes late, and the clerk would remember all of them.
#[test]
fn a_closed_board_is_not_marked() {
    let words = iter::repeat_with(AtomicU64::default).take(Board::<Words>::words(RANKS, BODY_BYTES));
    let words: Arc<[AtomicU64]> = words.collect();
    let seen = || words.iter().map(|word| word.load(SeqCst)).collect::<Vec<u64>>();
    let mut clerk = Clerk::new(Arc::new(Board::new(words.clone(), RANKS, BODY_BYTES)));
    let message = |sequence| ToMaster::Contribute(Box::new(contribution(0, sequence)));
    let unmarked = seen();
    assert_eq!(clerk.hear(&message(0)), []);
    assert_ne!(seen(), unmarked, "the master works on it");
    clerk.close();
    let closed = seen();
    assert_eq!(clerk.hear(&message(1)), []);
    assert_eq!(seen(), closed, "no rank looks for a mark any more");
    [0, 1].into_iter().for_each(|sequence| clerk.end(ReductionId::new("sum", sequence)));
    assert_eq!(seen(), closed, "no mark is remembered");
}

/// A process of rank 1 that comes after another one makes this call.
fn call_again(board: &Arc<Board<Words>>, call: Contribution) -> Option<Fate<Words>> {
    let mut tickets = Tickets::new(Rank(1), board.clone(), 1 << 10);
    let Contribution { reduction, name, spec, data } = call;
    let body = |data: &Data| match data {
        Data::Inline(_) => &[7; 15][..],
        _ => &[],
    };
    let completes = tickets.place(NOW, Ticket { reduction, name, spec, with: data }, body).ok()?;
    assert!(completes, "it is to look at once");
    tickets.settle(|_| false).pop().map(|(_, fate)| fate)
}

#[test]
fn a_later_process_finds_complete_rounds_that_the_earlier_one_has_not_left() {
    let board = board();
    let place = |rank| board.place(Rank(rank), NOW, &entry(&contribution(rank, 0))).unwrap().0;
    let spots: Vec<_> = (0..RANKS).map(place).collect();
    take(&board, 0, spots[0], 0);
    assert_eq!(Clerk::new(board.clone()).close(), Found { taken: Vec::new(), late: vec![Rank(1), Rank(2)] });
    assert!(call_again(&board, contribution(1, 1)).is_none(), "it is for the master");
    let other = ReductionSpec { order: Order::Fixed, ..contribution(1, 0).spec };
    for _ in 0..2 {
        let fate = call_again(&board, Contribution { spec: other.clone(), ..contribution(1, 0) });
        assert!(matches!(fate, Some(Fate::Diverged)));
    }
    // It may die before it has noted the outcome, again and again.
    for leaves in [false, false, true] {
        let Some(Fate::Complete(round)) = call_again(&board, contribution(1, 0)) else {
            panic!("it is there")
        };
        assert_eq!(round.len_of(Rank(1)), Some(15), "as the first process has put it there");
        if leaves {
            round.leave();
        }
    }
    assert!(call_again(&board, contribution(1, 0)).is_none(), "it has left the round");
}

#[test]
fn a_later_process_leaves_rounds_whose_outcomes_are_noted() {
    let board = board();
    let contribute = |rank| board.place(Rank(rank), NOW, &entry(&contribution(rank, 0))).unwrap().0;
    let spots: Vec<_> = (0..RANKS).map(contribute).collect();
    for rank in [0, 2] {
        take(&board, rank, spots[rank as usize], 0);
    }
    let tickets = Tickets::<_, ()>::new(Rank(1), board.clone(), 1 << 10);
    tickets.leave_noted(ReductionId::new("sum", 8));
    assert_eq!(board.stage(Rank(1), spots[1]), Stage::Complete, "that was another one");
    tickets.leave_noted(ReductionId::new("sum", 0));
    assert_eq!(place(&board, 0, &contribution(0, 8)), Some(false), "the cell is free again");
}

#[test]
fn whoever_sleeps_through_the_end_of_a_round_is_named() {
    let board = board();
    let mut clerk = Clerk::new(board.clone());
    let place = |rank| board.place(Rank(rank), NOW, &entry(&contribution(rank, 0))).unwrap().0;
    let spots: Vec<_> = (0..RANKS).map(place).collect();
    take(&board, 1, spots[1], 0);
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
                    let Some((spot, _)) = board.place(Rank(rank), NOW, &entry(&mine)) else {
                        let mut master = master.lock().unwrap();
                        let message = ToMaster::Contribute(Box::new(mine.clone()));
                        let taken = master.clerk.hear(&message);
                        master.take(taken);
                        master.take(vec![(Rank(rank), mine)]);
                        continue;
                    };
                    loop {
                        if board.stage(Rank(rank), spot) == Stage::Complete {
                            take(board, rank, spot, sequence);
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
