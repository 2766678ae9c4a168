//! The recorded results: `tests/servers/seen/SERVER.jsonl`, one JSON object per line. A full run in
//! emulation is long, so results of partial runs are combined: each row names its run, and each run
//! has its date and mote's build.

use std::path::PathBuf;

use mote_checks::Verdict;
use serde::{Deserialize, Serialize};

use crate::checks;
use crate::server::{Agent, Server};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub check: String,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub took: f64,
    pub tries: usize,
    pub run: String,
}

/// A run of some checks, in one or more outer VMs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Date and time of its start, which is also its name.
    pub at: String,
    /// The commit that mote was built from.
    pub build: String,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    agent: Agent,
    #[serde(flatten)]
    what: What,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum What {
    Run(Run),
    Row(Row),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub agent: Agent,
    /// In the checks' order.
    pub rows: Vec<Row>,
    pub runs: Vec<Run>,
}

/// Runs of a failing check. A check fails only at the second failure, because emulation may lose an
/// interrupt.
pub const TRIES: usize = 2;

impl Column {
    pub fn new(agent: Agent) -> Self {
        Self { agent, rows: Vec::new(), runs: Vec::new() }
    }

    pub fn row(&self, check: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.check == check)
    }

    /// Returns whether no other run is needed.
    pub fn is_settled(&self, check: &str) -> bool {
        let settled = |row: &Row| matches!(row.verdict, Verdict::Holds(_)) || row.tries >= TRIES;
        self.row(check).is_some_and(settled)
    }

    pub fn note(&mut self, run: &str, check: &str, verdict: Verdict, took: f64) {
        let tries = self.row(check).map_or(0, |row| row.tries) + 1;
        self.rows.retain(|row| row.check != check);
        let (check, run) = (check.to_owned(), run.to_owned());
        self.rows.push(Row { check, verdict, took, tries, run });
    }

    /// Adds the results of a later run. A missing result does not replace an earlier one.
    pub fn take_over(&mut self, later: &Self) {
        for row in &later.rows {
            let nothing = matches!(row.verdict, Verdict::Unknown(_));
            if nothing && self.row(&row.check).is_some() {
                continue;
            }
            self.rows.retain(|known| known.check != row.check);
            self.rows.push(row.clone());
        }
        self.runs.retain(|run| later.runs.iter().all(|same| same.at != run.at));
        self.runs.extend(later.runs.iter().cloned());
    }
}

pub fn load(server: Server) -> Result<Vec<Column>, String> {
    let text = std::fs::read_to_string(path(server)).unwrap_or_default();
    let mut columns: Vec<_> = Agent::ALL.into_iter().map(Column::new).collect();
    for line in text.lines() {
        let invalid = |error| format!("in the record: {line}: {error}");
        let Entry { agent, what } = serde_json::from_str(line).map_err(invalid)?;
        for column in columns.iter_mut().filter(|column| column.agent == agent) {
            match &what {
                What::Run(run) => column.runs.push(run.clone()),
                What::Row(row) => column.rows.push(row.clone()),
            }
        }
    }
    Ok(columns)
}

pub fn store(server: Server, columns: &mut [Column]) -> Result<(), String> {
    let mut text = String::new();
    for Column { agent, rows, runs } in columns {
        tidy(server, rows, runs);
        let runs = runs.iter().cloned().map(What::Run);
        for what in runs.chain(rows.iter().cloned().map(What::Row)) {
            // A value sorts its members, so that diffs are small.
            let line = serde_json::to_value(Entry { agent: *agent, what });
            text += &format!("{}\n", line.map_err(|error| error.to_string())?);
        }
    }
    let path = path(server);
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Sorts rows in the checks' order and removes runs without rows.
fn tidy(server: Server, rows: &mut Vec<Row>, runs: &mut Vec<Run>) {
    let order: Vec<_> = checks::of(server).map(|check| check.id()).collect();
    rows.retain(|row| order.contains(&row.check));
    rows.sort_by_key(|row| order.iter().position(|id| *id == row.check));
    runs.retain(|run| rows.iter().any(|row| row.run == run.at));
}

fn path(server: Server) -> PathBuf {
    let name = format!("seen/{}.jsonl", server.name());
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(at: &str) -> Run {
        Run { at: at.into(), build: "abc".into() }
    }

    #[test]
    fn repeats_only_failures() {
        let mut column = Column::new(Agent::Mote);
        let holds = || Verdict::Holds(String::new());
        let fails = || Verdict::Fails("no".into());
        assert!(!column.is_settled("a.b"));
        column.note("r", "a.b", fails(), 1.0);
        assert!(!column.is_settled("a.b"));
        column.note("r", "a.b", holds(), 1.0);
        assert!(column.is_settled("a.b"));
        assert_eq!(column.row("a.b").map(|row| row.tries), Some(2));
        column.note("r", "a.c", fails(), 1.0);
        column.note("r", "a.c", fails(), 1.0);
        assert!(column.is_settled("a.c"));
    }

    #[test]
    fn a_record_reads_back() {
        for line in [
            r#"{"agent":"own","at":"2026-01-01 10:00","build":"abc"}"#,
            r#"{"agent":"own","check":"a.b","holds":"x\ny","run":"r","took":0.5,"tries":1}"#,
            r#"{"agent":"mote","check":"a.b","fails":"no","run":"r","took":1.0,"tries":2}"#,
        ] {
            let entry: Entry = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_value(entry).unwrap().to_string(), line);
        }
        assert!(serde_json::from_str::<Entry>(r#"{"agent":"own","check":"exec.uname"}"#).is_err());
    }

    #[test]
    fn later_runs_replace_only_their_own_results() {
        let mut column = Column::new(Agent::Mote);
        column.runs.push(run("1"));
        column.note("1", "exec.uname", Verdict::Fails("no".into()), 1.0);
        column.note("1", "exec.signals", Verdict::Holds("seen".into()), 1.0);
        let mut later = Column::new(Agent::Mote);
        later.runs.push(run("2"));
        later.note("2", "exec.uname", Verdict::Holds("now".into()), 1.0);
        later.note("2", "exec.signals", Verdict::Unknown("lost".into()), 0.0);
        column.take_over(&later);
        let verdict = |check: &str| column.row(check).map(|row| row.verdict.clone());
        assert_eq!(verdict("exec.uname"), Some(Verdict::Holds("now".into())));
        assert_eq!(verdict("exec.signals"), Some(Verdict::Holds("seen".into())));
        later.note("2", "exec.signals", Verdict::Holds("again".into()), 1.0);
        column.take_over(&later);
        tidy(Server::Incus, &mut column.rows, &mut column.runs);
        assert!(column.runs.iter().all(|run| run.at == "2"), "nothing is left of the first run");
    }
}
