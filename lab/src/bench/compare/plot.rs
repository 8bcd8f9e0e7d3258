//! Times over sizes, or over the number of reductions, of one case in one place, as a picture.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use plotters::prelude::*;

use super::{
    case::{Case, Roots},
    field::Maker,
    peers::Library,
    report::Measured,
};
use crate::{Failure, size};

const SIZE: (u32, u32) = (900, 560);
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(31, 41, 51);
const GRID: RGBColor = RGBColor(228, 232, 236);

/// Who a line is, in the order of the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    Bound,
    Sockets,
    Array,
    Vec,
    Unprotected,
    AsItComes(Library),
    Best(Library),
}

impl Line {
    fn label(self) -> String {
        match self {
            Self::Bound => "bound".to_owned(),
            Self::Sockets => "plain sockets".to_owned(),
            Self::Array => "everfold, array".to_owned(),
            Self::Vec => "everfold, Vec".to_owned(),
            Self::Unprotected => "everfold, array, unprotected".to_owned(),
            Self::AsItComes(library) => format!("{} as it comes", library.name()),
            Self::Best(library) => format!("{}, best algorithm", library.name()),
        }
    }

    fn style(self) -> ShapeStyle {
        let (colour, width) = match self {
            Self::Bound => (RGBColor(140, 150, 160), 1),
            Self::Sockets => (RGBColor(90, 100, 110), 1),
            Self::Array => (RGBColor(201, 42, 42), 3),
            Self::Vec => (RGBColor(230, 140, 140), 2),
            Self::Unprotected => (RGBColor(235, 150, 60), 2),
            Self::AsItComes(Library::OpenMpi) => (RGBColor(160, 190, 225), 2),
            Self::Best(Library::OpenMpi) => (RGBColor(30, 90, 170), 2),
            Self::AsItComes(Library::Mpich) => (RGBColor(165, 210, 170), 2),
            Self::Best(Library::Mpich) => (RGBColor(40, 130, 60), 2),
        };
        ShapeStyle::from(colour).stroke_width(width)
    }
}

/// Draws the results of a case in a place into files whose names begin with `file`: one for reductions to one
/// root, and one for those to all roots, if there are any.
///
/// # Errors
/// A file cannot be written.
pub fn draw_all(title: &str, results: &[Measured], file: &Path) -> Result<(), Failure> {
    let (all_roots, one_root): (Vec<_>, Vec<_>) =
        results.iter().partition(|one| one.exercise.roots == Roots::Rotating);
    let file = |suffix: &str| PathBuf::from(format!("{}{suffix}.svg", file.display()));
    draw(title, &one_root, &file(""))?;
    draw(&format!("{title}, all roots"), &all_roots, &file("-all-roots"))
}

/// Draws results that differ in nothing but their size, or number, and the algorithms. Nothing if there is
/// but one.
fn draw(title: &str, results: &[&Measured], file: &Path) -> Result<(), Failure> {
    let lines = lines(results);
    let points = || lines.values().flatten();
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)))
    };
    let (left, right) = range(&mut points().map(|(x, _)| *x));
    let (low, high) = range(&mut points().map(|(_, y)| *y));
    if left >= right {
        return Ok(());
    }
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", file.display()));
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(|error| failed(&error))?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT, 18).into_font().color(&INK))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(72)
        .build_cartesian_2d((left..right).log_scale(), (low / 1.5..high * 1.5).log_scale())
        .map_err(|error| failed(&error))?;
    let is_many = results.iter().any(|measured| measured.exercise.case == Case::Concurrent);
    let x_label = |x: &f64| if is_many { format!("{x:.0}") } else { size::show(x.round() as u64) };
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_desc(if is_many { "reductions of 8 MiB at once" } else { "size of a body" })
        .y_desc("median, ms")
        .x_label_formatter(&x_label)
        .draw()
        .map_err(|error| failed(&error))?;
    for (line, points) in lines {
        let style = line.style();
        let series = LineSeries::new(points, style).point_size(if line == Line::Bound { 0 } else { 3 });
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style);
        chart.draw_series(series).map_err(|error| failed(&error))?.label(line.label()).legend(legend);
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .label_font((FONT, 13).into_font().color(&INK))
        .draw()
        .map_err(|error| failed(&error))?;
    drop(chart);
    area.present().map_err(|error| failed(&error))
}

/// Points by line: size or number, and milliseconds.
fn lines(results: &[&Measured]) -> BTreeMap<Line, Vec<(f64, f64)>> {
    let mut lines: BTreeMap<Line, Vec<(f64, f64)>> = BTreeMap::new();
    for measured in results {
        let x = match measured.exercise.case {
            Case::Concurrent => f64::from(measured.exercise.count),
            _ => measured.exercise.bytes as f64,
        };
        let mut best: BTreeMap<Line, f64> = BTreeMap::new();
        let mut take = |line, seconds: f64| {
            let least = best.entry(line).or_insert(f64::INFINITY);
            *least = least.min(seconds);
        };
        for side in &measured.sides {
            let seconds = side.quartiles.median_s;
            match side.maker {
                Maker::Sockets => take(Line::Sockets, seconds),
                Maker::Everfold => {
                    let line = match side.name {
                        "array" => Line::Array,
                        "Vec" => Line::Vec,
                        _ => Line::Unprotected,
                    };
                    take(line, seconds);
                }
                Maker::Library(library) => {
                    take(Line::Best(library), seconds);
                    if side.as_it_comes {
                        take(Line::AsItComes(library), seconds);
                    }
                }
            }
        }
        measured
            .bound_s
            .into_iter()
            .filter(|bound_s| *bound_s > 0.0)
            .for_each(|bound_s| take(Line::Bound, bound_s));
        for (line, seconds) in best {
            lines.entry(line).or_default().push((x, seconds * 1e3));
        }
    }
    lines
}
