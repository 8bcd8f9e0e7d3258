//! What was run, in words and tables.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use indicatif::HumanCount;

use super::batch::Batch;

/// What was drawn, how futures ended, what was met, how often each rule had something to judge, and how fast
/// it went.
pub fn summary(batch: &Batch) -> String {
    let Batch { runs, events, tally, elapsed, .. } = batch;
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["drawn", "", "futures ended", "", "met", "", "judged", ""]);
    let columns = [&tally.drawn, &tally.ended, &tally.met, &tally.judged].map(sorted);
    let cell = |column: &[(&str, u64)], row: usize| match column.get(row) {
        Some((what, count)) => [(*what).to_owned(), HumanCount(*count).to_string()],
        None => [String::new(), String::new()],
    };
    for row in 0..columns.iter().map(Vec::len).max().unwrap_or_default() {
        table.add_row(columns.iter().flat_map(|column| cell(column, row)));
    }
    for column in [1, 3, 5, 7] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let rate = *events as f64 / elapsed.as_secs_f64().max(1e-9);
    format!(
        "{table}\n{} seeds held, {} events in {elapsed:.1?}, {} per second\n",
        HumanCount(*runs),
        HumanCount(*events),
        HumanCount(rate as u64)
    )
}

/// The most frequent first.
fn sorted<'a>(counts: &BTreeMap<&'a str, u64>) -> Vec<(&'a str, u64)> {
    let mut sorted: Vec<_> = counts.iter().map(|(what, count)| (*what, *count)).collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sorted
}
