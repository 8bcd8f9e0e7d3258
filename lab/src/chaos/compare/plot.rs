//! Times to the end as a picture: a bar for each run, with its faults.

use std::path::Path;

use plotters::prelude::*;

use super::{
    rates::What,
    run::{End, Seen},
    table::Contestant,
};
use crate::{Failure, files};

/// Width of the picture, and height of one bar with its gap, in pixels.
const WIDTH: u32 = 960;
const BAR: u32 = 34;
/// What the rest needs of the height.
const AROUND: u32 = 110;

const INK: RGBColor = RGBColor(31, 41, 51);
const GRID: RGBColor = RGBColor(228, 232, 236);
const ENDED: RGBColor = RGBColor(86, 180, 233);
const UNDISTURBED: RGBColor = RGBColor(190, 200, 208);
const NOT_ENDED: RGBColor = RGBColor(230, 140, 140);
const FAULT: RGBColor = RGBColor(213, 94, 0);

type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// Writes the picture of all runs to `path`.
///
/// # Errors
/// It cannot be written.
pub fn draw(path: &Path, title: &str, contestants: &[Contestant]) -> Result<(), Failure> {
    let svg = picture(title, contestants)
        .map_err(|error| Failure::new(format!("cannot draw the runs: {error}")))?;
    files::write(path, svg)
}

/// The bars from top to bottom, with what is written beside them.
fn bars(contestants: &[Contestant]) -> Vec<(String, RGBColor, &Seen)> {
    let mut bars = Vec::new();
    for Contestant { file, undisturbed, trials } in contestants {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        bars.push((format!("{name}, undisturbed"), UNDISTURBED, undisturbed));
        for (number, seen) in trials.iter().enumerate() {
            let colour = if seen.end == End::Well { ENDED } else { NOT_ENDED };
            bars.push((format!("{name}, trial {number}"), colour, seen));
        }
    }
    bars
}

fn picture(title: &str, contestants: &[Contestant]) -> Result<String, DrawError> {
    let bars = bars(contestants);
    let longest_s = bars.iter().map(|(_, _, seen)| seen.time_s).fold(0.1, f64::max);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, AROUND + BAR * bars.len() as u32));
        let root = root.into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 17).into_font().color(&INK))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(220)
            .build_cartesian_2d(0.0..longest_s * 1.03, 0.0..bars.len() as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_desc("seconds; circles: processes killed, triangles: hosts, crosses: domains; red: did not come to its end")
            .draw()?;
        for (index, (name, colour, seen)) in bars.iter().enumerate() {
            let middle = (bars.len() - index) as f64 - 0.5;
            let bar = [(0.0, middle - 0.3), (seen.time_s, middle + 0.3)];
            chart.draw_series([Rectangle::new(bar, colour.filled())])?;
            let (left, height) = chart.backend_coord(&(0.0, middle));
            root.draw(&Text::new(
                name.clone(),
                (left - 210, height - 7),
                ("sans-serif", 14).into_font().color(&INK),
            ))?;
            for injected in seen.faults.iter().filter(|injected| injected.hit.is_some()) {
                let at = (seen.begun_s.unwrap_or_default() + injected.fault.at_s, middle);
                match injected.fault.what {
                    What::Process { .. } => drop(chart.draw_series([Circle::new(at, 4, FAULT.filled())])?),
                    What::Host(_) => drop(chart.draw_series([TriangleMarker::new(at, 6, FAULT.filled())])?),
                    What::Domain(_) => drop(chart.draw_series([Cross::new(at, 6, FAULT.stroke_width(2))])?),
                }
            }
        }
        root.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::{super::table::tests::contestant, *};

    #[test]
    fn each_run_is_a_bar_and_each_fault_that_hit_a_mark() {
        let contestants = [contestant("a.toml", &[10.0, 60.0]), contestant("b.toml", &[8.0, 9.0])];
        let svg = picture("two files", &contestants).expect("it is drawn");
        assert_eq!(svg.matches("<circle").count(), 6, "one of two faults has hit, in each of six runs");
        for name in ["a, undisturbed", "a, trial 1", "b, trial 0"] {
            assert!(svg.contains(name), "{name}");
        }
    }
}
