use everfold_protocol::{
    AgentId,
    message::{AgentRef, Lodging},
};

use super::*;

const ONE: ProcessId = ProcessId { rank: Rank(1), incarnation: everfold_protocol::Incarnation(0) };
const TWO: ProcessId = ProcessId { rank: Rank(2), incarnation: everfold_protocol::Incarnation(0) };
const ZERO: ProcessId = ProcessId { rank: Rank(0), incarnation: everfold_protocol::Incarnation(0) };

/// The only connection of a process.
fn by(process: ProcessId) -> Connection {
    Connection { process, number: 0 }
}

fn after(agent: &mut Agent, event: Event) -> Vec<Action> {
    agent.handle(event);
    core::iter::from_fn(|| agent.poll_action()).collect()
}

#[test]
fn the_agent_of_rank_0_hosts_the_master_once() {
    let mut agent = Agent::new(false);
    assert_eq!(after(&mut agent, Event::Hailed(by(ONE))), [Action::Welcome(ONE)]);
    assert_eq!(after(&mut agent, Event::Hailed(by(ZERO))), [Action::HostMaster(by(ZERO))]);
    assert_eq!(after(&mut agent, Event::MasterFailed), []);
    assert_eq!(
        after(&mut agent, Event::Hailed(by(ZERO))),
        [Action::HostMaster(by(ZERO))],
        "it may try again"
    );
    assert_eq!(after(&mut agent, Event::MasterStarted(by(ZERO))), [Action::Welcome(ZERO)]);
    assert_eq!(after(&mut agent, Event::Hailed(by(ZERO))), [Action::Refuse(ZERO)], "its place is taken");
    assert_eq!(after(&mut agent, Event::Ended(ZERO, Ending::Code(1))), []);
    assert_eq!(after(&mut agent, Event::Hailed(by(ZERO))), [Action::Welcome(ZERO)], "it has come back");
}

#[test]
fn the_memory_of_the_dead_is_held_until_nobody_needs_it() {
    let mut agent = Agent::new(false);
    after(&mut agent, Event::Hailed(by(ONE)));
    after(&mut agent, Event::MasterStarted(by(ZERO)));
    let ended = FromAgent::Ended { process: ONE, ending: Ending::Signal(9) };
    assert_eq!(after(&mut agent, Event::Ended(ONE, Ending::Signal(9))), [], "there is no master yet");
    let told = [Action::Tell(FromAgent::Join(Lodging::default())), Action::Tell(ended)];
    assert_eq!(after(&mut agent, Event::MasterFound(Lodging::default())), told);
    assert_eq!(after(&mut agent, Event::Ended(ONE, Ending::Unknown)), [], "it ends once");
    assert!(agent.holds(ONE));
    let forget = |process| Event::Master(ToAgent::Forget { process });
    assert_eq!(
        after(&mut agent, forget(ONE)),
        [Action::Release(ONE)],
        "the end may have been that of a wrapper"
    );
    assert_eq!(after(&mut agent, Event::HungUp(by(ONE))), [Action::Thin(ONE)]);
    assert_eq!(after(&mut agent, forget(ZERO)), [Action::Release(ZERO)], "it may use its memory");
    assert!(agent.holds(ZERO), "it was declared failed and lives on");
    assert_eq!(after(&mut agent, forget(ONE)), [], "it is forgotten already");
    assert_eq!(after(&mut agent, Event::Master(ToAgent::Farewell)), []);
    assert_eq!(after(&mut agent, Event::HungUp(by(ZERO))), [Action::Done]);
    assert_eq!(after(&mut agent, Event::Hailed(by(ONE))), [Action::Refuse(ONE)]);
}

#[test]
fn the_memory_of_one_that_was_forgotten_too_early_is_thinned_when_it_has_ended() {
    let mut agent = Agent::new(false);
    after(&mut agent, Event::Hailed(by(ONE)));
    after(&mut agent, Event::MasterFound(Lodging::default()));
    after(&mut agent, Event::HungUp(by(ONE)));
    let forget = Event::Master(ToAgent::Forget { process: ONE });
    assert_eq!(after(&mut agent, forget), [Action::Release(ONE)], "it may live on");
    assert_eq!(after(&mut agent, Event::Ended(ONE, Ending::Signal(9)))[0], Action::Thin(ONE));
    assert!(!after(&mut agent, Event::Ended(ONE, Ending::Unknown)).contains(&Action::Thin(ONE)), "once");
}

