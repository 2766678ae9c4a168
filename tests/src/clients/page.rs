//! Renders `docs/results/clients.md`.

use mote_checks::{Reason, Table, Verdict, find, line, reasons};

use super::world::{self, World};
use super::{CLIENTS, Client, Place, Subject};
use crate::prelude::*;

pub const NAME: &str = "results/clients.md";

#[derive(Clone, Debug)]
pub struct Page {
    pub text: String,
    /// Cells without a listed reason, and reasons without a cell.
    pub unexplained: Vec<String>,
}

const HEAD: &str = include_str!("head.md");

pub fn render(record: &Record) -> Page {
    let titles = Subject::COLUMNS.map(|subject| subject.column.title());
    let mut table = Table::new(&REASONS, &titles);
    let mut body = String::new();
    for Client { heading, about, seconds, .. } in CLIENTS.iter() {
        body += &format!("\n## {heading}\n\n{about} About {seconds} s.\n\n{}", table.head("case"));
        for row in record.0.iter().filter(|row| row.client == *heading) {
            let seen = titles.map(|title| row.seen.get(title).map(|what| verdict(what)));
            body += &table.row(&[&line(&row.case)], (heading, &row.case), &seen);
        }
    }
    let sums = table.sums(&["yes", "differs", "sometimes", "not run"]);
    let notes = table.notes.list();
    let text = format!("{HEAD}{sums}{body}\n## Notes\n{notes}\n## Not run\n\n{NOT_RUN}");
    Page { text, unexplained: table.unexplained(true) }
}

fn verdict(seen: &str) -> Verdict {
    match seen.strip_prefix(NOT_HERE) {
        Some(why) => Verdict::NotRun(why.into()),
        None if seen == "ok" => Verdict::Holds(String::new()),
        None => Verdict::Differs(seen.into()),
    }
}

pub(super) fn meaning(heading: &str, case: &str, title: &str, seen: &str) -> String {
    match Table::meaning(find(&REASONS, heading, case, title), &verdict(seen)) {
        (word, None) => word.to_owned(),
        (word, Some(note)) => format!("{word}: {note}"),
    }
}

pub fn explained(heading: &str, case: &str, title: &str) -> bool {
    find(&REASONS, heading, case, title).is_some()
}

pub static REASONS: LazyLock<Vec<Reason>> = LazyLock::new(|| reasons(include_str!("reasons.txt")));

/// Clients that could not be run, and the reason.
const NOT_RUN: &str = include_str!("not_run.md");

/// Results by heading and case, in the order of the output: `ok` or something else.
pub type Seen = Vec<((&'static str, String), String)>;

/// Prefix of a case that this machine cannot run; the reason follows.
pub const NOT_HERE: &str = "not here: ";

// The recorded results, `docs/results/clients.json`: a line for each case, with what was seen in
// each column. A run replaces the results of its clients and agents only.

const RECORD: &str = "results/clients.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub client: String,
    pub case: String,
    /// Results by column title: `ok` or something else.
    pub seen: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default)]
pub struct Record(pub Vec<Row>);

impl Record {
    pub fn load() -> Self {
        Self(serde_json::from_str(&pages::committed(RECORD)).expect("docs/results/clients.json"))
    }

    pub fn store(&self) {
        let rows = self.0.iter().map(|row| serde_json::to_string(row).expect("JSON"));
        pages::write(RECORD, &format!("[\n{}\n]\n", rows.collect::<Vec<_>>().join(",\n")));
    }

