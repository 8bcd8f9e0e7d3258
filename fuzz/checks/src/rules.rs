//! Rules that locate faults, as anybody may write them.

use everfold_locate::rules::{DEFAULT, RuleBase};

use crate::memory::bounded;

/// # Panics
/// If rules are accepted whose conditions do not come back from their own words.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let rules = match bounded((1 << 20) + 1024 * data.len(), || RuleBase::parse(text)) {
        Ok(rules) => rules,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for rule in rules.rules() {
        let words = rule.when.to_string();
        let again = everfold_locate::rules::Condition::parse(&words);
        assert_eq!(again.as_ref(), Ok(&rule.when), "{words}");
    }
}

pub fn samples() -> Vec<Vec<u8>> {
    // The first rule, the first two, and so on.
    let ends = DEFAULT.match_indices("\n[[").skip(1).map(|(end, _)| &DEFAULT[..end]);
    ends.take(5).chain([DEFAULT]).map(|text| text.as_bytes().to_vec()).collect()
}
