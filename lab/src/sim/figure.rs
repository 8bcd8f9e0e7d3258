//! Figures as CSV and as SVG.

use std::{fmt::Write, path::Path};

use plotters::{coord::ranged1d::ValueFormatter, prelude::*};

use crate::{Failure, files};

/// Width and height of a figure in pixels.
const SIZE: (u32, u32) = (760, 480);
/// Colours that colour-blind people tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(150, 150, 150),
];

type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// Values over some quantity, for several contestants.
#[derive(Clone, Debug)]
pub struct Figure {
    /// File name without its ending.
    pub name: String,
    /// What stands above the picture.
    pub title: String,
    /// The quantity.
    pub x: Axis,
    /// The values.
    pub y: Axis,
    /// The contestants.
    pub series: Vec<Series>,
}

/// What an axis shows.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Column of the CSV file; names the unit.
    pub column: &'static str,
    /// Title in the picture.
    pub title: &'static str,
    /// Whether equal ratios are equally far apart.
    pub logarithmic: bool,
    /// How a value is written beside the axis.
    pub show: fn(f64) -> String,
}

/// One contestant's values.
#[derive(Clone, Debug)]
pub struct Series {
    /// What the legend calls the contestant.
    pub name: String,
    /// Its values, in the order of x.
    pub points: Vec<Point>,
}

/// Repetitions at one place of the x-axis.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The place.
    pub x: f64,
    /// Mean of the repetitions.
    pub mean: f64,
    /// The least of them.
    pub least: f64,
    /// The greatest of them.
    pub most: f64,
}

impl Point {
    /// What `values` come to.
    pub fn new(x: f64, values: &[f64]) -> Self {
        Self {
            x,
            mean: values.iter().sum::<f64>() / values.len() as f64,
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

impl Figure {
    /// Writes `NAME.csv` and `NAME.svg`.
    ///
    /// # Errors
    /// The files cannot be written, or the picture cannot be drawn.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        files::write(&folder.join(format!("{}.csv", self.name)), self.csv())?;
        let svg = self.svg().map_err(|error| Failure::new(format!("cannot draw {}: {error}", self.name)))?;
        files::write(&folder.join(format!("{}.svg", self.name)), svg)
    }

    /// The mean of `series` at each x.
    pub(crate) fn means(&self, series: &str) -> Option<impl Iterator<Item = f64>> {
        let series = self.series.iter().find(|candidate| candidate.name == series)?;
        Some(series.points.iter().map(|point| point.mean))
    }

    fn csv(&self) -> String {
        let (x, y) = (self.x.column, self.y.column);
        let mut csv = format!("contestant,{x},{y}_mean,{y}_least,{y}_most\n");
        for series in &self.series {
            for Point { x, mean, least, most } in &series.points {
                let _ = writeln!(csv, "{},{x},{mean:.9},{least:.9},{most:.9}", series.name);
            }
        }
        csv
    }

    fn svg(&self) -> Result<String, DrawError> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE)?;
            let points = || self.series.iter().flat_map(|series| &series.points);
            let (x, y) = (range(points().map(|p| p.x)), range(points().flat_map(|p| [p.least, p.most])));
            // plotters knows the kind of an axis by its type. Sizes go in powers of two.
            match (self.x.logarithmic, self.y.logarithmic) {
                (true, true) => self.draw(&root, (x.0..x.1).log_scale().base(2.0), (y.0..y.1).log_scale())?,
                (true, false) => self.draw(&root, (x.0..x.1).log_scale().base(2.0), 0.0..y.1)?,
                (false, true) => self.draw(&root, x.0..x.1, (y.0..y.1).log_scale())?,
                (false, false) => self.draw(&root, x.0..x.1, 0.0..y.1)?,
            }
            root.present()?;
        }
        Ok(svg)
    }

    fn draw<X, Y>(
        &self,
        root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        x: impl plotters::coord::ranged1d::AsRangedCoord<CoordDescType = X, Value = f64>,
        y: impl plotters::coord::ranged1d::AsRangedCoord<CoordDescType = Y, Value = f64>,
    ) -> Result<(), DrawError>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(root)
            .caption(&self.title, ("sans-serif", 17))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(self.x.title)
            .y_desc(self.y.title)
            .x_label_formatter(&|value| (self.x.show)(*value))
            .y_label_formatter(&|value| (self.y.show)(*value))
            .light_line_style(RGBColor(245, 245, 245))
            .bold_line_style(RGBColor(225, 225, 225))
            .draw()?;
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let line = series.points.iter().map(|point| (point.x, point.mean));
            chart
                .draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
            chart.draw_series(line.map(|at| Circle::new(at, 3, colour.filled())))?;
            let spread = series.points.iter().filter(|point| point.least < point.most);
            chart.draw_series(spread.map(|p| PathElement::new([(p.x, p.least), (p.x, p.most)], colour)))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(225, 225, 225))
            .draw()?;
        Ok(())
    }
}

/// From the least to the most, with a little room.
fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(f64::NEG_INFINITY, f64::max);
    if least < most { (least * 0.9, most * 1.1) } else { (least * 0.5, most * 2.0 + f64::MIN_POSITIVE) }
}

/// Seconds as people read them.
pub fn seconds(value: f64) -> String {
    match value {
        _ if value >= 1.0 => format!("{value} s"),
        _ if value >= 1e-3 => format!("{} ms", (value * 1e6).round() / 1e3),
        _ => format!("{} µs", (value * 1e9).round() / 1e3),
    }
}

/// A plain number.
pub(crate) fn number(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(logarithmic: bool) -> Figure {
        let axis = |column, show| Axis { column, title: "an axis", logarithmic, show };
        let points = vec![Point::new(1.0, &[2.0, 4.0]), Point::new(8.0, &[3.0])];
        Figure {
            name: "figure".to_owned(),
            title: "a < b".to_owned(),
            x: axis("x", number),
            y: axis("y_s", seconds),
            series: vec![Series { name: "one".to_owned(), points }],
        }
    }

    #[test]
    fn csv_has_a_line_per_point() {
        let expected = "contestant,x,y_s_mean,y_s_least,y_s_most\n\
            one,1,3.000000000,2.000000000,4.000000000\none,8,3.000000000,3.000000000,3.000000000\n";
        assert_eq!(figure(true).csv(), expected);
    }

    #[test]
    fn pictures_show_titles_and_contestants() {
        for logarithmic in [true, false] {
            let svg = figure(logarithmic).svg().unwrap();
            for text in ["a &lt; b", "an axis", "one"] {
                assert!(svg.contains(text), "{text}");
            }
        }
    }
}