#[test]
fn a_process_that_dies_before_the_master_is_found_is_not_forgotten() {
    let mut agent = Agent::new(false);
    after(&mut agent, Event::Hailed(by(ONE)));
    assert_eq!(after(&mut agent, Event::MasterSought), []);
    assert_eq!(after(&mut agent, Event::Ended(ONE, Ending::Unknown)), [], "others may know of it");
    let ended = FromAgent::Ended { process: ONE, ending: Ending::Unknown };
    let told = [Action::Tell(FromAgent::Join(Lodging::default())), Action::Tell(ended)];
    assert_eq!(after(&mut agent, Event::MasterFound(Lodging::default())), told);
    assert_eq!(after(&mut agent, Event::MasterLost), [Action::Release(ONE), Action::Done]);
}

#[test]
fn a_rank_is_started_again_when_its_process_has_ended() {
    let mut agent = Agent::new(true);
    after(&mut agent, Event::Hailed(by(ONE)));
    after(&mut agent, Event::MasterFound(Lodging::default()));
    let [next, third] =
        [1, 2].map(|number| ProcessId { incarnation: everfold_protocol::Incarnation(number), ..ONE });
    let start = |process| Event::Master(ToAgent::Start { process, origin: None });
    let ended = |process| Action::Tell(FromAgent::Ended { process, ending: Ending::Code(1) });
    assert_eq!(after(&mut agent, Event::HungUp(by(ONE))), []);
    assert_eq!(after(&mut agent, start(next)), [], "the first one may live on");
    assert_eq!(
        after(&mut agent, Event::Ended(ONE, Ending::Code(1))),
        [ended(ONE), Action::Start { process: next, origin: None, stands_by: false }]
    );
    assert_eq!(after(&mut agent, Event::Ended(next, Ending::Code(1))), [ended(next)], "it never came");
    assert_eq!(
        after(&mut agent, start(third)),
        [Action::Start { process: third, origin: None, stands_by: false }]
    );
    assert_eq!(after(&mut agent, Event::Hailed(by(third))), [Action::Welcome(third)]);
    assert!(agent.holds(ONE) && agent.holds(third), "what the first one has left is there");
}

#[test]
fn a_process_that_ends_before_it_has_come_is_not_waited_for() {
    let mut agent = Agent::new(true);
    [ZERO, ONE].into_iter().for_each(|process| agent.handle(Event::Started(process)));
    after(&mut agent, Event::Hailed(by(ZERO)));
    after(&mut agent, Event::MasterFound(Lodging::default()));
    let ended = FromAgent::NeverCame { process: ONE, ending: Ending::Code(1) };
    assert_eq!(after(&mut agent, Event::Ended(ONE, Ending::Code(1))), [Action::Tell(ended)]);
    assert_eq!(after(&mut agent, Event::Ended(ONE, Ending::Unknown)), [], "once");

    let mut agent = Agent::new(true);
    after(&mut agent, Event::Started(ZERO));
    after(&mut agent, Event::Hailed(by(ONE)));
    assert_eq!(after(&mut agent, Event::Ended(ZERO, Ending::Signal(11))), [Action::Masterless]);

    let mut agent = Agent::new(true);
    after(&mut agent, Event::Started(ZERO));
    let ended = after(&mut agent, Event::Ended(ZERO, Ending::Code(0)));
    assert_eq!(ended, [], "programs that are none of everfold's need no master");
    assert_eq!(after(&mut agent, Event::Hailed(by(ONE))), [Action::Welcome(ONE), Action::Masterless]);
}

