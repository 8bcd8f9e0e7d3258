use super::*;

#[test]
fn a_link_that_is_well_is_probed_for_a_hundredth_of_the_time() {
    let mut tfa = Tfa::new(RuleBase::default());
    let suspect = Place::Link { from: Host(1), to: Host(2) };
    let (second, took) = (Duration::from_secs(1), Duration::from_millis(70));
    let mut probes = Vec::new();
    for tick in 1..600u32 {
        let now = Timestamp::ZERO + tick * Duration::from_millis(100);
        let (kind, ago) = (Kind::SlowRead, Duration::ZERO);
        tfa.handle_symptom(
            now,
            &Symptom { kind, suspect, witness: Host(0), ago, value: 9.0, threshold: 3.0 },
        );
        tfa.handle_timeout(now);
        while let Some(action) = tfa.poll_action() {
            if let Action::Ask { question, probe: Probe::Link, .. } = action {
                probes.push(now);
                let well = [(Reading::LinkSlowness, 1.0), (Reading::LinkLoss, 0.0)];
                tfa.handle_answer(now + took, question, Answer(well.into()));
            }
        }
    }
    assert!((7..10).contains(&probes.len()), "in a minute: {}", probes.len());
    assert!(probes[0] < Timestamp::ZERO + second, "the first at once");
}

#[test]
fn a_node_that_was_stopped_itself_concludes_nothing_from_that() {
    let mut tfa = Tfa::new(RuleBase::default());
    let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
    let (kind, suspect, ago) = (Kind::Broken, Place::Host(Host(1)), Duration::ZERO);
    tfa.handle_symptom(
        at(1000),
        &Symptom { kind, suspect, witness: Host(0), ago, value: 1.0, threshold: 1.0 },
    );
    tfa.handle_timeout(at(1300));
    assert!(matches!(tfa.poll_action(), Some(Action::Ask { probe: Probe::Response, .. })));
    tfa.handle_timeout(at(9000));
    assert_eq!(tfa.poll_action(), None, "an answer may have come meanwhile");
    tfa.handle_timeout(at(10_000));
    let Some(Action::Report(dead)) = tfa.poll_action() else { panic!("none has come") };
    assert_eq!((&*dead.fault, dead.finding), ("host_dead", Finding::Confirmed));
}

#[test]
fn what_was_seen_already_is_no_other_symptom() {
    let mut tfa = Tfa::new(RuleBase::default());
    let (suspect, now) = (Place::Host(Host(1)), Timestamp::ZERO + Duration::from_secs(1));
    let ago = Duration::ZERO;
    let mut see = |kind| {
        let symptom = Symptom { kind, suspect, witness: Host(1), ago, value: 2.0, threshold: 1.0 };
        tfa.handle_symptom(now, &symptom);
        tfa.next_timeout()
    };
    assert_eq!(see(Kind::MemoryPressure), None, "it takes two");
    assert_eq!(see(Kind::MemoryPressure), None, "that is the same one");
    assert!(see(Kind::DiskSlow).is_some());
}

#[test]
fn two_candidates_that_ask_the_same_are_decided_by_one_answer() {
    let mut tfa = Tfa::new(RuleBase::default());
    let place = Place::Link { from: Host(1), to: Host(2) };
    let (kind, ago) = (Kind::SlowRead, Duration::ZERO);
    let now = Timestamp::ZERO + Duration::from_secs(1);
    tfa.handle_symptom(
        now,
        &Symptom { kind, suspect: place, witness: Host(0), ago, value: 9.0, threshold: 3.0 },
    );
    let mut asked = 0;
    let mut findings = Vec::new();
    for _ in 0..10 {
        let now = tfa.next_timeout().unwrap_or(now);
        tfa.handle_timeout(now);
        while let Some(action) = tfa.poll_action() {
            match action {
                Action::Ask { question, .. } => {
                    asked += 1;
                    let slow = [(Reading::LinkSlowness, 9.0), (Reading::LinkLoss, 0.0)];
                    tfa.handle_answer(now, question, Answer(slow.into()));
                }
                Action::Report(verdict) => findings.push((verdict.fault, verdict.finding)),
            }
        }
        if findings.len() == 2 {
            break;
        }
    }
    let expected = [("link_lossy", Finding::Rejected), ("link_slow", Finding::Confirmed)];
    assert_eq!(findings, expected.map(|(fault, finding)| (fault.into(), finding)));
    assert_eq!(asked, 1);
}