    /// Replaces the recorded results of these clients. mote in a VM shares a column with mote on
    /// sockets, so of its results only those of clients that run inside the VM are recorded.
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
                let shown = |case: &str, what: &str| meaning(heading, case, title, what);
                for ((_, case), what) in own().filter(|(_, what)| !what.starts_with(NOT_HERE)) {
                    let is = shown(case, what);
                    let should = known.get(case).map(|what| shown(case, what));
                    if should.as_ref() != Some(&is) {
                        let should = should.unwrap_or("nothing".into());
                        found.push(format!("{name}: {heading}: {case}: {is}; recorded: {should}"));
                    }
                }
                // Such a case may stand for several other cases of the client.
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

pub fn run(subject: Subject, clients: &[&'static Client]) -> Seen {
    let begun = Instant::now();
    let mut clients = clients.iter().filter(|client| client.speaks_to(subject)).peekable();
    if clients.peek().is_none() {
        return Seen::new();
    }
    let mut world = World::new(subject);
    println!("{}: up after {:.1} s", subject.name(), begun.elapsed().as_secs_f64());
    let mut seen = Seen::new();
    for client in clients {
        let begun = Instant::now();
        let mut lines = cases(&mut world, client, 1);
        let mut end = world.ended();
        let unexplained = lines.iter().filter(|(case, seen)| {
            seen != "ok"
                && !seen.starts_with(NOT_HERE)
                && !explained(client.heading, case, subject.column.title())
        });
        let unexplained: Vec<_> = unexplained.collect();
        // A busy machine may exceed a deadline, so a failure counts only if it repeats.
        if !unexplained.is_empty() && end.is_none() {
            println!("{}: {}: once more after {unexplained:?}", subject.name(), client.heading);
            lines = cases(&mut world, client, 2);
            end = world.ended();
        }
        if end.is_some() {
            // The next client uses a new agent.
            drop(world);
            world = World::new(subject);
        }
        lines.push(("the agent lives on".into(), end.unwrap_or("ok".into())));
        let bad = lines.iter().filter(|(_, seen)| seen != "ok").count();
        println!(
            "{}: {}: {} cases, {bad} not ok, {:.1} s",
            subject.name(),
            client.heading,
            lines.len(),
            begun.elapsed().as_secs_f64()
        );
        for (case, what) in &lines {
            if what != "ok" {
                println!("    {case}: {what}");
            }
        }
        seen.extend(lines.into_iter().map(|(case, what)| ((client.heading, case), what)));
    }
    println!("{}: done after {:.1} s", subject.name(), begun.elapsed().as_secs_f64());
    seen
}

/// Runs these clients on several agents. Agents without a VM run in parallel, because they mostly
/// wait: one for the host's clients and one for the guest's.
pub fn run_all(all: &[Subject], clients: &[&'static Client]) -> Vec<(Subject, Seen)> {
    let (light, heavy): (Vec<Subject>, Vec<Subject>) =
        all.iter().copied().partition(|subject| !subject.in_vm);
    let halves: (Vec<_>, Vec<_>) =
        clients.iter().copied().partition(|client| client.place != Place::Guest);
    let mut seen: Vec<_> = thread::scope(|scope| {
        let start = |one| [&halves.0, &halves.1].map(|half| scope.spawn(move || run(one, half)));
        let runs: Vec<_> = light.into_iter().map(|one| (one, start(one))).collect();
        let ended = runs.into_iter().map(|(subject, runs)| {
            (subject, runs.into_iter().flat_map(|run| run.join().expect("a run")).collect())
        });
        ended.collect()
    });
    seen.extend(heavy.into_iter().map(|subject| (subject, run(subject, clients))));
    // Sort the results in the requested order.
    let at = |subject: &Subject| all.iter().position(|one| one == subject);
    seen.sort_by_key(|(subject, _)| at(subject));
    seen
}

/// Runs a client and returns its cases in order, with one more if the client failed.
fn cases(world: &mut World, client: &Client, attempt: u32) -> Vec<(String, String)> {
    if let Some(missing) = world::missing(client) {
        return vec![("the program is there".into(), format!("{NOT_HERE}{missing}"))];
    }
    let (lines, end) = match client.place {
        Place::Inside => {
            let (code, lines) = world.inside(client);
            (lines, (code != 0).then(|| format!("exit status: {code}")))
        }
        Place::Guest | Place::Host | Place::Machine => on_this_machine(world, client, attempt),
    };
    let mut cases: Vec<_> = lines
        .lines()
        .map(|line| line.split_once(": ").unwrap_or((line, "no `: ` in it")))
        .map(|(case, seen)| (case.to_owned(), seen.replace('\t', " ")))
        .collect();
    if let Some(end) = end {
        cases.push(("the program ends well".into(), end));
    }
    cases
}

fn on_this_machine(world: &World, client: &Client, attempt: u32) -> (String, Option<String>) {
    let output =
        world.command(client, attempt).stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", client.heading));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (lines, errors) = (text(&output.stdout), text(&output.stderr));
    if !errors.is_empty() {
        eprint!("{}: {errors}", client.heading);
    }
    (lines, (!output.status.success()).then(|| output.status.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_record_and_each_difference_has_a_reason() {
        let page = render(&Record::load());
        pages::write(NAME, &page.text);
        pages::hold(NAME, &page.text);
        assert_eq!(page.unexplained, Vec::<String>::new());
    }

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
