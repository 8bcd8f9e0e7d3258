//! Tables 1 and 2, beside the paper's figures.

use std::{fmt::Write, time::Duration};

use everfold::Rank;
use everfold_sim::{
    experiment::{Death, Experiment},
    model::Cluster,
};
use rand::Rng;

use super::{
    Extent,
    contestant::Contestant,
    environment::{Environment, random},
    panels::experiment,
};
use crate::sim::parallel;

/// Places of the generator's streams that no figure uses.
const LOAD: u32 = 100;
const DEATHS: u32 = 101;
/// Which process is killed.
const VICTIM: Rank = Rank(1);

/// The paper's Table 1: size, messages received and sent per second, bytes received and sent per second.
const LOADS: [(u64, [u32; 4]); 11] = [
    (1 << 17, [5220, 2604, 605_167, 374_907]),
    (1 << 18, [5005, 2496, 580_282, 359_489]),
    (1 << 19, [4996, 2492, 579_242, 358_845]),
    (1 << 20, [4460, 2225, 517_104, 320_350]),
    (1 << 21, [3957, 1973, 458_693, 284_164]),
    (1 << 22, [3302, 1647, 382_835, 237_169]),
    (1 << 23, [2400, 1197, 278_278, 172_396]),
    (1 << 24, [1543, 769, 178_854, 110_802]),
    (1 << 25, [923, 461, 107_060, 66_325]),
    (1 << 26, [479, 239, 55_484, 34_373]),
    (1 << 27, [250, 124, 29_026, 17_982]),
];
/// The paper's Table 2: of 100 reductions per day in which process 1 is killed, how many could not be
/// recovered.
const UNRECOVERABLE: [u32; 7] = [2, 1, 0, 2, 3, 1, 2];

/// Table 1: what the master receives and sends per second during one reduction in the ideal environment.
pub fn load(extent: &Extent) -> String {
    let cluster = Cluster::new(extent.network.link());
    let contestants = [Contestant::Everfold, Contestant::Unprotected, Contestant::WholeBodies];
    let mut cases = Vec::new();
    for &bytes in &extent.bytes {
        for contestant in contestants {
            cases.extend((0..extent.repeat).map(|repetition| (bytes, contestant, repetition)));
        }
    }
    let rates = parallel::map("table 1", &cases, |&(bytes, contestant, repetition)| {
        let place = [LOAD, bytes.ilog2(), repetition];
        let experiment = experiment(extent, &cluster, (bytes, 1), Environment::Ideal, place);
        let measured = contestant.with(&experiment).expect("it is everfold").run();
        let seconds = measured.time().expect("nobody dies").as_secs_f64();
        let load = measured.load;
        let counts = [load.received, load.sent, load.received_bytes, load.sent_bytes];
        counts.map(|count| count as f64 / seconds)
    });
    let columns = "received_per_s,sent_per_s,received_bytes_per_s,sent_bytes_per_s";
    let mut csv = format!("contestant,bytes,{columns}\n");
    let mut line = |name: &str, bytes: u64, figures: [f64; 4]| {
        let [received, sent, received_bytes, sent_bytes] = figures;
        let _ = writeln!(csv, "{name},{bytes},{received:.0},{sent:.0},{received_bytes:.0},{sent_bytes:.0}");
    };
    for (case, rates) in
        cases.iter().step_by(extent.repeat as usize).zip(rates.chunks(extent.repeat as usize))
    {
        let mean = |index: usize| rates.iter().map(|rate| rate[index]).sum::<f64>() / rates.len() as f64;
        line(&case.1.to_string(), case.0, [0, 1, 2, 3].map(mean));
    }
    for (bytes, figures) in LOADS.iter().filter(|(bytes, _)| extent.bytes.contains(bytes)) {
        line("measured in the paper", *bytes, figures.map(f64::from));
    }
    csv
}

/// Table 2: process 1 is killed at a random moment of each of many reductions in the production cluster.
pub fn deaths(extent: &Extent) -> String {
    let cluster = Cluster::new(extent.network.link());
    let days: Vec<u32> = (0..UNRECOVERABLE.len() as u32).collect();
    let begin = |day: u32, repetition: u32| -> Experiment {
        let noon = Environment::Production(extent.ranks, day * 24 + 12);
        experiment(extent, &cluster, (extent.production_bytes, 1), noon, [DEATHS, day, repetition])
    };
    let cases: Vec<(u32, u32)> =
        days.iter().flat_map(|day| (0..extent.repeat).map(move |repetition| (*day, repetition))).collect();
    let times = parallel::map("table 2, undisturbed", &cases, |&(day, repetition)| {
        begin(day, repetition).run().time().expect("nobody dies")
    });
    let usual = times.chunks(extent.repeat as usize);
    let usual: Vec<Duration> = usual.map(|times| times.iter().sum::<Duration>() / extent.repeat).collect();
    let cases: Vec<(u32, u32)> =
        days.iter().flat_map(|day| (0..extent.kills).map(move |kill| (*day, extent.repeat + kill))).collect();
    // At the same moment the process dies in one run, and its whole host in another.
    let recovered = parallel::map("table 2", &cases, |&(day, repetition)| {
        let (mut random, _) = random(extent.seed, [DEATHS + 1, day, repetition]);
        let after = usual[day as usize].mul_f64(random.random());
        [Death::Process(VICTIM), Death::Host(VICTIM)].map(|death| {
            Experiment { death: Some((death, after)), ..begin(day, repetition) }.run().time().is_some()
        })
    });
    let mut csv = "day,runs,usual_s,unrecoverable,of_hosts,unrecoverable_in_the_paper\n".to_owned();
    for (day, recovered) in days.iter().zip(recovered.chunks(extent.kills as usize)) {
        let [process, host] = [0, 1].map(|kind| recovered.iter().filter(|all| !all[kind]).count());
        let (usual, paper) = (usual[*day as usize].as_secs_f64(), UNRECOVERABLE[*day as usize]);
        let _ = writeln!(csv, "{},{},{usual:.6},{process},{host},{paper}", day + 1, extent.kills);
    }
    csv
}
