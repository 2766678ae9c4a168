//! `docs/bench.svg`: the ratios by which mote is better, as bars on a logarithmic scale, with
//! goals.

use super::book::{Book, rows_of};
use super::rows::{Goal, Row};
use super::stats::times;
use crate::column::Column;
use crate::pages::svg::{Anchor, Ink, Svg, Type};

const WIDTH: f64 = 860.0;
/// Left edge of the bars, px; titles end here.
const LEFT: f64 = 320.0;
const RIGHT: f64 = WIDTH - 70.0;
/// Top of the first row, px.
const TOP: f64 = 74.0;
/// Distance between rows, px.
const ROW: f64 = 36.0;
const BAR: f64 = 12.0;
/// Ratios with a grid line.
const SCALE: [f64; 8] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

/// Colours of the bars, by the agent compared with.
const THEIRS: [(Ink, Column); 2] =
    [(Ink::First, Column::LxdAgent), (Ink::Second, Column::IncusAgent)];

/// Draws the short rows that have a ratio.
#[must_use]
pub fn draw(book: &Book) -> String {
    let has = |row: &&Row| row.short && most(book, row).is_some();
    let rows: Vec<&Row> = rows_of(book).into_iter().filter(has).collect();
    let scale = Scale::for_ratios(rows.iter().filter_map(|row| most(book, row)));
    let count = u32::try_from(rows.len()).expect("a few rows");
    let bottom = ROW.mul_add(f64::from(count), TOP);
    let title = "How many times better mote is";
    let mut svg = Svg::new(WIDTH, bottom + 34.0, title);
    svg.text((16.0, 28.0), Anchor::Start, Type::Head, title);
    legend(&mut svg);
    grid(&mut svg, &scale, bottom);
    let mut top = TOP;
    for row in rows {
        one_row(&mut svg, book, row, &scale, top);
        top += ROW;
    }
    svg.finish()
}

/// Largest ratio of a row.
fn most(book: &Book, row: &Row) -> Option<f64> {
    let ratios = THEIRS.map(|(_, theirs)| book.ratio(row, theirs));
    ratios.into_iter().flatten().max_by(f64::total_cmp)
}

/// Conversion of ratios to pixels.
struct Scale {
    end: f64,
}

impl Scale {
    /// A scale for all these ratios, and for at least 20.
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

fn legend(svg: &mut Svg) {
    for (x, (ink, theirs)) in [LEFT, LEFT + 170.0].into_iter().zip(THEIRS) {
        svg.legend((x, 28.0), ink, &format!("than {}", theirs.title()));
    }
    let x = LEFT + 354.0;
    svg.line(&[(x, 17.0), (x, 31.0)], Ink::Mark);
    svg.text((x + 8.0, 28.0), Anchor::Start, Type::Plain, "goal");
}

fn grid(svg: &mut Svg, scale: &Scale, bottom: f64) {
    for ratio in SCALE.into_iter().filter(|ratio| *ratio <= scale.end) {
        let (x, ink) = (scale.x(ratio), if ratio == 1.0 { Ink::Axis } else { Ink::Grid });
        svg.line(&[(x, TOP - 12.0), (x, bottom)], ink);
        svg.text((x, TOP - 18.0), Anchor::Middle, Type::Small, &format!("{ratio}×"));
    }
}

/// Draws a row. Bars begin at ratio 1 and extend to the right where mote is better.
fn one_row(svg: &mut Svg, book: &Book, row: &Row, scale: &Scale, top: f64) {
    let title = row.title.replace('`', "");
    svg.text((LEFT - 12.0, top + BAR + 4.0), Anchor::End, Type::Plain, &title);
    let one = scale.x(1.0);
    let goal = match row.goal {
        Goal::Times(wanted) => Some(scale.x(wanted)),
        Goal::AtMost(_) | Goal::As(_) | Goal::None => None,
    };
    for (y, (ink, theirs)) in [top, top + BAR + 1.0].into_iter().zip(THEIRS) {
        let Some(ratio) = book.ratio(row, theirs) else { continue };
        let end = scale.x(ratio);
        let label = one.max(end) + 6.0;
        // To the right of the goal's line if it would be on it.
        let label =
            goal.filter(|x| (label - 8.0..label + 36.0).contains(x)).map_or(label, |x| x + 6.0);
        svg.bar((one.min(end), y), ((end - one).abs().max(1.0), BAR), ink);
        svg.text((label, y + BAR - 2.0), Anchor::Start, Type::Small, &times(ratio));
    }
    if let Some(x) = goal {
        svg.line(&[(x, top - 2.0), (x, BAR.mul_add(2.0, top + 3.0))], Ink::Mark);
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
        assert_eq!(svg.matches("class=\"first\"").count(), rows + 1);
        assert_eq!(svg.matches(">15.0×<").count(), svg.matches(">12.0×<").count());
        assert!(svg.contains(">start to the host having seen it answer<"));
        assert_eq!(svg.matches("class=\"mark\"").count(), 1 + 9);
        assert!(svg.ends_with("</svg>\n"));
    }
}