#[test]
fn where_nobody_has_come_the_agent_looks_for_the_master_that_waits_for_one() {
    let failed = |process| Event::Ended(process, Ending::Code(1));
    let of_one = || {
        let mut agent = Agent::new(true);
        agent.handle(Event::Started(ONE));
        agent
    };
    let mut agent = of_one();
    assert_eq!(after(&mut agent, failed(ONE)), [], "others may come");
    assert_eq!(after(&mut agent, Event::Alone), [Action::SeekMasterBriefly]);
    assert_eq!(after(&mut agent, Event::MasterSought), []);
    let told = FromAgent::NeverCame { process: ONE, ending: Ending::Code(1) };
    let told = [Action::Tell(FromAgent::Join(Lodging::default())), Action::Tell(told)];
    assert_eq!(after(&mut agent, Event::MasterFound(Lodging::default())), told);
    assert_eq!(after(&mut agent, Event::Master(ToAgent::Farewell)), [Action::Done]);

    let mut agent = of_one();
    after(&mut agent, Event::Hailed(by(ONE)));
    assert_eq!(after(&mut agent, failed(ONE)), [], "it came, and no further");
    assert_eq!(after(&mut agent, Event::Alone), [Action::SeekMasterBriefly]);
    assert_eq!(after(&mut agent, Event::MasterLost), [Action::Release(ONE), Action::Done]);

    let mut agent = of_one();
    after(&mut agent, Event::Ended(ONE, Ending::Code(0)));
    assert_eq!(after(&mut agent, Event::Alone), [Action::Done], "it may be none of everfold's");

    let mut agent = Agent::new(true);
    [ZERO, ONE].into_iter().for_each(|process| agent.handle(Event::Started(process)));
    [ONE, ZERO].into_iter().for_each(|process| agent.handle(failed(process)));
    assert_eq!(after(&mut agent, Event::Alone), [Action::Done], "there is no master");

    let mut agent = Agent::new(true);
    agent.handle(Event::Started(ZERO));
    agent.handle(Event::Hailed(by(ZERO)));
    agent.handle(Event::MasterStarted(by(ZERO)));
    agent.handle(failed(ZERO));
    assert!(after(&mut agent, Event::Alone).contains(&Action::SeekMasterBriefly), "it is here");
}

#[test]
fn where_others_wait_an_agent_says_from_the_beginning_whom_it_expects() {
    let mut agent = Agent::among_others();
    assert_eq!(after(&mut agent, Event::Started(ONE)), [Action::SeekMaster]);
    assert_eq!(after(&mut agent, Event::Started(TWO)), [], "it looks already");
    let expects = |ranks| Action::Tell(FromAgent::Expects { ranks });
    let both: Path = [1, 2].map(Rank).into_iter().collect();
    let joined = [Action::Tell(FromAgent::Join(Lodging::default())), expects(both)];
    assert_eq!(after(&mut agent, Event::MasterFound(Lodging::default())), joined);
    let three = ProcessId::first(3);
    assert_eq!(after(&mut agent, Event::Started(three)), [expects(Path::single(Rank(3)))]);

    let mut agent = Agent::new(true);
    assert_eq!(after(&mut agent, Event::Started(ONE)), [], "there are no others");
}

#[test]
fn whoever_comes_when_there_is_no_master_any_more_is_turned_away() {
    let mut agent = Agent::among_others();
    [ONE, TWO].into_iter().for_each(|process| agent.handle(Event::Started(process)));
    after(&mut agent, Event::MasterFound(Lodging::default()));
    assert_eq!(after(&mut agent, Event::Hailed(by(ONE))), [Action::Welcome(ONE)]);
    assert_eq!(after(&mut agent, Event::MasterLost), [Action::HangUp], "it may not have found the master");
    assert_eq!(after(&mut agent, Event::HungUp(by(ONE))), [], "another one is yet to come");
    assert_eq!(after(&mut agent, Event::Hailed(by(TWO))), [Action::TurnAway(TWO)]);
    assert_eq!(after(&mut agent, Event::Ended(TWO, Ending::Code(1))), [Action::Done]);
}

#[test]
fn where_rank_0_never_comes_its_agent_tells_other_hosts() {
    let of_zero = |agent: &mut Agent| {
        agent.handle(Event::Started(ZERO));
        agent.poll_action();
    };
    let mut agent = Agent::among_others();
    of_zero(&mut agent);
    assert_eq!(after(&mut agent, Event::Ended(ZERO, Ending::Code(1))), [Action::CallOff]);
    let told = FromAgent::NeverCame { process: ZERO, ending: Ending::Code(1) };
    let expects = FromAgent::Expects { ranks: Path::single(FIRST_RANK) };
    let told = [FromAgent::Join(Lodging::default()), expects, told].map(Action::Tell);
    assert_eq!(after(&mut agent, Event::MasterFound(Lodging::default())), told);
    assert_eq!(after(&mut agent, Event::Alone), [], "others are yet to hear it");
    assert_eq!(after(&mut agent, Event::Master(ToAgent::Farewell)), [Action::Done]);

    let mut agent = Agent::among_others();
    of_zero(&mut agent);
    let ended = after(&mut agent, Event::Ended(ZERO, Ending::Code(0)));
    assert_eq!(ended, [], "it may be none of everfold's");
    agent.handle(Event::Started(ONE));
    let come = after(&mut agent, Event::Hailed(by(ONE)));
    assert_eq!(come, [Action::Welcome(ONE), Action::CallOff]);

    let mut agent = Agent::among_others();
    of_zero(&mut agent);
    after(&mut agent, Event::MasterFound(Lodging::default()));
    after(&mut agent, Event::Ended(ZERO, Ending::Code(0)));
    assert_eq!(after(&mut agent, Event::Alone), [Action::Done], "nobody here is everfold's");
}

