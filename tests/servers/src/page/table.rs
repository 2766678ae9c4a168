//! Results for people: on the terminal and as `docs/results/servers.md`.

use std::fmt::Write;
use std::path::PathBuf;

use mote_checks::{Table, Verdict, line};

use crate::checks;
use crate::outer::Machine;
use crate::page::reasons;
use crate::page::seen::{Column, Row, Run};
use crate::server::Server;

/// The table on a terminal.
pub fn text(server: Server, columns: &[Column]) -> String {
    let mut text = format!("{:<40}", server.title());
    for column in columns {
        let _fits = write!(text, "{:>16} {:>8}", column.agent.title(server), "s");
    }
    text.push('\n');
    for check in columns.iter().take(1).flat_map(|column| &column.rows).map(|row| &row.check) {
        let _fits = write!(text, "{check:<40}");
        for row in columns.iter().map(|column| column.row(check)) {
            let (word, took) = row.map_or(("-", 0.0), |row| (word(row), row.took));
            let _fits = write!(text, "{word:>16} {took:8.1}");
        }
        text.push('\n');
    }
    for column in columns {
        let _fits = writeln!(text, "{}: {}", column.agent.title(server), sum(column));
        for run in &column.runs {
            let _fits = writeln!(text, "  {}", life(run));
        }
    }
    text
}

/// The word of a cell whose first try failed.
const LATER: &str = "yes, 2nd try";

fn word(row: &Row) -> &'static str {
    match (&row.verdict, row.tries) {
        (Verdict::Holds(_), 2..) => LATER,
        (verdict, _) => verdict.word(),
    }
}

/// Counts the verdicts.
fn sum(column: &Column) -> String {
    let count = |word| column.rows.iter().filter(|row| row.verdict.word() == word).count();
    ["yes", "no", "not known"].map(|word| format!("{} {word}", count(word))).join(", ")
}

fn life(run: &Run) -> String {
    let machines = match (run.boots, run.lost) {
        (1, 0) => "one outer VM".to_owned(),
        (1, _) => "one outer VM, lost".to_owned(),
        (boots, lost) => format!("{boots} outer VMs, {lost} of them lost"),
    };
    let (minutes, seconds) = (run.seconds / 60, run.seconds % 60);
    let how = match run.machine {
        Machine::Emulated => "emulated",
        Machine::Kvm => "KVM",
    };
    format!("{} ({}): {machines}, {minutes} min {seconds} s, {how}", run.at, run.build)
}

const HEAD: &str = "\
# Real servers

mote and each server's own agent, driven by Debian's unmodified Incus and LXD through `incus` and `lxc`.
`MOTE_WRITE_DOCS=1 scripts/real-server incus` (or `incus-6.0`, `lxd`) writes this page; the checks are in `tests/servers/src/checks/`.

The server runs in a VM that QEMU emulates, and its instances run in VMs within that VM. Times are seconds of the outer VM's
clock, which runs at an eighth of real speed: they show what takes long, and do not measure an agent. The emulation sometimes
resets the outer VM, so the results of several runs add up; each agent has a list of its runs (date, commit).

**yes**: the check passes. **2nd try**: it failed once, then passed. **no**: it fails; the note has the reason. **not known**: the
outer VM was lost each time. **-**: not run.
";

/// Writes a server's part of the page and keeps the other's.
pub fn write(server: Server, columns: &[Column]) -> Result<(), String> {
    let path = path();
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    let mut page = HEAD.to_owned();
    for each in Server::ALL {
        if each == server {
            page += &section(server, columns);
        } else {
            page += part(&old, each).unwrap_or_default();
        }
    }
    std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))
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

