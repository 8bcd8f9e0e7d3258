//! Rules are learnt from records: of planted faults exactly what was planted, and of random worlds what
//! locates their faults.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "other tests use more of it")]
mod world {
    pub mod draw;
    pub mod host;
    pub mod injected;
    pub mod judge;
    pub mod run;
}

use std::{collections::BTreeSet, time::Duration};

use everfold_locate::{
    learn::{
        Item, Learnt, Least, Set, Share, learn,
        record::{self, Event, Line},
    },
    place::{Host, Place, Scope},
    rules::RuleBase,
    symptom::Kind,
    tfa::Finding,
};
use everfold_protocol::Rank;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use world::run::World;

const HOST: Host = Host(3);
const RANK: Place = Place::Rank { rank: Rank(7), host: HOST };

fn line(at_ms: u64, event: Event) -> Line {
    Line { node: 1, at: Duration::from_millis(at_ms), event }
}

fn seen(at_ms: u64, kind: Kind, place: Place) -> Line {
    line(at_ms, Event::Seen { kind, place, witness: Host(0), value: 2.0 })
}

fn decided(at_ms: u64, fault: &str, place: Place, finding: Finding) -> Line {
    line(at_ms, Event::Decided { fault: fault.to_owned(), place, finding })
}

fn items(items: impl IntoIterator<Item = (Kind, bool)>) -> Set {
    items.into_iter().map(|(kind, around)| Item { kind, around }).collect()
}

#[test]
fn a_planted_rule_is_found_among_noise_and_counted_rightly() {
    for seed in 0..20 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (mut lines, mut both, mut confirmed, mut in_order) = (Vec::new(), 0, 0, [0, 0]);
        // Each takes 10 s, which is longer than the window.
        for at in (1..400).map(|episode| episode * 10_000) {
            let mut is = |probability| random.random_bool(probability);
            // The fault shows in these two together; each comes alone, too, and both come by chance.
            let (is_faulty, steal, errors, is_reversed) = (is(0.2), is(0.2), is(0.2), is(0.2));
            let (steal, errors) = (steal || is_faulty, errors || is_faulty);
            let (first, second) = if is_reversed { (600, 100) } else { (100, 600) };
            lines.extend(steal.then(|| seen(at + first, Kind::Steal, Place::Host(HOST))));
            lines.extend(errors.then(|| seen(at + second, Kind::LinkErrors, RANK)));
            for (kind, place) in
                [(Kind::Late, RANK), (Kind::Silence, Place::Host(HOST)), (Kind::Redone, RANK)]
            {
                lines.extend(is(0.3).then(|| seen(at + 300, kind, place)));
            }
            if is_faulty {
                lines.push(decided(at + 900, "bad_fan", Place::Host(HOST), Finding::Confirmed));
                // It lasts a while, which makes no more of it.
                lines.push(seen(at + 4500, Kind::Steal, Place::Host(HOST)));
                lines.push(seen(at + 4500, Kind::LinkErrors, RANK));
                lines.push(decided(at + 5000, "bad_fan", Place::Host(HOST), Finding::Over));
            }
            both += u32::from(steal && errors);
            confirmed += u32::from(is_faulty);
            in_order[0] += u32::from(steal && errors && !is_reversed);
            in_order[1] += u32::from(is_faulty && !is_reversed);
        }
        let least = Least { support: 10, confidence: 0.7 };
        let Learnt(rules) = learn(&lines, &RuleBase::default(), least);
        let [rule] = &rules[..] else { panic!("seed {seed}: {rules:?}") };
        assert_eq!((&*rule.fault, rule.about, rule.occurrences), ("bad_fan", Scope::Host, confirmed));
        assert_eq!(rule.when, [items([(Kind::Steal, false), (Kind::LinkErrors, true)])], "seed {seed}");
        assert_eq!(rule.share, Share { support: confirmed, windows: both }, "seed {seed}");
        assert!(rule.sequences.iter().all(|it| it.share.confidence() >= least.confidence), "seed {seed}");
        let sequence = rule.sequences.iter().find(|it| it.kinds == [Kind::Steal, Kind::LinkErrors]).unwrap();
        assert_eq!(sequence.share, Share { support: in_order[1], windows: in_order[0] }, "seed {seed}");
    }
}

