//! The samples of a run, and why some are missing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::rows::{Goal, Row, all, find};
use crate::Column;
use crate::pages::text::times;

/// In a book's description: the commit that was measured.
pub const COMMIT: &str = "commit of mote";
/// The older commit that was measured too.
pub const BEFORE: &str = "older commit of mote";
pub const CPU: &str = "CPU of the VM";

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub min: f64,
    /// Median: of an even number, the mean of the two in the middle.
    pub median: f64,
    pub max: f64,
}

impl Summary {
    /// The summary of these samples; `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[half]
        } else {
            sorted[half - 1].midpoint(sorted[half])
        };
        Some(Self { min, median, max })
    }
}

/// Measurements of one agent: for each row a value, or the reason why there is none.
pub type Found = Vec<(&'static str, Result<f64, String>)>;

#[derive(Debug, Default, PartialEq)]
pub struct Book {
    /// Description of the machine and the run: name, value.
    pub machine: Vec<(String, String)>,
    samples: BTreeMap<(&'static str, Column), Vec<f64>>,
    misses: BTreeMap<(&'static str, Column), String>,
}

impl Book {
    pub fn on(machine: Vec<(String, String)>) -> Self {
        Self { machine, ..Self::default() }
    }

    /// Returns a value of the description; empty if it is missing.
    pub fn said(&self, name: &str) -> &str {
        let found = self.machine.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }

    pub fn add(&mut self, column: Column, found: Found) {
        for (row, value) in found {
            match value {
                Ok(value) => self.samples.entry((row, column)).or_default().push(value),
                Err(why) => {
                    self.misses.insert((row, column), why);
                }
            }
        }
    }

    pub fn summary(&self, row: &str, column: Column) -> Option<Summary> {
        let found = self.samples.iter().find(|((id, of), _)| *id == row && *of == column);
        found.and_then(|(_, samples)| Summary::of(samples))
    }

    pub fn has(&self, row: &Row) -> bool {
        Column::ALL.iter().any(|column| self.summary(row.id, *column).is_some())
    }

    fn median(&self, row: &str, column: Column) -> Option<f64> {
        self.summary(row, column).map(|summary| summary.median)
    }

    /// Reasons for missing samples, without a full stop.
    pub fn misses(&self) -> impl Iterator<Item = (&'static str, Column, &str)> {
        self.misses.iter().map(|((row, column), why)| (*row, *column, why.as_str()))
    }

    /// Ratio by which mote is better than a Go agent of the same server, or than its older build.
    pub fn ratio(&self, row: &Row, theirs: Column) -> Option<f64> {
        let ours = theirs.pick(Column::MoteLxd, Column::MoteIncus);
        let ratio = row.ratio(self.median(row.id, ours)?, self.median(row.id, theirs)?);
        ratio.is_finite().then_some(ratio)
    }

    /// True if mote reaches the row's goal under each server; `None` without goal or samples.
    pub fn reached(&self, row: &Row) -> Option<bool> {
        let ours = |id: &str| -> Vec<Option<f64>> {
            [Column::MoteLxd, Column::MoteIncus].map(|column| self.median(id, column)).into()
        };
        match row.goal {
            Goal::None => None,
            Goal::Times(wanted) => {
                let known: Vec<f64> =
                    Column::GO.iter().filter_map(|theirs| self.ratio(row, *theirs)).collect();
                (!known.is_empty()).then(|| known.iter().all(|ratio| *ratio >= wanted))
            }
            Goal::As(other) => {
                let pairs = ours(row.id).into_iter().zip(ours(other));
                let known: Vec<(f64, f64)> =
                    pairs.filter_map(|(value, other)| value.zip(other)).collect();
                (!known.is_empty())
                    .then(|| known.iter().all(|(value, other)| *value <= other * 1.05))
            }
        }
    }

    /// Returns the ratio to the other agent's best round, because a busy hour may slow down most
    /// rounds.
    fn least_ratio(&self, row: &Row, theirs: Column) -> Option<f64> {
        let ours = theirs.pick(Column::MoteLxd, Column::MoteIncus);
        let other = self.summary(row.id, theirs)?;
        let ratio = |other| Some(row.ratio(self.median(row.id, ours)?, other));
        Some(ratio(other.min)?.min(ratio(other.max)?)).filter(|ratio| ratio.is_finite())
    }

    /// Returns a line for each ratio that is below this share of the smallest recorded one.
    pub fn below(&self, share: f64, recorded: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for row in all().filter(|row| self.has(row)) {
            for theirs in Column::GO {
                let Some(was) = recorded.least_ratio(row, theirs) else { continue };
                let now = self.ratio(row, theirs);
                if now.is_none_or(|now| now < was * share) {
                    let (now, was) = (now.map_or("none".into(), times), times(was));
                    let beside = theirs.title();
                    lines.push(format!("{}, beside {beside}: {now}, recorded {was}", row.title));
                }
            }
        }
        lines
    }

    pub fn to_json(&self) -> Value {
        let sample = |((row, column), values): (&(&str, Column), &Vec<f64>)| {
            // A double with all its digits may read back differently.
            let values: Vec<f64> = values.iter().map(|value| (value * 1e6).round() / 1e6).collect();
            json!({"row": row, "agent": column.title(), "values": values})
        };
        let miss = |((row, column), why): (&(&str, Column), &String)| json!({"row": row, "agent": column.title(), "why": why});
        json!({
            "machine": self.machine,
            "samples": self.samples.iter().map(sample).collect::<Vec<_>>(),
            "misses": self.misses.iter().map(miss).collect::<Vec<_>>(),
        })
    }

    /// Reads a book from JSON; ignores rows and agents that no longer exist.
    pub fn from_json(json: &Value) -> Self {
        let mut book = Self::default();
        let each = |name: &str| json[name].as_array().cloned().unwrap_or_default();
        let key = |entry: &Value| {
            let row = find(entry["row"].as_str()?)?;
            let column =
                Column::BENCHED.into_iter().find(|column| entry["agent"] == column.title())?;
            Some((row.id, column))
        };
        for entry in each("samples") {
            if let Some(key) = key(&entry) {
                let values = entry["values"].as_array().into_iter().flatten();
                book.samples.insert(key, values.filter_map(Value::as_f64).collect());
            }
        }
        for entry in each("misses") {
            if let (Some(key), Some(why)) = (key(&entry), entry["why"].as_str()) {
                book.misses.insert(key, why.into());
            }
        }
        book.machine = serde_json::from_value(json["machine"].clone()).unwrap_or_default();
        book
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::rows::MEASURED;
    use super::*;

    /// A book in which mote has 2 and the Go agents 30, 24 and 20, in each row of times and sizes.
    pub(in crate::bench) fn book() -> Book {
        let mut book = Book::default();
        for row in &MEASURED {
            for (column, value) in Column::BENCHED.into_iter().zip([2.0, 30.0, 2.0, 24.0, 20.0]) {
                book.add(column, vec![(row.id, Ok(value)), (row.id, Ok(value))]);
            }
        }
        book.add(Column::IncusAgent, vec![("told", Err("404".into()))]);
        book.machine.push(("rounds".into(), "2".into()));
        book
    }

    #[test]
    fn reports_smaller_and_missing_ratios() {
        let recorded = book();
        assert_eq!(book().below(0.6, &recorded), Vec::<String>::new());
        let mut now = book();
        now.add(Column::MoteLxd, vec![("root", Ok(4.0)); 9]);
        now.samples.remove(&("put", Column::IncusAgent));
        let lines = [
            "`GET /`, p50, beside lxd-agent 5.0.2: 7.50×, recorded 15.0×",
            "SFTP, 16 MiB put, beside incus-agent 6.0.4: none, recorded 0.08×",
        ];
        assert_eq!(now.below(0.6, &recorded), lines);
    }
}
