//! What is told: a table for people, and a document for programs.

use std::time::Duration;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use serde::Serialize;

use super::{
    case::{Case, Exercise, Roots},
    field::{Field, Maker},
    measure::Sample,
    place::PlaceName,
    simulated,
    statistics::{Quartiles, Ratio},
};
use crate::{machine::Machine, size};

const LINE: LineStyle = LineStyle::none().fill('─').junction('─');

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Document {
    /// On what.
    pub machine: Machine,
    /// Versions of the peers.
    pub peers: Vec<(&'static str, &'static str)>,
    /// The rule of repetition, for people.
    pub rule: String,
    /// How everfold protected contributions.
    pub protection: String,
    /// What was measured.
    pub results: Vec<Measured>,
    /// What was not, and why.
    pub left_out: Vec<String>,
}

impl Document {
    /// Tells at once, and in the end, what is not measured.
    pub fn leave_out(&mut self, what: String) {
        note!("left out: {what}");
        self.left_out.push(what);
    }
}

/// One exercise in one place.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Where.
    pub place: PlaceName,
    /// What.
    #[serde(flatten)]
    pub exercise: Exercise,
    /// What it takes at least, in seconds.
    pub bound_s: Option<f64>,
    /// What the simulator says of everfold, in seconds, if it was asked.
    pub simulated_s: Option<f64>,
    /// Who, everfold first.
    pub sides: Vec<Side>,
}

/// One contender in one exercise.
#[derive(Debug, Serialize)]
pub struct Side {
    /// Whose side it is on.
    pub maker: Maker,
    /// Which algorithm, or which bodies.
    pub name: &'static str,
    /// Whether it is everfold, or the library as it comes.
    pub as_it_comes: bool,
    /// The middle half of its times.
    #[serde(flatten)]
    pub quartiles: Quartiles,
    /// If the ranks compute meanwhile: how long it takes if they do not.
    pub quiet_s: Option<f64>,
    /// The first everfold's median over its, with the 95 % interval.
    pub everfold_over: Ratio,
    /// Its median over the bound.
    pub over_bound: Option<f64>,
    /// All its times.
    pub seconds: Vec<f64>,
}

impl Measured {
    /// From samples of which the first is everfold's. `quiet_s`: by contender, see [`Side::quiet_s`].
    pub fn new(field: &Field, exercise: Exercise, samples: Vec<Sample>, quiet_s: &[Option<f64>]) -> Self {
        let bounds_s: Vec<f64> = samples.iter().flat_map(|sample| sample.bounds_s.iter().copied()).collect();
        let bound_s = (!bounds_s.is_empty()).then(|| Quartiles::of(&bounds_s).median_s);
        let ours = samples.first().map(|sample| sample.seconds.clone()).unwrap_or_default();
        let side = |sample: Sample| {
            let contender = &field.contenders[sample.contender];
            let quartiles = sample.quartiles();
            Side {
                maker: contender.maker,
                name: if exercise.roots == Roots::All { contender.allreduce } else { contender.name },
                as_it_comes: contender.stays,
                quiet_s: quiet_s.get(sample.contender).copied().flatten(),
                quartiles,
                everfold_over: Ratio::of(&ours, &sample.seconds),
                over_bound: bound_s.map(|bound_s| quartiles.median_s / bound_s),
                seconds: sample.seconds,
            }
        };
        let simulated_s = field.place.link().filter(|_| exercise.case == Case::Quiet).and_then(|link| {
            let protection = field.contenders.first()?.protection;
            simulated::reduce_s(link, field.place.ranks, exercise.bytes, protection)
        });
        let sides = samples.into_iter().map(side).collect();
        Self { place: field.place.name(), exercise, bound_s, simulated_s, sides }
    }
}

/// Some results as a table.
pub fn table<'a>(results: impl IntoIterator<Item = &'a Measured>) -> Table {
    let results: Vec<&Measured> = results.into_iter().collect();
    let computes = results.iter().any(|measured| measured.exercise.compute_us > 0);
    let mut table = Table::new();
    table.load_style(TableStyle::new().top_border(LINE).header_separator(LINE).bottom_border(LINE));
    let header = ["what", "who", "median", "quartiles", "everfold / it", "95 %", "× bound", "times"];
    table.set_header(header.into_iter().chain(computes.then_some("× longer of both")));
    for measured in results {
        let mut what = what(&measured.exercise);
        for side in &measured.sides {
            let Side { maker, name, quartiles, everfold_over: Ratio { ratio, low, high }, .. } = side;
            let compute_s = measured.exercise.compute_us as f64 / 1e6;
            let longer =
                side.quiet_s.map(|quiet_s| format!("{:.2}", quartiles.median_s / quiet_s.max(compute_s)));
            let figures = [
                std::mem::take(&mut what),
                format!("{} {name}", maker.name()),
                show(quartiles.median_s),
                format!("{} – {}", show(quartiles.q1_s), show(quartiles.q3_s)),
                format!("{ratio:.2}"),
                format!("{low:.2} – {high:.2}"),
                side.over_bound.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")),
                side.seconds.len().to_string(),
            ];
            table.add_row(figures.into_iter().chain(longer));
        }
        let bound = measured.bound_s.map_or_else(|| "–".to_owned(), show);
        table.add_row(["", "bound", &bound]);
        if let Some((simulated_s, ours)) = measured.simulated_s.zip(measured.sides.first()) {
            let ratio = format!("{:.2}", ours.quartiles.median_s / simulated_s);
            table.add_row(["", "everfold, simulated", &show(simulated_s), "", &ratio]);
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What is done in an exercise, beside its case.
pub fn what(exercise: &Exercise) -> String {
    let bytes = size::show(exercise.bytes);
    match exercise.case {
        Case::Concurrent => {
            let roots = if exercise.roots == Roots::Rotating { "all roots" } else { "one root" };
            format!("{} × {bytes}, {roots}", exercise.count)
        }
        Case::Overlap => format!("{bytes}, computing {}", show(exercise.compute_us as f64 / 1e6)),
        _ => bytes,
    }
}

fn show(seconds: f64) -> String {
    format!("{:.3?}", Duration::from_secs_f64(seconds))
}
