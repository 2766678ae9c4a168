//! The recorded results: `tests/servers/seen/SERVER.jsonl`, one JSON object per line. A full run in
//! emulation is long, so results of partial runs are combined: each row has its run.

use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub check: String,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub took: f64,
    pub tries: usize,
    #[serde(flatten)]
    pub run: Run,
}

/// A run of some checks, in one or more outer VMs: the date and time of its start, and the commit
/// that mote was built from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    pub run: String,
    pub build: String,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    agent: Agent,
    #[serde(flatten)]
    row: Row,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub agent: Agent,
    /// Results in the order of the checks.
    pub rows: Vec<Row>,
    /// The run to which new results belong.
    run: Run,
}

/// Number of times that a failing check is run. It counts as failed at the second failure, because
/// emulation may lose an interrupt.
pub const TRIES: usize = 2;

impl Column {
    pub fn new(agent: Agent, run: Run) -> Self {
        Self { agent, rows: Vec::new(), run }
    }

    pub fn row(&self, check: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.check == check)
    }

    pub fn is_settled(&self, check: &str) -> bool {
        let settled = |row: &Row| matches!(row.verdict, Verdict::Holds(_)) || row.tries >= TRIES;
        self.row(check).is_some_and(settled)
    }

    pub fn note(&mut self, check: &str, verdict: Verdict, took: f64) {
        let tries = self.row(check).map_or(0, |row| row.tries) + 1;
        self.rows.retain(|row| row.check != check);
        let (check, run) = (check.to_owned(), self.run.clone());
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
    }
}

pub fn load(server: Server) -> Try<Vec<Column>> {
    let text = fs::read_to_string(path(server)).unwrap_or_default();
    let column = |agent| Column::new(agent, Run::default());
    let mut columns: Vec<_> = Agent::ALL.into_iter().map(column).collect();
    for line in text.lines() {
        let invalid = |error| format!("in the record: {line}: {error}");
        let Entry { agent, row } = serde_json::from_str(line).map_err(invalid)?;
        let its = columns.iter_mut().filter(|column| column.agent == agent);
        its.for_each(|column| column.rows.push(row.clone()));
    }
    Ok(columns)
}

/// Stores the rows in the checks' order.
pub fn store(server: Server, columns: &mut [Column]) -> Try {
    let (path, text) = (path(server), text(server, columns)?);
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

pub fn text(server: Server, columns: &mut [Column]) -> Try<String> {
    let order: Vec<_> = checks::of(server).map(|check| check.id()).collect();
    let mut text = String::new();
    for Column { agent, rows, .. } in columns {
        rows.retain(|row| order.contains(&row.check));
        rows.sort_by_key(|row| order.iter().position(|id| *id == row.check));
        for row in rows.iter().cloned() {
            // A value sorts its members, so that diffs are small.
            let line = serde_json::to_value(Entry { agent: *agent, row });
            text += &format!("{}\n", line.map_err(|error| error.to_string())?);
        }
    }
    Ok(text)
}

pub fn path(server: Server) -> PathBuf {
    let name = format!("seen/{}.jsonl", server.name());
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(run: &str) -> Column {
        Column::new(Agent::Mote, Run { run: run.into(), build: "abc".into() })
    }

    #[test]
    fn repeats_only_failures() {
        let mut column = column("r");
        let holds = || Verdict::Holds(String::new());
        let fails = || Verdict::Fails("no".into());
        assert!(!column.is_settled("a.b"));
        column.note("a.b", fails(), 1.0);
        assert!(!column.is_settled("a.b"));
        column.note("a.b", holds(), 1.0);
        assert!(column.is_settled("a.b"));
        assert_eq!(column.row("a.b").map(|row| row.tries), Some(2));
        column.note("a.c", fails(), 1.0);
        column.note("a.c", fails(), 1.0);
        assert!(column.is_settled("a.c"));
    }

    #[test]
    fn a_record_reads_back() {
        for line in [
            r#"{"agent":"own","build":"x","check":"a.b","holds":"x\ny","run":"r","took":0.5,"tries":1}"#,
            r#"{"agent":"mote","build":"x","check":"a.b","fails":"no","run":"r","took":1.0,"tries":2}"#,
        ] {
            let entry: Entry = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_value(entry).unwrap().to_string(), line);
        }
        assert!(serde_json::from_str::<Entry>(r#"{"agent":"own","check":"exec.uname"}"#).is_err());
    }

    #[test]
    fn later_runs_replace_only_their_own_results() {
        let (mut first, mut later) = (column("1"), column("2"));
        first.note("exec.uname", Verdict::Fails("no".into()), 1.0);
        first.note("exec.signals", Verdict::Holds("seen".into()), 1.0);
        later.note("exec.uname", Verdict::Holds("now".into()), 1.0);
        later.note("exec.signals", Verdict::Unknown("lost".into()), 0.0);
        first.take_over(&later);
        let verdict = |check: &str| first.row(check).map(|row| row.verdict.clone());
        assert_eq!(verdict("exec.uname"), Some(Verdict::Holds("now".into())));
        assert_eq!(verdict("exec.signals"), Some(Verdict::Holds("seen".into())));
        later.note("exec.signals", Verdict::Holds("again".into()), 1.0);
        first.take_over(&later);
        assert!(first.rows.iter().all(|row| row.run.run == "2"), "nothing is left of the first");
    }
}
