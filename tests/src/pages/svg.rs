//! Pictures for `docs/`, as SVG: what charts need, and no more. Without a background; each colour is
//! there for light pages and for dark ones.

use std::fmt::Write as _;

/// What a shape is for, which is its colour.
#[derive(Clone, Copy, Debug)]
pub enum Ink {
    /// What is shown first.
    First,
    /// What is shown beside it.
    Second,
    /// An axis.
    Axis,
    /// Lines to read along.
    Grid,
    /// What values are held against.
    Mark,
}

impl Ink {
    fn class(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Second => "second",
            Self::Axis => "axis",
            Self::Grid => "grid",
            Self::Mark => "mark",
        }
    }
}

/// How text is set.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// A title.
    Head,
    /// Words.
    Plain,
    /// Numbers beside what they are about.
    Small,
}

impl Type {
    fn class(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Plain => "plain",
            Self::Small => "small",
        }
    }
}

/// Where text is, seen from its point.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// To the right of it.
    Start,
    /// Around it.
    Middle,
    /// To the left of it.
    End,
}

const STYLE: &str = "<style>\
text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#57606a}\
.head{font-size:16px;font-weight:600;fill:#24292f}.small{font-size:11px}\
rect{fill:currentColor}polyline{fill:none;stroke:currentColor;stroke-width:1.6}\
.first{color:#0f8b8d}.second{color:#d97706}.mark{color:#24292f;stroke-width:2}\
.axis{color:#57606a;stroke-width:1}.grid{color:#8c959f;stroke-width:1;stroke-opacity:.3}\
@media(prefers-color-scheme:dark){text{fill:#9aa4af}.head{fill:#e6edf3}.first{color:#2bb3b5}\
.second{color:#f0a03c}.mark{color:#e6edf3}.axis{color:#9aa4af}}</style>";

/// A picture in the making.
#[derive(Debug)]
pub struct Svg {
    out: String,
}

impl Svg {
    /// An empty one, of so many pixels; `title` is for those who cannot see it.
    #[must_use]
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        let out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{}</title>\n{STYLE}\n",
            escaped(title)
        );
        Self { out }
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _written = writeln!(self.out, "{element}");
    }

    /// Text at a point of its base line.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, kind: Type, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.put(format_args!(
            "<text class=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            kind.class(),
            escaped(text)
        ));
    }

    /// A line through these points.
    pub fn line(&mut self, points: &[(f64, f64)], ink: Ink) {
        let mut list = String::new();
        for (x, y) in points {
            let _written = write!(list, "{x:.1},{y:.1} ");
        }
        self.put(format_args!(
            "<polyline class=\"{}\" points=\"{}\"/>",
            ink.class(),
            list.trim_end()
        ));
    }

    /// A filled rectangle.
    pub fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), ink: Ink) {
        self.put(format_args!(
            "<rect class=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\" rx=\"2\"/>",
            ink.class()
        ));
    }

    /// What a colour stands for: a patch of it, and words beside it, on this base line.
    pub fn legend(&mut self, (x, y): (f64, f64), ink: Ink, text: &str) {
        self.bar((x, y - 10.0), (12.0, 12.0), ink);
        self.text((x + 18.0, y), Anchor::Start, Type::Plain, text);
    }

    /// The whole document.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A number of the kind 1, 2 or 5 times a power of ten, not below `most`: where an axis ends.
#[must_use]
pub fn round_up(most: f64) -> f64 {
    let power = 10_f64.powf(most.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= most * 0.999_999).unwrap_or(most)
}

/// Axes, a title, and lines in them.
#[derive(Debug)]
pub struct Panel<'a> {
    /// Above it.
    pub title: &'a str,
    /// Its upper left corner.
    pub at: (f64, f64),
    /// Width and height, without what is written around it.
    pub size: (f64, f64),
    /// The ends of the horizontal axis.
    pub across: (f64, f64),
    /// Between two numbers on it.
    pub step: f64,
    /// The upper end of the vertical axis, which begins at 0.
    pub top: f64,
}

impl Panel<'_> {
    /// Draws the axes and what is written on them.
    pub fn draw(&self, svg: &mut Svg) {
        let ((x, y), (width, height)) = (self.at, self.size);
        svg.text((x, y - 8.0), Anchor::Start, Type::Plain, self.title);
        svg.line(&[(x, y), (x, y + height), (x + width, y + height)], Ink::Axis);
        for share in [0.0, 0.5, 1.0] {
            let (_, up) = self.place((self.across.0, self.top * share));
            svg.text((x - 6.0, up + 4.0), Anchor::End, Type::Small, &short(self.top * share));
        }
        let mut number = self.across.0;
        while number <= self.across.1 {
            let (across, _) = self.place((number, 0.0));
            svg.text((across, y + height + 16.0), Anchor::Middle, Type::Small, &short(number));
            number += self.step;
        }
    }

    /// Draws a line through these values.
    pub fn plot(&self, svg: &mut Svg, values: &[(f64, f64)], ink: Ink) {
        let points: Vec<_> = values.iter().map(|value| self.place(*value)).collect();
        svg.line(&points, ink);
    }

    fn place(&self, (across, up): (f64, f64)) -> (f64, f64) {
        let ((x, y), (width, height)) = (self.at, self.size);
        let share = (across - self.across.0) / (self.across.1 - self.across.0);
        (x + width * share, y + height * (1.0 - up / self.top))
    }
}

/// 20000 as `20k`.
fn short(number: f64) -> String {
    if number.abs() >= 10_000.0 { format!("{}k", number / 1000.0) } else { format!("{number}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_a_round_number_that_is_enough() {
        for (most, end) in [(0.3, 0.5), (1.0, 1.0), (16.2, 20.0), (4001.0, 5000.0), (5e4, 5e4)] {
            assert!((round_up(most) - end).abs() < end / 1e6, "{most}: {}", round_up(most));
        }
    }

    #[test]
    fn text_cannot_become_an_element_and_values_land_where_the_axes_say() {
        let mut svg = Svg::new(100.0, 100.0, "a<b & c");
        let (at, size) = ((10.0, 10.0), (80.0, 40.0));
        let panel = Panel { title: "<p>", at, size, across: (-2.0, 2.0), step: 2.0, top: 20_000.0 };
        panel.draw(&mut svg);
        panel.plot(&mut svg, &[(-2.0, 0.0), (0.0, 10_000.0), (2.0, 20_000.0)], Ink::First);
        let text = svg.finish();
        assert!(text.contains("a&lt;b &amp; c") && text.contains("&lt;p&gt;"), "{text}");
        assert!(text.contains("points=\"10.0,50.0 50.0,30.0 90.0,10.0\""), "{text}");
        assert!(text.contains(">20k<") && text.ends_with("</svg>\n"), "{text}");
    }

    #[test]
    fn what_is_drawn_has_a_colour_for_light_pages() {
        for ink in [Ink::First, Ink::Second, Ink::Axis, Ink::Grid, Ink::Mark] {
            assert!(STYLE.contains(&format!(".{}{{color:#", ink.class())), "{ink:?}");
        }
    }
}
