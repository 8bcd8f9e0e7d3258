//! What is drawn where.

use crate::{
    Arrival, Bar, Copied, Death, Timeline, axis,
    lanes::{Line, in_lanes},
    svg::{Anchor, Font, Svg},
};

const WIDTH: f64 = 1200.0;
/// The names of the ranks are left of it.
const LEFT: f64 = 92.0;
const RIGHT: f64 = WIDTH - 28.0;
/// Title, summary and legend are above it.
const TOP: f64 = 116.0;
/// The axis is below the rows.
const BOTTOM: f64 = 58.0;
/// Height of the tasks of one rank.
const TASKS: f64 = 40.0;
/// Height of the line above the tasks in which marks and labels stand, where somebody died.
const LABELS: f64 = 22.0;
/// Space between two ranks.
const GAP: f64 = 8.0;
/// Marks of the axis are at least so far apart.
const MARKS_APART: f64 = 90.0;

const INK: &str = "#1f2933";
const FAINT: &str = "#6b7785";
const GRID: &str = "#e4e8ec";
const ARRIVAL: &str = "#2f9e5b";
const DEATH: &str = "#c92a2a";
const REPAIR: &str = "#d9730d";

const LABEL: Font = Font { size: 11.0, colour: INK, bold: false };

/// The picture of `timeline`, as SVG.
pub(crate) fn draw(timeline: &Timeline) -> String {
    let plot = Plot::new(timeline);
    let mut svg = Svg::new(WIDTH, plot.bottom() + BOTTOM);
    svg.add(
        "<defs><pattern id='dead' width='7' height='7' patternUnits='userSpaceOnUse' \
         patternTransform='rotate(45)'><rect width='7' height='7' fill='#fbf3f3'/>\
         <line x1='0' y1='0' x2='0' y2='7' stroke='#efd3d3' stroke-width='2'/></pattern></defs>",
    );
    heading(&mut svg, timeline);
    legend(&mut svg, timeline);
    plot.rows(&mut svg);
    plot.axis(&mut svg);
    plot.deaths(&mut svg);
    plot.tasks(&mut svg);
    plot.arrivals(&mut svg);
    plot.copies(&mut svg);
    svg.finish()
}

fn heading(svg: &mut Svg, timeline: &Timeline) {
    let title = Font { size: 20.0, colour: INK, bold: true };
    svg.text((24.0, 30.0), Anchor::Start, title, &timeline.title);
    let summary = Font { size: 12.0, colour: FAINT, bold: false };
    svg.text((24.0, 55.0), Anchor::Start, summary, &timeline.summary);
}

/// Explains what there is to be seen.
fn legend(svg: &mut Svg, timeline: &Timeline) {
    let font = Font { size: 12.0, ..LABEL };
    let y = 82.0;
    let mut x = 24.0;
    let say = |svg: &mut Svg, x: &mut f64, words: &str| {
        svg.text((*x, y), Anchor::Start, font, words);
        *x += font.width(words) + 22.0;
    };
    arrival(svg, x + 5.0, y);
    x += 16.0;
    say(svg, &mut x, "contribution");
    for step in 0..4 {
        let looks = format!("fill='{}'", shade(f64::from(step) / 3.0));
        svg.rectangle([x + 12.0 * f64::from(step), y - 7.0, 12.0, 14.0], &looks, None);
    }
    x += 54.0;
    say(svg, &mut x, "task; number of ranks folded so far");
    if timeline.deaths.is_empty() {
        return;
    }
    death(svg, x + 6.0, y);
    x += 18.0;
    say(svg, &mut x, "death, when it is noticed");
    if timeline.deaths.iter().any(|death| !death.copies.is_empty()) {
        diamond(svg, x + 6.0, y, None);
        x += 18.0;
        say(svg, &mut x, "copy of {ranks} × segments, in place of what was lost");
        svg.rectangle([x, y - 7.0, 18.0, 14.0], &format!("fill='none' {}", outline(true, 18.0)), None);
        x += 24.0;
        say(svg, &mut x, "task with copies");
    }
}

/// Where times and ranks are in the picture.
struct Plot<'a> {
    timeline: &'a Timeline,
    end_ms: f64,
    /// Height of a rank's line of labels.
    labels: f64,
}

