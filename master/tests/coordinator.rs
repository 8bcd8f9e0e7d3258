//! The order in which the master hears of the board and of everything else.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    iter,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use common::spec;
use everfold_master::{Action, Coordinator, Event, Master, Policy, coordinator::Coming};
use everfold_protocol::{
    AgentId, Epoch, JobId, ProcessId, Rank, ReductionId, Timestamp,
    board::{Board, Clerk, Entry},
    message::{Contribution, Data, Ending, FromAgent, Header, Peer, ToMaster},
    spec::{BodyKind, Delivery, ElementType, Operation},
};

const JOB: JobId = JobId(1);
const RANKS: u32 = 3;
const BODY: [u8; 8] = [1; 8];

type Words = Vec<AtomicU64>;

/// A job on one host, its board, and the coordinator, which all have joined.
fn job() -> (Arc<Board<Words>>, Coordinator<Words>) {
    let words = iter::repeat_with(AtomicU64::default).take(Board::<Words>::words(RANKS, BODY.len()));
    let board = Arc::new(Board::new(words.collect(), RANKS, BODY.len()));
    let master = Master::new(Timestamp::ZERO, JOB, RANKS, Policy::default());
    let mut coordinator = Coordinator::new(JOB, master, Some(Clerk::new(board.clone())));
    for rank in 0..RANKS {
        let process = ProcessId::first(Rank(rank));
        let (address, domain, agent) = (String::new(), None, None);
        let (region, bell, board) = (None, Some(1), (rank == 0).then_some(1));
        let peer = Peer { process, host: 1, pid: 0, region, bell, board, address, domain, agent };
        tell(&mut coordinator, rank, ToMaster::Join { peer, size: RANKS });
    }
    assert!(coordinator.has_board());
    (board, coordinator)
}

fn contribution(sequence: u64) -> Contribution {
    let kind = BodyKind::Array { element: ElementType::U8, operation: Operation::Sum, length: 8 };
    let spec = everfold_protocol::ReductionSpec { kind, ..spec(&[0, 1, 2], Delivery::All) };
    let data = Data::Inline(BODY.to_vec().into());
    Contribution { reduction: ReductionId::new("x", sequence), name: "x".to_owned(), spec, data }
}

/// Puts a call on the board. Returns whether there is room for it.
fn place(board: &Board<Words>, rank: u32, call: &Contribution) -> bool {
    let Contribution { reduction, name, spec, .. } = call;
    let entry = Entry { reduction: *reduction, name, spec, body: Some(&BODY) };
    board.place(Rank(rank), Duration::ZERO, &entry).is_some()
}

/// Lets the coordinator hear of something and act upon it. Returns which ranks' contributions the master has
/// taken in, in order.
fn hear(coordinator: &mut Coordinator<Words>, event: Event) -> Vec<u32> {
    coordinator.hear(event);
    let mut contributed = Vec::new();
    loop {
        while let Some(coming) = coordinator.poll_coming() {
            if let Coming::Event(Event::Message { header, message }) = &coming
                && matches!(message, ToMaster::Contribute(_))
            {
                contributed.push(header.sender.rank.0);
            }
            coordinator.take_in(Timestamp::ZERO, coming);
        }
        let Some(action) = coordinator.poll_action() else { return contributed };
        drop::<Action>(action);
    }
}

fn tell(coordinator: &mut Coordinator<Words>, rank: u32, message: ToMaster) -> Vec<u32> {
    let header = Header { job: JOB, epoch: Epoch(0), sender: ProcessId::first(Rank(rank)) };
    hear(coordinator, Event::Message { header, message })
}

#[test]
fn a_contribution_on_the_board_comes_before_a_message_about_the_same_reduction() {
    let (board, mut coordinator) = job();
    assert!(place(&board, 1, &contribution(0)) && place(&board, 2, &contribution(1)));
    let contributed = tell(&mut coordinator, 0, ToMaster::Contribute(Box::new(contribution(0))));
    assert_eq!(contributed, [1, 0], "that of rank 2 is to another reduction, which may yet be complete");
}

#[test]
fn who_calls_nothing_more_is_heard_after_all_that_lies_on_the_board() {
    let (board, mut coordinator) = job();
    assert!(place(&board, 1, &contribution(0)));
    assert_eq!(tell(&mut coordinator, 2, ToMaster::Closing), [1]);
    assert!(!place(&board, 0, &contribution(0)), "no round can be complete any more");
}

#[test]
fn after_a_failure_the_board_takes_nothing() {
    let (board, mut coordinator) = job();
    assert!(place(&board, 1, &contribution(0)));
    let contributed = hear(&mut coordinator, Event::Disconnected(ProcessId::first(Rank(2))));
    assert_eq!(contributed, [1], "it was there before");
    assert!(!place(&board, 0, &contribution(1)), "no round can be complete any more");
}

#[test]
fn a_reduction_that_is_over_leaves_the_board_as_it_was() {
    let (board, mut coordinator) = job();
    tell(&mut coordinator, 0, ToMaster::Contribute(Box::new(contribution(0))));
    assert!(!place(&board, 2, &contribution(0)), "the master works on it");
    let mut other = contribution(0);
    other.spec.kind = BodyKind::Array { element: ElementType::U8, operation: Operation::Max, length: 8 };
    tell(&mut coordinator, 1, ToMaster::Contribute(Box::new(other)));
    assert_eq!(coordinator.master().reductions().count(), 0, "the ranks disagree");
    assert!(place(&board, 2, &contribution(0)), "what shares its mark may lie there again");
}

/// What the coordinator lets its master hear of, in order.
fn coming(coordinator: &mut Coordinator<Words>, event: Event) -> Vec<String> {
    coordinator.hear(event);
    let coming = iter::from_fn(|| coordinator.poll_coming());
    let told = |coming: Coming| match coming {
        Coming::Event(Event::Agent(agent, FromAgent::Ended { process, ending })) => {
            format!("agent {}: {process}: {ending}", agent.0)
        }
        Coming::Event(Event::Disconnected(process)) => format!("{process} has hung up"),
        other => format!("{other:?}"),
    };
    coming.map(told).collect()
}

#[test]
fn the_end_of_a_process_waits_until_its_connection_has_broken_and_comes_before_that() {
    let (_board, mut coordinator) = job();
    let process = |rank| ProcessId::first(Rank(rank));
    let ended = |rank| {
        let said = FromAgent::Ended { process: process(rank), ending: Ending::Code(3) };
        Event::Agent(AgentId(7), said)
    };
    [0, 1].into_iter().for_each(|rank| coordinator.connect(process(rank)));
    let told = |rank| format!("agent 7: {}: it ended with exit code 3", process(rank));
    let hung_up = |rank| format!("{} has hung up", process(rank));
    assert!(coming(&mut coordinator, ended(1)).is_empty(), "it may have said more");
    assert_eq!(coming(&mut coordinator, ended(2)), [told(2)], "it never came, or has hung up before");
    assert_eq!(coming(&mut coordinator, Event::Disconnected(process(1))), [told(1), hung_up(1)]);
    assert_eq!(coming(&mut coordinator, Event::Disconnected(process(1))), [hung_up(1)]);
    assert_eq!(coming(&mut coordinator, Event::Disconnected(process(0))), [hung_up(0)]);
    assert_eq!(coming(&mut coordinator, ended(0)), [told(0)]);
}
