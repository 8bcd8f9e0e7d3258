//! How many times faster everfold is than static algorithms, beside what the paper says of its
//! implementation.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};

use super::contestant::Contestant;
use crate::sim::figure::Figure;

/// The paper's greatest improvements over MPI by figure, where it tells them: 0.72 means 1.72 times as fast.
const PAPER: [(&str, f64); 10] = [
    ("fig7a", 5.59),
    ("fig7b", 2.09),
    ("fig7c", 3.0),
    ("fig7d", 5.15),
    ("fig8a", 0.72),
    ("fig8b", 2.21),
    ("fig8c", 2.41),
    ("fig8d", 3.28),
    ("fig9a", 2.2),
    ("fig9b", 4.0),
];

/// Ratios of times for one figure: static over everfold.
struct Row {
    figure: String,
    contestant: Contestant,
    rival: &'static str,
    least: f64,
    mean: f64,
    most: f64,
}

pub struct Summary(Vec<Row>);

impl Summary {
    pub fn new(figures: &[Figure]) -> Self {
        let mut rows = Vec::new();
        for figure in figures {
            let means = |contestant: Contestant| -> Vec<f64> {
                figure.means(&contestant.to_string()).into_iter().flatten().collect()
            };
            let best = Contestant::STATIC
                .map(means)
                .into_iter()
                .reduce(|best, other| best.iter().zip(&other).map(|(a, b)| a.min(*b)).collect());
            let rivals =
                [("Rabenseifner", means(Contestant::Rabenseifner)), ("the best", best.unwrap_or_default())];
            for contestant in [Contestant::Everfold, Contestant::WholeBodies] {
                let own = means(contestant);
                for (rival, theirs) in &rivals {
                    let ratios: Vec<f64> =
                        theirs.iter().zip(&own).map(|(theirs, own)| theirs / own).collect();
                    rows.push(Row {
                        figure: figure.name.clone(),
                        contestant,
                        rival,
                        least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
                        mean: ratios.iter().sum::<f64>() / ratios.len() as f64,
                        most: ratios.iter().copied().fold(0.0, f64::max),
                    });
                }
            }
        }
        Self(rows)
    }

    pub fn csv(&self) -> String {
        let mut csv = "figure,contestant,rival,ratio_least,ratio_mean,ratio_most,paper_most\n".to_owned();
        for row in &self.0 {
            let Row { figure, contestant, rival, least, mean, most } = row;
            let paper = row.paper().map_or(String::new(), |paper| format!("{paper:.2}"));
            let _ = writeln!(csv, "{figure},{contestant},{rival},{least:.3},{mean:.3},{most:.3},{paper}");
        }
        csv
    }

    pub fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "figure",
            "contestant",
            "times faster than",
            "least",
            "mean",
            "most",
            "paper, at most",
        ]);
        for row in &self.0 {
            let ratios = [row.least, row.mean, row.most].map(|ratio| format!("{ratio:.2}"));
            let paper = row.paper().map_or(String::new(), |paper| format!("{paper:.2}"));
            let names = [row.figure.clone(), row.contestant.to_string(), row.rival.to_owned()];
            table.add_row(names.into_iter().chain(ratios).chain([paper]));
        }
        for column in table.column_iter_mut().skip(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

impl Row {
    fn paper(&self) -> Option<f64> {
        PAPER.iter().find(|(figure, _)| *figure == self.figure).map(|(_, improvement)| 1.0 + improvement)
    }
}
