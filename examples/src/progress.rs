//! Progress on standard error, for people at a terminal and for log files.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// Log files get a line each time this much more of the work is done.
const PERCENT_PER_LINE: u64 = 10;

/// Tells how much of a known amount of work is done.
///
/// The output of a rank usually passes through its supervisor and is no terminal. A bar would then fill the
/// log with control characters, so a few plain lines take its place.
#[derive(Debug)]
pub enum Progress {
    /// Says nothing: one rank of a job is enough.
    Silent,
    /// Draws a bar.
    Bar(ProgressBar),
    /// Prints a line now and then.
    Lines(Lines),
}

/// Decides after which step a line is due.
#[derive(Debug)]
pub struct Lines {
    done: u64,
    total: u64,
    percent_shown: u64,
}

impl Progress {
    /// Progress over `total` steps, as standard error can show it.
    pub fn on_stderr(total: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines(Lines::new(total));
        }
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template("{percent:>3} % {wide_bar} {pos}/{len}, {eta} left") {
            bar.set_style(style);
        }
        Self::Bar(bar)
    }

    /// Says that one more step is done.
    pub fn advance(&mut self) {
        match self {
            Self::Silent => {}
            Self::Bar(bar) => bar.inc(1),
            Self::Lines(lines) => {
                if let Some(percent) = lines.advance() {
                    eprintln!("{percent:>3} %");
                }
            }
        }
    }

    /// Clears the bar away, so that results do not run into it.
    pub fn finish(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

impl Lines {
    fn new(total: u64) -> Self {
        Self { done: 0, total, percent_shown: 0 }
    }

    /// The percentage to print after this step, if a line is due.
    fn advance(&mut self) -> Option<u64> {
        self.done += 1;
        let percent = 100 * self.done / self.total.max(1);
        let due = percent - percent % PERCENT_PER_LINE;
        (due > self.percent_shown).then(|| {
            self.percent_shown = due;
            due
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gets_one_line_for_every_ten_percent() {
        let mut lines = Lines::new(4096);
        let shown: Vec<u64> = (0..4096).filter_map(|_| lines.advance()).collect();
        assert_eq!(shown, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
    }

    #[test]
    fn a_few_steps_give_a_few_lines() {
        let mut lines = Lines::new(3);
        let shown: Vec<u64> = (0..3).filter_map(|_| lines.advance()).collect();
        assert_eq!(shown, [30, 60, 100]);
    }
}
