//! Boards on which others write anything, at any moment.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use everfold_protocol::{
    Rank, ReductionId, ReductionSpec,
    board::{Board, CELLS, Clerk, Entry, Fate, Ticket, Tickets},
    message::{Contribution, Data, ToMaster},
    spec::Delivery,
};

use crate::{input::Input, memory::bounded, messages};

const BODY_BYTES: usize = 32;

/// The words of a board. Another process writes one of them each time that somebody is about to look.
struct Shared {
    words: Vec<AtomicU64>,
    /// Which word, and what.
    writes: Vec<(usize, u64)>,
    next: AtomicUsize,
}

impl AsRef<[AtomicU64]> for Shared {
    fn as_ref(&self) -> &[AtomicU64] {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some((word, value)) = self.writes.get(next) {
            self.words[*word].store(*value, Ordering::Relaxed);
        }
        &self.words
    }
}

/// What a word may be made to hold: anything, or what says how far a round is.
fn value(input: &mut Input<'_>) -> u64 {
    match input.byte() % 4 {
        0 => input.long(),
        1 => input.number(),
        // A phase, a generation, and some ranks.
        _ => u64::from(input.byte()) << 62 | u64::from(input.byte()) << 48 | input.number() & ((1 << 48) - 1),
    }
}

/// A word of the board: of a slot, or of what stands before the slots.
fn place(input: &mut Input<'_>, words: usize) -> usize {
    let slot_words = (words - FIRST_SLOT) / CELLS;
    match input.byte() % 4 {
        0 => input.word() as usize % words,
        1 => 8 * (1 + usize::from(input.byte()) % CELLS),
        2 => usize::from(input.byte()) % FIRST_SLOT,
        // The head of a slot.
        _ => {
            (FIRST_SLOT + usize::from(input.byte()) % CELLS * slot_words + usize::from(input.byte() % 8))
                % words
        }
    }
}

/// Words before the slots.
const FIRST_SLOT: usize = 8 * (1 + CELLS) + 8 + 64;

fn reduction(of: u8) -> ReductionId {
    ReductionId { name: u64::from(of % 4), sequence: u64::from(of / 4 % 2) }
}

/// # Panics
/// If what others write makes a rank or the master do more than see bits.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let ranks = match input.byte() % 4 {
        0 => 48,
        few => u32::from(few) + 1,
    };
    let len = Board::<Shared>::words(ranks, BODY_BYTES);
    let count = input.byte() % 32;
    let before: Vec<(usize, u64)> = (0..count).map(|_| (place(&mut input, len), value(&mut input))).collect();
    let count = input.byte() % 64;
    let writes = (0..count).map(|_| (place(&mut input, len), value(&mut input))).collect();
    let words: Vec<AtomicU64> = (0..len).map(|_| AtomicU64::new(0)).collect();
    before.iter().for_each(|(word, value)| words[*word].store(*value, Ordering::Relaxed));
    let shared = Shared { words, writes, next: AtomicUsize::new(0) };
    let board = Arc::new(Board::new(shared, ranks, BODY_BYTES));
    let mut clerk = Clerk::new(board.clone());
    let mut tickets: Vec<_> =
        (0..2).map(|rank| Tickets::<Shared, Vec<u8>>::new(Rank(rank), board.clone(), u64::MAX)).collect();
    let most = 2 * 8 * len + 64 * data.len() + (256 << 10);
    bounded(most, || {
        for _ in 0..64 {
            if input.is_empty() {
                break;
            }
            step(&mut input, ranks, &board, &mut clerk, &mut tickets);
        }
    });
}

fn step(
    input: &mut Input<'_>,
    ranks: u32,
    board: &Arc<Board<Shared>>,
    clerk: &mut Clerk<Shared>,
    tickets: &mut [Tickets<Shared, Vec<u8>>],
) {
    let (kind, of) = (input.byte(), input.byte());
    let rank = usize::from(of / 64 % 2);
    let is_rank = |rank: &Rank| assert!(rank.0 < ranks, "{rank} is none of {ranks}");
    let spec = |of: u8| {
        let delivery = if of & 16 == 0 { Delivery::All } else { Delivery::Root(Rank(0)) };
        ReductionSpec { group: everfold_protocol::Path::range(0, ranks), delivery, ..messages::spec() }
    };
    match kind % 8 {
        0 | 1 => {
            let found = if kind & 8 == 0 { clerk.look() } else { clerk.clear() };
            found.late.iter().for_each(is_rank);
            found.taken.iter().for_each(|(rank, contribution)| {
                is_rank(rank);
                let Data::Inline(body) = &contribution.data else { return };
                assert!(body.len() <= 2048, "a body of {} bytes", body.len());
            });
        }
        2 => clerk.end(reduction(of)),
        3 => {
            let contribution = Contribution {
                reduction: reduction(of),
                name: "sum".to_owned(),
                spec: spec(of),
                data: Data::Private,
            };
            let heard = clerk.hear(&ToMaster::Contribute(Box::new(contribution)));
            heard.iter().for_each(|(rank, _)| is_rank(rank));
        }
        4 => {
            let ticket = Ticket {
                reduction: reduction(of),
                name: "sum".to_owned(),
                spec: spec(of),
                with: vec![of; BODY_BYTES],
            };
            let _ = tickets[rank].place(Duration::from_secs(1), ticket, |body| body);
            board.sleepers(Rank(rank as u32)).for_each(|rank| is_rank(&rank));
        }
        5 | 6 => {
            for (ticket, fate) in tickets[rank].settle(|_| kind & 8 != 0) {
                if let Fate::Complete(round) = fate {
                    let now = Duration::from_secs(u64::from(of));
                    let report = round.report(now, &ticket.spec);
                    assert_eq!(report.contributors, ticket.spec.group);
                    for rank in ticket.spec.group.iter() {
                        let mut bytes = [0; BODY_BYTES];
                        if round.len_of(rank) == Some(BODY_BYTES) {
                            round.read(rank, 0, &mut bytes[..8]);
                            round.read(rank, 8, &mut bytes[8..]);
                        }
                    }
                }
            }
        }
        _ => {
            let me = Rank(rank as u32);
            let entry = Entry { reduction: reduction(of), name: "n", spec: &spec(of), body: Some(&[of; 8]) };
            if let Some((spot, _)) = board.place(me, Duration::ZERO, &entry) {
                let _ = board.stage(me, spot);
                board.watch(me);
                board.sleep(me);
                let _ = board.withdraw(me, spot);
            }
            let _ = board.is_cleared_for(me, reduction(of));
        }
    }
}

pub fn samples() -> Vec<Vec<u8>> {
    // Two ranks place and settle; the master looks.
    let ordinary = [4u8, 1, 4, 65, 5, 1, 5, 65, 0, 0, 4, 2, 3, 2, 0, 0, 0, 0, 2, 2];
    let with = |head: &[u8]| [head, &ordinary].concat();
    vec![
        with(&[1, 0, 0]),
        with(&[1, 1, 1, 2, 2, 0, 7, 3, 0]),
        with(&[1, 0, 3, 3, 2, 3, 0, 255, 255, 255, 255, 255, 255, 255, 255, 3, 2, 4, 1, 9, 1, 3, 2, 1, 1, 5]),
        with(&[2, 2, 1, 31, 2, 0, 1, 248, 47, 1, 3, 2, 0, 1, 248, 46, 0]),
        with(&[0, 1, 1, 5, 2, 1, 1, 9, 0]),
    ]
}
