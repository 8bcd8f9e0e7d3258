//! How ranks are named in front of their lines.

use std::io::IsTerminal;

use everfold_protocol::Rank;

use crate::launch::terminal;

/// See <https://no-color.org>.
fn wants_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// What can be done where one of our streams is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Screen {
    is_coloured: bool,
    is_overwritten: bool,
}

impl Screen {
    pub(super) fn of(stream: &impl IsTerminal) -> Self {
        Self {
            is_coloured: stream.is_terminal() && wants_colour(),
            is_overwritten: terminal::can_overwrite(stream),
        }
    }

    /// Whether a line that ends in a carriage return is overwritten by the next one.
    pub(super) fn is_overwritten(self) -> bool {
        self.is_overwritten
    }

    /// The beginning of each line.
    pub(super) fn erase(self) -> &'static str {
        if self.is_overwritten { terminal::ERASE } else { "" }
    }
}

/// How the ranks are named in front of their lines.
pub(super) struct Labels {
    digits: usize,
    screen: Screen,
}

impl Labels {
    pub(super) fn new(ranks: u32, screen: Screen) -> Self {
        Self { digits: ranks.saturating_sub(1).to_string().len(), screen }
    }

    pub(super) fn of(&self, rank: Rank) -> Vec<u8> {
        let Self { digits, screen } = *self;
        // Cyan, green, yellow, magenta, blue. Red is left for warnings.
        let colour = [36, 32, 33, 35, 34][rank.index() % 5];
        let label = format!("[{:digits$}]", rank.0);
        let label = if screen.is_coloured { format!("\x1b[{colour}m{label}\x1b[0m") } else { label };
        format!("{}{label} ", screen.erase()).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_aligned_and_coloured() {
        let label = |ranks, is_coloured, rank| {
            Labels::new(ranks, Screen { is_coloured, ..Screen::default() }).of(Rank(rank))
        };
        assert_eq!(label(1, false, 0), b"[0] ");
        assert_eq!(label(10, false, 9), b"[9] ");
        assert_eq!(label(11, false, 9), b"[ 9] ");
        assert_eq!(label(4096, false, 42), b"[  42] ");
        assert_eq!(label(8, true, 6), b"\x1b[32m[6]\x1b[0m ");
        let screen = Screen { is_overwritten: true, ..Screen::default() };
        assert_eq!(Labels::new(8, screen).of(Rank(6)), b"\x1b[K[6] ");
    }
}
