//! Detectors of a program's own, in the process that starts the ranks: their choices are followed.

use std::collections::BTreeMap;

use everfold::{
    launch::Components,
    recovery::{
        Chain, Detector, Recovery,
        detector::{AgentId, Candidate, Death, ProcessId, Sign, Timestamp},
    },
};

use crate::{
    migrate::{Case, Job, loses},
    recovery::{gives_up, with},
    suite::Suite,
};

pub(crate) fn add_to(suite: &mut Suite) {
    suite.test("own_detectors::a_program_that_starts_its_ranks_asks_its_own", || {
        gives_up("detectors = [\"none\", \"ignores\"]\n[restart]\npause = \"1 ms\"", 2, "are ignored");
    });
    suite.test("own_detectors::a_rank_goes_where_the_own_detector_wants_it", || {
        let file = "process = [\"restart\", \"migrate\"]\ndetectors = [\"leaves\"]";
        let plan = "2.0.between.9 3.0.between.12";
        let domains = &["a", "a", "quiet", "b"][..];
        let ends = loses(Case { hosts: 3, spares: 1, file, plan, domains, ..Case::default() });
        let is_there = |host: usize| ends[host].said.iter().any(|line| line.contains("life 1"));
        assert_eq!(
            [1, 2, 3].map(is_there),
            [true, true, false],
            "the first is handed over, the second leaves, and not for the spare host: {ends:#?}"
        );
    });
    suite.test("own_detectors::one_that_nobody_knows_stops_the_job", || {
        let end = with("recovery::dies_once", 2, "detectors = [\"nobody\"]");
        end.assert_ended(1, []);
        let told = |line: &String| line.contains("no detector `nobody`") && line.contains("`leaves`");
        assert!(end.said.iter().any(told), "{:#?}", end.said);
    });
    suite.test("own_detectors::a_launcher_that_does_not_know_it_says_so_to_rank_0", || {
        let mut job = Job::start("migrate::is_told", &Case { file: NOBODY, ..Case::default() });
        job.hosts[0].as_mut().unwrap().wait_for(1, "no detector `nobody` in the program that starts the job");
        (0..2).for_each(|host| job.lose(host));
    });
}

const NOBODY: &str = "physical = \"migrate\"\ndetectors = [\"nobody\"]";

/// What all programs and hosts here have.
pub(crate) fn components() -> Components {
    Components::new()
        .detector("none", || Counts { faults: BTreeMap::new(), at: u32::MAX, chosen: Recovery::Ignore })
        .detector("ignores", || Counts { faults: BTreeMap::new(), at: 2, chosen: Recovery::Ignore })
        .detector("leaves", || Counts { faults: BTreeMap::new(), at: 2, chosen: Recovery::Migrate })
}

/// Chooses a recovery for a process fault once its host has had this number of them.
#[derive(Debug)]
struct Counts {
    faults: BTreeMap<AgentId, u32>,
    at: u32,
    chosen: Recovery,
}

impl Detector for Counts {
    fn judge(&mut self, _: Timestamp, death: &Death) -> Option<Chain> {
        let Sign::Process(agent) = death.sign else { return None };
        let faults = self.faults.entry(agent).or_default();
        *faults += 1;
        (*faults >= self.at).then(|| Chain::of(self.chosen))
    }

    fn choose_host(
        &mut self,
        _: Timestamp,
        _: ProcessId,
        _: AgentId,
        hosts: &[Candidate<'_>],
    ) -> Option<AgentId> {
        hosts.iter().find(|host| host.domain == Some("quiet")).map(|host| host.agent)
    }
}