#[test]
fn an_agent_to_which_nobody_has_come_ends_when_all_is_told() {
    let mut agent = Agent::among_others();
    agent.handle(Event::Started(ONE));
    after(&mut agent, Event::MasterFound(Lodging::default()));
    let told = FromAgent::NeverCame { process: ONE, ending: Ending::Code(1) };
    assert_eq!(after(&mut agent, Event::Ended(ONE, Ending::Code(1))), [Action::Tell(told)]);
    assert_eq!(after(&mut agent, Event::Alone), [Action::Done]);

    let mut agent = Agent::among_others();
    agent.handle(Event::Started(ONE));
    after(&mut agent, Event::MasterFound(Lodging::default()));
    after(&mut agent, Event::Hailed(by(ONE)));
    after(&mut agent, Event::Ended(ONE, Ending::Code(1)));
    assert_eq!(after(&mut agent, Event::Alone), [], "others may read what it has left");
}

/// The ranks of a host come back after a pause, and others may need what the host keeps for them.
#[test]
fn an_agent_whose_processes_are_all_forgotten_stays() {
    let mut agent = Agent::among_others();
    agent.handle(Event::Started(ONE));
    agent.handle(Event::Hailed(by(ONE)));
    after(&mut agent, Event::MasterFound(Lodging::default()));
    agent.handle(Event::HungUp(by(ONE)));
    after(&mut agent, Event::Ended(ONE, Ending::Code(1)));
    assert_eq!(
        after(&mut agent, Event::Master(ToAgent::Forget { process: ONE })),
        [Action::Release(ONE), Action::Thin(ONE)]
    );
    assert_eq!(after(&mut agent, Event::Alone), [], "its rank may come back");
    let process = ProcessId { incarnation: everfold_protocol::Incarnation(1), ..ONE };
    let start = Action::Start { process, origin: None, stands_by: false };
    assert_eq!(after(&mut agent, Event::Master(ToAgent::Start { process, origin: None })), [start]);
    after(&mut agent, Event::Ended(process, Ending::Code(1)));
    assert_eq!(after(&mut agent, Event::Alone), [], "that has not come, but one had before");
    assert!(after(&mut agent, Event::Master(ToAgent::Farewell)).contains(&Action::Done));
}

/// A host that was lost and has come back has started the first processes of its ranks, which go on
/// elsewhere. One of them hails after a later process of its rank was ordered here, whose vault it must not
/// get.
#[test]
fn an_earlier_process_of_a_rank_does_not_come_any_more() {
    let mut agent = Agent::among_others();
    agent.handle(Event::Started(TWO));
    after(&mut agent, Event::MasterFound(Lodging::default()));
    let (process, origin) = standby(1);
    let start = Action::Start { process, origin: Some(origin.clone()), stands_by: true };
    assert_eq!(after(&mut agent, Event::Master(ToAgent::StandBy { process, origin })), [start]);
    assert_eq!(after(&mut agent, Event::Hailed(by(TWO))), [Action::Refuse(TWO)]);
    assert_eq!(after(&mut agent, Event::Hailed(by(process))), [Action::Welcome(process)]);
    agent.handle(Event::Ended(process, Ending::Code(1)));
    after(&mut agent, Event::HungUp(by(process)));
    assert_eq!(
        after(&mut agent, Event::Hailed(by(TWO))),
        [Action::Refuse(TWO)],
        "its vault may be needed yet"
    );
}

/// The hail of a process comes after its end: its rank is started again all the same.
#[test]
fn a_process_whose_end_was_seen_before_it_came_is_refused() {
    let mut agent = Agent::new(true);
    after(&mut agent, Event::MasterFound(Lodging::default()));
    let life = |number| ProcessId { incarnation: everfold_protocol::Incarnation(number), ..ONE };
    let order = |process| Event::Master(ToAgent::Start { process, origin: None });
    let start = |process| Action::Start { process, origin: None, stands_by: false };
    assert_eq!(after(&mut agent, order(life(1))), [start(life(1))]);
    let ended = Action::Tell(FromAgent::Ended { process: life(1), ending: Ending::Signal(9) });
    assert_eq!(after(&mut agent, Event::Ended(life(1), Ending::Signal(9))), [ended]);
    assert_eq!(after(&mut agent, Event::Hailed(by(life(1)))), [Action::Refuse(life(1))]);
    assert_eq!(after(&mut agent, order(life(2))), [start(life(2))]);
}

