//! What is printed of plans.

use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use everfold_planner::{
    leveled::LeveledPlan,
    machine::Part,
    plan::{Placement, Plan, Planner, Rule, Stop, Wish},
};
use everfold_protocol::units::{show_bytes, show_seconds};

use super::profile::Described;

/// What the program is like.
pub fn heading(described: &Described) -> String {
    let Described { title, profile, machine, .. } = described;
    let source = described.source.as_ref().map_or(String::new(), |source| format!("\nsource: {source}"));
    format!(
        "{title}: {} candidate points, runs {} without checkpoints, fails every {}{source}",
        profile.len(),
        show_seconds(profile.run_ns() as f64 / 1e9),
        show_seconds(machine.mtbf_s(Part::Whole)),
    )
}

/// The plan beside others, each with what it costs.
pub fn beside_others(planner: &Planner<'_>, wish: &Wish, plan: &Plan) -> Table {
    let mut table = columns(&[
        "",
        "plan",
        "checkpoints",
        "interval",
        "saved",
        "longer by",
        "hidden",
        "run",
        "with failures",
    ]);
    row(&mut table, ">", words(plan.rule), plan);
    let rules = [Rule::Nothing, Rule::Cheapest, Rule::Every, Rule::Young, Rule::Daly, Rule::Soonest];
    for rule in rules.into_iter().filter(|&rule| rule != plan.rule) {
        let offset_ns = 0;
        match planner.place(&Wish { rule, offset_ns, ..*wish }) {
            Ok(other) => row(&mut table, "", words(rule), &other),
            Err(error) => _ = table.add_row(["", words(rule), &error.to_string()]),
        }
    }
    if plan.offset_ns > 0
        && let Ok(other) = planner.place(&Wish { offset_ns: 0, ..*wish })
    {
        row(&mut table, "", "the same without offset", &other);
    }
    right(&mut table, 2);
    table
}

fn row(table: &mut Table, mark: &str, name: &str, plan: &Plan) {
    let each = |show: &dyn Fn(&everfold_planner::plan::Track) -> String| {
        plan.tracks.iter().map(show).collect::<Vec<_>>().join(" / ")
    };
    let stops = plan.tracks.iter().flat_map(|track| &track.stops);
    let bytes = stops.map(|stop| stop.bytes).fold(0, u64::saturating_add);
    let time = |time_ns: u64| show_seconds(time_ns as f64 / 1e9);
    table.add_row([
        mark.to_owned(),
        name.to_owned(),
        each(&|track| track.stops.len().to_string()),
        match plan.rule {
            Rule::Nothing | Rule::Soonest => String::new(),
            _ => each(&|track| time(track.apart_ns)),
        },
        show_bytes(bytes as f64),
        time(plan.taken_ns),
        time(plan.hidden_ns),
        time(plan.run_ns.saturating_add(plan.taken_ns)),
        show_seconds(plan.expected_s.unwrap_or(f64::INFINITY)),
    ]);
}

fn words(rule: Rule) -> &'static str {
    match rule {
        Rule::Nothing => "no checkpoints",
        Rule::Cheapest => "cheapest",
        Rule::Every => "fixed interval",
        Rule::Young => "Young's interval",
        Rule::Daly => "Daly's interval",
        Rule::Soonest => "soonest",
    }
}

/// The first `most` checkpoints of each part.
pub fn stops(plan: &Plan, most: usize) -> String {
    let mut text = String::new();
    for track in &plan.tracks {
        let whose = match track.part {
            Part::Whole => "host and device",
            Part::Host => "host",
            Part::Device => "device",
        };
        let mut table = columns(&["at", "since the last", "point", "pass", "live bytes", "takes", "why"]);
        for stop in track.stops.iter().take(most) {
            let time = |time_ns: u64| show_seconds(time_ns as f64 / 1e9);
            table.add_row([
                time(stop.at_ns),
                time(stop.since_ns),
                stop.point.clone(),
                (stop.pass + 1).to_string(),
                show_bytes(stop.bytes as f64),
                time(stop.write_ns),
                why(plan, stop),
            ]);
        }
        right(&mut table, 0);
        let rest = track.stops.len().saturating_sub(most);
        let more = if rest == 0 { String::new() } else { format!("\n… and {rest} more: --all") };
        text += &format!("checkpoints of {whose}: {}\n{table}{more}\n", track.stops.len());
    }
    text.truncate(text.trim_end().len());
    text
}

fn why(plan: &Plan, stop: &Stop) -> String {
    let chosen = match plan.rule {
        Rule::Cheapest => format!("one of {} in reach of its neighbours", stop.among),
        Rule::Soonest => "ends soonest".to_owned(),
        _ => "nearest to its moment".to_owned(),
    };
    let moved_s = stop.moved_ns as f64 / 1e9;
    if stop.moved_ns == 0 { chosen } else { format!("{chosen}; moved by {moved_s:+.1} s for fewer bytes") }
}

/// How many checkpoints of each level there are.
pub fn levels(described: &Described, plan: &LeveledPlan) -> Table {
    let mut table = columns(&["level", "needed every", "checkpoints", "take", "one every"]);
    for level in &described.levels {
        let stops: Vec<_> = plan.stops.iter().filter(|stop| stop.level == level.name).collect();
        let takes_ns = stops.iter().map(|stop| stop.write_ns).fold(0, u64::saturating_add);
        let every_s = plan.run_ns as f64 / 1e9 / stops.len() as f64;
        table.add_row([
            level.name.clone(),
            show_seconds(level.mtbf_s),
            stops.len().to_string(),
            show_seconds(takes_ns as f64 / 1e9),
            if stops.is_empty() { String::new() } else { show_seconds(every_s) },
        ]);
    }
    table.add_row([
        "all, with failures".to_owned(),
        String::new(),
        plan.stops.len().to_string(),
        show_seconds(plan.expected_s),
        String::new(),
    ]);
    right(&mut table, 1);
    table
}

/// An empty table.
pub fn columns(titles: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header(titles.iter().copied());
    table
}

/// Numbers stand right, from this column on.
pub fn right(table: &mut Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// `--sync` or `--async`.
pub fn placement(placement: Placement) -> &'static str {
    match placement {
        Placement::Synchronous => "sync",
        Placement::Asynchronous => "async",
    }
}