/// A server's part of the page.
fn section(server: Server, columns: &[Column]) -> String {
    let [begin, end] = marks(server);
    let mut text = format!("{begin}## {}\n\n", server.title());
    for paragraph in reasons::limits(server) {
        let _fits = write!(text, "{paragraph}\n\n");
    }
    for column in columns {
        let runs: Vec<_> =
            column.runs.iter().map(|run| format!("{} ({})", run.at, run.build)).collect();
        let runs = if runs.is_empty() { "none".to_owned() } else { runs.join(", ") };
        let _fits =
            writeln!(text, "- {}: {}. Runs: {runs}.", column.agent.title(server), sum(column));
    }
    let titles: Vec<_> = columns.iter().map(|column| column.agent.title(server)).collect();
    let mut table = Table::new(reasons::REASONS, &titles);
    let _fits = write!(text, "\n| check | {} |", titles.join(" | s | ") + " | s");
    let _fits = write!(text, "\n| --- |{}\n", " --- | --: |".repeat(columns.len()));
    for check in checks::of(server).map(|check| check.id()) {
        let _fits = write!(text, "| {check} |");
        for (at, column) in columns.iter().enumerate() {
            let row = column.row(&check);
            let cell = table.cell(at, (server.name(), check.as_str()), row.map(|row| &row.verdict));
            let later = row.filter(|row| word(row) == LATER);
            let cell = later.map_or(cell, |_| LATER.into());
            let took = row.map_or(String::new(), |row| format!(" {:.1}", row.took));
            let _fits = write!(text, " {cell} |{took} |");
        }
        text.push('\n');
    }
    text + &table.notes.list() + &figures(server, columns) + &end
}

/// Lists what the passed checks of `hotplug` measured: a yes does not say how soon.
fn figures(server: Server, columns: &[Column]) -> String {
    let mut text = String::new();
    for column in columns {
        let agent = column.agent.title(server);
        for row in column.rows.iter().filter(|row| row.check.starts_with("hotplug.")) {
            if let Verdict::Holds(seen) = &row.verdict {
                let _fits = writeln!(text, "- {}, {agent}: {}", row.check, line(seen));
            }
        }
    }
    if text.is_empty() {
        text
    } else {
        format!("\nFigures of `hotplug`, by the outer VM's clock:\n\n{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::seen;
    use crate::server::Agent;

    fn column(agent: Agent, check: &str, verdict: Verdict) -> Column {
        let mut column = Column::new(agent);
        column.note("2026-01-01 10:00", check, verdict, 1.5);
        column
    }

    #[test]
    fn a_page_keeps_the_other_servers_part() {
        let mote = column(Agent::Mote, "exec.uname", Verdict::Holds("seen".into()));
        let own = column(Agent::Own, "exec.uname", Verdict::Fails("a | b\nc".into()));
        let incus = section(Server::Incus, &[mote.clone(), own]);
        assert!(incus.contains("| exec.uname | yes | 1.5 | no 1 | 1.5 |"), "{incus}");
        assert!(incus.contains("| exec.signals | - | | - | |"), "{incus}");
        assert!(incus.contains("A \\| b c."), "{incus}");
        let lxd = section(Server::Lxd, &[mote]);
        let page = format!("{HEAD}{incus}{lxd}");
        assert_eq!(part(&page, Server::Incus), Some(incus.as_str()));
        assert_eq!(part(&page, Server::Lxd), Some(lxd.as_str()));
        assert_eq!(part(HEAD, Server::Lxd), None);
    }

    #[test]
    fn the_page_shows_reaction_times() {
        let mote = column(Agent::Mote, "hotplug.limits_cpu", Verdict::Holds("in 1 s\nor 2".into()));
        let own = column(Agent::Own, "hotplug.limits_cpu", Verdict::Fails("never".into()));
        let page = section(Server::Incus, &[mote, own]);
        assert!(page.contains("\n- hotplug.limits_cpu, mote: in 1 s or 2\n"), "{page}");
        assert!(!page.contains("- hotplug.limits_cpu, incus-agent"), "{page}");
    }

    /// `MOTE_WRITE_DOCS=1` writes it again.
    #[test]
    fn the_page_says_what_is_on_record() {
        for server in Server::ALL {
            let columns = seen::load(server).unwrap();
            if std::env::var_os("MOTE_WRITE_DOCS").is_some() {
                write(server, &columns).unwrap();
            }
            let page = std::fs::read_to_string(path()).unwrap();
            assert_eq!(part(&page, server), Some(section(server, &columns).as_str()));
            assert!(page.starts_with(HEAD));
        }
    }
}
