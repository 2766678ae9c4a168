//! `docs/fleet.svg`: 10,000 agents over time, without jitter and with.

use super::clock::{Micros, SECOND};
use super::load::{SLICE, Slice};
use super::model::{Channel, Plan};
use super::run;
use super::study::Scenario;
use crate::pages::svg::{Anchor, Ink, Panel, Svg, Type, round_up};

const AGENTS: u32 = 10_000;
/// Times shown before and after the moment from which the host works.
const SHOWN: (Micros, Micros) = (4 * SECOND, 24 * SECOND);
/// The jitter, as in the page's tables.
const QUARTER: u64 = 64;
/// Colours without jitter and with it.
const INKS: [Ink; 2] = [Ink::First, Ink::Second];

/// A row of panels: its title, and its value of a slice.
type Row = (&'static str, fn(&Slice) -> f64);

#[expect(clippy::cast_precision_loss, reason = "a picture")]
const ROWS: [Row; 4] = [
    ("CONNECTED, %", |slice| f64::from(slice.connected) * 100.0 / f64::from(AGENTS)),
    ("cores in use", |slice| slice.cpu as f64 / SLICE as f64),
    ("ring reads per second", |slice| (slice.reads * (SECOND / SLICE)) as f64),
    ("calls under way", |slice| slice.calls as f64),
];

/// The picture.
#[must_use]
pub fn picture() -> String {
    let mut svg = Svg::new(900.0, 640.0, "10,000 agents over time, without and with jitter");
    let columns = [
        ("the host was down for 2 s, is back at 0", Scenario::RESTART),
        ("all VMs start at the same moment", Scenario::BOOT),
    ];
    for (x, (what, scenario)) in [60.0, 510.0].into_iter().zip(columns) {
        svg.text((x, 20.0), Anchor::Start, Type::Plain, &format!("10,000 agents: {what}"));
        let without = scenario.plan(AGENTS, Channel::Ring);
        let with = Plan { jitter: QUARTER, ..without.clone() };
        let seen = [without, with].map(|plan| shown(&plan));
        for (y, row) in [60.0, 200.0, 340.0, 480.0].into_iter().zip(ROWS) {
            panel(&mut svg, (x, y), row, &seen);
        }
    }
    let legend = ["no jitter (as shipped)", "with a quarter of jitter"];
    for (x, (name, ink)) in [60.0, 260.0].into_iter().zip(legend.into_iter().zip(INKS)) {
        svg.legend((x, 624.0), ink, name);
    }
    svg.text((880.0, 624.0), Anchor::End, Type::Plain, "seconds");
    svg.finish()
}

/// Slices with their time in seconds, relative to the moment from which the host works.
#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn shown(plan: &Plan) -> Vec<(f64, Slice)> {
    let (well, load) = (plan.well(), run(plan));
    let begin = well.saturating_sub(SHOWN.0);
    let times = (begin..).step_by(usize::try_from(SLICE).unwrap_or(1));
    let time = |when: Micros| (when as f64 - well as f64) / SECOND as f64;
    let slices = load.between(begin, well + SHOWN.1 + SLICE);
    times.map(time).zip(slices.iter().copied()).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn panel(svg: &mut Svg, at: (f64, f64), (title, read): Row, seen: &[Vec<(f64, Slice)>; 2]) {
    let most = seen.iter().flatten().map(|(_, slice)| read(slice)).fold(1.0, f64::max);
    let across = (-(SHOWN.0 as f64) / SECOND as f64, SHOWN.1 as f64 / SECOND as f64);
    let size = (370.0, 90.0);
    let panel = Panel { title, at, size, across, step: 4.0, top: round_up(most) };
    panel.draw(svg);
    for (values, ink) in seen.iter().zip(INKS) {
        let values: Vec<_> = values.iter().map(|(time, slice)| (*time, read(slice))).collect();
        panel.plot(svg, &values, ink);
    }
}
