//! The paper's tables and figures, beside ours.

use comfy_table::Table;
use everfold_planner::{law::Law, machine::Part, plan::Plan};

use super::{
    Planned,
    failures::{self, Gaps},
    published::{ALL, ONE},
};
use crate::{plan::table, sim::parallel};

/// Shape of the law by which failures come in bursts.
const BURSTS: f64 = 0.7;

/// A table that can be printed and written.
pub struct Results {
    titles: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Results {
    fn new(titles: &[&'static str], planned: &[Planned], row: impl Fn(&Planned) -> Vec<String>) -> Self {
        let rows = planned.iter().map(|each| [vec![each.application.name.to_owned()], row(each)].concat());
        Self { titles: [&["application"], titles].concat(), rows: rows.collect() }
    }

    pub fn csv(&self) -> String {
        let lines = self.rows.iter().map(|row| row.join(",") + "\n");
        self.titles.join(",").replace(' ', "_") + "\n" + &lines.collect::<String>()
    }

    pub fn shown(&self) -> Table {
        let mut shown = table::columns(&self.titles);
        self.rows.iter().for_each(|row| _ = shown.add_row(row));
        table::right(&mut shown, 1);
        shown
    }
}

/// Between which bounds the run times without checkpoints are, and what was taken.
pub fn alone(planned: &[Planned]) -> Results {
    Results::new(&["at least", "at most", "profile"], planned, |each| {
        let [least_s, most_s] = each.application.run_alone_s();
        [least_s, most_s, each.described.profile.run_ns() as f64 / 1e9].map(seconds).to_vec()
    })
}

/// Table 1.
pub fn counts(planned: &[Planned]) -> Results {
    let titles = [
        "paper sync",
        "fixed sync",
        "cheapest sync",
        "soonest sync",
        "paper async",
        "fixed async",
        "cheapest async",
        "soonest async",
    ];
    Results::new(&titles, planned, |each| {
        let [sync, host, device] = each.application.checkpoints;
        let count = |plan: &Plan| {
            let counts: Vec<String> = plan.tracks.iter().map(|track| track.stops.len().to_string()).collect();
            counts.join("/")
        };
        let of =
            |which: usize| [&each.every, &each.cheapest, &each.soonest].map(|plans| count(&plans[which]));
        let (paper_sync, paper_async) = (vec![sync.to_string()], vec![format!("{host}/{device}")]);
        [paper_sync, of(0).to_vec(), paper_async, of(1).to_vec()].concat()
    })
}

/// Table 2.
pub fn run_times(planned: &[Planned]) -> Results {
    let titles = [
        "paper sync",
        "fixed sync",
        "offset sync",
        "cheapest sync",
        "paper async",
        "fixed async",
        "offset async",
        "cheapest async",
    ];
    Results::new(&titles, planned, |each| {
        let run_s = |plan: &Plan| (plan.run_ns + plan.taken_ns) as f64 / 1e9;
        let of = |which: usize| {
            let ours = [&each.every, &each.offset, &each.cheapest].map(|plans| run_s(&plans[which]));
            [vec![each.application.run_s[which]], ours.to_vec()].concat()
        };
        [of(0), of(1)].concat().into_iter().map(seconds).collect()
    })
}

/// Figure 11: what one checkpoint takes that holds the program up.
pub fn one(planned: &[Planned]) -> Results {
    let titles = [
        "fixed sync",
        "fixed async",
        "cheaper",
        "paper cheaper",
        "by table 2",
        "cheapest sync",
        "cheapest async",
    ];
    Results::new(&titles, planned, |each| {
        let mean_s = |plan: &Plan| {
            let held_up = plan.tracks.last().map_or(0, |track| track.stops.len());
            plan.taken_ns as f64 / 1e9 / held_up.max(1) as f64
        };
        let [sync_s, async_s] = each.every.each_ref().map(mean_s);
        let paper = each.application.cheaper[0].map_or_else(|| between(ONE), percent);
        let by_table = percent(each.application.one_cheaper(each.described.profile.run_ns() as f64 / 1e9));
        let [cheapest_sync_s, cheapest_async_s] = each.cheapest.each_ref().map(mean_s);
        vec![
            seconds(sync_s),
            seconds(async_s),
            percent(1.0 - async_s / sync_s),
            paper,
            by_table,
            seconds(cheapest_sync_s),
            seconds(cheapest_async_s),
        ]
    })
}

/// Figure 12: by how much checkpoints make the run longer.
pub fn all(planned: &[Planned]) -> Results {
    let titles = [
        "fixed sync",
        "fixed async",
        "cheaper",
        "paper cheaper",
        "offset sync",
        "offset async",
        "cheapest sync",
        "cheapest async",
    ];
    Results::new(&titles, planned, |each| {
        let taken_s = |plan: &Plan| plan.taken_ns as f64 / 1e9;
        let [sync_s, async_s] = each.every.each_ref().map(taken_s);
        let paper = each.application.cheaper[1].map_or_else(|| between(ALL), percent);
        let others =
            [&each.offset, &each.cheapest].map(|plans| plans.each_ref().map(|plan| seconds(taken_s(plan))));
        let first = vec![seconds(sync_s), seconds(async_s), percent(1.0 - async_s / sync_s), paper];
        [first, others.concat()].concat()
    })
}

/// Mean times to the end of synchronous plans: by the law, and with failures that are drawn.
pub fn failures(planned: &[Planned], runs: u32, seed: u64) -> Results {
    let titles = [
        "fixed by law",
        "cheapest by law",
        "soonest by law",
        "fixed drawn",
        "cheapest drawn",
        "soonest drawn",
        "error",
        "fixed bursts",
        "cheapest bursts",
        "soonest bursts",
        "error bursts",
    ];
    let cases: Vec<usize> = (0..planned.len()).collect();
    let drawn = parallel::map("drawn failures", &cases, |&case| {
        let each = &planned[case];
        let law = Law::new(&each.described.machine, Part::Whole);
        let plans = [&each.every[0], &each.cheapest[0], &each.soonest[0]];
        [1.0, BURSTS].map(|shape| plans.map(|plan| failures::run(plan, &law, Gaps { shape }, runs, seed)))
    });
    let mut drawn = drawn.into_iter();
    let rows = planned.iter().map(|each| {
        let plans = [&each.every[0], &each.cheapest[0], &each.soonest[0]];
        let by_law = plans.map(|plan| seconds(plan.expected_s.unwrap_or(f64::INFINITY)));
        let mut row = [vec![each.application.name.to_owned()], by_law.to_vec()].concat();
        for drawn in drawn.next().expect("one of each") {
            row.extend(drawn.map(|plan| seconds(plan.mean_s)));
            row.push(seconds(drawn.iter().map(|plan| plan.error_s).fold(0.0, f64::max)));
        }
        row
    });
    Results { rows: rows.collect(), titles: [&["application"], titles.as_slice()].concat() }
}

fn seconds(time_s: f64) -> String {
    format!("{time_s:.3}")
}

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

fn between([least, most]: [f64; 2]) -> String {
    format!("{:.1} to {:.1} %", 100.0 * least, 100.0 * most)
}
