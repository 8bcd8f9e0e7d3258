//! Schedules for `everfold sim check --replay`, as anybody may write them.

use everfold_sim::check::{Schedule, draw};

use crate::memory::bounded;

/// # Panics
/// If a schedule does not come back from its own file.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let schedule = match bounded((256 << 10) + 256 * data.len(), || toml::from_str::<Schedule>(text)) {
        Ok(schedule) => schedule,
        Err(error) => return drop(error.to_string()),
    };
    let flaw = schedule.flaw();
    // Numbers in such files have a sign.
    let Ok(written) = toml::to_string(&schedule) else { return };
    let again: Schedule = toml::from_str(&written).unwrap();
    assert_eq!(again, schedule);
    assert_eq!(again.flaw(), flaw);
}

pub fn samples() -> Vec<Vec<u8>> {
    let written = (0..400u64).map(|seed| toml::to_string(&draw(seed)).unwrap());
    let mut short: Vec<String> = written.filter(|text| text.len() < 3000).collect();
    short.truncate(12);
    short.into_iter().map(String::into_bytes).collect()
}
