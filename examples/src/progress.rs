//! Progress on standard error, for people at a terminal and for log files.

use everfold::launch;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Log files get a line each time this much more of the work is done.
const PERCENT_PER_LINE: u64 = 10;

/// How often a forwarded bar is drawn anew.
const REDRAW: Duration = Duration::from_millis(100);

/// Width of a forwarded bar, in columns.
const BAR_COLUMNS: u64 = 30;

/// Tells how much of a known amount of work is done.
///
/// The output of a rank usually passes through its launcher, line by line. If the launcher shows it on a
/// terminal, a line that is overwritten again and again is a bar. In a log file a few plain lines take its
/// place.
#[derive(Debug)]
pub enum Progress {
    /// Says nothing: one rank of a job is enough.
    Silent,
    /// Draws a bar.
    Bar(ProgressBar),
    /// Draws a bar through the launcher.
    Forwarded(Forwarded),
    /// Prints a line now and then.
    Lines(Lines),
}

/// Decides when a forwarded bar is drawn, and how.
#[derive(Debug)]
pub struct Forwarded {
    done: u64,
    total: u64,
    started: Instant,
    drawn: Instant,
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
        if launch::is_forwarded_to_terminal() {
            return Self::Forwarded(Forwarded::start(total));
        }
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
            Self::Forwarded(bar) => bar.advance(),
            Self::Lines(lines) => {
                if let Some(percent) = lines.advance() {
                    eprintln!("{percent:>3} %");
                }
            }
        }
    }

    /// Clears the bar away, so that results do not run into it.
    pub fn finish(self) {
        match self {
            Self::Silent | Self::Lines(_) => {}
            Self::Bar(bar) => bar.finish_and_clear(),
            // The whole line, with the prefix that the launcher gives it.
            Self::Forwarded(_) => eprint!("\x1b[2K\r"),
        }
    }
}

impl Forwarded {
    fn start(total: u64) -> Self {
        let now = Instant::now();
        eprint!("{}\r", bar(0, total, Duration::ZERO));
        Self { done: 0, total, started: now, drawn: now }
    }

    fn advance(&mut self) {
        self.done += 1;
        if self.drawn.elapsed() >= REDRAW {
            self.drawn = Instant::now();
            eprint!("{}\r", bar(self.done, self.total, self.started.elapsed()));
        }
    }
}

/// A bar after so much time, without the end of its line.
fn bar(done: u64, total: u64, elapsed: Duration) -> String {
    let total = total.max(1);
    let percent = 100 * done / total;
    let filled = (BAR_COLUMNS * done / total) as usize;
    let rest = BAR_COLUMNS as usize - filled;
    let left = match done {
        0 => String::new(),
        _ => format!(", {:.0} s left", elapsed.as_secs_f64() * (total - done) as f64 / done as f64),
    };
    format!("{percent:>3} % {}{} {done}/{total}{left}", "█".repeat(filled), "░".repeat(rest))
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

    #[test]
    fn a_bar_fills_up_and_says_how_long_it_will_take() {
        assert_eq!(bar(0, 4, Duration::ZERO), format!("  0 % {} 0/4", "░".repeat(30)));
        let half = format!(" 50 % {}{} 2/4, 6 s left", "█".repeat(15), "░".repeat(15));
        assert_eq!(bar(2, 4, Duration::from_secs(6)), half);
        assert_eq!(bar(4, 4, Duration::from_secs(9)), format!("100 % {} 4/4, 0 s left", "█".repeat(30)));
    }
}