#[test]
fn where_nobody_is_left_the_master_is_not_looked_for_for_long() {
    let alone = |ending| {
        let mut agent = Agent::among_others();
        agent.handle(Event::Started(ONE));
        agent.handle(Event::Ended(ONE, ending));
        after(&mut agent, Event::Alone)
    };
    assert_eq!(alone(Ending::Code(1)), [Action::SeekMaster, Action::SeekMasterBriefly]);
    let ended = alone(Ending::Code(0));
    assert_eq!(ended, [Action::SeekMaster, Action::Done], "it may be none of everfold's");
}

#[test]
fn an_agent_that_nobody_needs_ends() {
    let mut agent = Agent::new(false);
    assert_eq!(after(&mut agent, Event::Alone), [Action::Done]);
    let mut agent = Agent::new(false);
    after(&mut agent, Event::Hailed(by(ZERO)));
    assert_eq!(after(&mut agent, Event::MasterFailed), [Action::Done]);
    let mut agent = Agent::new(false);
    after(&mut agent, Event::Hailed(by(ONE)));
    assert_eq!(after(&mut agent, Event::Alone), [], "somebody has come");
    assert_eq!(after(&mut agent, Event::HungUp(by(ONE))), [], "it may live on");
    assert_eq!(after(&mut agent, Event::Ended(ONE, Ending::Unknown)), [Action::Done], "all have ended");
    let mut agent = Agent::new(true);
    after(&mut agent, Event::Hailed(by(ONE)));
    assert_eq!(after(&mut agent, Event::Ended(ONE, Ending::Unknown)), [], "others are about to come");
    assert_eq!(after(&mut agent, Event::Alone), [Action::Done]);
}

/// Rank 1 was started by hand, has died and was started by hand again.
#[test]
fn what_is_seen_late_of_an_earlier_connection_is_no_news_of_the_present_one() {
    let mut agent = Agent::new(false);
    let [earlier, present] = [1, 2].map(|number| Connection { process: ONE, number });
    after(&mut agent, Event::Hailed(earlier));
    after(&mut agent, Event::MasterFound(Lodging::default()));
    after(&mut agent, Event::HungUp(earlier));
    assert_eq!(after(&mut agent, Event::Hailed(present)), [Action::Welcome(ONE)]);
    assert_eq!(after(&mut agent, Event::HungUp(earlier)), []);
    assert_eq!(after(&mut agent, Event::Hailed(earlier)), [Action::Refuse(ONE)], "its place is taken");
    assert_eq!(after(&mut agent, Event::Vanished(earlier)), [], "the present one lives");
    let forget = Event::Master(ToAgent::Forget { process: ONE });
    assert_eq!(after(&mut agent, forget), [Action::Release(ONE)]);
    assert_eq!(after(&mut agent, Event::Vanished(earlier)), [], "the present one may use its memory");
    let ended = Action::Tell(FromAgent::Ended { process: ONE, ending: Ending::Unknown });
    assert_eq!(after(&mut agent, Event::Vanished(present)), [Action::Thin(ONE), ended]);
}

#[test]
fn a_process_that_was_forgotten_and_comes_again_is_not_thinned_for_its_earlier_connection() {
    let mut agent = Agent::new(false);
    let [earlier, present] = [1, 2].map(|number| Connection { process: ONE, number });
    after(&mut agent, Event::Hailed(earlier));
    after(&mut agent, Event::MasterFound(Lodging::default()));
    after(&mut agent, Event::HungUp(earlier));
    after(&mut agent, Event::Master(ToAgent::Forget { process: ONE }));
    assert_eq!(after(&mut agent, Event::Hailed(present)), [Action::Welcome(ONE)]);
    assert_eq!(after(&mut agent, Event::Vanished(earlier)), []);
    assert!(agent.holds(ONE));
}

/// A process of rank 2 that stands by here, and where it finds the replica.
fn standby(incarnation: u32) -> (ProcessId, Origin) {
    let process =
        |incarnation| ProcessId { rank: Rank(2), incarnation: everfold_protocol::Incarnation(incarnation) };
    let agent = AgentRef { id: AgentId(7), address: String::new() };
    (process(incarnation), Origin { process: process(0), agent })
}

