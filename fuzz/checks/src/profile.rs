//! Profiles for `everfold plan`, and the tables beside them, as anybody may write them.

use everfold_lab::plan::profile::{Described, parse};
use everfold_planner::{
    levels,
    plan::{Placement, Planner, Rule, Wish},
    text::Text,
};

use crate::memory::bounded;

/// What stands behind this line is the table that the profile names.
const TABLE: &str = "\n#table\n";
/// Times in nanoseconds, and sizes, that are exact as they are written.
const EXACT: u64 = 1 << 50;
/// Up to these numbers of candidate points, without levels and with them, placing takes a moment.
const POINTS_MOST: usize = 64;
const LEVELED_POINTS_MOST: usize = 8;

/// # Panics
/// If a profile does not come back from what is written of it, or no checkpoints can be placed in it.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (profile, table) = text.split_once(TABLE).unwrap_or((text, ""));
    let read = |text: &str| parse(text, "title".to_owned(), |_| Ok(table.to_owned()));
    let described = match bounded((1 << 20) + 512 * data.len(), || read(profile)) {
        Ok(described) => described,
        Err(error) => return assert!(!error.is_empty()),
    };
    let Described { title, source, profile, machine, .. } = &described;
    assert!(!profile.is_empty());
    machine.check().unwrap();
    let source = source.as_deref().unwrap_or_default();
    let sections = profile.sections();
    let text = Text { title, source, machine, notes: &[], sections }.to_string();
    let again = read(&text).unwrap_or_else(|error| panic!("{error}\n---\n{text}"));
    let points = || sections.iter().flat_map(|section| &section.points);
    if profile.run_ns() < EXACT && points().all(|point| point.host_bytes.max(point.device_bytes) < EXACT) {
        assert_eq!(again.profile.sections(), sections, "{text}");
    }
    assert_eq!((&again.title, again.machine), (title, *machine), "{text}");
    place(&described);
}

/// Places checkpoints by all rules. Whether there is a plan is the profile's matter.
fn place(described: &Described) {
    let Described { profile, machine, levels, .. } = described;
    if profile.len() > POINTS_MOST {
        return;
    }
    let planner = Planner::new(profile, machine).unwrap();
    for placement in [Placement::Synchronous, Placement::Asynchronous] {
        for rule in [Rule::Nothing, Rule::Cheapest, Rule::Every, Rule::Young, Rule::Daly, Rule::Soonest] {
            for (apart_ns, offset_ns) in [(None, 0), (None, 1), (Some(u64::MAX), u64::MAX)] {
                let _ = planner.place(&Wish { placement, rule, apart_ns, offset_ns });
            }
        }
    }
    if !levels.is_empty() && profile.len() <= LEVELED_POINTS_MOST {
        let candidates: Vec<_> = levels.iter().map(|level| level.candidates(profile)).collect();
        let (_, end_s) = levels::place(levels, &candidates);
        assert!(end_s >= 0.0, "{levels:?}");
    }
}

pub fn samples() -> Vec<Vec<u8>> {
    let machine = "[machine]\nstorage = \"100 MB/s\"\nbus = \"4 GB/s\"\nmtbf_host = \"400 s\"\n";
    let section = "[[section]]\nname = \"loop\"\ntimes = 3\nlasts = \"2 s\"\n";
    let points =
        "points = [{ name = \"a\", at = \"0 s\", device = \"1 GB\" }, { name = \"a\", at = \"1 s\" }]\n";
    let level = "[[level]]\nname = \"disk\"\nlatency = \"1 ms\"\nbandwidth = \"8 GB/s\"\nmtbf = \"2 h\"\n";
    let table = "at_ms,host_mb,name,device_bytes\n1.5,2,first,7\n\n3,0.5,,0\n";
    [
        format!("title = \"t\"\n{machine}{section}{points}{level}"),
        format!("{machine}mtbf_device = \"1 d\"\nrestart = \"5 s\"\nreread = 0.5\n{section}csv = \"it\"\n{TABLE}{table}"),
        format!("{machine}{section}points = [{{ name = \"a\", at = \"3 s\" }}]"),
        format!("{machine}{section}csv = \"it\"\n{TABLE}at_s,at_ms\n1,1"),
    ]
    .map(String::into_bytes)
    .into()
}
