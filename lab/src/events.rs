//! Lines of JSON that tell what happens to a job: `everfold run --events` writes them.

use std::time::{SystemTime, UNIX_EPOCH};

use everfold::launch::JobEvent;
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventLine {
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The event in words.
    pub text: String,
    /// The event.
    pub event: JobEvent,
}

impl EventLine {
    /// An event that happens now.
    pub fn now(event: JobEvent) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { at_unix_ms: since.as_millis() as u64, text: event.to_string(), event }
    }

    /// The line, with its end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).map(|line| line + "\n").expect("events are made of numbers and texts")
    }

    /// All lines of a file that are complete. Its writer may be killed, or still be writing.
    pub fn read_all(text: &str) -> Vec<Self> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use everfold::{News, Path, Rank, launch::Complete};
    use everfold_protocol::ProcessId;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let news = News::HostLost { ranks: Path::single(Rank(3)) };
        let events = [
            JobEvent::Started { process: ProcessId::first(1), pid: 4711, stands_by: false },
            JobEvent::Begun,
            JobEvent::RolledBack { to: Some(Complete { generation: 3, saved_unix_ms: 1_800_000_000_000 }) },
            JobEvent::News(news),
        ];
        let lines = events.map(EventLine::now);
        let text: String = lines.iter().map(EventLine::to_json).collect();
        assert_eq!(EventLine::read_all(&text), lines);
        assert_eq!(EventLine::read_all(&text[..text.len() - 1]), lines[..3], "the last one is not complete");
        assert!(text.starts_with("{\"at_unix_ms\":") && text.contains("\"started\":{"), "{text}");
        assert!(SystemTime::now() - Duration::from_millis(lines[0].at_unix_ms) >= UNIX_EPOCH);
    }
}