#[test]
fn a_standby_is_promoted_once_and_then_is_a_process_like_others() {
    let mut agent = Agent::new(true);
    after(&mut agent, Event::MasterFound(Lodging::default()));
    let (process, origin) = standby(1);
    let order = Event::Master(ToAgent::StandBy { process, origin: origin.clone() });
    let started = Action::Start { process, origin: Some(origin), stands_by: true };
    assert_eq!(after(&mut agent, order), [started]);
    assert_eq!(after(&mut agent, Event::Hailed(by(process))), [Action::Welcome(process)]);
    let promote = || Event::Master(ToAgent::Promote { process });
    assert_eq!(after(&mut agent, promote()), [Action::Promote(process)]);
    assert_eq!(after(&mut agent, promote()), []);
    let ended = Action::Tell(FromAgent::Ended { process, ending: Ending::Signal(9) });
    assert_eq!(after(&mut agent, Event::Ended(process, Ending::Signal(9))), [ended]);
    assert!(agent.holds(process), "others may read what it has left");
}

#[test]
fn a_standby_that_ends_leaves_nothing_and_one_that_nobody_needs_is_ended() {
    let mut agent = Agent::new(true);
    after(&mut agent, Event::MasterFound(Lodging::default()));
    let (process, origin) = standby(1);
    let order = |(process, origin)| Event::Master(ToAgent::StandBy { process, origin });
    after(&mut agent, order((process, origin)));
    after(&mut agent, Event::Hailed(by(process)));
    let end = |process| Event::Master(ToAgent::End { process });
    assert_eq!(after(&mut agent, end(process)), [Action::End(process)]);
    let (next, origin) = standby(2);
    assert_eq!(after(&mut agent, order((next, origin.clone()))), [], "the first one has not ended");
    let ended = Action::Tell(FromAgent::Ended { process, ending: Ending::Signal(9) });
    let started = Action::Start { process: next, origin: Some(origin), stands_by: true };
    let released = [Action::Release(process), ended];
    assert_eq!(after(&mut agent, Event::Ended(process, Ending::Signal(9))), released);
    assert_eq!(after(&mut agent, Event::HungUp(by(process))), [Action::Thin(process), started]);
    assert!(!agent.holds(process));
    let farewell = after(&mut agent, Event::Master(ToAgent::Farewell));
    assert_eq!(farewell, [Action::End(next), Action::Done], "nobody promotes it");
}

#[test]
fn a_standby_that_waits_for_the_end_of_another_process_may_be_promoted_or_called_off() {
    let mut agent = Agent::new(true);
    after(&mut agent, Event::MasterFound(Lodging::default()));
    let (process, origin) = standby(1);
    let earlier = origin.process;
    after(&mut agent, Event::Hailed(by(earlier)));
    let order = Event::Master(ToAgent::StandBy { process, origin: origin.clone() });
    assert_eq!(after(&mut agent, order.clone()), []);
    assert_eq!(after(&mut agent, Event::Master(ToAgent::End { process })), []);
    after(&mut agent, order);
    assert_eq!(after(&mut agent, Event::Master(ToAgent::Promote { process })), []);
    let ended = Action::Tell(FromAgent::Ended { process: earlier, ending: Ending::Unknown });
    let started = Action::Start { process, origin: Some(origin), stands_by: false };
    assert_eq!(after(&mut agent, Event::Ended(earlier, Ending::Unknown)), [ended]);
    assert_eq!(after(&mut agent, Event::HungUp(by(earlier))), [started]);
}

#[test]
fn a_rank_is_not_started_beside_a_process_that_a_wrapper_has_left_behind() {
    let mut agent = Agent::new(true);
    after(&mut agent, Event::MasterFound(Lodging::default()));
    let (later, next) = (Connection { process: TWO, number: 1 }, standby(1).0);
    after(&mut agent, Event::Hailed(by(TWO)));
    assert_eq!(after(&mut agent, Event::Master(ToAgent::End { process: TWO })), [Action::End(TWO)]);
    let ended = Action::Tell(FromAgent::Ended { process: TWO, ending: Ending::Signal(9) });
    assert_eq!(after(&mut agent, Event::Ended(TWO, Ending::Signal(9))), [ended], "the wrapper has");
    let start = Event::Master(ToAgent::Start { process: next, origin: None });
    assert_eq!(after(&mut agent, start), [], "the process is still connected");
    assert_eq!(after(&mut agent, Event::HungUp(later)), [], "that was another connection");
    let started = Action::Start { process: next, origin: None, stands_by: false };
    assert_eq!(after(&mut agent, Event::HungUp(by(TWO))), [started]);
}
