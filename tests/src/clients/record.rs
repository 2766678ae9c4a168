//! The recorded results, `docs/results/clients.json`: a line for each case, with what was seen in
//! each column. A run replaces the results of its clients and agents only.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CLIENTS, Client, NOT_HERE, Place, Seen, Subject, page};
use crate::pages::file;

const NAME: &str = "results/clients.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub client: String,
    pub case: String,
    /// By the column's title: `ok` or something else.
    pub seen: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default)]
pub struct Record(pub Vec<Row>);

impl Record {
    pub fn load() -> Self {
        Self(serde_json::from_str(&file::committed(NAME)).expect("docs/results/clients.json"))
    }

    /// Writes it if `MOTE_WRITE_DOCS` is set.
    pub fn store(&self) {
        let rows = self.0.iter().map(|row| serde_json::to_string(row).expect("JSON"));
        file::write(NAME, &format!("[\n{}\n]\n", rows.collect::<Vec<_>>().join(",\n")));
    }

    /// Replaces the results of these clients. Those of mote in a VM are in the column of mote on
    /// sockets, so only clients that run in the VM itself are kept.
    pub fn keep(&mut self, subject: Subject, seen: &Seen, clients: &[&'static Client]) {
        let is_kept =
            |client: &&Client| Subject::COLUMNS.contains(&subject) || client.place == Place::Inside;
        for client in clients.iter().filter(|client| is_kept(client) && client.speaks_to(subject)) {
            for row in self.0.iter_mut().filter(|row| row.client == client.heading) {
                row.seen.remove(subject.column.title());
            }
            for ((_, case), what) in seen.iter().filter(|((of, _), _)| *of == client.heading) {
                let (title, what) = (subject.column.title().to_owned(), what.clone());
                match self.row(client.heading, case) {
                    Some(row) => drop(row.seen.insert(title, what)),
                    None => self.0.push(Row {
                        client: client.heading.to_owned(),
                        case: case.clone(),
                        seen: [(title, what)].into(),
                    }),
                }
            }
        }
        self.0.retain(|row| !row.seen.is_empty());
        self.0.sort_by_key(|row| CLIENTS.iter().position(|client| client.heading == row.client));
    }

    fn row(&mut self, client: &str, case: &str) -> Option<&mut Row> {
        self.0.iter_mut().find(|row| row.client == client && row.case == case)
    }

    /// Differences between a run of these clients and the record, as the page shows both.
    pub fn differences(&self, columns: &[(Subject, Seen)], clients: &[&Client]) -> Vec<String> {
        let mut found = Vec::new();
        for (subject, seen) in columns {
            let (name, title) = (subject.name(), subject.column.title());
            for client in clients.iter().filter(|client| client.speaks_to(*subject)) {
                let heading = client.heading;
                let own = || seen.iter().filter(|((of, _), _)| *of == heading);
                let rows = self.0.iter().filter(|row| row.client == heading);
                let known: BTreeMap<_, _> =
                    rows.filter_map(|row| Some((&row.case, row.seen.get(title)?))).collect();
                let shown = |case: &str, what: &str| page::meaning(heading, case, title, what);
                for ((_, case), what) in own().filter(|(_, what)| !what.starts_with(NOT_HERE)) {
                    let is = shown(case, what);
                    let should = known.get(case).map(|what| shown(case, what));
                    if should.as_ref() != Some(&is) {
                        let should = should.unwrap_or("nothing".into());
                        found.push(format!("{name}: {heading}: {case}: {is}; recorded: {should}"));
                    }
                }
                // A case that cannot be run here may replace others of its client.
                if own().any(|(_, what)| what.starts_with(NOT_HERE)) {
                    continue;
                }
                for case in known.keys().filter(|case| own().all(|((_, of), _)| of != **case)) {
                    found.push(format!("{name}: {heading}: {case}: not seen, but recorded"));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Column;

    const SUBJECT: Subject = Subject::on_sockets(Column::MoteIncus);

    fn seen(cases: &[(usize, &str, &str)]) -> Seen {
        let case = |(client, case, what): &(usize, &str, &str)| {
            ((CLIENTS[*client].heading, (*case).to_owned()), (*what).to_owned())
        };
        cases.iter().map(case).collect()
    }

    fn record(cases: &[(usize, &str, &str)]) -> Record {
        let mut record = Record::default();
        record.keep(SUBJECT, &seen(cases), &[&CLIENTS[0], &CLIENTS[2]]);
        record
    }

    #[test]
    fn a_repeated_client_replaces_only_its_own_cases() {
        let mut all = record(&[(0, "gone", "ok"), (2, "stays", "ok")]);
        all.keep(SUBJECT, &seen(&[(0, "new", "late")]), &[&CLIENTS[0]]);
        assert_eq!(all.0, record(&[(0, "new", "late"), (2, "stays", "ok")]).0);
    }

    #[test]
    fn a_record_matches_only_its_own_results() {
        for what in ["ok", "it is late"] {
            let record = record(&[(0, "a case | of it", what)]);
            let differing = |cases: &[(usize, &str, &str)]| {
                record.differences(&[(SUBJECT, seen(cases))], &[&CLIENTS[0]]).len()
            };
            assert_eq!(differing(&[(0, "a case | of it", what)]), 0);
            assert_eq!(differing(&[(0, "a case | of it", "another")]), 1);
            assert_eq!(differing(&[(0, "the program is there", "not here: no device")]), 0);
            assert_eq!(differing(&[]), 1);
        }
    }
}
