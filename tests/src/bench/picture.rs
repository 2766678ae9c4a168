//! `docs/bench.svg`: how many times better mote is, as bars on a logarithmic scale, with the goals.
//! Plain shapes and colours that can be read on light and dark pages.

use std::fmt::Write;

use super::book::{Book, rows_of};
use super::rows::{Goal, Row};
use super::stats::times;
use crate::column::Column;

const WIDTH: f64 = 860.0;
/// Titles end here, bars begin.
const LEFT: f64 = 320.0;
const RIGHT: f64 = WIDTH - 70.0;
/// Of the first row.
const TOP: f64 = 74.0;
/// From row to row.
const ROW: f64 = 36.0;
const BAR: f64 = 12.0;
/// Where bars may end, times.
const SCALE: [f64; 8] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

const STYLE: &str = "<style>\
text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#57606a}\
.head{font-size:16px;font-weight:600;fill:#24292f}.value{font-size:11px}\
.lxd{fill:#0f8b8d}.incus{fill:#d97706}.goal{stroke:#24292f;stroke-width:2}\
.grid{stroke:#8c959f;stroke-opacity:.3}.one{stroke:#57606a}\
@media(prefers-color-scheme:dark){text{fill:#9aa4af}.head{fill:#e6edf3}.lxd{fill:#2bb3b5}\
.incus{fill:#f0a03c}.goal{stroke:#e6edf3}.one{stroke:#9aa4af}}</style>";

/// The picture, of the rows that README has and that have a ratio.
#[must_use]
pub fn draw(book: &Book) -> String {
    let has = |row: &&Row| row.short && most(book, row).is_some();
    let rows: Vec<&Row> = rows_of(book).into_iter().filter(has).collect();
    let scale = Scale::for_ratios(rows.iter().filter_map(|row| most(book, row)));
    let count = u32::try_from(rows.len()).expect("a few rows");
    let bottom = ROW.mul_add(f64::from(count), TOP);
    let height = bottom + 34.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">{STYLE}\n\
         <text class=\"head\" x=\"16\" y=\"28\">How many times better mote is</text>\n"
    );
    legend(&mut svg);
    grid(&mut svg, &scale, bottom);
    let mut top = TOP;
    for row in rows {
        one_row(&mut svg, book, row, &scale, top);
        top += ROW;
    }
    svg + "</svg>\n"
}

/// Its largest ratio.
fn most(book: &Book, row: &Row) -> Option<f64> {
    let ratios = [Column::LxdAgent, Column::IncusAgent].map(|theirs| book.ratio(row, theirs));
    ratios.into_iter().flatten().max_by(f64::total_cmp)
}

/// From ratios to pixels.
struct Scale {
    end: f64,
}

impl Scale {
    /// Room for all, and to 20 at least.
    fn for_ratios(ratios: impl Iterator<Item = f64>) -> Self {
        let most = ratios.fold(20.0, f64::max);
        Self { end: most * 1.1 }
    }

    fn x(&self, ratio: f64) -> f64 {
        let first = SCALE[0];
        let along = (ratio.max(first) / first).ln() / (self.end / first).ln();
        (RIGHT - LEFT).mul_add(along, LEFT)
    }
}

fn legend(svg: &mut String) {
    for (class, x, text) in
        [("lxd", LEFT, "than lxd-agent 5.0.2"), ("incus", LEFT + 170.0, "than incus-agent 6.0.4")]
    {
        let _ok = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"18\" width=\"12\" height=\"12\" rx=\"2\"/>\
             <text x=\"{}\" y=\"28\">{text}</text>",
            x + 18.0
        );
    }
    let x = LEFT + 354.0;
    let _ok = writeln!(
        svg,
        "<line class=\"goal\" x1=\"{x}\" y1=\"17\" x2=\"{x}\" y2=\"31\"/><text x=\"{}\" \
         y=\"28\">goal</text>",
        x + 8.0
    );
}

fn grid(svg: &mut String, scale: &Scale, bottom: f64) {
    for ratio in SCALE.into_iter().filter(|ratio| *ratio <= scale.end) {
        let (x, class) = (scale.x(ratio), if ratio == 1.0 { "one" } else { "grid" });
        let _ok = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>\
             <text class=\"value\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{ratio}×</text>",
            TOP - 12.0,
            TOP - 18.0
        );
    }
}

/// Bars begin at 1: to the right mote is better, to the left it is not.
fn one_row(svg: &mut String, book: &Book, row: &Row, scale: &Scale, top: f64) {
    let title = row.title.replace('`', "");
    let _ok = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{title}</text>",
        LEFT - 12.0,
        top + BAR + 4.0
    );
    let one = scale.x(1.0);
    let goal = match row.goal {
        Goal::Times(wanted) => Some(scale.x(wanted)),
        Goal::AtMost(_) | Goal::As(_) | Goal::None => None,
    };
    for (class, theirs, y) in
        [("lxd", Column::LxdAgent, top), ("incus", Column::IncusAgent, top + BAR + 1.0)]
    {
        let Some(ratio) = book.ratio(row, theirs) else { continue };
        let end = scale.x(ratio);
        let label = one.max(end) + 6.0;
        // Behind the goal's line if it would be on it.
        let label =
            goal.filter(|x| (label - 8.0..label + 36.0).contains(x)).map_or(label, |x| x + 6.0);
        let _ok = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" \
             rx=\"2\"/><text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            one.min(end),
            (end - one).abs().max(1.0),
            label,
            y + BAR - 2.0,
            times(ratio)
        );
    }
    if let Some(x) = goal {
        let _ok = writeln!(
            svg,
            "<line class=\"goal\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>",
            top - 2.0,
            BAR.mul_add(2.0, top + 3.0)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::book::tests::book;
    use super::*;

    #[test]
    fn bars_grow_by_the_same_for_each_factor_and_stay_inside() {
        let scale = Scale::for_ratios([3.0, 40.0].into_iter());
        let (one, ten) = (scale.x(1.0), scale.x(10.0));
        assert!((scale.x(2.0) - one - (scale.x(20.0) - ten)).abs() < 1e-9);
        assert!(scale.x(40.0) < RIGHT && scale.x(0.001) >= LEFT);
    }

    #[test]
    fn each_row_has_its_bars_and_its_goal() {
        let svg = draw(&book());
        let rows = rows_of(&book()).len();
        assert_eq!(svg.matches("class=\"lxd\"").count(), rows + 1);
        assert_eq!(svg.matches(">15.0×<").count(), svg.matches(">12.0×<").count());
        assert!(svg.contains(">start to the host having seen it answer<"));
        assert_eq!(svg.matches("class=\"goal\"").count(), 1 + 5);
        assert!(svg.ends_with("</svg>\n"));
    }
}