impl<'a> Plot<'a> {
    fn new(timeline: &'a Timeline) -> Self {
        let ends = timeline.bars.iter().map(|bar| bar.end_ms);
        let others = timeline.arrivals.iter().map(|arrival| arrival.at_ms);
        let deaths = timeline.deaths.iter().map(|death| death.at_ms);
        let end_ms = ends.chain(others).chain(deaths).fold(1e-3, f64::max);
        let labels = if timeline.deaths.is_empty() { 0.0 } else { LABELS };
        Self { timeline, end_ms, labels }
    }

    fn x(&self, at_ms: f64) -> f64 {
        LEFT + 10.0 + at_ms / self.end_ms * (RIGHT - LEFT - 20.0)
    }

    /// Upper edge of the rank's row.
    fn row(&self, rank: u32) -> f64 {
        TOP + f64::from(rank) * (self.labels + TASKS + GAP)
    }

    fn middle_of_labels(&self, rank: u32) -> f64 {
        self.row(rank) + self.labels / 2.0
    }

    fn middle_of_tasks(&self, rank: u32) -> f64 {
        self.row(rank) + self.labels + TASKS / 2.0
    }

    fn bottom(&self) -> f64 {
        self.row(self.timeline.ranks)
    }

    fn rows(&self, svg: &mut Svg) {
        for rank in 0..self.timeline.ranks {
            let (y, height) = (self.row(rank), self.labels + TASKS);
            svg.rectangle([LEFT, y, RIGHT - LEFT, height], "rx='3' fill='#f7f9fb'", None);
            let died = self.timeline.deaths.iter().any(|death| death.rank == rank);
            let colour = if died { DEATH } else { INK };
            let font = Font { size: 13.0, colour, bold: died };
            let y = self.middle_of_tasks(rank);
            svg.text((LEFT - 12.0, y), Anchor::End, font, &format!("rank {rank}"));
            if self.timeline.missing.contains(rank.into()) {
                let font = Font { colour: DEATH, ..LABEL };
                svg.text((self.x(0.0), y), Anchor::Start, font, "missing in the result");
            }
        }
    }

    fn axis(&self, svg: &mut Svg) {
        let font = Font { size: 12.0, colour: FAINT, bold: false };
        let most = ((RIGHT - LEFT) / MARKS_APART) as usize;
        let (marks, decimals) = axis::marks(self.end_ms, most);
        for mark in marks {
            let x = self.x(mark);
            let looks = format!("stroke='{GRID}'");
            svg.line((x, TOP - 4.0), (x, self.bottom()), &looks);
            svg.text((x, self.bottom() + 12.0), Anchor::Middle, font, &format!("{mark:.decimals$}"));
        }
        let middle = (LEFT + RIGHT) / 2.0;
        svg.text((middle, self.bottom() + 34.0), Anchor::Middle, font, "ms after the first contribution");
    }

    /// When who died, and that nothing came from it any more.
    fn deaths(&self, svg: &mut Svg) {
        let mut line = Line::default();
        for Death { rank, at_ms, why, .. } in &self.timeline.deaths {
            let (x, y) = (self.x(*at_ms), self.row(*rank));
            let height = self.labels + TASKS;
            let words = format!("rank {rank} is dead: {why}");
            svg.rectangle([x, y, RIGHT - x, height], "fill='url(#dead)'", Some(&words));
            let looks = format!("stroke='{DEATH}' stroke-dasharray='4 3'");
            svg.line((x, TOP - 4.0), (x, self.bottom()), &looks);
            death(svg, x, self.middle_of_tasks(*rank));
            let font = Font { colour: DEATH, bold: true, ..LABEL };
            let words = format!("rank {rank} is dead, {at_ms:.1} ms");
            let width = font.width(&words);
            let bounds = (LEFT, RIGHT);
            if let Some(begin) = line.take(bounds, width, &[x - width / 2.0, x - width, x]) {
                svg.text((begin + width / 2.0, TOP - 12.0), Anchor::Middle, font, &words);
            }
        }
    }

