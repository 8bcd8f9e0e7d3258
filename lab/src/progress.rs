//! How far long work is, for people at a terminal. Where stderr is no terminal nothing is drawn.

use std::{borrow::Cow, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// How often the time is drawn anew while no step ends.
const TICK: Duration = Duration::from_millis(250);

/// A bar over `steps` steps of `what`, drawn at once. Its clock goes on while a step takes long.
///
/// A thread draws it. Where time is measured that would disturb.
pub fn bar(steps: u64, what: impl Into<Cow<'static, str>>) -> ProgressBar {
    let bar = ProgressBar::new(steps).with_message(what);
    let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}
