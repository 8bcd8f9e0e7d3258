//! A plan as a picture: live bytes over time, and where checkpoints are taken.

use everfold_planner::{
    machine::Part,
    plan::{Plan, Track},
    profile::Profile,
};
use everfold_protocol::units::show_bytes;
use plotters::{coord::Shift, prelude::*};

use super::profile::Described;
use crate::Failure;

/// Width of the picture, and height of one part, in pixels.
const WIDTH: u32 = 1000;
const HEIGHT: u32 = 340;
/// As many points as can be told apart; of more, columns show the least and the most.
const COLUMNS: usize = 800;

const LIVE: RGBColor = RGBColor(86, 180, 233);
const LEAST: RGBColor = RGBColor(0, 114, 178);
const STOP: RGBColor = RGBColor(213, 94, 0);

type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// The least and the most live bytes in a span of time.
#[derive(Clone, Copy)]
struct Column {
    from_s: f64,
    to_s: f64,
    least: f64,
    most: f64,
}

/// The picture of `plan`, as SVG.
///
/// # Errors
/// It cannot be drawn.
pub fn draw(described: &Described, plan: &Plan) -> Result<String, Failure> {
    let mut svg = String::new();
    let height = HEIGHT * plan.tracks.len() as u32;
    let drawn = (|| {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, track) in root.split_evenly((plan.tracks.len(), 1)).iter().zip(&plan.tracks) {
            draw_track(area, described, track)?;
        }
        root.present()
    })();
    drawn.map_err(|error: DrawError| Failure::new(format!("cannot draw the plan: {error}")))?;
    Ok(svg)
}

fn draw_track(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    described: &Described,
    track: &Track,
) -> Result<(), DrawError> {
    let whose = match track.part {
        Part::Whole => "host and device",
        Part::Host => "host",
        Part::Device => "device",
    };
    let columns = columns(&described.profile, track.part);
    let most = columns.iter().map(|column| column.most).fold(1.0, f64::max);
    let end_s = described.profile.run_ns() as f64 / 1e9;
    let title = format!("{}: {whose}, {} checkpoints", described.title, track.stops.len());
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..end_s, 0.0..most * 1.12)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc("seconds without checkpoints; dark and light: least and most live bytes; dots: checkpoints")
        .y_desc("live bytes")
        .y_label_formatter(&|bytes| show_bytes(*bytes))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    let block = |column: &Column, bytes: f64, colour: RGBColor| {
        Rectangle::new([(column.from_s, 0.0), (column.to_s, bytes)], colour.filled())
    };
    chart.draw_series(columns.iter().map(|column| block(column, column.most, LIVE)))?;
    chart.draw_series(columns.iter().map(|column| block(column, column.least, LEAST)))?;
    let at = |stop: &everfold_planner::plan::Stop| (stop.at_ns as f64 / 1e9, stop.bytes as f64);
    let stops = track.stops.iter().map(at);
    chart.draw_series(
        stops.clone().map(|(at_s, bytes)| PathElement::new([(at_s, bytes), (at_s, most * 1.08)], STOP)),
    )?;
    chart.draw_series(stops.map(|at| Circle::new(at, 3, STOP.filled())))?;
    Ok(())
}

/// Live bytes over time. They hold from a point until the next one. Neighbours that are alike are one column.
fn columns(profile: &Profile, part: Part) -> Vec<Column> {
    let each = profile.len().div_ceil(COLUMNS);
    let mut columns: Vec<Column> = Vec::with_capacity(COLUMNS + 1);
    for (number, visit) in profile.visits().enumerate() {
        let at_s = visit.at_ns as f64 / 1e9;
        let bytes = part.bytes(visit.point.host_bytes, visit.point.device_bytes) as f64;
        if number % each == 0 {
            columns.last_mut().into_iter().for_each(|last| last.to_s = at_s);
            columns.push(Column { from_s: at_s, to_s: at_s, least: bytes, most: bytes });
        }
        let last = columns.last_mut().expect("one was begun with the first point");
        last.least = last.least.min(bytes);
        last.most = last.most.max(bytes);
    }
    columns.last_mut().into_iter().for_each(|last| last.to_s = profile.run_ns() as f64 / 1e9);
    columns.dedup_by(|next, column| {
        let alike = (next.least, next.most) == (column.least, column.most);
        if alike {
            column.to_s = next.to_s;
        }
        alike
    });
    columns
}
