//! What does not hold.

use std::{any::Any, fmt};

/// Something that has to hold does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What has to hold: the same for violations of one kind.
    pub rule: String,
    /// What was found instead.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.found)
    }
}

impl Violation {
    pub(crate) fn new(rule: &str, found: impl Into<String>) -> Self {
        Self { rule: rule.to_owned(), found: found.into() }
    }

    /// An assertion that failed. Numbers differ from run to run; the words are what the assertion says.
    pub(super) fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
        let first = text.lines().next().unwrap_or_default();
        let rule = first.split(|c: char| c.is_ascii_digit() || "{}[]()\"-,".contains(c));
        let rule: Vec<&str> = rule.map(str::trim).filter(|part| !part.is_empty()).collect();
        Self::new(&format!("assertion: {}", rule.join(" … ")), text)
    }
}
