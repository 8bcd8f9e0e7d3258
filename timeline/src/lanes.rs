//! Places for what would else lie on top of each other.

use crate::Bar;

/// Gives tasks that one rank did at the same time lanes of their own: bar, lane, number of lanes of that
/// rank.
pub(crate) fn in_lanes(bars: &[Bar]) -> Vec<(&Bar, u32, u32)> {
    let mut bars: Vec<&Bar> = bars.iter().collect();
    bars.sort_by(|a, b| a.rank.cmp(&b.rank).then(a.start_ms.total_cmp(&b.start_ms)));
    bars.chunk_by(|a, b| a.rank == b.rank).flat_map(lanes_of_one).collect()
}

fn lanes_of_one<'a>(bars: &[&'a Bar]) -> Vec<(&'a Bar, u32, u32)> {
    let mut busy_until: Vec<f64> = Vec::new();
    let place = |bar: &&'a Bar| {
        let free = busy_until.iter().position(|until| *until <= bar.start_ms);
        let lane = free.unwrap_or_else(|| {
            busy_until.push(0.0);
            busy_until.len() - 1
        });
        busy_until[lane] = bar.end_ms;
        (*bar, lane as u32)
    };
    let placed: Vec<_> = bars.iter().map(place).collect();
    let lanes = busy_until.len() as u32;
    placed.into_iter().map(|(bar, lane)| (bar, lane, lanes)).collect()
}

/// The parts of a line that labels occupy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line(Vec<(f64, f64)>);

impl Line {
    /// Takes the first of these places that is free and lies in `bounds`, by its begin; all are `width` wide.
    pub(crate) fn take(&mut self, bounds: (f64, f64), width: f64, begins: &[f64]) -> Option<f64> {
        let free = |begin: f64| self.0.iter().all(|(from, to)| begin + width <= *from || *to <= begin);
        let fits = |begin: f64| bounds.0 <= begin && begin + width <= bounds.1;
        let begin = begins.iter().copied().find(|begin| fits(*begin) && free(*begin))?;
        self.0.push((begin, begin + width));
        Some(begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_at_the_same_time_lie_side_by_side() {
        let bar = |rank, start_ms, end_ms| Bar {
            rank,
            start_ms,
            end_ms,
            held: 2,
            repairs: false,
            words: String::new(),
        };
        let bars = [bar(1, 0.0, 2.0), bar(0, 0.0, 1.0), bar(1, 1.0, 3.0), bar(1, 2.0, 4.0)];
        let placed = in_lanes(&bars).into_iter().map(|(bar, lane, of)| (bar.rank, bar.start_ms, lane, of));
        assert_eq!(Vec::from_iter(placed), [(0, 0.0, 0, 1), (1, 0.0, 0, 2), (1, 1.0, 1, 2), (1, 2.0, 0, 2)]);
    }

    #[test]
    fn labels_do_not_overlap() {
        let mut line = Line::default();
        let bounds = (0.0, 100.0);
        assert_eq!(line.take(bounds, 40.0, &[50.0, 0.0]), Some(50.0));
        assert_eq!(line.take(bounds, 40.0, &[70.0, 20.0, 5.0]), Some(5.0));
        assert_eq!(line.take(bounds, 5.0, &[98.0, -1.0]), None);
        assert_eq!(line.take(bounds, 5.0, &[45.0]), Some(45.0));
    }
}
