//! The recorded results: `tests/servers/seen/SERVER.jsonl`, one JSON object per line. A full run in
//! emulation is long, so results of partial runs are combined: each row names its run, and each run
//! has its date, mote's build and the state of its outer VMs.

use std::path::PathBuf;

use mote_checks::Verdict;
use serde_json::{Value, json};

use crate::checks;
use crate::outer::Machine;
use crate::server::{Agent, Server};

/// A check with an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub check: String,
    pub verdict: Verdict,
    pub took: f64,
    /// Number of runs.
    pub tries: usize,
    pub run: String,
}

/// A run of some checks, in one or more outer VMs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Date and time of its start, which is also its name.
    pub at: String,
    /// The commit that mote was built from.
    pub build: String,
    pub machine: Machine,
    pub boots: u64,
    /// The number of them that were lost.
    pub lost: u64,
    /// Their total run time, seconds.
    pub seconds: u64,
}

/// All checks with an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub agent: Agent,
    /// In the checks' order.
    pub rows: Vec<Row>,
    pub runs: Vec<Run>,
}

/// Runs of a failing check. The first failure is reported, two count, because emulation may lose an
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

    /// Sorts rows in the checks' order and removes runs without rows.
    fn tidy(&mut self, server: Server) {
        let order: Vec<_> = checks::of(server).map(|check| check.id()).collect();
        self.rows.retain(|row| order.contains(&row.check));
        self.rows.sort_by_key(|row| order.iter().position(|id| *id == row.check));
        self.runs.retain(|run| self.rows.iter().any(|row| row.run == run.at));
    }
}

/// Returns the recorded results of a server, for both agents.
pub fn load(server: Server) -> Result<Vec<Column>, String> {
    let text = std::fs::read_to_string(path(server)).unwrap_or_default();
    let mut columns: Vec<_> = Agent::ALL.into_iter().map(Column::new).collect();
    for line in text.lines() {
        take(&mut columns, line).ok_or_else(|| format!("in the record: {line}"))?;
    }
    Ok(columns)
}

pub fn store(server: Server, columns: &mut [Column]) -> Result<(), String> {
    let mut text = String::new();
    for column in columns {
        column.tidy(server);
        for line in lines(column) {
            text += &format!("{line}\n");
        }
    }
    let path = path(server);
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn path(server: Server) -> PathBuf {
    let name = format!("seen/{}.jsonl", server.name());
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn lines(column: &Column) -> Vec<Value> {
    let agent = column.agent.name();
    let run = |run: &Run| {
        json!({"agent": agent, "at": run.at, "build": run.build, "machine": run.machine.name(),
            "boots": run.boots, "lost": run.lost, "seconds": run.seconds})
    };
    let row = |row: &Row| {
        let text = row.verdict.text();
        let kind = match &row.verdict {
            Verdict::Holds(_) => "holds",
            Verdict::Differs(_) | Verdict::Fails(_) => "fails",
            Verdict::NotRun(_) | Verdict::Unknown(_) => "unknown",
        };
        json!({"agent": agent, "check": row.check, kind: text, "took": row.took,
            "tries": row.tries, "run": row.run})
    };
    column.runs.iter().map(run).chain(column.rows.iter().map(row)).collect()
}

/// Adds a line of the record to its column. Returns `None` if it is invalid.
fn take(columns: &mut [Column], line: &str) -> Option<()> {
    let value: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    let agent = Agent::named(&text("agent")?)?;
    let column = columns.iter_mut().find(|column| column.agent == agent)?;
    if let Some(at) = text("at") {
        column.runs.push(Run {
            at,
            build: text("build")?,
            machine: Machine::named(&text("machine")?)?,
            boots: value["boots"].as_u64()?,
            lost: value["lost"].as_u64()?,
            seconds: value["seconds"].as_u64()?,
        });
        return Some(());
    }
    let verdict = text("holds")
        .map(Verdict::Holds)
        .or_else(|| text("fails").map(Verdict::Fails))
        .or_else(|| text("unknown").map(Verdict::Unknown))?;
    column.rows.push(Row {
        check: text("check")?,
        verdict,
        took: value["took"].as_f64()?,
        tries: usize::try_from(value["tries"].as_u64()?).ok()?,
        run: text("run")?,
    });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(at: &str) -> Run {
        let machine = Machine::Emulated;
        Run { at: at.into(), build: "abc".into(), machine, boots: 2, lost: 1, seconds: 99 }
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
        let mut column = Column::new(Agent::Own);
        column.runs.push(run("2026-01-01 10:00"));
        column.note("2026-01-01 10:00", "exec.uname", Verdict::Holds("a\nb".into()), 0.5);
        column.note("2026-01-01 10:00", "exec.signals", Verdict::Fails("no".into()), 1.0);
        column.note("2026-01-01 10:00", "state.top", Verdict::Unknown("lost".into()), 0.0);
        let mut back = [Column::new(Agent::Mote), Column::new(Agent::Own)];
        for line in lines(&column) {
            assert_eq!(take(&mut back, &line.to_string()), Some(()), "{line}");
        }
        assert_eq!(back[1], column);
        assert_eq!(take(&mut back, r#"{"agent":"own","check":"exec.uname"}"#), None);
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
        column.tidy(Server::Incus);
        assert!(column.runs.iter().all(|run| run.at == "2"), "nothing is left of the first run");
    }
}
