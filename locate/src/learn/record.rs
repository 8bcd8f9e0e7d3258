//! Records of what localisation nodes have seen and decided, as people can read and edit them.
//!
//! ```text
//! # 3fa21b07 is the node of host0 in job 5ac.
//! # host0: 127.0.0.1, ranks {0-3}
//! 3fa21b07 1.204 seen ended rank2@host0 by host0 value 1.000
//! 3fa21b07 1.511 confirmed process_crashed rank2@host0
//! ```
//!
//! A line tells the node, the seconds since it began, and then what: a symptom that was `seen`, or a fault
//! that was `confirmed`, `rejected`, `superseded` or is `over`. Places are `host0`, `rank2@host0`, and
//! `host0>host1` for the link from one to the other. What stands behind a `#` is for people.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use core::{fmt, str::SplitWhitespace, time::Duration};

use everfold_protocol::Rank;

use crate::{
    place::{Host, Place},
    symptom::{Kind, Symptom},
    tfa::{Finding, Verdict},
};

/// No job lasts longer.
const SECONDS_MAX: u64 = u32::MAX as u64;

/// A line of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Which node of which job; each has drawn a number.
    pub node: u32,
    /// When, since the node began.
    pub at: Duration,
    /// What.
    pub event: Event,
}

/// What a node has seen or decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A symptom.
    Seen {
        /// What was observed.
        kind: Kind,
        /// What it is about.
        place: Place,
        /// The host that has observed it.
        witness: Host,
        /// What was observed; its kind says the unit.
        value: f64,
    },
    /// What has become of a candidate.
    Decided {
        /// Which fault, in `snake_case`.
        fault: String,
        /// Where it is.
        place: Place,
        /// What has become of it.
        finding: Finding,
    },
}

impl From<&Symptom> for Event {
    fn from(&Symptom { kind, suspect, witness, value, .. }: &Symptom) -> Self {
        Self::Seen { kind, place: suspect, witness, value }
    }
}

impl From<&Verdict> for Event {
    fn from(verdict: &Verdict) -> Self {
        Self::Decided { fault: verdict.fault.clone(), place: verdict.place, finding: verdict.finding }
    }
}

/// Why a text is no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}, found {}", told(found))]
pub struct RecordError {
    /// The line, from 1.
    pub line: usize,
    /// What should stand there.
    pub expected: &'static str,
    /// What stands there; nothing at the end of the line.
    pub found: String,
}

fn told(found: &str) -> &str {
    if found.is_empty() { "the end of the line" } else { found }
}

/// Reads a record.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub fn parse(text: &str) -> Result<Vec<Line>, RecordError> {
    let mut lines = Vec::new();
    for (number, written) in (1..).zip(text.lines()) {
        let said = written.split('#').next().unwrap_or_default();
        if said.trim().is_empty() {
            continue;
        }
        let mut words = Words { line: number, words: said.split_whitespace() };
        lines.push(words.line()?);
    }
    Ok(lines)
}

/// The words of a line that were not read yet.
struct Words<'a> {
    line: usize,
    words: SplitWhitespace<'a>,
}

const FINDINGS: [(&str, Finding); 4] = [
    ("confirmed", Finding::Confirmed),
    ("rejected", Finding::Rejected),
    ("superseded", Finding::Superseded),
    ("over", Finding::Over),
];

impl Words<'_> {
    fn line(&mut self) -> Result<Line, RecordError> {
        let node =
            self.take("the number of a node, such as 3fa21b07", |word| u32::from_str_radix(word, 16).ok())?;
        let at = self.take("seconds, such as 1.204", time)?;
        let finding = self.take("seen, confirmed, rejected, superseded or over", |word| {
            let finding = FINDINGS.iter().find(|(name, _)| *name == word).map(|&(_, finding)| finding);
            if word == "seen" { Some(None) } else { finding.map(Some) }
        })?;
        let event = match finding {
            None => self.seen()?,
            Some(finding) => self.decided(finding)?,
        };
        match self.words.next() {
            None => Ok(Line { node, at, event }),
            Some(more) => Err(self.error("the end of the line", more)),
        }
    }

    fn seen(&mut self) -> Result<Event, RecordError> {
        let kind = self.take("a symptom, such as late or ended", |word| {
            Kind::ALL.iter().copied().find(|kind| kind.name() == word)
        })?;
        let place = self.place()?;
        self.take("by", |word| (word == "by").then_some(()))?;
        let witness = self.take("a host, such as host0", host)?;
        self.take("value", |word| (word == "value").then_some(()))?;
        let value = self.take("a number", |word| word.parse().ok())?;
        Ok(Event::Seen { kind, place, witness, value })
    }

    fn decided(&mut self, finding: Finding) -> Result<Event, RecordError> {
        let fault = self.take("a fault in snake_case", |word| {
            let is_name = !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            is_name.then(|| word.to_string())
        })?;
        Ok(Event::Decided { fault, place: self.place()?, finding })
    }

    fn place(&mut self) -> Result<Place, RecordError> {
        self.take("a place, such as host0, rank2@host0 or host0>host1", |word| {
            Some(if let Some((rank, at)) = word.split_once('@') {
                Place::Rank { rank: Rank(numbered(rank, "rank")?), host: host(at)? }
            } else if let Some((from, to)) = word.split_once('>') {
                Place::Link { from: host(from)?, to: host(to)? }
            } else {
                Place::Host(host(word)?)
            })
        })
    }

    fn take<T>(
        &mut self,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, RecordError> {
        let word = self.words.next().unwrap_or_default();
        read(word).ok_or_else(|| self.error(expected, word))
    }

    fn error(&self, expected: &'static str, found: &str) -> RecordError {
        RecordError { line: self.line, expected, found: found.to_string() }
    }
}