#[test]
fn each_of_two_ways_to_a_fault_is_a_set_of_its_own_and_what_is_too_rare_is_none() {
    let mut lines = Vec::new();
    let kinds = [Kind::Ended, Kind::Steal, Kind::Ended, Kind::Steal, Kind::Redone];
    for (episode, kind) in kinds.into_iter().enumerate() {
        let at = 10_000 * (episode as u64 + 1);
        lines.extend([
            seen(at, kind, RANK),
            decided(at + 500, "lost", RANK, Finding::Confirmed),
            decided(at + 600, "lost", RANK, Finding::Over),
        ]);
    }
    let shipped = RuleBase::default();
    let learnt = learn(&lines, &shipped, Least { support: 2, confidence: 0.9 });
    let Learnt(rules) = &learnt;
    assert_eq!(rules[0].when, [items([(Kind::Ended, false)]), items([(Kind::Steal, false)])]);
    assert_eq!((rules[0].occurrences, rules[0].share), (5, Share { support: 4, windows: 4 }));
    let draft = RuleBase::parse(&learnt.draft(&shipped)).unwrap();
    assert!(!shipped.trigger().at_once.contains(&Kind::Steal));
    assert!(draft.trigger().at_once.contains(&Kind::Steal), "it suffices, and begins an analysis");

    let learnt = learn(&lines, &shipped, Least { support: 3, confidence: 0.9 });
    assert!(learnt.is_empty());
    let draft = learnt.draft(&shipped);
    assert!(draft.contains("lost of a rank, confirmed 5 times"), "{draft}");
}

#[test]
fn a_fault_of_two_kinds_of_places_gets_one_rule() {
    let mut lines = Vec::new();
    let (rank, host) = ((Kind::Ended, RANK), (Kind::Steal, Place::Host(HOST)));
    for (episode, (kind, place)) in [host, host, rank, rank, rank].into_iter().enumerate() {
        let at = 10_000 * (episode as u64 + 1);
        lines.extend([
            seen(at, kind, place),
            decided(at + 500, "lost", place, Finding::Confirmed),
            decided(at + 600, "lost", place, Finding::Over),
        ]);
    }
    let shipped = RuleBase::default();
    let learnt = learn(&lines, &shipped, Least { support: 2, confidence: 0.9 });
    let found: Vec<_> = learnt.0.iter().map(|rule| (rule.about, rule.share.support)).collect();
    assert_eq!(found, [(Scope::Host, 2), (Scope::Rank, 3)]);
    let draft = learnt.draft(&shipped);
    let rules = RuleBase::parse(&draft).unwrap();
    assert_eq!(rules.rules().iter().map(|rule| rule.about).collect::<Vec<_>>(), [Scope::Rank]);
    assert!(draft.contains("No rule about lost of a host, confirmed 2 times"), "{draft}");
    assert!(!rules.trigger().at_once.contains(&Kind::Steal), "no rule concludes anything from it alone");
}

#[test]
fn what_is_learnt_in_random_worlds_locates_these_faults_in_others() {
    let rules = RuleBase::default();
    let mut lines = Vec::new();
    for seed in 0..300 {
        let mut world = World::random(seed);
        world.run();
        // Each node of each world is another one.
        lines.extend(
            world.record.into_iter().map(|line| Line { node: line.node + 100 * seed as u32, ..line }),
        );
    }
    let text: Vec<String> = lines.iter().map(Line::to_string).collect();
    // Most of what some faults show is noise, and probes have to say what is none.
    let least = Least { confidence: 0.01, ..Least::default() };
    let draft = learn(&record::parse(&text.join("\n")).unwrap(), &rules, least).draft(&rules);
    println!("{draft}");
    let learnt = RuleBase::parse(&draft).unwrap();
    let known: BTreeSet<&str> = learnt.rules().iter().map(|rule| &*rule.fault).collect();

    let mut injected = BTreeSet::new();
    for seed in 1000..1500 {
        let mut world = World::random(seed);
        world.deploy(learnt.clone());
        world.run();
        world.check().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        injected.extend(world.injected().map(|fault| fault.fault()));
    }
    assert!(injected.is_subset(&known), "{injected:?}, of which are learnt {known:?}");
}
