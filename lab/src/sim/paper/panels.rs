//! Figures 6 to 9.

use everfold_sim::{experiment::Experiment, model::Cluster};

use super::{
    Extent,
    contestant::{BestSegments, Contestant},
    environment::{Environment, arrivals, random},
};
use crate::{
    sim::{
        figure::{Axis, Figure, Point, Series, number, seconds},
        parallel,
    },
    size,
};

/// One picture.
struct Panel {
    /// Its place in the generator's streams.
    number: u32,
    name: String,
    title: String,
    x: Axis,
    contestants: &'static [Contestant],
    /// Value on the x-axis, size, reductions at once, environment.
    places: Vec<(f64, u64, u32, Environment)>,
}

/// One repetition of one contestant.
struct Case {
    panel: usize,
    place: usize,
    contestant: Contestant,
    repetition: u32,
}

/// Simulates all figures.
pub fn simulate(extent: &Extent) -> Vec<Figure> {
    let panels = panels(extent);
    let cluster = Cluster::new(extent.network.link());
    let places = panels.iter().flat_map(|panel| &panel.places);
    let mut sizes: Vec<u64> = places.map(|(_, bytes, ..)| *bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let best = BestSegments::find(&cluster, extent.ranks, &sizes);
    let mut cases = Vec::new();
    for (panel, of_panel) in panels.iter().enumerate() {
        for place in 0..of_panel.places.len() {
            for &contestant in of_panel.contestants {
                let repetitions = 0..extent.repeat;
                cases.extend(repetitions.map(|repetition| Case { panel, place, contestant, repetition }));
            }
        }
    }
    let times = parallel::map("figures 6 to 9", &cases, |case| {
        let (_, bytes, reductions, environment) = panels[case.panel].places[case.place];
        let place = [panels[case.panel].number, case.place as u32, case.repetition];
        let experiment = experiment(extent, &cluster, (bytes, reductions), environment, place);
        case.contestant.time(&experiment, &best).as_secs_f64()
    });
    let mut times = times.chunks(extent.repeat as usize);
    let mut figures: Vec<Figure> = panels.iter().map(|panel| panel.figure()).collect();
    for (panel, figure) in panels.iter().zip(&mut figures) {
        for (x, ..) in &panel.places {
            for series in &mut figure.series {
                series.points.push(Point::new(*x, times.next().expect("a chunk for each")));
            }
        }
    }
    figures
}

/// `reductions` at once of `bytes` bytes.
pub fn experiment(
    extent: &Extent,
    cluster: &Cluster,
    (bytes, reductions): (u64, u32),
    environment: Environment,
    place: [u32; 3],
) -> Experiment {
    let (mut random, seed) = random(extent.seed, place);
    let arrivals = arrivals(&mut random, extent.ranks, reductions);
    let cluster = Cluster { interference: environment.interference(&mut random), ..cluster.clone() };
    Experiment { arrivals, seed, ..Experiment::new(extent.ranks, bytes, cluster) }
}

fn panels(extent: &Extent) -> Vec<Panel> {
    let single = |environment| {
        let places = extent.bytes.iter().map(move |&bytes| (bytes as f64, bytes, 1, environment));
        places.collect()
    };
    let concurrent = |environment| {
        let counts = extent.concurrent.iter();
        counts.map(|&count| (f64::from(count), extent.concurrent_bytes, count, environment)).collect()
    };
    let week = |reductions| {
        let hours = extent.hours.iter();
        let at = |&hour| {
            let environment = Environment::Production(extent.ranks, hour);
            (f64::from(hour) / 24.0, extent.production_bytes, reductions, environment)
        };
        hours.map(at).collect()
    };
    let sizes = Axis {
        column: "bytes",
        title: "size of the body",
        logarithmic: true,
        show: |bytes| size::show(bytes.round() as u64),
    };
    let counts =
        Axis { column: "reductions", title: "concurrent reductions", logarithmic: false, show: number };
    let days = Axis { column: "days", title: "day", logarithmic: false, show: number };
    let (ranks, each) = (extent.ranks, size::show(extent.concurrent_bytes));
    let mut panels = Vec::new();
    let mut add = |name: String, title: String, x: &Axis, places| {
        let contestants =
            if name.starts_with("fig6") { &Contestant::ALL[..] } else { &Contestant::DISTURBED[..] };
        panels.push(Panel { number: panels.len() as u32, name, title, x: x.clone(), contestants, places });
    };
    add(
        "fig6a".into(),
        format!("One reduction on {ranks} undisturbed nodes"),
        &sizes,
        single(Environment::Ideal),
    );
    let title = format!("Concurrent reductions of {each} on {ranks} undisturbed nodes");
    add("fig6b".into(), title, &counts, concurrent(Environment::Ideal));
    for (letter, part) in ["a", "b", "c", "d"].iter().zip(extent.disturbed) {
        let nodes = extent.nodes(part);
        let environment = Environment::Disturbed(nodes);
        let title = format!("One reduction, {nodes} of {ranks} nodes disturbed");
        add(format!("fig7{letter}"), title, &sizes, single(environment));
        let title = format!("Concurrent reductions of {each}, {nodes} of {ranks} nodes disturbed");
        add(format!("fig8{letter}"), title, &counts, concurrent(environment));
    }
    let size = size::show(extent.production_bytes);
    add("fig9a".into(), format!("A week of a production cluster, {size}"), &days, week(1));
    let title = format!("A week of a production cluster, {} at once of {size}", extent.production_concurrent);
    add("fig9b".into(), title, &days, week(extent.production_concurrent));
    panels.retain(|panel| extent.wants(&panel.name));
    panels
}

impl Panel {
    /// The figure without its points.
    fn figure(&self) -> Figure {
        let series = |contestant: &Contestant| Series { name: contestant.to_string(), points: Vec::new() };
        Figure {
            name: self.name.clone(),
            title: self.title.clone(),
            x: self.x.clone(),
            y: Axis {
                column: "time_s",
                title: "time to the last result",
                logarithmic: self.x.logarithmic,
                show: seconds,
            },
            series: self.contestants.iter().map(series).collect(),
        }
    }
}