fn time(word: &str) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(word.parse().ok()?).ok();
    time.filter(|time| time.as_secs() <= SECONDS_MAX)
}

fn host(word: &str) -> Option<Host> {
    numbered(word, "host").map(Host)
}

fn numbered(word: &str, name: &str) -> Option<u32> {
    word.strip_prefix(name)?.parse().ok()
}

/// A place in one word.
struct Word(Place);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Place::Host(host) => write!(f, "host{}", host.0),
            Place::Rank { rank, host } => write!(f, "rank{}@host{}", rank.0, host.0),
            Place::Link { from, to } => write!(f, "host{}>host{}", from.0, to.0),
            // Nodes neither see nor decide anything about a domain.
            Place::Domain(domain) => write!(f, "domain{}", domain.0),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x} {:.3} ", self.node, self.at.as_secs_f64())?;
        match &self.event {
            Event::Seen { kind, place, witness, value } => {
                write!(f, "seen {} {} by host{} value {value:.3}", kind.name(), Word(*place), witness.0)
            }
            Event::Decided { fault, place, finding } => {
                let name = FINDINGS.iter().find(|(_, other)| other == finding).map_or("", |(name, _)| name);
                write!(f, "{name} {fault} {}", Word(*place))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_written_is_read_again() {
        let places = [
            Place::Host(Host(3)),
            Place::Rank { rank: Rank(7), host: Host(3) },
            Place::Link { from: Host(3), to: Host(12) },
        ];
        let mut lines = Vec::new();
        for place in places {
            let events =
                Kind::ALL.iter().map(|&kind| Event::Seen { kind, place, witness: Host(1), value: 2.5 });
            let findings = FINDINGS.map(|(_, finding)| finding);
            let decided =
                findings.map(|finding| Event::Decided { fault: "bad_fan".to_string(), place, finding });
            lines.extend(events.chain(decided).map(|event| Line {
                node: 0xab,
                at: Duration::from_millis(1204),
                event,
            }));
        }
        let text: Vec<String> = lines.iter().map(Line::to_string).collect();
        assert_eq!(parse(&text.join("\n")), Ok(lines));
    }

    #[test]
    fn people_may_write_comments_and_empty_lines() {
        let text = "\n# all is well\n  ab 1 over bad_fan host0   # was replaced\n";
        assert_eq!(parse(text).unwrap().len(), 1);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (wrong, expected, found) in [
            ("xy 1 over bad_fan host0", "the number of a node, such as 3fa21b07", "xy"),
            ("ab 1e11 over bad_fan host0", "seconds, such as 1.204", "1e11"),
            ("ab -1 over bad_fan host0", "seconds, such as 1.204", "-1"),
            ("ab 1 confirm bad_fan host0", "seen, confirmed, rejected, superseded or over", "confirm"),
            ("ab 1 seen endet host0 by host0 value 1", "a symptom, such as late or ended", "endet"),
            ("ab 1 over", "a fault in snake_case", ""),
            ("ab 1 over Fan host0", "a fault in snake_case", "Fan"),
            ("ab 1 over bad_fan rank2", "a place, such as host0, rank2@host0 or host0>host1", "rank2"),
            ("ab 1 over bad_fan host0 again", "the end of the line", "again"),
            ("ab 1 seen ended host0 by 0 value 1", "a host, such as host0", "0"),
            ("ab 1 seen ended host0 by host0 value", "a number", ""),
        ] {
            let error = parse(&alloc::format!("# first\n{wrong}\n")).unwrap_err();
            assert_eq!(error, RecordError { line: 2, expected, found: found.to_string() });
        }
    }
}
