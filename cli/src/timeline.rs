//! What happened in one reduction, as a picture: who folded what, when, and how much was in it then.

use std::path::Path;

use everfold::Report;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

/// The tasks of one reduction, ready to be drawn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timeline {
    ranks: u32,
    bytes: u64,
    /// Rank, and when its contribution came, in milliseconds.
    arrivals: Vec<(u32, f64)>,
    bars: Vec<Bar>,
    summary: String,
}

/// One task.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Bar {
    rank: u32,
    segment: u32,
    start_ms: f64,
    end_ms: f64,
    /// Ranks in the executor's partial after the task.
    path: u32,
}

impl Timeline {
    /// The tasks in `report`, which has to have a trace.
    pub fn new(ranks: u32, bytes: u64, report: &Report) -> Self {
        let bars = report.trace.iter().map(|task| Bar {
            rank: task.executor.0,
            segment: task.segment.0,
            start_ms: task.start.as_secs_f64() * 1e3,
            end_ms: task.end.as_secs_f64() * 1e3,
            path: (task.own.len() + task.sources.iter().map(|(_, path)| path.len()).sum::<usize>()) as u32,
        });
        let arrivals = report.arrivals.iter().map(|(rank, at)| (rank.0, at.as_secs_f64() * 1e3));
        Self { ranks, bytes, arrivals: arrivals.collect(), bars: bars.collect(), summary: report.to_string() }
    }
}

const WIDTH: u32 = 1200;
const ROW_HEIGHT: u32 = 56;
const MARGIN: u32 = 150;

/// Draws `timeline` as SVG.
pub fn draw(timeline: &Timeline, path: &Path) -> Result<(), std::io::Error> {
    let height = MARGIN + ROW_HEIGHT * timeline.ranks;
    // The file appears when it is complete.
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw_on(&root, timeline).map_err(|error| std::io::Error::other(error.to_string()))?;
    }
    std::fs::write(path, svg)
}

fn draw_on<D: DrawingBackend>(
    root: &DrawingArea<D, plotters::coord::Shift>,
    timeline: &Timeline,
) -> Result<(), DrawingAreaErrorKind<D::ErrorType>> {
    root.fill(&WHITE)?;
    let end_ms = timeline.bars.iter().map(|bar| bar.end_ms).fold(1e-3, f64::max);
    let title = format!("one reduction of {} on {} ranks", crate::size::show(timeline.bytes), timeline.ranks);
    let ranks = f64::from(timeline.ranks);
    let mut chart = ChartBuilder::on(root)
        .margin(20)
        .caption(title, ("sans-serif", 22))
        .x_label_area_size(70)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end_ms * 1.02, -0.5..ranks + 0.4)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc(format!("ms after the first contribution — {}", timeline.summary))
        .y_labels(timeline.ranks as usize + 1)
        .y_label_formatter(&|rank| format!("rank {rank:.0}"))
        .draw()?;
    for (bar, lane, lanes) in in_lanes(&timeline.bars) {
        let height = 0.84 / f64::from(lanes);
        let low = f64::from(bar.rank) - 0.42 + f64::from(lane) * height;
        let corners = [(bar.start_ms, low), (bar.end_ms, low + height * 0.92)];
        // The darker, the more ranks are folded into it.
        let share = f64::from(bar.path) / ranks;
        let colour = HSLColor(0.58, 0.65, 0.85 - 0.5 * share);
        chart.draw_series([
            Rectangle::new(corners, colour.filled()),
            Rectangle::new(corners, BLACK.mix(0.5)),
        ])?;
        let width_px = (bar.end_ms - bar.start_ms) / end_ms * f64::from(WIDTH - 150);
        if width_px > 14.0 {
            let colour = if share > 0.5 { &WHITE } else { &BLACK };
            let style = ("sans-serif", 12).into_font().color(colour);
            let at = (bar.start_ms + end_ms * 0.002, low + height * 0.86);
            chart.draw_series([Text::new(bar.path.to_string(), at, style)])?;
        }
    }
    let circles =
        timeline.arrivals.iter().map(|&(rank, at_ms)| Circle::new((at_ms, f64::from(rank)), 4, RED.filled()));
    chart
        .draw_series(circles)?
        .label("contribution")
        .legend(|(x, y)| Circle::new((x + 8, y), 4, RED.filled()));
    let task = |(x, y)| Rectangle::new([(x, y - 6), (x + 16, y + 6)], HSLColor(0.58, 0.65, 0.5).filled());
    chart
        .draw_series(std::iter::empty::<Rectangle<(f64, f64)>>())?
        .label("task, and ranks in the partial after it")
        .legend(task);
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()
}

/// Gives tasks that one rank did at the same time lanes of their own: bar, lane, number of lanes of that rank.
fn in_lanes(bars: &[Bar]) -> Vec<(&Bar, u32, u32)> {
    let mut bars: Vec<&Bar> = bars.iter().collect();
    bars.sort_by(|a, b| {
        (a.rank, a.start_ms).partial_cmp(&(b.rank, b.start_ms)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut placed = Vec::new();
    let mut rank = None;
    let mut busy_until: Vec<f64> = Vec::new();
    let mut first = 0;
    for bar in bars {
        if rank != Some(bar.rank) {
            settle(&mut placed[first..], busy_until.len());
            (rank, first) = (Some(bar.rank), placed.len());
            busy_until.clear();
        }
        let lane = busy_until.iter().position(|until| *until <= bar.start_ms);
        let lane = lane.unwrap_or_else(|| {
            busy_until.push(0.0);
            busy_until.len() - 1
        });
        busy_until[lane] = bar.end_ms;
        placed.push((bar, lane as u32, 1));
    }
    settle(&mut placed[first..], busy_until.len());
    placed
}

fn settle(placed: &mut [(&Bar, u32, u32)], lanes: usize) {
    for (_, _, of) in placed {
        *of = lanes as u32;
    }
}
