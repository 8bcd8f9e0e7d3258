//! Records of symptoms, from which rules are learnt, as anybody may edit them.

use everfold_locate::{
    learn::{Least, learn, record},
    rules::RuleBase,
};

use crate::memory::bounded;

/// # Panics
/// If a line is accepted that does not come back from its own words, or a draft of rules is no rule base.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let lines = match bounded((1 << 20) + 1024 * data.len(), || record::parse(text)) {
        Ok(lines) => lines,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for line in &lines {
        let words = line.to_string();
        let again = record::parse(&words).unwrap();
        assert_eq!((again.len(), again[0].to_string()), (1, words));
    }
    let rules = RuleBase::default();
    let learnt = learn(&lines, &rules, Least { support: 1, confidence: 0.5 });
    if !learnt.is_empty() {
        RuleBase::parse(&learnt.draft(&rules)).unwrap();
    }
}

const SAMPLE: &str = "
# 3fa21b07 is the node of host0 in job 5ac.
3fa21b07 1.204 seen ended rank2@host0 by host0 value 1.000
3fa21b07 1.511 rejected out_of_memory rank2@host0
3fa21b07 1.511 confirmed process_crashed rank2@host0
3fa21b07 61.000 over process_crashed rank2@host0
3fa21b07 70.100 seen slow_read host0>host1 by host1 value 4.000
3fa21b07 70.200 seen link_errors host0 by host0 value 9.000
3fa21b07 71.000 confirmed bad_cable host0>host1   # added by hand
";

pub fn samples() -> Vec<Vec<u8>> {
    vec![SAMPLE.as_bytes().to_vec()]
}
