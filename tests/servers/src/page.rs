//! Results for people: on the terminal and as `docs/results/servers.md`.

use std::fmt::Write;

use crate::prelude::*;
use crate::seen::Column;

fn sum(column: &Column) -> String {
    let count = |word| column.rows.iter().filter(|row| row.verdict.word() == word).count();
    ["yes", "no", "not known"].map(|word| format!("{} {word}", count(word))).join(", ")
}

const HEAD: &str = include_str!("head.md");

pub fn write(server: Server, columns: &[Column]) -> Try {
    let path = path();
    let old = fs::read_to_string(&path).unwrap_or_default();
    let mut page = HEAD.to_owned();
    for each in Server::ALL {
        if each == server {
            page += &section(server, columns);
        } else {
            page += part(&old, each).unwrap_or_default();
        }
    }
    fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/servers.md")
}

fn marks(server: Server) -> [String; 2] {
    ["begin", "end"].map(|mark| format!("\n<!-- {}:{mark} -->\n", server.name()))
}

fn part(page: &str, server: Server) -> Option<&str> {
    let [begin, end] = marks(server);
    let from = page.find(&begin)?;
    Some(&page[from..page.find(&end)? + end.len()])
}

fn section(server: Server, columns: &[Column]) -> String {
    let [begin, end] = marks(server);
    let limits: String = limits(server).iter().map(|text| format!("{text}\n")).collect();
    let rows = rows(server, columns, true) + &figures(server, columns);
    format!("{begin}## {}\n\n{limits}{rows}{end}", server.title())
}

/// Returns the runs, the table of the checks, either all or those that were run, and its notes.
pub fn rows(server: Server, columns: &[Column], all: bool) -> String {
    let mut text = String::new();
    for column in columns {
        let runs: BTreeSet<_> = column.rows.iter().map(|row| &row.run).collect();
        let runs: Vec<_> = runs.iter().map(|run| format!("{} ({})", run.run, run.build)).collect();
        let runs = if runs.is_empty() { "none".to_owned() } else { runs.join(", ") };
        let _fits =
            writeln!(text, "- {}: {}. Runs: {runs}.", column.agent.title(server), sum(column));
    }
    let titles: Vec<_> = columns.iter().map(|column| column.agent.title(server)).collect();
    let mut table = Table::new(&REASONS, &titles);
    let mut head = markdown::texts(["check"]);
    for title in &titles {
        head.extend([markdown::texts([*title]), markdown::numbers(["s"])].concat());
    }
    let mut rows = Vec::new();
    for check in checks::of(server).map(|check| check.id()) {
        if !all && columns.iter().all(|column| column.row(&check).is_none()) {
            continue;
        }
        let mut cells = vec![check.clone()];
        for (at, column) in columns.iter().enumerate() {
            let row = column.row(&check);
            let cell = table.cell(at, (server.name(), check.as_str()), row.map(|row| &row.verdict));
            let later = cell == "yes" && row.is_some_and(|row| row.tries > 1);
            let cell = if later { "yes, 2nd try".into() } else { cell };
            cells.extend([cell, row.map_or(String::new(), |row| format!("{:.1}", row.took))]);
        }
        rows.push(cells);
    }
    format!("{text}\n{}{}", markdown::table(&head, rows), table.notes.list())
}

fn figures(server: Server, columns: &[Column]) -> String {
    let mut text = String::new();
    for column in columns {
        let agent = column.agent.title(server);
        let groups = ["connect.", "hotplug."];
        let rows = column.rows.iter();
        for row in rows.filter(|row| groups.iter().any(|group| row.check.starts_with(group))) {
            if let Verdict::Holds(seen) = &row.verdict {
                let _fits = writeln!(text, "- {}, {agent}: {}", row.check, line(seen));
            }
        }
    }
    if text.is_empty() {
        text
    } else {
        format!("\nFigures of `connect` and `hotplug`, by the outer VM's clock:\n\n{text}")
    }
}

static REASONS: LazyLock<Vec<Reason>> = LazyLock::new(|| reasons(include_str!("reasons.txt")));

/// Returns the paragraphs before a server's table: what is not covered, and why.
fn limits(server: Server) -> &'static [&'static str] {
    const OF_ALL: &str = include_str!("not_run.md");
    match server {
        Server::Incus => &[OF_ALL],
        Server::Incus60 => &[OF_ALL, include_str!("not_run_incus_6.md")],
        Server::Lxd => &[OF_ALL, include_str!("not_run_lxd.md")],
    }
}

pub fn find(server: Server, agent: Agent, check: &str) -> Option<&'static Reason> {
    mote_checks::find(&REASONS, server.name(), check, agent.title(server))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen;

    #[test]
    fn each_reason_has_a_check() {
        for reason in REASONS.iter() {
            let all = Server::ALL.into_iter();
            let mut all = all.filter(|server| {
                reason.groups.is_empty() || reason.groups.contains(&server.name())
            });
            let is_known =
                all.any(|server| checks::of(server).any(|check| check.id() == reason.check));
            assert!(is_known, "{}", reason.check);
        }
    }

    #[test]
    fn the_page_matches_the_record() {
        for server in Server::ALL {
            let mut columns = seen::load(server).unwrap();
            let record = fs::read_to_string(seen::path(server)).unwrap_or_default();
            assert_eq!(seen::text(server, &mut columns), Ok(record));
            if std::env::var_os("MOTE_WRITE_DOCS").is_some() {
                write(server, &columns).unwrap();
            }
            let page = fs::read_to_string(path()).unwrap();
            assert_eq!(part(&page, server), Some(section(server, &columns).as_str()));
            assert!(page.starts_with(HEAD));
        }
    }
}
