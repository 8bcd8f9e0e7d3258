//! Shapes and text of an SVG document.

use std::fmt::{Display, Write};

/// A document under way. Lengths are in pixels, the origin is the upper left corner.
#[derive(Debug)]
pub(crate) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

/// Where a text stands relative to its position.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Size and looks of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Font {
    pub size: f64,
    pub colour: &'static str,
    pub bold: bool,
}

impl Font {
    /// About how wide `text` is; which typeface shows it is not known.
    pub fn width(self, text: &str) -> f64 {
        let of = |letter: char| if "filjrt ,.;:{}()".contains(letter) { 0.4 } else { 0.62 };
        text.chars().map(of).sum::<f64>() * self.size * if self.bold { 1.1 } else { 1.0 }
    }
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Self {
        Self { body: String::new(), width, height }
    }

    /// Adds an element as it is.
    pub fn add(&mut self, element: impl Display) {
        let _ = writeln!(self.body, "{element}");
    }

    /// A rectangle; `looks` are further attributes, and `words` are shown to who points at it.
    pub fn rectangle(&mut self, [x, y, width, height]: [f64; 4], looks: &str, words: Option<&str>) {
        let words = words.map_or(String::new(), |words| format!("<title>{}</title>", escape(words)));
        self.add(format_args!(
            "<rect x='{x:.2}' y='{y:.2}' width='{width:.2}' height='{height:.2}' {looks}>{words}</rect>"
        ));
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), looks: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!("<line x1='{x1:.2}' y1='{y1:.2}' x2='{x2:.2}' y2='{y2:.2}' {looks}/>"));
    }

    /// A text whose middle line is at the height of `at`.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, font: Font, text: &str) {
        let Font { size, colour, bold } = font;
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if bold { "600" } else { "400" };
        // `dominant-baseline` is not known everywhere; digits and capitals are about 0.7 of the size high.
        let (x, y) = (at.0, at.1 + 0.35 * size);
        let text = escape(text);
        self.add(format_args!(
            "<text x='{x:.2}' y='{y:.2}' font-size='{size}' font-weight='{weight}' fill='{colour}' \
             text-anchor='{anchor}'>{text}</text>"
        ));
    }

    pub fn finish(self) -> String {
        let Self { body, width, height } = self;
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' \
             viewBox='0 0 {width} {height}' font-family='Inter, Helvetica, Arial, DejaVu Sans, sans-serif'>\n\
             <rect width='{width}' height='{height}' fill='white'/>\n{body}</svg>\n"
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