    fn tasks(&self, svg: &mut Svg) {
        for (bar, lane, lanes) in in_lanes(&self.timeline.bars) {
            let Bar { rank, start_ms, end_ms, held, repairs, words } = bar;
            let height = TASKS / f64::from(lanes);
            let y = self.row(*rank) + self.labels + f64::from(lane) * height;
            let (x, width) = (self.x(*start_ms), (self.x(*end_ms) - self.x(*start_ms)).max(1.0));
            // The darker, the more ranks are folded into it.
            let share = *held as f64 / f64::from(self.timeline.ranks);
            let looks = format!("rx='1.5' fill='{}' {}", shade(share), outline(*repairs, width));
            svg.rectangle([x, y + 0.75, width, height - 1.5], &looks, Some(words));
            let colour = if share > 0.5 { "white" } else { INK };
            let font = Font { size: (height - 3.0).min(12.0), colour, bold: false };
            let number = held.to_string();
            if font.size >= 6.0 && font.width(&number) + 4.0 <= width {
                svg.text((x + width / 2.0, y + height / 2.0), Anchor::Middle, font, &number);
            }
        }
    }

    fn arrivals(&self, svg: &mut Svg) {
        for Arrival { rank, at_ms } in &self.timeline.arrivals {
            arrival(svg, self.x(*at_ms), self.middle_of_tasks(*rank));
        }
    }

    /// Whose copies took the place of what was lost.
    fn copies(&self, svg: &mut Svg) {
        let mut lines = vec![Line::default(); self.timeline.ranks as usize];
        for Death { at_ms, copies, .. } in &self.timeline.deaths {
            for (holder, copied) in copies {
                let (x, y) = (self.x(*at_ms), self.middle_of_labels(*holder));
                let all: Vec<String> = copied.iter().map(Copied::words).collect();
                diamond(svg, x, y, Some(&all.join(", ")));
                let words = short(copied);
                let width = LABEL.width(&words) + 12.0;
                let line = &mut lines[*holder as usize];
                let begins = [x + 8.0, x - 8.0 - width];
                let Some(begin) = line.take((LEFT, RIGHT), width, &begins) else { continue };
                let looks =
                    format!("rx='3' fill='white' fill-opacity='0.85' stroke='{REPAIR}' stroke-width='0.75'");
                svg.rectangle([begin, y - 8.0, width, 16.0], &looks, None);
                svg.text((begin + width / 2.0, y), Anchor::Middle, LABEL, &words);
            }
        }
    }
}

impl Copied {
    fn words(&self) -> String {
        format!("{} × {}", self.path, self.segments)
    }
}

/// The most frequent two, and how many more there are.
fn short(copied: &[Copied]) -> String {
    let mut copied: Vec<&Copied> = copied.iter().collect();
    copied.sort_by_key(|copied| std::cmp::Reverse(copied.segments));
    let shown: Vec<String> = copied.iter().take(2).map(|copied| copied.words()).collect();
    let rest = copied.len() - shown.len();
    let more = if rest == 0 { String::new() } else { format!(", {rest} more") };
    shown.join(", ") + &more
}

/// Light for a partial of few ranks, dark for one of all.
fn shade(share: f64) -> String {
    format!("hsl(210, 58%, {:.0}%)", 86.0 - 52.0 * share.clamp(0.0, 1.0))
}

/// A narrow task would be all outline.
fn outline(repairs: bool, width: f64) -> String {
    match repairs {
        true => format!("stroke='{REPAIR}' stroke-width='1.5'"),
        false if width < 3.0 => String::new(),
        false => "stroke='#1f3a5f' stroke-opacity='0.45' stroke-width='0.6'".to_owned(),
    }
}

fn arrival(svg: &mut Svg, x: f64, y: f64) {
    svg.add(format_args!(
        "<circle cx='{x:.2}' cy='{y:.2}' r='4.5' fill='{ARRIVAL}' stroke='white' stroke-width='1'/>"
    ));
}

fn death(svg: &mut Svg, x: f64, y: f64) {
    for side in [-1.0, 1.0] {
        let looks = format!("stroke='{DEATH}' stroke-width='3' stroke-linecap='round'");
        svg.line((x - 5.0, y - 5.0 * side), (x + 5.0, y + 5.0 * side), &looks);
    }
}

fn diamond(svg: &mut Svg, x: f64, y: f64, words: Option<&str>) {
    let words = words.map_or(String::new(), |words| format!("<title>{words}</title>"));
    svg.add(format_args!(
        "<path d='M{x:.2} {:.2}l6 6l-6 6l-6 -6z' fill='{REPAIR}' stroke='white'>{words}</path>",
        y - 6.0
    ));
}
